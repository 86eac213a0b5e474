"""Claim: truncated Poisson sampling answers every question as Poisson does, but for a chance."""

from __future__ import annotations

import json

import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._cli.app import main
from mmcc.errors import MethodError, SamplingError

STEPS, P = 16, 0.01
POISSON, SCHEME = sampling.Poisson(P), sampling.TruncatedPoisson(P, 40, 1000)
ASKED = {"sigma": 1.0, "delta": 1e-5}
FAST = {"method": "mmcc", **ASKED}
STRATEGY = strategies.identity(STEPS)


def test_the_chance_is_told():
    found = mmcc.epsilon(STRATEGY, SCHEME, **FAST)
    assert found.details["added_to_delta"] == SCHEME.relaxed(STEPS).chance < 1e-12
    assert found.details["certified_as"] == repr(POISSON)
    assert (found.setting, found.adaptive) == ("", True)
    assert found.sampling == repr(SCHEME)


def test_numbers_are_next_to_those_of_poisson_sampling():
    theirs = mmcc.bracket(STRATEGY, POISSON, **FAST)
    found = mmcc.bracket(STRATEGY, SCHEME, **FAST)
    assert theirs.upper <= found.upper <= theirs.upper * (1 + 1e-6)
    assert found.lower == theirs.lower > 0
    group = {**FAST, "group_size": 3}
    assert mmcc.epsilon(STRATEGY, SCHEME, **group).epsilon == pytest.approx(
        mmcc.epsilon(STRATEGY, POISSON, **group).epsilon, rel=1e-6
    )
    target = {"epsilon": 1.0, "delta": 1e-5, "method": "mmcc"}
    assert mmcc.sigma(STRATEGY, SCHEME, **target).sigma == pytest.approx(
        mmcc.sigma(STRATEGY, POISSON, **target).sigma, rel=2e-4
    )


SMALL = sampling.TruncatedPoisson(P, 12, 1000)
"""Batches of 12 are cut more often than delta allows."""


def test_a_chance_above_delta_certifies_no_amplification():
    with pytest.raises(MethodError, match="a larger largest_batch makes this rarer"):
        mmcc.epsilon(STRATEGY, SMALL, **FAST)
    delta = mmcc.delta(STRATEGY, SMALL, sigma=1.0, epsilon=1.0, method="mmcc")
    assert SMALL.relaxed(STEPS).chance <= delta.delta < 1


def test_there_tight_is_unamplified_and_says_why():
    plain = mmcc.epsilon(STRATEGY, SMALL, method="unamplified", **ASKED)
    assert plain.epsilon == mmcc.epsilon(STRATEGY, POISSON, method="unamplified", **ASKED).epsilon
    found = mmcc.epsilon(STRATEGY, SMALL, **ASKED)
    assert (found.epsilon, found.bound) == (plain.epsilon, "unamplified")
    assert "a larger largest_batch makes this rarer" in found.details["not_amplified"]
    assert mmcc.bracket(STRATEGY, SMALL, **ASKED).upper == plain.epsilon
    enough = mmcc.sigma(STRATEGY, SMALL, epsilon=1.0, delta=1e-5)
    assert enough.bound == "unamplified"
    assert enough.sigma == pytest.approx(
        mmcc.sigma(STRATEGY, SMALL, epsilon=1.0, delta=1e-5, method="unamplified").sigma, rel=1e-3
    )
    # Both adjacencies at every other delta and in other units, too.
    assert found.epsilon_at(1e-6) > found.epsilon
    delta = mmcc.delta(STRATEGY, SMALL, sigma=1.0, epsilon=1.0)
    assert SMALL.relaxed(STEPS).chance <= delta.delta < 1


def test_a_batch_that_holds_everybody_is_never_cut():
    everybody = sampling.TruncatedPoisson(P, 1000, 1000)
    assert everybody.relaxed(10**6).chance == 0
    assert sampling.TruncatedPoisson(1.0, 5, 5).relaxed(3).chance == 0
    always = mmcc.epsilon(STRATEGY, sampling.TruncatedPoisson(1.0, 5, 5), **ASKED)
    assert always.bound == "unamplified"


def test_a_group_larger_than_a_batch_has_no_lower_end_of_its_own():
    scheme = sampling.TruncatedPoisson(1e-3, 2, 3)
    assert scheme.relaxed(STEPS, 2).attained
    assert not scheme.relaxed(STEPS, 3).attained


def test_one_example_cannot_stand_for_all():
    with pytest.raises(SamplingError, match="examples are not independent"):
        mmcc.estimate(STRATEGY, SCHEME, **ASKED)
    with pytest.raises(SamplingError, match="examples are not independent"):
        mmcc.audit.audit(STRATEGY, SCHEME, runs=1000, **ASKED)


def test_the_command_line_has_it(capsys):
    words = (
        "epsilon --strategy identity --steps 16 --sampling truncated-poisson --prob 1/100 "
        "--largest-batch 40 --examples 1000 --sigma 1 --delta 1e-5 --method mmcc --json"
    )
    code = main(words.split())
    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert said["sampling"] == repr(SCHEME)
    assert said["epsilon"] == mmcc.epsilon(STRATEGY, SCHEME, **FAST).epsilon


def test_tight_takes_what_is_smallest():
    found = mmcc.epsilon(strategies.identity(2), SCHEME, **ASKED)
    assert found.bound.endswith("outside an event whose chance is part of delta")
    assert found.epsilon <= mmcc.epsilon(strategies.identity(2), SCHEME, **FAST).epsilon
