"""Claim: every run counts once and in full, and what it assumed stays with it."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from cases.ledgers import begin, bodies, guarantee

import mmcc
from mmcc import sampling, strategies
from mmcc.ledger import Ledger, LedgerError, Planned

TREE = {"strategy": "tree"}


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.jsonl")


def test_a_run_is_written_before_it_returns_and_counts_whatever_becomes_of_it(ledger):
    ended, stopped, killed = (begin(ledger, 0.5) for _ in range(3))
    assert len({ended, stopped, killed}) == 3
    assert ledger.total("d").epsilon == 1.5
    ledger.end(ended, position=8)
    ledger.end(stopped, position=3)
    found = ledger.total("d")
    assert (found.epsilon, found.states) == (1.5, {"ended": 1, "stopped": 1, "no_end": 1})
    states = {run.begin.run: run.state for run in found.runs}
    assert states[ended] == "ended"
    assert states[stopped] == "stopped at step 3 of 8"
    assert "killed" in states[killed]


def test_resuming_does_not_count_again(ledger):
    run = begin(ledger, 0.5)
    ledger.resume(run, TREE)
    ledger.resume(run, dict(TREE))
    ledger.end(run, position=5)
    ledger.resume(run, TREE)  # stopped early, taken up later
    assert ledger.total("d").states == {"ended": 0, "stopped": 0, "no_end": 1}
    ledger.end(run, position=8)
    found = ledger.total("d")
    assert (found.epsilon, len(found.runs), found.runs[0].resumed) == (0.5, 1, 3)
    assert found.states == {"ended": 1, "stopped": 0, "no_end": 0}


def test_a_run_is_resumed_on_its_own_data(ledger):
    run = begin(ledger, data="a")
    begin(ledger, data="b")
    ledger.resume(run, TREE, data="a")
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerError, match=f"run '{run}' began on the data set 'a', so on 'b'"):
        ledger.resume(run, TREE, data="b")
    with pytest.raises(LedgerError, match="unknown"):
        ledger.resume("unknown", TREE, data="a")
    with pytest.raises(LedgerError, match="another mechanism"):
        ledger.resume(run, "tree", data="a")
    assert ledger.path.read_bytes() == before
    ledger.resume(run, TREE)
    assert (ledger.total("a").resumed, ledger.total("b").resumed) == (1, 0)


def test_what_does_not_fit_is_refused_and_leaves_no_trace(ledger):
    run = begin(ledger)
    before = ledger.path.read_bytes()
    for wrong in (
        lambda: ledger.resume("unknown", TREE),
        lambda: ledger.resume(run, {"strategy": "another tree"}),
        lambda: ledger.resume(run, "tree"),
        lambda: ledger.resume(run, ""),
        lambda: ledger.end("unknown", position=1),
        lambda: ledger.end(run, position=9),
        lambda: ledger.end(run, position=-1),
        lambda: ledger.end(run, position=True),
        lambda: begin(ledger, steps=0),
        lambda: begin(ledger, steps=2.5),
        lambda: begin(ledger, data=""),
        lambda: begin(ledger, data="a\nb: (0.1, 1e-09)-DP, certified"),
        lambda: begin(ledger, data="donn\udce9es"),
        lambda: begin(ledger, mechanism="\x1b[2J"),
        lambda: begin(ledger, guarantee=guarantee(strategy="tree\x00")),
        lambda: ledger.declare([Planned("m", "f", guarantee())], data="\x07"),
        lambda: begin(ledger, mechanism=None),
        lambda: begin(ledger, fingerprint={}),
        lambda: begin(ledger, fingerprint={"a": 1}),
        lambda: begin(ledger, epsilon=math.nan),
        lambda: begin(ledger, epsilon=math.inf),
        lambda: begin(ledger, epsilon=-1.0),
        lambda: begin(ledger, delta=math.nan),
        lambda: begin(ledger, guarantee=guarantee(adjacency="replace one")),
        lambda: begin(ledger, guarantee=(1.0, 1e-6)),
        lambda: begin(ledger, guarantee=None),
        lambda: ledger.declare([Planned("m", "f", guarantee())], data="d"),
        lambda: ledger.declare([], data="e"),
        lambda: ledger.declare([guarantee()], data="e"),
        lambda: ledger.declare(
            [Planned("m", "f", guarantee()), Planned("m", "f", guarantee(adjacency="b"))], data="e"
        ),
    ):
        with pytest.raises(mmcc.MmccError) as caught:
            wrong()
        assert str(caught.value).isprintable()
        assert ledger.path.read_bytes() == before
    ledger.end(run, position=8)
    with pytest.raises(LedgerError, match="ended already"):
        ledger.end(run, position=8)


def test_an_estimate_is_no_guarantee(ledger):
    found = mmcc.Estimate(
        *(0.5, 0.4, 0.6, 0.99, 1000, 900.0, 1e-6, 2.0, "sets", "identity(2)", "Poisson(0.5)", 1)
    )
    with pytest.raises(LedgerError, match="Estimate is not one"):
        begin(ledger, guarantee=found)
    with pytest.raises(LedgerError, match="Estimate is not one"):
        Planned("m", "f", found)
    assert not ledger.path.exists()


def test_a_guarantee_comes_back_with_all_it_assumed(ledger):
    found = mmcc.epsilon(strategies.binary_tree(8), sampling.Poisson(1 / 3), sigma=7.3, delta=1e-7)
    begin(ledger, guarantee=found)
    kept = ledger.total("d").runs[0].begin.guarantee
    unknown = {"details": {}, "column_norm": None, "noise_multiplier": None}
    said = found.to_dict() | unknown
    assert kept.to_dict() == said
    assert str(kept) == str(found)
    assert bodies(ledger.path)[0]["guarantee"].items() <= found.to_dict().items()


def test_a_total_assumes_what_any_run_assumes(ledger):
    begin(ledger)
    assert (ledger.total("d").adaptive, ledger.total("d").settings) == (True, ())
    begin(ledger, guarantee=guarantee(adaptive=False, setting="the 0-1 setting"))
    found = ledger.total("d")
    assert (found.adaptive, found.settings) == (False, ("the 0-1 setting",))
    assert "non-adaptive inputs only" in str(found)
    assert "the 0-1 setting" in str(found)
    assert guarantee().adjacency in str(found)


def test_data_sets_do_not_mix(ledger):
    begin(ledger, 1.0, data="a")
    begin(ledger, 0.25, data="b", guarantee=guarantee(0.25, adjacency="replace one"))
    assert ledger.history().data_sets() == ["a", "b"]
    assert (ledger.total("a").epsilon, ledger.total("b").epsilon) == (1.0, 0.25)
    with pytest.raises(LedgerError, match="choose from a, b"):
        ledger.total("c")


def test_a_run_that_changes_its_folder_keeps_its_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("ledger.jsonl")
    run = begin(ledger)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    ledger.end(run, position=8)
    assert Ledger(tmp_path / "ledger.jsonl").total("d").states["ended"] == 1


def test_a_delta_of_more_than_one_says_no_more_than_one(ledger):
    for _ in range(3):
        begin(ledger, 0.5, 0.5)
    assert ledger.total("d").delta == 1.0


def test_a_ledger_that_is_not_there(ledger, tmp_path):
    with pytest.raises(LedgerError, match="no ledger"):
        ledger.total("d")
    with pytest.raises(LedgerError, match="no folder"):
        begin(Ledger(tmp_path / "nowhere" / "ledger.jsonl"))


def test_importing_the_ledger_is_cheap():
    heavy = "{'scipy', 'numba', 'torch', 'matplotlib', 'dp_accounting'}"
    code = f"import mmcc.ledger, sys; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
