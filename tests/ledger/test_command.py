"""Claim: `mmcc ledger` says what the runs amount to, how, and what became of each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cases.ledgers import begin, gaussian_run, guarantee

from mmcc._cli.app import main
from mmcc.ledger import Ledger


@pytest.fixture
def file(tmp_path):
    """Three runs on `digits`, and a plan of two with one begun on `faces`."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.end(begin(ledger, 0.5, data="digits"), position=8)
    ledger.end(begin(ledger, 0.25, data="digits"), position=5)
    begin(ledger, 1 / 3, data="digits", guarantee=guarantee(1 / 3, 1e-6, setting="0-1"))
    run = gaussian_run(0.5, 1e-6)
    ledger.declare([run, run], data="faces")
    begin(ledger, data="faces", guarantee=run.guarantee, fingerprint=run.fingerprint)
    return str(ledger.path)


def said(capsys, *arguments: str) -> str:
    code = main(["ledger", *arguments])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def refused(capsys, *arguments: str) -> str:
    code = main(["ledger", *arguments])
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err.startswith("mmcc: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_several_data_sets_have_a_line_each(file, capsys):
    digits, faces = said(capsys, file).splitlines()
    epsilon, delta = map(float, re.match(r"digits: \((.*), (.*)\)-DP", digits).groups())
    assert 0.5 + 0.25 + 1 / 3 <= epsilon <= 1.084
    assert 3e-6 <= delta < 3.0001e-6
    for words in (
        *("sum of the pairs of 3 runs", "1 ended", "1 stopped early", "1 without an end (killed"),
        *("zero-out", "in 0-1", "adaptive inputs"),
    ):
        assert words in digits
    for words in ("faces: (", "plan of 2 runs (1 begun), counted in full, privacy losses composed"):
        assert words in faces


def test_one_data_set_lists_its_runs(file, capsys):
    printed = said(capsys, file, "--data", "digits")
    assert printed.count("\nrun ") == 3
    for words in ("ended; 8 steps", "stopped at step 5 of 8", "no end (killed, or still running)"):
        assert printed.count(words) == 1
    assert printed.count("binary_tree(8), Poisson(probability=0.125)") == 3


def test_resumed_runs_are_counted_in_print(file, capsys):
    ledger = Ledger(file)
    first, second, _ = (run.begin.run for run in ledger.history().runs_on("digits"))
    for run in (first, first, second):
        ledger.resume(run, {"strategy": "tree"}, data="digits")
    digits, faces = said(capsys, file).splitlines()
    assert ", 2 resumed, each counted in full" in digits
    assert ", 0 resumed, each counted in full" in faces
    found = json.loads(said(capsys, file, "--json"))["data_sets"]
    assert [one["resumed"] for one in found] == [2, 0]


def test_a_delta_below_what_the_plan_leaves_is_one_line(file, capsys):
    problem = refused(capsys, file, "--data", "faces", "--delta", "1e-30")
    least = re.search(r"delta = 1e-30 was given .* the least .* is (\S+):", problem)[1]
    assert said(capsys, file, "--data", "faces", "--delta", least)


def test_json_is_what_the_library_says(file, capsys):
    found = json.loads(said(capsys, file, "--json"))
    ledger = Ledger(file)
    assert found["data_sets"] == [ledger.total(name).to_dict() for name in ("digits", "faces")]
    assert found["lines"] == Path(file).read_text().count("\n")
    assert found["seconds"] >= 0
    one = json.loads(said(capsys, file, "--data", "faces", "--delta", "1e-5", "--json"))
    assert one["data_sets"] == [ledger.total("faces", delta=1e-5).to_dict()]
    assert one["data_sets"][0]["plan"]["delta"] == 1e-5
    assert one["data_sets"][0]["epsilon"] < found["data_sets"][1]["epsilon"]


def test_a_delta_is_for_plans_only(file, capsys):
    digits, faces = said(capsys, file, "--delta", "1e-5").splitlines()
    assert "1e-05" in faces
    assert "1e-05" not in digits
    assert "plan" in refused(capsys, file, "--data", "digits", "--delta", "1e-5")
    for wrong in ("0", "1", "2", "nan", "one"):
        assert "delta" in refused(capsys, file, "--data", "faces", "--delta", wrong)


def test_bad_input_is_one_line(file, tmp_path, capsys):
    assert "did you mean 'digits'" in refused(capsys, file, "--data", "digit")
    assert "no ledger" in refused(capsys, str(tmp_path / "missing.jsonl"))
    assert "FILE" in refused(capsys)
    whole = Path(file).read_text()
    Path(file).write_text(whole.replace('"epsilon": 0.25', '"epsilon": 0.2'))
    assert "line 3 of 'ledger.jsonl' is corrupt" in refused(capsys, file)
    plain = tmp_path / "plain.jsonl"
    begin(Ledger(plain))
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "it has no runs" in refused(capsys, str(empty))
    assert "no run on a data set 'd' is known" in refused(capsys, str(empty), "--data", "d")
    assert "cannot be read" in refused(capsys, str(tmp_path))
    assert "--delta" in refused(capsys, str(plain), "--delta", "1e-6")
