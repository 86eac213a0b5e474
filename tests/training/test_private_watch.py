"""Claim: what would let one example do more than the clip norm allows is refused, in plain use."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")

from cases.private import data, linear, private  # noqa: E402
from opacus.layers import DPLSTM  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from mmcc import strategies  # noqa: E402
from mmcc.errors import MmccError, ParameterError, PrecisionError  # noqa: E402
from mmcc.sampling import Poisson, Shuffle  # noqa: E402
from mmcc.training import (  # noqa: E402
    CheckpointError,
    NoiseStream,
    RunError,
    load_checkpoint,
    make_private,
    save_checkpoint,
)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
TWELVE = strategies.identity(12)
EVERYBODY = {"sampling": Poisson(1.0)}


def loss_of(module, x, y):
    return nn.functional.cross_entropy(module(x), y)


def train(run, loss=loss_of):
    module, optimizer, loader = run
    for x, y in loader:
        optimizer.zero_grad()
        loss(module, x, y).backward()
        optimizer.step()


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
def test_a_second_pass_over_some_examples_is_refused(mode):
    """With expanded weights the second pass was added to every example's gradient."""
    run = private(grad_sample_mode=mode, **EVERYBODY)
    with pytest.raises(RunError, match="called for gradients again, with 1 examples"):
        train(run, lambda module, x, y: loss_of(module, x, y) + module(x[:1])[:, 1].sum())


def test_other_examples_are_refused():
    run = private(**EVERYBODY)
    with pytest.raises(RunError, match=r"called 1 times, with \[29\]"):
        train(run, lambda module, x, y: loss_of(module, x[1:], y[1:]))


def test_passes_without_gradients_are_free():
    run = private(**EVERYBODY)

    def loss(module, x, y):
        with torch.no_grad():
            module(x[:3])
        module.eval()
        module(x[:2])
        module.train()
        return loss_of(module, x, y)

    train(run, loss)
    assert run[1].finished


def test_a_pass_that_had_no_step_leaves_nothing_behind():
    """As after an interrupt between the forward and the backward pass, or a validation pass."""
    module, optimizer, loader = private(**EVERYBODY)
    x, y = next(iter(loader))
    loss_of(module, x, y)
    other = private(**EVERYBODY)
    train((module, optimizer, loader))
    train(other)
    assert optimizer.finished
    assert module(x).shape == other[0](x).shape


class WritesBuffer(nn.Module):
    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.inner = linear()
        mean = torch.zeros(4, dtype=torch.float64)
        if frozen:
            self.mean = nn.Parameter(mean, requires_grad=False)
        else:
            self.register_buffer("mean", mean)

    def forward(self, x):
        with torch.no_grad():
            self.mean.data.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return self.inner(x)


@pytest.mark.parametrize("frozen", [True, False])
def test_statistics_written_behind_autograds_back_are_refused(frozen):
    with pytest.raises(RunError, match=r"changed (between a batch and its step|during training)"):
        train(private(WritesBuffer(frozen), **EVERYBODY))


def test_weights_that_the_forward_pass_changes_are_refused():
    torch.manual_seed(0)
    rows = torch.arange(30)[:, None] % 10
    model = nn.Sequential(nn.Embedding(10, 4, max_norm=0.5), nn.Flatten(), nn.Linear(4, 2))
    run = private(model, TensorDataset(rows, rows[:, 0] % 2), **EVERYBODY)
    with pytest.raises(RunError, match="max_norm"):
        train(run)


def test_the_clip_norm_and_the_noise_are_fixed():
    _, optimizer, _ = private(physical_batch_size=10, **EVERYBODY)
    for name, value in (("max_grad_norm", 0.5), ("noise_multiplier", 0.1)):
        before = getattr(optimizer, name)
        with pytest.raises(RunError, match="for the whole run"):
            setattr(optimizer, name, value)
        assert getattr(optimizer, name) == before
    clip = opacus.schedulers.ExponentialGradClip(optimizer, gamma=0.8)
    with pytest.raises(RunError, match="for the whole run"):
        clip.step()


def test_sequences_in_another_order_are_refused():
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = DPLSTM(4, 3, batch_first=True)
            self.last = nn.Linear(3, 3)

        def forward(self, x):
            lengths = torch.arange(len(x)) % 2 + 1
            packed = nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            return self.last(self.cells(packed)[1][0][0])

    inputs = torch.randn(12, 2, 4)
    run = private(Reader(), TensorDataset(inputs, torch.arange(12) % 3), **EVERYBODY)
    with pytest.raises(RunError, match="PackedSequence"):
        train(run)


