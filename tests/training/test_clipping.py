"""Claim: under every law of clipping an example adds at most the norm that noise is made for.

Laws, their constants and where they are written down; what does not fit is refused in a sentence.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import CLASSES, EXAMPLES, FEATURES, data, linear, private, train  # noqa: E402
from oracles.clipping import alone, layerwise_sum  # noqa: E402
from torch import nn  # noqa: E402

from mmcc import MmccError  # noqa: E402
from mmcc.report import of_checkpoint  # noqa: E402
from mmcc.sampling import Poisson  # noqa: E402
from mmcc.training import (  # noqa: E402
    CheckpointError,
    Mechanism,
    load_checkpoint,
    save_checkpoint,
)
from mmcc.training._clipping import GAMMA, STABILISER, Clipping, clipping_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
EVERYBODY = {"sampling": Poisson(1.0)}
NAMES = ["a.weight", "a.bias", "b.inner.weight", "b.inner.bias", "b.scale", "c.weight"]


def network() -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES)).double()


def released(**options) -> torch.Tensor:
    """The sum of a first step in which everybody takes part, and next to no noise."""
    module, optimizer, loader = private(
        network(), sigma=1e-15, loss_reduction="sum", **EVERYBODY, **options
    )
    batches = iter(loader)
    inputs, labels = next(batches)
    nn.functional.cross_entropy(module(inputs), labels, reduction="sum").backward()
    optimizer.step()
    return torch.cat([p.grad.flatten() for p in module.parameters()])


def example_rows() -> list[torch.Tensor]:
    inputs, labels = data().tensors
    return alone(
        lambda m, b: nn.functional.cross_entropy(m(b["x"]), b["labels"], reduction="none"),
        network(),
        {"x": inputs, "labels": labels},
    )


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e3, 1e12])
@pytest.mark.parametrize("norm", [1e-8, 0.3, 1e6])
@pytest.mark.parametrize(
    ("law", "given"),
    [
        ("flat", 1.0),
        ("automatic", 1.0),
        ("per-layer", 1.0),
        ("per-layer", [0.1, 2.0, 0.3, 0.7]),
        ("per-layer", {"a": 0.5, "": 1.0, "b.inner": 3.0}),
    ],
)
def test_no_law_lets_more_through_than_the_clip_norm(law, given, norm, scale):
    given = _times(given, norm)
    clipping, whole = clipping_of(law, given, None, NAMES)
    parts = clipping.parts(NAMES)
    norms = scale * torch.rand(200, max(parts) + 1, dtype=torch.float64)
    factors = clipping.factors(norms.square(), whole)
    clipped = (factors * norms).norm(dim=1)
    assert (clipped <= whole * (1 + 1e-14)).all()
    assert scale < 1e12 or clipped.max() > 0.9 * whole  # letting nothing through is no law


def _times(given, norm):
    if isinstance(given, dict):
        return {name: norm * c for name, c in given.items()}
    return [norm * c for c in given] if isinstance(given, list) else norm * given


def test_parts_are_found_by_the_longest_beginning():
    clipping, whole = clipping_of("per-layer", {"b": 3.0, "": 4.0, "b.inner": 12.0}, None, NAMES)
    assert clipping.parts(NAMES) == [1, 1, 2, 2, 0, 1]
    assert 13.0 <= whole <= 13.0 * (1 + 1e-12)


def test_layers_have_equal_shares_or_norms_one_after_another():
    equal, whole = clipping_of("per-layer", 2.0, None, NAMES)
    assert [name for name, _ in equal.norms] == ["a", "b.inner", "b", "c"]
    assert whole == 2.0
    assert math.hypot(*(norm for _, norm in equal.norms)) <= 2.0
    listed, whole = clipping_of("per-layer", (1.0, 1.0, 1.0, 1.0), None, NAMES)
    assert listed.parts(NAMES) == [0, 0, 1, 1, 2, 3]
    assert 2.0 <= whole <= 2.0 * (1 + 1e-12)


@pytest.mark.parametrize(
    "clipping",
    [
        Clipping(),
        Clipping("automatic", 0.25),
        Clipping("per-layer", norms=(("", 0.1), ("it's", 1 / 3))),
    ],
    ids=str,
)
def test_what_is_written_is_read_again(clipping):
    assert Clipping.of(str(clipping)) == clipping


@pytest.mark.parametrize(
    "text", ["", "flat(1)", "ghost", "automatic", "automatic(0)", "per-layer({})", "per-layer(3"]
)
def test_what_is_no_law_is_not_read(text):
    with pytest.raises(MmccError):
        Clipping.of(text)


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("mode", ["ghost", "hooks", "functorch", "ew"])
def test_norms_of_parts_are_what_examples_are_clipped_to(mode):
    """A group of parameters by the beginning of its names, and all others."""
    found = released(
        clipping="per-layer", max_grad_norm={"2": 0.2, "": 0.05}, grad_sample_mode=mode
    )
    sizes = [p.numel() for p in network().parameters()]
    first, second = sum(sizes[:2]), sum(sizes[2:])
    truth = layerwise_sum(example_rows(), [first, second], [0.05, 0.2], STABILISER)
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-9)


def test_noise_is_made_for_all_parts_together():
    """Nobody takes part: the released gradient is noise times the root of the sum of squares."""
    options = {"sampling": Poisson(1e-9), "sigma": 1.0, "loss_reduction": "sum", "rate": 1.0}
    moved = []
    for norms in (1.0, [3.0, 4.0]):
        clipping = "per-layer" if isinstance(norms, list) else "flat"
        module, optimizer, loader = private(
            network(), clipping=clipping, max_grad_norm=norms, **options
        )
        batches = iter(loader)
        next(batches)
        optimizer.step()
        moved.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
        assert optimizer.max_grad_norm == optimizer.mechanism.max_grad_norm
    torch.testing.assert_close(moved[1], 5.0 * moved[0], rtol=1e-9, atol=0.0)


def test_automatic_clipping_has_a_public_constant():
    rows = example_rows()
    for gamma in (None, 0.5):
        found = released(clipping="automatic", gamma=gamma, max_grad_norm=0.7)
        constant = GAMMA if gamma is None else gamma
        truth = sum(0.7 * row / (row.norm() + constant) for row in rows)
        torch.testing.assert_close(found, truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("clipping", ["ghost", "per-layer", "automatic"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_example_without_a_finite_gradient_counts_as_zero(clipping, bad):
    inputs, labels = data().tensors
    inputs[4, 1] = bad
    module, optimizer, loader = private(
        network(),
        torch.utils.data.TensorDataset(inputs, labels),
        sigma=1e-15,
        loss_reduction="sum",
        clipping=clipping,
        max_grad_norm=1e-3,
        **EVERYBODY,
    )
    batches = iter(loader)
    x, y = next(batches)
    nn.functional.cross_entropy(module(x), y, reduction="sum").backward()
    optimizer.step()
    assert all(p.grad.isfinite().all() for p in module.parameters())
    total = torch.cat([p.grad.flatten() for p in module.parameters()])
    assert 0 < total.norm() <= 1e-3 * (EXAMPLES - 1)


# ---------------------------------------------------------------- what is written down


def test_the_law_is_part_of_the_mechanism(tmp_path):
    options = {"clipping": "per-layer", "max_grad_norm": {"2": 0.25, "": 0.5}}
    run = private(network(), **options)
    train(*run)
    fingerprint = run[1].mechanism.fingerprint()
    assert fingerprint["clipping"] == "per-layer({'2': 0.25, '': 0.5})"
    save_checkpoint(tmp_path / "run", run[1])
    again = private(network(), **options)
    load_checkpoint(tmp_path / "run", again[1])
    assert again[1].finished
    for other in ({}, {"clipping": "automatic"}, {"clipping": "per-layer", "max_grad_norm": 1.0}):
        with pytest.raises(CheckpointError, match="clipping was per-layer"):
            load_checkpoint(tmp_path / "run", private(network(), **other)[1])
    report = of_checkpoint(tmp_path / "run", delta=1e-5)
    assert "per-layer: 0.25 for '2', 0.5 for ''" in str(report.facts)


def test_ghost_clipping_is_the_same_mechanism_as_flat_clipping(tmp_path):
    """Who runs out of memory goes on without the rows: the same law, found in another way."""
    run = private(network(), clipping="flat", steps_per_epoch=3)
    train(*run)
    save_checkpoint(tmp_path / "run", run[1])
    other = private(network(), clipping="ghost", steps_per_epoch=3)
    assert other[1].mechanism.fingerprint() == run[1].mechanism.fingerprint()
    load_checkpoint(tmp_path / "run", other[1])
    train(*other)
    train(*run)
    for found, truth in zip(other[0].parameters(), run[0].parameters(), strict=True):
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-12)


def test_the_ledger_says_how_gradients_were_clipped(tmp_path):
    path = tmp_path / "runs.jsonl"
    run = private(network(), clipping="automatic", gamma=0.5, ledger=path, data_name="d", sigma=2.0)
    train(*run)
    assert "clip norm 1 (automatic, gamma 0.5)" in path.read_text()


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"clipping": "gohst"}, "unknown clipping 'gohst'; did you mean 'ghost'"),
        ({"clipping": None}, "unknown clipping None"),
        ({"clipping": "ghost", "grad_sample_mode": "hooks"}, "makes no per-example gradients"),
        ({"gamma": 0.1}, "gamma is the constant of clipping='automatic'"),
        ({"clipping": "per-layer", "gamma": 0.1}, "gamma is the constant of clipping='automatic'"),
        ({"clipping": "automatic", "gamma": 0.0}, r"gamma must lie in \[1e-06"),
        ({"clipping": "automatic", "gamma": math.nan}, "gamma must lie"),
        ({"clipping": "automatic", "max_grad_norm": [1.0]}, "several clip norms are for"),
        ({"max_grad_norm": {"": 1.0}}, "several clip norms are for"),
        ({"max_grad_norm": "1"}, "max_grad_norm must be a number"),
        ({"clipping": "per-layer", "max_grad_norm": 0}, "max_grad_norm must lie"),
        ({"clipping": "per-layer", "max_grad_norm": [1.0, 2.0]}, "2 clip norms for 1 layers"),
        ({"clipping": "per-layer", "max_grad_norm": {"weight": 1.0}}, "no clip norm for .*'bias'"),
        ({"clipping": "per-layer", "max_grad_norm": {"": 1, "x": 1}}, "a clip norm for 'x'"),
        ({"clipping": "per-layer", "max_grad_norm": {"": -1.0}}, "the clip norm of '' must lie"),
        ({"clipping": "per-layer", "max_grad_norm": {"": math.inf}}, "the clip norm of '' must"),
    ],
    ids=str,
)
def test_what_does_not_fit(changed, words):
    with pytest.raises(MmccError, match=words):
        private(linear(), **changed)


def test_a_mechanism_whose_layers_are_together_more_than_its_clip_norm():
    run = private(network())[1].mechanism
    clipping = Clipping("per-layer", norms=(("", 0.9), ("2", 0.9)))
    with pytest.raises(MmccError, match="noise would cover less"):
        Mechanism(run.strategy, run.sampling, 1.0, EXAMPLES, 1.0, clipping=clipping)


def test_the_law_is_fixed_for_the_run():
    _, optimizer, _ = private(network(), clipping="per-layer", max_grad_norm=[3.0, 4.0])
    assert optimizer.mechanism.clipping.law == "per-layer"
    with pytest.raises(MmccError, match="max_grad_norm is 5"):
        optimizer.max_grad_norm = 6.0
