"""Claim: a run is in its ledger before its first step, once, however often it is killed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

import mmcc  # noqa: E402
from mmcc import sampling, strategies  # noqa: E402
from mmcc.errors import MmccError  # noqa: E402
from mmcc.ledger import Ledger  # noqa: E402
from mmcc.training import (  # noqa: E402
    RunError,
    _private,
    load_checkpoint,
    make_private,
    save_checkpoint,
)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
STEPS = 4
DATA = TensorDataset(torch.linspace(-1, 1, 20).reshape(10, 2), torch.arange(10) % 2)


def made(ledger, /, **changed):
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    settings = {
        "strategy": strategies.binary_tree(STEPS),
        "sampling": sampling.Poisson(0.5),
        "max_grad_norm": 1.0,
        "sigma": 5.0,
        "delta": 1e-5,
        "ledger": ledger,
        "data_name": None if ledger is None else "survey",
    } | changed
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), DATA, **settings)


def train(run, steps=STEPS):
    module, optimizer, loader = run
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        if optimizer.position == steps:
            break


def runs(path):
    return list(Ledger(path).history().runs.values())


def test_a_run_is_written_before_its_first_step_and_at_its_end(tmp_path):
    path = tmp_path / "runs.jsonl"
    run = made(path)
    assert not path.exists()  # nothing was released yet
    batches = iter(run[2])
    (entry,) = runs(path)
    assert (entry.begin.data, entry.begin.steps, entry.position) == ("survey", STEPS, None)
    expected = mmcc.epsilon(
        strategies.binary_tree(STEPS), sampling.Poisson(0.5), sigma=5.0, delta=1e-5
    )
    assert entry.begin.guarantee.epsilon == expected.epsilon
    del batches
    train(run)
    (entry,) = runs(path)
    assert entry.position == STEPS
    assert Ledger(path).total("survey").epsilon == pytest.approx(expected.epsilon, rel=1e-12)


def test_a_run_in_a_ledger_is_accounted_before_a_batch_is_asked_for(tmp_path, monkeypatch):
    """The accounting may take minutes, and a loop should not stall at its first batch."""
    asked = []

    def counted(*args, **options):
        asked.append(options)
        return calibrate(*args, **options)

    calibrate = _private.calibrate
    monkeypatch.setattr(_private, "calibrate", counted)
    path = tmp_path / "runs.jsonl"
    run = made(path)
    assert len(asked) == 1
    assert not path.exists()
    train(run)
    assert run[1].guarantee.epsilon == runs(path)[0].begin.guarantee.epsilon
    assert len(asked) == 1
    made(None)
    assert len(asked) == 1  # without a ledger it is asked for when somebody wants to know


def test_runs_add_up_and_a_killed_one_counts_in_full(tmp_path):
    path = tmp_path / "runs.jsonl"
    train(made(path), 1)  # and never heard of again
    train(made(Ledger(path)))
    killed, whole = runs(path)
    assert (killed.position, whole.position) == (None, STEPS)
    one = mmcc.epsilon(strategies.binary_tree(STEPS), sampling.Poisson(0.5), sigma=5.0, delta=1e-5)
    assert Ledger(path).total("survey").epsilon >= 2 * one.epsilon


def test_an_early_end_is_written_and_holds(tmp_path):
    path = tmp_path / "runs.jsonl"
    run = made(path)
    train(run, 2)
    run[1].end()
    run[1].end()
    (entry,) = runs(path)
    assert entry.position == 2
    with pytest.raises(RunError, match="ended after 2 steps"):
        iter(run[2])


def test_a_resumed_run_counts_once(tmp_path):
    path, saved = tmp_path / "runs.jsonl", tmp_path / "run.checkpoint"
    first = made(path)
    save_checkpoint(saved, *first)  # before the first step: it is in the ledger by then
    assert len(runs(path)) == 1
    train(first, 2)
    second = made(path)
    load_checkpoint(saved, *second)
    train(second, 3)
    save_checkpoint(saved, *second)
    third = made(path)
    load_checkpoint(saved, *third)
    train(third)
    save_checkpoint(saved, *third)
    (entry,) = runs(path)
    assert (entry.resumed, entry.position) == (2, STEPS)
    load_checkpoint(saved, *made(path))  # to look at the finished model
    (entry,) = runs(path)
    assert (entry.resumed, entry.position) == (3, STEPS)


def test_a_run_that_would_not_be_counted_is_refused(tmp_path):
    path, saved = tmp_path / "runs.jsonl", tmp_path / "run.checkpoint"
    save_checkpoint(saved, *made(path))
    with pytest.raises(MmccError, match="pass the same ledger"):
        load_checkpoint(saved, *made(None))
    with pytest.raises(MmccError, match="unknown"):
        load_checkpoint(saved, *made(tmp_path / "another.jsonl"))
    with pytest.raises(MmccError, match="survey"):
        load_checkpoint(saved, *made(path, data_name="patients"))
    outside = tmp_path / "outside.checkpoint"
    save_checkpoint(outside, *made(None))
    with pytest.raises(MmccError, match="in no ledger"):
        load_checkpoint(outside, *made(path))
    assert len(runs(path)) == 1


@pytest.mark.parametrize("given", [{"data_name": None}, {"ledger": None}])
def test_a_ledger_needs_a_name_for_the_data(tmp_path, given):
    with pytest.raises(MmccError, match="belong together"):
        made(tmp_path / "runs.jsonl", **given)


def test_a_corrupt_ledger_stops_a_run_before_its_first_step(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("{}\n")
    run = made(path)
    with pytest.raises(MmccError, match="line 1"):
        iter(run[2])
    assert run[1].position == 0
