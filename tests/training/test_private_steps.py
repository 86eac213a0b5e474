"""Claim: a step is clip, sum, noise C^-1 z, public divisor: nothing more and nothing less."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import (  # noqa: E402
    CLASSES,
    EXAMPLES,
    FEATURES,
    STEPS,
    backward,
    data,
    linear,
    parameters,
    private,
    train,
)
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import (  # noqa: E402
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
    Shuffle,
)
from mmcc.strategies._decoders import decoder_matrix  # noqa: E402
from mmcc.training import NoiseStream, Participants  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

SIZE = CLASSES * (FEATURES + 1)
STRATEGIES = [
    strategies.identity(STEPS),
    strategies.toeplitz([1.0, 0.6, 0.3], STEPS),
    strategies.blt(STEPS, decay=[0.9, 0.4], scale=[0.3, 0.2]),
    strategies.binary_tree(STEPS),
]


def fresh_noise(strategy, seed: int, size: int) -> np.ndarray:
    """z, one row for each row of C, from the generator itself."""
    stream = NoiseStream(strategy, 1.0, (size,), seed)
    return np.array([stream.fresh(row) for row in range(strategy.rows)])


def example_gradients(
    weight: np.ndarray, bias: np.ndarray, inputs: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """Gradients of cross-entropy for a linear model, written out: one row for each example."""
    scores = inputs @ weight.T + bias
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    errors = chances - np.eye(CLASSES)[labels]
    outer = errors[:, :, None] * inputs[:, None, :]
    return np.concatenate([outer.reshape(len(inputs), -1), errors], axis=1)


def recomputed(strategy, scheme, *, sigma, clip, rate, seed, decoder=None, summed=False):
    """All steps in numpy, with the noise from the dense decoder."""
    module = linear()
    weight, bias = (p.detach().numpy().copy() for p in module.parameters())
    inputs, labels = (tensor.numpy() for tensor in data().tensors)
    noise = sigma * decoder_matrix(strategy, decoder) @ fresh_noise(strategy, seed, SIZE)
    who = Participants(scheme, strategy.steps, EXAMPLES, seed)
    divisor = 1.0 if summed else who.expected
    for step in range(strategy.steps):
        members = who.at(step)
        gradients = example_gradients(weight, bias, inputs[members], labels[members])
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients * np.minimum(1.0, clip / norms)
        update = rate * (clipped.sum(axis=0) + clip * noise[step]) / divisor
        weight -= update[: CLASSES * FEATURES].reshape(weight.shape)
        bias -= update[CLASSES * FEATURES :]
    return weight, bias


@pytest.mark.parametrize("physical", [None, 4])
@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_parameters_equal_a_dense_recomputation(strategy, mode, physical):
    settings = {"sigma": 0.7, "rate": 0.5, "seed": 5}
    module, optimizer, loader = private(
        strategy=strategy,
        max_grad_norm=0.4,
        grad_sample_mode=mode,
        physical_batch_size=physical,
        **settings,
    )
    train(module, optimizer, loader)
    expected = recomputed(strategy, Poisson(0.3), clip=0.4, **settings)
    for found, truth in zip(parameters(module), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), truth, rtol=1e-5, atol=1e-5)
    assert optimizer.position == STEPS
    assert optimizer.finished


@pytest.mark.parametrize(
    ("scheme", "steps"),
    [
        (CyclicPoisson(0.8, 3), 7),
        (MinSeparation(0.6, 3), 7),
        (BallsInBins(4), 8),
        (RandomAllocation(4, 2), 8),
        (Shuffle(4), 8),
        (Shuffle(), 7),
    ],
    ids=repr,
)
def test_every_scheme_trains_on_its_own_batches(scheme, steps):
    strategy = strategies.toeplitz([1.0, 0.5], steps)
    settings = {"sigma": 0.7, "rate": 0.5, "seed": 6}
    module, optimizer, loader = private(
        strategy=strategy, sampling=scheme, max_grad_norm=0.4, **settings
    )
    train(module, optimizer, loader)
    expected = recomputed(strategy, scheme, clip=0.4, **settings)
    for found, truth in zip(parameters(module), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("decoder", ["online", "honaker"])
def test_tree_is_decoded_as_asked(decoder):
    tree = strategies.binary_tree(STEPS)
    settings = {"sigma": 0.7, "rate": 0.5, "seed": 5}
    module, optimizer, loader = private(
        strategy=tree, max_grad_norm=0.4, decoder=decoder, **settings
    )
    train(module, optimizer, loader)
    expected = recomputed(tree, Poisson(0.3), clip=0.4, decoder=decoder, **settings)
    for found, truth in zip(parameters(module), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_summed_loss_is_not_divided(mode):
    settings = {"sigma": 0.7, "rate": 0.1, "seed": 5}
    identity = strategies.identity(STEPS)
    module, optimizer, loader = private(
        strategy=identity,
        max_grad_norm=0.4,
        loss_reduction="sum",
        grad_sample_mode=mode,
        **settings,
    )
    train(module, optimizer, loader, reduction="sum")
    expected = recomputed(identity, Poisson(0.3), clip=0.4, summed=True, **settings)
    for found, truth in zip(parameters(module), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), truth, rtol=1e-5, atol=1e-5)


def network() -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()


@pytest.mark.parametrize("physical", [None, 7])
@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_without_noise_clipping_and_sampling_it_is_plain_gradient_descent(mode, physical):
    module, optimizer, loader = private(
        network(),
        sampling=Poisson(1.0),
        sigma=1e-18,
        max_grad_norm=1e6,
        momentum=0.9,
        grad_sample_mode=mode,
        physical_batch_size=physical,
    )
    train(module, optimizer, loader)
    plain = network()
    descent = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.9)
    for _ in range(STEPS):
        descent.zero_grad()
        backward(plain, data().tensors)
        descent.step()
    for found, truth in zip(parameters(module), parameters(plain), strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_empty_batches_release_noise_alone(mode):
    """Participation so rare that every batch is empty; the noise is added all the same."""
    strategy = strategies.toeplitz([1.0, 0.6, 0.3], STEPS)
    module, optimizer, loader = private(
        strategy=strategy, sampling=Poisson(1e-6), sigma=2.0, rate=1e-6, grad_sample_mode=mode
    )
    sizes = []
    for batch in loader:
        sizes.append(tuple(map(len, batch)))
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
    assert sizes == [(0, 0)] * STEPS
    noise = 2.0 * decoder_matrix(strategy) @ fresh_noise(strategy, 11, SIZE)
    total = noise.sum(axis=0) / (EXAMPLES * 1e-6) * 1e-6
    moved = [q - p for p, q in zip(parameters(module), parameters(linear()), strict=True)]
    found = np.concatenate([tensor.numpy().ravel() for tensor in moved])
    np.testing.assert_allclose(found, total, rtol=1e-9)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_convolutions_and_norms_do_with_batches_that_are_empty_now_and_then(mode):
    """Without noise and with clipping that does nothing: gradient descent on whoever came."""

    def network() -> nn.Module:
        torch.manual_seed(2)
        layers = nn.Conv1d(1, 4, 2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten()
        return nn.Sequential(nn.Unflatten(1, (1, 4)), *layers, nn.Linear(12, CLASSES)).double()

    scheme, steps = Poisson(0.03), 30
    module, optimizer, loader = private(
        network(),
        strategy=strategies.identity(steps),
        sampling=scheme,
        sigma=1e-18,
        max_grad_norm=1e6,
        rate=0.1,
        grad_sample_mode=mode,
    )
    train(module, optimizer, loader)
    plain = network()
    descent = torch.optim.SGD(plain.parameters(), lr=0.1)
    who = Participants(scheme, steps, EXAMPLES, 11)
    sizes = [who.at(step).size for step in range(steps)]
    assert 5 < sizes.count(0) < 25
    for step in range(steps):
        descent.zero_grad()
        inputs, labels = data()[who.at(step).tolist()]
        loss = nn.functional.cross_entropy(plain(inputs), labels, reduction="sum")
        (loss / (EXAMPLES * 0.03)).backward()
        descent.step()
    for found, truth in zip(parameters(module), parameters(plain), strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-12)


def test_empty_batch_needs_no_backward_pass():
    _, optimizer, loader = private(sampling=Poisson(1e-6))
    for inputs, _ in loader:
        assert len(inputs) == 0
        optimizer.step()
    assert optimizer.finished


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e200])
def test_example_without_a_finite_gradient_contributes_nothing(value, mode):
    """Else it would be seen that it took part, whatever the noise."""
    inputs, labels = data().tensors
    broken = inputs.clone()
    broken[4] = value
    results = []
    for dataset in (TensorDataset(broken, labels), TensorDataset(inputs, labels)):
        module, optimizer, loader = private(
            dataset=dataset,
            strategy=strategies.identity(1),
            sampling=Poisson(1.0),
            grad_sample_mode=mode,
        )
        for batch in loader:
            backward(module, batch)
            optimizer.step()
        results.append(np.concatenate([p.numpy().ravel() for p in parameters(module)]))
    assert np.isfinite(results[0]).all()
    weight, bias = (p.detach().numpy() for p in linear().parameters())
    gradient = example_gradients(weight, bias, inputs[4:5].numpy(), labels[4:5].numpy())[0]
    clipped = gradient * min(1.0, 1.0 / np.linalg.norm(gradient))
    np.testing.assert_allclose(results[0] - results[1], 0.5 * clipped / EXAMPLES, atol=1e-6)


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_evaluation_between_steps_disturbs_nothing(mode):
    plain = private(network(), grad_sample_mode=mode)
    train(*plain)
    module, optimizer, loader = private(network(), grad_sample_mode=mode)
    for batch in loader:
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
        module.eval()
        with torch.no_grad():
            assert module(data().tensors[0]).shape == (EXAMPLES, CLASSES)
        module.train()
    assert all(map(torch.equal, parameters(module), parameters(plain[0])))


def test_learning_rate_schedule_and_closure():
    """Rates that fall, set from outside, give what the same rates give by hand."""
    found = []
    for scheduled in (True, False):
        module, optimizer, loader = private(rate=0.5)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) if scheduled else None
        for batch in loader:

            def closure(module=module, batch=batch):
                loss = nn.functional.cross_entropy(module(batch[0]), batch[1])
                loss.backward()
                return loss

            optimizer.zero_grad()
            assert optimizer.step(closure).item() > 0
            if schedule is not None:
                schedule.step()
            else:
                optimizer.param_groups[0]["lr"] *= 0.5
        found.append(parameters(module))
    assert all(map(torch.equal, *found))


def test_module_comes_back_plain():
    module, optimizer, loader = private(network())
    train(module, optimizer, loader)
    plain = module.to_standard_module()
    assert list(plain.state_dict()) == list(network().state_dict())
    plain(data().tensors[0]).sum().backward()


def test_different_seeds_give_different_noise_and_none_is_never_the_same():
    found = []
    for seed in (1, 2, None, None):
        module, optimizer, loader = private(sampling=Poisson(1.0), seed=seed)
        train(module, optimizer, loader)
        found.append(parameters(module)[0])
    for i, first in enumerate(found):
        assert not any(torch.equal(first, other) for other in found[i + 1 :])


@pytest.mark.parametrize("generator", [None, "device", "philox"])
def test_noise_made_again_trains_the_same_model(generator):
    options = {"strategy": strategies.banded_inverse(7, 3), "generator": generator}
    kept, again = private(**options), private(**options, memory="regenerate")
    for module, optimizer, loader in (kept, again):
        train(module, optimizer, loader)
    assert all(map(torch.equal, parameters(kept[0]), parameters(again[0])))
    assert again[1].run.noise.memory == 1
    assert again[1].run.noise.generator == (generator or "device")


def test_strategies_whose_noise_cannot_be_made_again_are_refused():
    with pytest.raises(MmccError, match=r"memory='regenerate' needs noise that is a short sum"):
        private(strategy=strategies.blt(7, 2), memory="regenerate")
