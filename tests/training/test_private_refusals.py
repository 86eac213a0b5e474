"""Claim: a training loop that leaves the accounted mechanism is stopped, and told why."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import (  # noqa: E402
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
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
)

from mmcc import MmccError, strategies  # noqa: E402
from mmcc.sampling import BallsInBins, Poisson, RandomAllocation, Shuffle  # noqa: E402
from mmcc.training import RunError, make_private  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

# ---------------------------------------------------------------- the loop


@pytest.fixture
def run():
    return private()


def refused(match: str):
    return pytest.raises(RunError, match=match)


def test_own_loader(run):
    module, optimizer, _ = run
    before = parameters(module)
    backward(module, data()[:9])
    with refused("has no batch: gradients must come from the loader"):
        optimizer.step()
    assert all(map(torch.equal, before, parameters(module)))
    assert optimizer.position == 0


def test_own_batches_of_the_right_size_after_the_loop_ended(run):
    module, optimizer, loader = run
    batch = next(batches := iter(loader))
    batches.close()
    backward(module, batch)
    with refused("has no batch"):
        optimizer.step()


def test_skipped_batch(run):
    module, optimizer, loader = run
    batches = iter(loader)
    next(batches)
    with refused(r"a batch was skipped: this one is of step 1 or later"):
        backward(module, next(batches))
    assert optimizer.position == 0


def test_gradients_without_noise_are_not_left_in_the_parameters():
    module, optimizer, loader = private(sampling=Poisson(1.0), physical_batch_size=10)
    batches = iter(loader)
    backward(module, next(batches))
    optimizer.step()
    assert all(p.grad is None for p in module.parameters())


def test_skipped_chunk():
    module, optimizer, loader = private(sampling=Poisson(1.0), physical_batch_size=10)
    batches = iter(loader)
    backward(module, next(batches))
    optimizer.step()
    next(batches)
    with refused("a batch was skipped: chunk 1 of step 0 was handed out"):
        next(batches)


def test_batch_used_twice(run):
    module, optimizer, loader = run
    for batch in loader:
        backward(module, batch)
        optimizer.step()
        optimizer.zero_grad()
        backward(module, batch)
        with refused("each of its batches is used once"):
            optimizer.step()
        break
    assert optimizer.position == 1


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_example_missing(mode):
    module, optimizer, loader = private(sampling=Poisson(1.0), grad_sample_mode=mode)
    inputs, labels = next(batches := iter(loader))
    backward(module, (inputs[1:], labels[1:]))
    with refused(r"handed out 30 examples, but the module was called 1 times, with \[29\]"):
        optimizer.step()
    batches.close()


def test_more_examples_than_were_drawn():
    module, optimizer, loader = private()
    for batch in loader:
        doubled = [torch.cat([part, part]) for part in batch]
        backward(module, doubled)
        with refused("handed out 10 examples, but the module was called 1 times"):
            optimizer.step()
        break


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_no_backward_pass(mode):
    """Gradients of the step before are gone: they cannot count a second time."""
    module, optimizer, loader = private(sampling=Poisson(1.0), grad_sample_mode=mode)
    batches = iter(loader)
    backward(module, next(batches))
    optimizer.step()
    next(batches)
    with refused("called 0 times"):
        optimizer.step()
    batches = iter(loader)
    module(next(batches)[0])
    with refused(r"no parameter has per-example gradients: call loss.backward\(\) before"):
        optimizer.step()


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_module_not_in_training_mode(mode):
    """The backward pass is refused, and a step without one has no gradients."""
    module, optimizer, loader = private(grad_sample_mode=mode)
    module.eval()
    for batch in loader:
        with refused(r"\(Linear\) has gradients of a pass that was not made in training mode"):
            backward(module, batch)
        with refused("in training mode"):
            optimizer.step()
        break


def test_running_past_the_end(run):
    module, optimizer, loader = run
    train(module, optimizer, loader)
    before = parameters(module)
    with refused(f"all {STEPS} steps that were accounted for are done"):
        next(iter(loader))
    backward(module, data()[:9])
    with refused("would not be covered by the guarantee"):
        optimizer.step()
    assert all(map(torch.equal, before, parameters(module)))


def test_two_loops_at_once(run):
    *_, loader = run
    first, second = iter(loader), iter(loader)
    next(second)
    with refused("Use one loop at a time"):
        next(first)


def test_loop_that_was_left_goes_on_where_the_run_is(run):
    module, optimizer, loader = run
    whole, whole_optimizer, whole_loader = private()
    train(whole, whole_optimizer, whole_loader)
    while not optimizer.finished:
        for place, batch in enumerate(loader):
            optimizer.zero_grad()
            backward(module, batch)
            if place == 2:
                break  # looked at, not used: it comes again
            optimizer.step()
    assert all(map(torch.equal, parameters(module), parameters(whole)))


def test_logical_batch_left_half_done_starts_again():
    settings = {"sampling": Poisson(1.0), "physical_batch_size": 10}
    module, optimizer, loader = private(**settings)
    whole, whole_optimizer, whole_loader = private(**settings)
    train(whole, whole_optimizer, whole_loader)
    for place, batch in enumerate(loader):
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
        if place == 4:
            break  # two of three chunks of step 1
    assert optimizer.position == 1
    optimizer.zero_grad()
    train(module, optimizer, loader)
    assert all(map(torch.equal, parameters(module), parameters(whole)))


def test_interrupted_inner_step_does_not_repeat_its_noise(run, monkeypatch):
    """The noise is out: the step is done, whatever the optimizer inside made of it."""
    module, optimizer, loader = run

    def fails(*_):
        raise KeyboardInterrupt

    batches = iter(loader)
    backward(module, next(batches))
    monkeypatch.setattr(optimizer.original_optimizer, "step", fails)
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert optimizer.position == 1


def test_frozen_parameter(run):
    module, optimizer, loader = run
    next(iter(module.parameters())).requires_grad = False
    for batch in loader:
        backward(module, batch)
        with refused("trainable parameters are not those"):
            optimizer.step()
        break


@pytest.mark.parametrize("clipping", ["flat", "ghost"])
@pytest.mark.parametrize("how", ["needed in the pass", "by hand"])
def test_gradient_of_a_frozen_parameter(clipping, how):
    """The optimizer inside would step by it, unclipped and without noise."""
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3)).double()
    frozen = module[0].weight.requires_grad_(False)
    before = frozen.detach().clone()
    private_module, optimizer, loader = private(module, clipping=clipping, sampling=Poisson(1.0))
    with refused(r"'0.weight' that this run does not train|cannot be computed for layer '0'"):
        for batch in loader:
            frozen.requires_grad_(how != "by hand")
            backward(private_module, batch)
            frozen.requires_grad_(False)
            if how == "by hand":
                frozen.grad = torch.ones_like(frozen)
            optimizer.step()
    assert torch.equal(frozen, before)


def test_a_tensor_that_was_added_to_a_group(run):
    module, optimizer, loader = run
    tensor = torch.zeros(3)
    optimizer.param_groups[0]["params"].append(tensor)
    tensor.grad = torch.ones(3)
    batch = next(iter(loader))
    backward(module, batch)
    with refused("a tensor that this run does not train"):
        optimizer.step()
    assert not tensor.any()


@pytest.mark.parametrize("clipping", ["flat", "ghost"])
def test_a_module_of_a_run_is_not_pickled(clipping):
    module = linear()
    private_module, _, loader = private(module, clipping=clipping)
    for held in (module, private_module):
        with refused("cannot be pickled, as the keys of its noise"):
            torch.save(held, io.BytesIO())
    averaged, copied = copy.deepcopy(private_module).eval(), copy.deepcopy(module)
    batch = next(iter(loader))
    assert torch.equal(averaged(batch[0]), private_module.eval()(batch[0]))
    with refused("was called for gradients"):
        backward(copied, batch)


def test_a_loader_of_a_run_is_not_pickled(run):
    loader = run[2]
    for copied in (lambda: torch.save(loader, io.BytesIO()), lambda: copy.deepcopy(loader)):
        with refused("cannot be pickled or copied, as the keys of its noise"):
            copied()


@pytest.mark.parametrize("clipping", ["flat", "ghost"])
def test_a_layer_that_is_called_by_name(clipping):
    class ByName(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(input=x)

    module, _, loader = private(ByName().double(), clipping=clipping, sampling=Poisson(1.0))
    with refused(r"gets its tensor by name.*call layer\(x\), not layer\(input=x\)"):
        backward(module, next(iter(loader)))


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_a_layer_that_cannot_be_copied():
    module = nn.utils.weight_norm(nn.Linear(4, 3)).double()
    with pytest.raises(MmccError, match=r"cannot be copied.*parametrizations"):
        private(module, clipping="ghost")


def test_parameters_added_later(run):
    _, optimizer, _ = run
    with refused("parameters are fixed"):
        optimizer.add_param_group({"params": list(linear().parameters())})


def test_opacus_batch_memory_manager(run):
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    _, optimizer, loader = run
    with (
        BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=2, optimizer=optimizer
        ) as cut,
        refused("physical_batch_size"),
    ):
        next(iter(cut))


class Counting(nn.Module):
    """Keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs):
        self.seen += inputs.sum().item()
        return inputs


