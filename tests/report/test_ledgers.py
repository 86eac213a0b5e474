"""Claim: the report of a ledger has the totals of `mmcc ledger` and a line for each run."""

from __future__ import annotations

import json
import shlex

import pytest
from cases.ledgers import begin, gaussian_run
from cases.reports import Page

from mmcc import MmccError, report
from mmcc._cli.app import main
from mmcc.accounting._guarantee import rounded_up
from mmcc.ledger import Ledger

EVIL = "<img src=x onerror=alert(1)> [a](javascript:b) `c` | d"


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "runs.jsonl")
    made.declare([gaussian_run(0.5, 1e-6)] * 3, data="faces")
    made.end(begin(made, 0.5, 1e-6, data=EVIL), position=8)
    begin(made, 1 / 3, 1e-7, data=EVIL, mechanism=EVIL)
    made.end(begin(made, 1.0, 1e-6, data="faces"), position=3)
    return made


def test_totals_and_runs_are_those_of_the_ledger(ledger):
    found = report.of_ledger(ledger.path)
    assert [claim.heading for claim in found.claims] == [
        f"All runs on “{EVIL}”",
        "All runs on “faces”",
    ]
    for claim, data in zip(found.claims, (EVIL, "faces"), strict=True):
        total = ledger.total(data)
        assert (claim.epsilon, claim.delta) == (total.epsilon, total.delta)
        assert [line.name for line in claim.runs] == [run.begin.run for run in total.runs]
    text = found.markdown()
    assert "stopped at step 3 of 8" in text
    assert "no end (killed, or still running)" in text
    assert "plan of 3 runs" in text


def test_every_data_set_is_said_in_plain_words(ledger):
    """The second one, whose epsilon is larger, as well as the first."""
    found = report.of_ledger(ledger.path)
    assert found.claims[1].epsilon > found.claims[0].epsilon
    for text in (Page(found.html()).text, found.markdown()):
        for claim in found.claims:
            assert f"{claim.factor} times" in text
            assert f"{claim.guess} %" in text


def test_names_from_the_file_are_text(ledger):
    page = Page(report.of_ledger(ledger.path).html())
    assert page.tags().isdisjoint({"img", "script", "svg"})
    assert page.text.count(EVIL) >= 3
    assert page.tags() >= {"table", "th", "h1", "h2", "h3"}


def test_one_data_set_at_a_delta_of_the_plan(ledger):
    found = report.of_ledger(ledger.path, data="faces", delta=1e-4)
    assert [claim.epsilon for claim in found.claims] == [ledger.total("faces", delta=1e-4).epsilon]


@pytest.mark.parametrize(
    "words", [[], ["--data", EVIL], ["--data", "faces", "--delta", "1e-4"], ["--delta", "1e-4"]]
)
def test_the_command_gives_the_totals_again(ledger, words, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", "--ledger", str(ledger.path), *words, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    page = Page(out.read_text(encoding="utf-8"))
    program, *again = shlex.split(page.by_id["command"])
    assert program == "mmcc"
    assert main([*again, "--json"]) == 0
    for total in json.loads(capsys.readouterr().out)["data_sets"]:
        assert rounded_up(total["epsilon"]) in page.text
        assert total["data"] in said
    exec(page.by_id["snippet"], {})
    assert capsys.readouterr().out.count("-DP, certified") == page.text.count("Total:")


def test_what_cannot_be_reported_is_refused(ledger, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    for wrong, match in (
        ({"path": empty}, "it has no runs"),
        ({"path": tmp_path / "none"}, "there is no ledger"),
        ({"path": ledger.path, "data": "others"}, "others"),
        ({"path": ledger.path, "data": EVIL, "delta": 1e-4}, "for a plan only"),
    ):
        path = wrong.pop("path")
        with pytest.raises(MmccError, match=match):
            report.of_ledger(path, **wrong)