def test_parameters_outside_the_optimizer_must_be_frozen():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)).double()
    head = torch.optim.SGD(model[1].parameters(), lr=0.1)
    settings = {
        "strategy": strategies.identity(2),
        "sampling": Poisson(0.5),
        "max_grad_norm": 1.0,
        "sigma": 1.0,
        "delta": 1e-5,
    }
    with pytest.raises(ParameterError, match="Freeze them"):
        make_private(model, head, data(), **settings)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    whole = torch.optim.SGD(model.parameters(), lr=0.1)
    train(make_private(model, whole, data(), **settings))
    assert torch.equal(model[0].weight, before)


def test_a_checkpoint_of_parameters_in_another_order_is_refused(tmp_path):
    def run(order):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double()
        layers = [model[place] for place in order]
        parameters = [p for layer in layers for p in layer.parameters()]
        return make_private(
            model,
            torch.optim.SGD(parameters, lr=0.1),
            data(),
            strategy=strategies.binary_tree(8),
            sampling=Poisson(0.5),
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
        )

    save_checkpoint(tmp_path / "run", *run([0, 1]))
    with pytest.raises(CheckpointError, match="another order"):
        load_checkpoint(tmp_path / "run", *run([1, 0]))
    load_checkpoint(tmp_path / "run", *run([0, 1]))


def test_the_state_of_the_optimizer_alone_is_no_checkpoint():
    _, optimizer, _ = private()
    with pytest.raises(RunError, match="load_checkpoint"):
        optimizer.load_state_dict(optimizer.state_dict())


def test_an_optimizer_is_not_copied():
    run = private()
    with pytest.raises(RunError, match="cannot be copied"):
        copy.deepcopy(run[1])
    with pytest.raises(RunError, match="save_checkpoint"):
        pickle.dumps(run[1])
    train(run)  # nothing is broken by the attempt
    assert run[1].finished


def test_a_checkpoint_is_its_owners_whatever_lay_there(tmp_path):
    left = tmp_path / ".run.tmp"
    left.write_text("left behind")
    left.chmod(0o666)
    save_checkpoint(tmp_path / "run", *private())
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o600


def test_an_inverse_that_grows_late_is_refused():
    steps = 20_000
    coefficients = np.zeros(steps)
    coefficients[:2], coefficients[-1] = (1.0, 1.0035), 1e-9
    with pytest.raises(PrecisionError):
        NoiseStream(strategies.toeplitz(coefficients, steps), 1.0, 1)


def test_an_overtaken_loop_takes_no_batch_from_the_next():
    loader = torch.utils.data.DataLoader(
        data(), batch_size=5, num_workers=1, persistent_workers=True
    )
    _, optimizer, batches = private(None, loader, sampling=Shuffle(6), strategy=TWELVE)
    old = iter(batches)
    next(old)
    new = iter(batches)
    with pytest.raises(RunError, match="iterated again"):
        next(old)
    x, _ = next(new)
    drawn = optimizer.run.participants.at(0).tolist()
    assert torch.equal(x, data()[drawn][0])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"grad_sample_mode": 2}, "unknown grad_sample_mode"),
        ({"dataset": "digits"}, "not a map-style data set"),
        ({"dataset": {1: 2}}, "not a map-style data set"),
        ({"module": nn.Sequential(nn.LazyLinear(3))}, "lazy layers"),
    ],
    ids=str,
)
def test_what_is_no_module_or_data_set_is_refused_in_a_sentence(changed, words):
    with pytest.raises(MmccError, match=words):
        private(**changed)


def test_an_optimizer_that_looks_several_times_is_refused():
    model = linear()
    with pytest.raises(ParameterError, match="LBFGS"):
        make_private(
            model,
            torch.optim.LBFGS(model.parameters()),
            data(),
            strategy=TWELVE,
            sampling=Poisson(0.5),
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
        )


def test_batches_that_cannot_be_empty_are_refused_at_once():
    from dataclasses import dataclass

    @dataclass
    class Pair:
        x: object

    loader = torch.utils.data.DataLoader(
        data(), batch_size=15, collate_fn=lambda examples: Pair(examples)
    )
    with pytest.raises(ParameterError, match="empty batch"):
        private(None, loader, sampling=Poisson(0.5))