def test_buffer_that_the_data_changes():
    module = nn.Sequential(Counting(), linear())
    module, optimizer, loader = private(module)
    for batch in loader:
        backward(module, batch)
        with refused("a buffer of the module changed"):
            optimizer.step()
        break


# ---------------------------------------------------------------- what make_private is given


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sigma": 1.0, "epsilon": 1.0}, "give sigma or epsilon, got both"),
        ({"sigma": None}, "give sigma or epsilon, got neither"),
        ({"delta": None}, "delta is missing"),
        ({"delta": 1.0}, "delta must lie"),
        ({"sigma": 0.0}, "sigma must lie"),
        ({"sigma": float("nan")}, "sigma must lie"),
        ({"epsilon": -1.0}, "epsilon must lie"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must lie"),
        ({"max_grad_norm": float("inf")}, "max_grad_norm must lie"),
        ({"max_grad_norm": 0.0, "epsilon": 1.0}, "max_grad_norm must lie"),
        ({"strategy": np.eye(3)}, "strategy must come from mmcc.strategies"),
        ({"sampling": 3}, "sampling must be one of"),
        ({"sampling": "poisson"}, "does not say how long the run is: give epochs"),
        ({"sampling": BallsInBins(3)}, "7 steps are not a whole number of epochs of 3 steps"),
        ({"sampling": Shuffle(3)}, "7 steps are not a whole number of epochs of 3 steps"),
        ({"sampling": Shuffle(), "stop_after": 3}, "change what one pass means"),
        ({"sampling": BallsInBins(7), "stop_after": 3}, "not a whole number of epochs"),
        ({"sampling": RandomAllocation(7), "stop_after": 3}, "not a whole number of epochs"),
        ({"sampling": Shuffle(), "method": "projection"}, "proves nothing for training"),
        ({"stop_after": 8}, "stop_after must lie between 1 and 7"),
        ({"stop_after": 0}, "stop_after must lie between 1 and 7"),
        ({"steps_per_epoch": 0}, "steps_per_epoch must lie"),
        ({"physical_batch_size": 0}, "physical_batch_size must lie"),
        ({"loss_reduction": "max"}, "unknown loss_reduction"),
        ({"grad_sample_mode": "ghost_fsdp"}, "unknown grad_sample_mode.*did you mean 'ghost'"),
        ({"grad_sample_mode": "no_op"}, "unknown grad_sample_mode"),
        ({"generator": "mersenne"}, "unknown generator"),
        ({"method": "tigth"}, "unknown method 'tigth'; did you mean 'tight'"),
        ({"method": ["tight"]}, "unknown method"),
        ({"ledger": 3, "data_name": "survey"}, "ledger is a file or a Ledger, got 3"),
        ({"ledger": "runs.jsonl", "data_name": 3}, "data_name is the name of a data set, got 3"),
        ({"decoder": "honaker"}, "decoder='honaker' is for binary trees"),
        (
            {"strategy": strategies.binary_tree(7), "decoder": "honaker-full"},
            "releases of later steps",
        ),
        ({"strategy": strategies.dense(np.eye(7)[::-1], adaptive=False)}, "fixed in advance"),
        ({"strategy": strategies.dense(np.kron(np.eye(7), [[1.0], [1.0]]))}, "not square"),
    ],
)
def test_settings(options, match):
    with pytest.raises(MmccError, match=match) as caught:
        private(**options)
    assert str(caught.value).count(". ") <= 1


