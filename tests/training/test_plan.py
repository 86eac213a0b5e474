"""Claim: epochs and a batch size become the steps and the rate of an ordinary loader."""

from __future__ import annotations

import json
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import data, linear, private, train  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from mmcc import MmccError, recommend, sampling, strategies  # noqa: E402
from mmcc.training import make_private, plan  # noqa: E402

CYCLIC = sampling.CyclicPoisson(0.5, 2)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")


@given(examples=st.integers(1, 500), batch_size=st.integers(1, 500), epochs=st.integers(1, 9))
def test_an_epoch_is_that_of_a_loader(examples, batch_size, epochs):
    batch_size = min(batch_size, examples)
    batches = len(DataLoader(range(examples), batch_size=batch_size, shuffle=True))
    made = plan("identity", "poisson", examples=examples, batch_size=batch_size, epochs=epochs)
    assert made.steps_per_epoch == batches
    assert made.steps == epochs * batches
    assert made.sampling == sampling.Poisson(1 / batches)
    assert made.expected_batch_size <= batch_size


def test_epochs_need_not_be_whole():
    sized = {"examples": 1000, "batch_size": 100}
    assert plan("identity", "poisson", **sized, epochs=2.05).steps == 21
    assert plan("identity", "poisson", **sized, epochs=0.3).steps == 3
    with pytest.raises(MmccError, match="needs epochs of 1 / rate = 10 steps"):
        plan("identity", "balls-in-bins", **sized, epochs=2.05)


@pytest.mark.parametrize(
    ("named", "made"),
    [
        ("poisson", sampling.Poisson(0.125)),
        ("balls-in-bins", sampling.BallsInBins(8)),
        ("random-allocation", sampling.RandomAllocation(8)),
        ("shuffle", sampling.Shuffle(8)),
        ("cyclic-poisson:4", sampling.CyclicPoisson(0.5, 4)),
        ("cyclic-poisson:8", sampling.CyclicPoisson(1.0, 8)),
        ("min-separation:4", sampling.MinSeparation(0.2, 4)),
        (lambda rate: sampling.CyclicPoisson(2 * rate, 2), sampling.CyclicPoisson(0.25, 2)),
        (sampling.Poisson(0.5), sampling.Poisson(0.5)),
    ],
)
def test_names_and_functions_of_schemes(named, made):
    assert plan("identity", named, examples=64, batch_size=8, epochs=2).sampling == made


@pytest.mark.parametrize(
    ("named", "made"),
    [
        ("identity", strategies.identity(16)),
        ("blt:1", strategies.blt(16, 1)),
        ("tree-restart:3", strategies.tree_restart(16, 3)),
        (lambda steps: strategies.banded_inverse(steps, 2), strategies.banded_inverse(16, 2)),
        (strategies.identity(16), strategies.identity(16)),
    ],
)
def test_names_and_functions_of_strategies(named, made):
    found = plan(named, "poisson", examples=64, batch_size=8, epochs=2).strategy
    assert repr(found) == repr(made)


def test_a_strategy_that_is_searched_for_its_target():
    found = plan(
        "tuned-blt", "poisson", examples=64, batch_size=8, epochs=1, epsilon=2.0, delta=1e-5
    )
    assert found.strategy.steps == 8
    with pytest.raises(MmccError, match="searched for a target: give epsilon and delta"):
        plan("tuned-blt", "poisson", examples=64, batch_size=8, epochs=1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"epochs": 0}, "epochs must lie in"),
        ({"batch_size": 65}, "batch_size must lie between 1 and 64"),
        ({"strategy": "identiy"}, "did you mean 'identity'"),
        ({"sampling": "poison"}, "did you mean 'poisson'"),
        ({"sampling": "cyclic-poisson"}, "Give one of them, such as cyclic-poisson:2"),
        ({"sampling": "cyclic-poisson:9"}, "use cyclic-poisson:8 or less"),
        ({"sampling": "cyclic-poisson:x"}, "needs a separation, such as cyclic-poisson:4"),
        ({"strategy": strategies.identity(5)}, "has 5 steps, but 2 epochs of 8 batches are 16"),
        ({"strategy": lambda steps: strategies.identity(5)}, "has 5 steps"),
        ({"strategy": lambda steps: 5}, "strategy must come from mmcc.strategies"),
        ({"sampling": lambda rate: rate}, "sampling must be one of"),
        ({"sampling": sampling.BallsInBins(3)}, "16 steps are not a whole number of epochs of 3"),
    ],
)
def test_what_cannot_be_planned(options, match):
    given = {"strategy": "identity", "sampling": "poisson", "examples": 64, "batch_size": 8}
    with pytest.raises(MmccError, match=match):
        plan(**{**given, "epochs": 2, **options})


