"""Claim: a report tells the guarantee in other units if asked to, and not of a ledger."""

from __future__ import annotations

import pytest
from cases.reports import Page, small

import mmcc
from mmcc import strategies
from mmcc._cli.app import main
from mmcc.accounting._units import units_of
from mmcc.sampling import Poisson

GIVEN = {"sigma": 2.0, "delta": 1e-6, "method": "mmcc"}


@pytest.fixture(scope="module")
def report():
    return small(strategies.identity(8), Poisson(1 / 8), **GIVEN, units=True)


def test_both_pages_have_the_table(report):
    told = units_of(mmcc.epsilon(strategies.identity(8), Poisson(1 / 8), **GIVEN))
    assert report.units == told
    for text in (Page(report.html()).text, report.markdown()):
        assert "In other units" in text
        assert "under the same assumptions" in text
        for name, value, _ in told.rows():
            assert name in text
            assert value in text


def test_it_is_left_out_unless_asked_for():
    plain = small(strategies.identity(8), Poisson(1 / 8), **GIVEN)
    assert plain.units is None
    for text in (Page(plain.html()).text, plain.markdown()):
        assert "In other units" not in text


def test_the_command_asks_for_it(capsys):
    words = ["--strategy", "identity", "--steps", "8", "--sampling", "poisson", "--prob", "1/8"]
    words += ["--sigma", "2", "--delta", "1e-6", "--method", "mmcc", "--seconds", "0", "--units"]
    assert main(["report", *words, "--out", "-", "--format", "markdown"]) == 0
    assert "## In other units" in capsys.readouterr().out


def test_a_ledger_has_no_units(tmp_path, capsys):
    (tmp_path / "ledger.jsonl").touch()
    assert main(["report", "--ledger", str(tmp_path / "ledger.jsonl"), "--units"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("mmcc: --units does not apply to --ledger")
    assert said.err.count("\n") == 1