def test_loader_with_another_batch_size():
    for size in (8, 10, 1):
        with pytest.raises(MmccError, match=rf"batch_size={size}\. .*\(9 examples on average\)"):
            private(dataset=DataLoader(data(), batch_size=size))
    for shuffle in (False, True):
        module, optimizer, loader = private(
            dataset=DataLoader(data(), batch_size=9, shuffle=shuffle)
        )
        train(module, optimizer, loader)


def test_loader_with_batches_of_its_own():
    chosen = WeightedRandomSampler([1.0] * EXAMPLES, EXAMPLES)
    twice = RandomSampler(data(), replacement=True)
    fewer = RandomSampler(data(), num_samples=9)
    for sampler in (chosen, twice, fewer):
        with pytest.raises(MmccError, match="a sampler of its own"):
            private(dataset=DataLoader(data(), batch_size=9, sampler=sampler))
    batches = BatchSampler(RandomSampler(data()), 9, drop_last=False)
    with pytest.raises(MmccError, match="batch_size=None"):
        private(dataset=DataLoader(data(), batch_sampler=batches))
    with pytest.raises(MmccError, match="a sampler of its own"):
        private(dataset=DataLoader(data(), batch_size=None))
    with pytest.raises(MmccError, match="drop_last=True"):
        private(dataset=DataLoader(data(), batch_size=9, drop_last=True))


