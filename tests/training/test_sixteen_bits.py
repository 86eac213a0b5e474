"""Claim: parameters in 16 bits have norms, sums, noise and steps in single precision.

What is rounded to 16 bits is what was released already, and nothing before it.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import CLASSES, EXAMPLES, FEATURES, STEPS, data, private  # noqa: E402
from oracles.clipping import alone, clipped_sum  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from mmcc import strategies  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import (  # noqa: E402
    CheckpointError,
    TorchNoiseStream,
    load_checkpoint,
    save_checkpoint,
)
from mmcc.training._clipping import STABILISER  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
MODES = ["hooks", "functorch", "ew", "ghost"]
SHORT = [torch.bfloat16, torch.float16]
EVERYBODY = {"sampling": Poisson(1.0)}


def network(dtype=torch.bfloat16) -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES)).to(dtype)


def short_data(dtype=torch.bfloat16) -> TensorDataset:
    inputs, labels = data().tensors
    return TensorDataset(inputs.to(dtype), labels)


def run_with(dtype=torch.bfloat16, module=None, **options):
    module = network(dtype) if module is None else module
    return private(module, short_data(dtype), **options)


def steps(run, count=None):
    module, optimizer, loader = run
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), labels).backward()
        optimizer.step()
        if optimizer.position == count:
            return


def masters(optimizer) -> list[torch.Tensor]:
    return [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]


def check_rounded(optimizer, module) -> None:
    for master, p in zip(masters(optimizer), module.parameters(), strict=True):
        assert master.dtype == torch.float32
        assert torch.equal(master.to(p.dtype), p)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_released_gradients_are_those_of_the_examples(mode, dtype):
    module, optimizer, loader = run_with(
        dtype, grad_sample_mode=mode, sigma=1e-9, max_grad_norm=0.3, **EVERYBODY
    )
    plain = network(torch.float32)
    plain.load_state_dict({k: v.float() for k, v in module._module.state_dict().items()})
    inputs, labels = data().tensors
    rows = alone(
        lambda m, b: nn.functional.cross_entropy(m(b["x"]), b["labels"], reduction="none"),
        plain,
        {"x": inputs.float(), "labels": labels},
    )
    truth = clipped_sum(rows, 0.3, STABILISER) / EXAMPLES
    batches = iter(loader)
    x, y = next(batches)
    nn.functional.cross_entropy(module(x), y).backward()
    optimizer.step()
    found = torch.cat([p.grad.flatten() for p in optimizer.param_groups[0]["params"]])
    assert found.dtype == torch.float32
    assert (found - truth).norm() < 2e-2 * truth.norm()
    check_rounded(optimizer, module)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_the_noise_is_that_of_single_precision(dtype):
    """Nobody takes part: masters move by the noise alone, number by number, without rounding it."""
    strategy = strategies.blt(STEPS, decay=[0.9, 0.4], scale=[0.3, 0.2])
    chance = 1e-6
    module, optimizer, loader = run_with(
        dtype, strategy=strategy, sampling=Poisson(chance), sigma=2.0, rate=chance
    )
    begun = masters(optimizer)
    for _ in loader:
        optimizer.step()
    stream = TorchNoiseStream(strategy, 2.0, begun, 11)
    expected = begun
    for noise in stream:
        moved = (chance * z / (EXAMPLES * chance) for z in noise)
        expected = [p - step for p, step in zip(expected, moved, strict=True)]
    for found, truth in zip(masters(optimizer), expected, strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-6, atol=1e-7)
    check_rounded(optimizer, module)


@pytest.mark.parametrize("mode", MODES)
def test_many_examples_are_added_up_in_single_precision(mode):
    """In bfloat16 a sum of ones ends at 256."""
    count = 1000
    same = TensorDataset(torch.ones(count, 1).bfloat16(), torch.zeros(count))
    layer = nn.Linear(1, 1, bias=False).bfloat16()
    module, optimizer, loader = private(
        layer, same, grad_sample_mode=mode, sigma=1e-9, loss_reduction="sum", **EVERYBODY
    )
    batches = iter(loader)
    inputs, _ = next(batches)
    module(inputs).float().sum().backward()
    optimizer.step()
    (released,) = optimizer.param_groups[0]["params"]
    assert float(released.grad) == pytest.approx(count, rel=1e-5)


def test_small_steps_are_not_lost():
    """A parameter of 1 in bfloat16 would not notice steps of 1e-3."""
    module = nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.ones_(module.weight)
    ones = TensorDataset(torch.ones(EXAMPLES, 1).bfloat16(), torch.zeros(EXAMPLES))
    private_module, optimizer, loader = private(
        module, ones, rate=1e-3, sigma=1e-9, strategy=strategies.identity(40), **EVERYBODY
    )
    for inputs, _ in loader:
        private_module(inputs).float().mean().backward()
        optimizer.step()
    assert float(module.weight.detach()) == pytest.approx(1 - 40e-3, abs=4e-3)
    assert float(masters(optimizer)[0]) == pytest.approx(1 - 40e-3, abs=1e-6)


@pytest.mark.parametrize("clipping", ["flat", "ghost"])
def test_gradients_that_overflow_count_as_zero(clipping):
    inputs = torch.full((EXAMPLES, FEATURES), 1.0)
    inputs[3] = 6e4  # times 60, its gradient is more than float16 holds
    labels = torch.zeros(EXAMPLES)
    module, optimizer, loader = private(
        nn.Linear(FEATURES, 1, bias=False).half(),
        TensorDataset(inputs.half(), labels),
        sigma=1e-9,
        clipping=clipping,
        loss_reduction="sum",
        **EVERYBODY,
    )
    batches = iter(loader)
    x, _ = next(batches)
    (60 * module(x).float()).sum().backward()
    optimizer.step()
    (released,) = optimizer.param_groups[0]["params"]
    truth = (EXAMPLES - (clipping == "flat")) / FEATURES**0.5
    assert released.grad.flatten().tolist() == pytest.approx([truth] * FEATURES, rel=1e-3)


def test_parameters_of_several_types():
    module = network()
    module[0].float()

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = module

        def forward(self, x):
            return self.body[2](torch.tanh(self.body[0](x.float())).bfloat16())

    run = run_with(module=Mixed(), clipping="ghost")
    steps(run)
    types = [p.dtype for p in run[1].param_groups[0]["params"]]
    assert types == [torch.float32] * 4
    assert run[1].param_groups[0]["params"][0] is module[0].weight
    check_rounded(run[1], run[0])


def test_what_is_written_to_a_parameter_holds():
    """Between two steps; as a projection after each step would do it."""
    run = run_with(sigma=1e-9, **EVERYBODY)
    module, optimizer, _ = run
    steps(run, 1)
    with torch.no_grad():
        module._module[2].bias.fill_(3.0)
    before = masters(optimizer)
    steps(run, 2)
    after = masters(optimizer)
    assert (after[3] - 3.0).abs().max() < 0.5
    assert (after[0] - before[0]).abs().max() < 0.5
    check_rounded(optimizer, module)


def test_the_state_of_the_optimizer_goes_to_the_masters():
    module = network()
    optimizer = torch.optim.Adam(module.parameters())
    module(short_data().tensors[0]).float().sum().backward()
    optimizer.step()
    from mmcc.training import make_private

    made = make_private(
        module,
        optimizer,
        short_data(),
        strategy=strategies.identity(STEPS),
        sampling=Poisson(0.5),
        max_grad_norm=1.0,
        sigma=1.0,
        delta=1e-5,
    )
    steps(made)
    assert len(optimizer.state) == 4
    for p, kept in optimizer.state.items():
        assert kept["exp_avg"].dtype == p.dtype == torch.float32
        assert float(kept["step"]) == 1 + STEPS


# ---------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("clipping", ["flat", "ghost"])
def test_a_resumed_run_has_the_same_bits(tmp_path, clipping):
    options = {"clipping": clipping, "strategy": strategies.toeplitz([1.0, 0.5], STEPS)}
    whole = run_with(**options)
    steps(whole)
    first = run_with(**options)
    steps(first, 3)
    save_checkpoint(tmp_path / "run", first[1])
    second = run_with(**options)
    load_checkpoint(tmp_path / "run", second[1])
    steps(second)
    for found, truth in zip(masters(second[1]), masters(whole[1]), strict=True):
        assert torch.equal(found, truth)
    check_rounded(second[1], second[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kept: {}, "other parameters in 16 bits"),
        (lambda kept: {**kept, "0": kept["0"].double()}, "do not fit"),
        (lambda kept: {**kept, "0": kept["0"][:1]}, "do not fit"),
        (lambda kept: {**kept, "0": kept["0"] + 1}, "are not of its parameters"),
    ],
)
def test_masters_that_are_not_those_of_the_parameters_are_refused(tmp_path, change, words):
    from mmcc.training import _checkpoint_file as files

    run = run_with()
    steps(run, 2)
    save_checkpoint(tmp_path / "run", run[1])
    content, _ = files.read(tmp_path / "run")
    content["masters"] = change(content["masters"])
    files.write(tmp_path / "run", content)
    with pytest.raises(CheckpointError, match=words):
        load_checkpoint(tmp_path / "run", run_with()[1])