def test_a_script_of_epochs_runs_as_written(capsys):
    """Of 30 examples in batches of 8: four batches an epoch, three epochs, and not one more."""
    module, optimizer, loader = private(
        dataset=DataLoader(data(), batch_size=8, shuffle=True),
        strategy="blt:1",
        sampling="balls-in-bins",
        epochs=3,
        epsilon=3.0,
    )
    said = capsys.readouterr().err
    assert said.startswith("mmcc: 12 steps (3 epochs of 4), 7.5 of 30 examples expected in a batch")
    assert len(said.splitlines()) == 1
    assert str(optimizer.guarantee) in said
    for epoch in range(3):
        assert optimizer.position == 4 * epoch
        train(module, optimizer, loader)
    assert optimizer.finished
    assert optimizer.mechanism.expected_batch_size == 7.5
    assert optimizer.guarantee.sampling == "BallsInBins(bins=4)"


def test_the_batch_size_may_be_said_beside_a_data_set(capsys):
    _, optimizer, loader = private(
        strategy="identity",
        sampling="poisson",
        epochs=2,
        batch_size=10,
        stop_after=2,
        progress=False,
    )
    assert optimizer.mechanism.steps == 2
    assert len(loader) == 2
    assert capsys.readouterr().err == ""


def test_the_noise_for_a_target_is_found_once_and_shown(tmp_path, monkeypatch):
    """Beginning anew reads the file, and certifies what it says; of a changed one nothing stays."""
    monkeypatch.setenv("MMCC_CACHE", str(tmp_path))
    given = {"strategy": strategies.toeplitz([1.0, 0.5], 8), "sampling": CYCLIC, "epsilon": 2.0}
    told = []
    first = private(progress=lambda what, done: told.append(what), **given)[1]
    assert told
    (file,) = tmp_path.iterdir()
    kept = file.read_text()
    assert json.loads(kept)["sigma"] == first.mechanism.sigma
    assert private(progress=False, **given)[1].guarantee.epsilon == first.guarantee.epsilon
    file.write_text(kept.replace(repr(first.mechanism.sigma), "0.01"))
    again = private(**given)[1]
    assert again.mechanism.sigma == first.mechanism.sigma
    assert again.guarantee.epsilon <= 2.0
    assert file.read_text() == kept
    private(**{**given, "strategy": strategies.identity(8)}, remembered=False)
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"strategy": "identity"}, "strategy='identity' does not say how long the run is"),
        ({"sampling": lambda rate: rate}, "does not say how long the run is"),
        ({"batch_size": 8}, "batch_size belongs to epochs"),
        ({"epochs": 1}, "epochs need a batch size"),
        ({"epochs": 1, "batch_size": 5, "strategy": "identity", "loader": 8}, "batch_size=8"),
    ],
)
def test_halves_of_a_plan_are_refused(options, match):
    loader = options.pop("loader", None) if (options := dict(options)) else None
    dataset = data() if loader is None else DataLoader(data(), batch_size=loader)
    module = linear()
    given = {"strategy": strategies.identity(7), "sampling": sampling.Poisson(0.3), **options}
    if loader is not None:
        given["sampling"] = "poisson"
    with pytest.raises(MmccError, match=match):
        make_private(
            module,
            torch.optim.SGD(module.parameters(), lr=1.0),
            dataset,
            max_grad_norm=1.0,
            sigma=1.0,
            delta=1e-5,
            **given,
        )


def test_auto_is_what_is_recommended_for_the_target():
    run = {"examples": 64, "batch_size": 16, "epochs": 2, "epsilon": 2.0, "delta": 1e-5}
    found = plan("auto", "poisson", **run)
    best = recommend(**run, schemes="poisson", seconds=math.inf)
    assert repr(found.strategy) == repr(best.strategy)
    assert found.sampling == best.sampling
    with pytest.raises(MmccError, match="give epsilon and delta"):
        plan("auto", "poisson", examples=64, batch_size=16, epochs=2)
    with pytest.raises(MmccError, match="together with the strategy"):
        plan("identity", "auto", examples=64, batch_size=16, epochs=2)
