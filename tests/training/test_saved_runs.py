"""Claim: what earlier releases saved is read, and goes on as it would have gone on there.

The stored runs were made on another processor, where sums may differ in their last bits; that a
run goes on with the very bits it had is tested where both halves run (test_checkpoint.py).
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.saved_runs import RUNS, SAVED, STEPS, made, parameters, train  # noqa: E402

from mmcc.ledger import Ledger  # noqa: E402
from mmcc.training import CheckpointError, load_checkpoint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")
FOLDERS = sorted(path.parent for path in Path(__file__).parents[1].glob("saved/*/ends.json"))


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    return request.param


@pytest.mark.parametrize("name", RUNS)
def test_a_saved_run_goes_on_to_the_end_that_it_had(folder, name):
    stored = json.loads((folder / "ends.json").read_text())["ends"][name]
    whole = made(name, generator="philox")  # that of 0.9
    train(whole)
    resumed = made(name, seed=None)
    torch.manual_seed(99)
    assert load_checkpoint(folder / f"{name}.checkpoint", *resumed) == {"run": name}
    assert resumed[1].position == SAVED
    train(resumed)
    assert_alike(parameters(resumed), parameters(whole))
    assert_alike(parameters(resumed), stored)


def test_a_saved_run_keeps_its_generator(folder):
    run = made("poisson", generator="device")
    with pytest.raises(CheckpointError, match="another generator"):
        load_checkpoint(folder / "poisson.checkpoint", *run)


def assert_alike(found, expected):
    """All but the last bits: those of some hundred sums of numbers near 1."""
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(
            torch.tensor(ours, dtype=torch.float64),
            torch.tensor(theirs, dtype=torch.float64),
            rtol=1e-13,
            atol=1e-13,
        )


def test_a_ledger_amounts_to_the_same_but_for_the_last_bits(folder):
    """Which are those of sums and exponentials, and not the same on every processor."""
    for data, delta, epsilon, stored in json.loads((folder / "totals.json").read_text()):
        total = Ledger(folder / "ledger.jsonl").total(data, delta=delta)
        for found, kept in ((total.epsilon, epsilon), (total.delta, stored)):
            assert math.isclose(found, float.fromhex(kept), rel_tol=4 * 2.0**-52)


@pytest.mark.parametrize(
    ("saved", "name", "reached"),
    [("killed", "cyclic-poisson", SAVED), ("entered", "balls-in-bins", 0)],
)
def test_a_run_in_a_ledger_goes_on_and_counts_once(tmp_path, folder, saved, name, reached):
    book = Path(shutil.copy(folder / "ledger.jsonl", tmp_path))
    before = Ledger(book).total("survey")
    run = made(name, ledger=book, data_name="survey")
    load_checkpoint(folder / f"{saved}.checkpoint", *run)
    assert run[1].position == reached
    train(run)
    entry = Ledger(book).history().runs[run[1].run.record.name]
    assert (entry.resumed, entry.position) == (1, STEPS)
    assert Ledger(book).total("survey").epsilon == before.epsilon
