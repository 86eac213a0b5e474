"""Claim: `--units` prints what the guarantee says in other units, as a table and as JSON."""

from __future__ import annotations

import json

import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._cli.app import main
from mmcc._cli.output import rounded_up
from mmcc.accounting._units import units_of

MECHANISM = ["--strategy", "identity", "--steps", "8", "--sampling", "poisson", "--prob", "1/8"]
METHOD = ["--method", "mmcc"]
NUMBERS = {
    "epsilon": ["--sigma", "2", "--delta", "1e-6"],
    "bracket": ["--sigma", "2", "--delta", "1e-6"],
    "delta": ["--sigma", "2", "--epsilon", "1"],
    "sigma": ["--epsilon", "1", "--delta", "1e-6"],
}


def printed(capsys, *words):
    assert main([*words]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


@pytest.fixture(scope="module")
def told():
    identity, scheme = strategies.identity(8), sampling.Poisson(1 / 8)
    return units_of(mmcc.epsilon(identity, scheme, sigma=2.0, delta=1e-6, method="mmcc"))


@pytest.mark.parametrize("command", ["epsilon", "bracket"])
def test_json_has_every_unit(command, told, capsys):
    words = [command, *MECHANISM, *NUMBERS[command], *METHOD, "--units", "--json"]
    units = json.loads(printed(capsys, *words))["units"]
    assert units == told.to_dict()
    assert units["gdp"]["floor"] == 1e-12
    assert units["zcdp"] == {"rho": told.rho, "amplified": False}


@pytest.mark.parametrize("command", ["epsilon", "bracket"])
def test_the_table_says_the_floor_and_what_is_unamplified(command, told, capsys):
    out = printed(capsys, command, *MECHANISM, *NUMBERS[command], *METHOD, "--units")
    for number in (told.mu, told.unamplified_mu, told.rho, told.advantage, *dict(told.powers)):
        assert rounded_up(number) in out
    assert "1e-12" in out
    assert out.count("unamplified") == 2


@pytest.mark.parametrize("command", ["delta", "sigma"])
def test_other_questions_have_units_too(command, capsys):
    words = [command, *MECHANISM, *NUMBERS[command], *METHOD, "--units", "--json"]
    units = json.loads(printed(capsys, *words))["units"]
    assert 0 < units["gdp"]["mu"] < units["gdp_without_floor"]["mu"]


def test_nobody_gets_units_who_did_not_ask(capsys):
    words = ["epsilon", *MECHANISM, *NUMBERS["epsilon"], *METHOD]
    assert "units" not in json.loads(printed(capsys, *words, "--json"))
    assert "GDP" not in printed(capsys, *words)