def test_a_generator_that_is_a_tensor():
    with pytest.raises(MmccError, match="unknown generator tensor"):
        private(generator=torch.tensor([1, 2]))


def test_data_without_a_length():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(data())

    for stream in (Stream(), DataLoader(Stream()), iter([]), torch.tensor(3.0)):
        with pytest.raises(MmccError, match=r"is not a map-style data set|has no length"):
            private(dataset=stream)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(FEATURES),
        nn.BatchNorm1d(FEATURES, affine=False),
        nn.BatchNorm1d(FEATURES, affine=False, track_running_stats=False),
    ],
)
def test_batch_norm(layer):
    with pytest.raises(MmccError, match="mixes the examples of a batch"):
        private(nn.Sequential(layer, linear()))


def test_modules_that_opacus_refuses():
    with pytest.raises(MmccError, match="Opacus cannot train layer '0'"):
        private(nn.Sequential(nn.LSTM(FEATURES, 3), nn.Linear(3, 3)))
    with pytest.raises(MmccError, match="training mode"):
        private(linear().eval())

    class Shifted(nn.Linear):
        def __init__(self) -> None:
            super().__init__(FEATURES, 3)
            self.register_buffer("shift", torch.zeros(3))

    with pytest.raises(MmccError, match="trainable layer with buffers") as caught:
        private(Shifted())
    assert "\n" not in str(caught.value)


def test_module_and_optimizer_that_do_not_belong_together():
    with pytest.raises(MmccError, match="parameters that are not the module's"):
        make_private(
            linear(),
            torch.optim.SGD(linear().parameters(), lr=0.1),
            data(),
            strategy=strategies.identity(3),
            sampling=Poisson(0.3),
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
        )
    module, *_ = private()
    for again in (module, module._module):
        with pytest.raises(MmccError, match="private already"):
            private(again)


def test_less_than_half_precision():
    with pytest.raises(MmccError, match="float8_e4m3fn, which has no gradients"):
        private(linear().to(torch.float8_e4m3fn))


def test_nothing_to_train():
    module = linear().requires_grad_(False)
    with pytest.raises(MmccError, match="no parameter that is trained"):
        private(module)
