"""Claim: a guarantee answers in other units if its mechanism is at hand, and refuses otherwise."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace

import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._units import RATES, Units, units_of
from mmcc.errors import MethodError, ParameterError
from mmcc.ledger._entries import certified

STEPS, SIGMA = 20, 1.0


@pytest.fixture(scope="module")
def found():
    """DP-SGD, accounted exactly."""
    identity, scheme = strategies.identity(STEPS), sampling.Poisson(0.05)
    return mmcc.epsilon(identity, scheme, sigma=SIGMA, delta=1e-6, method="mmcc")


def test_a_floor_is_what_amplification_needs(found):
    plain = math.sqrt(STEPS) / SIGMA
    assert found.gdp(1e-6) < found.gdp(1e-12) < found.gdp(1e-20) < plain
    assert plain <= found.gdp(0) <= plain * (1 + 1e-12)
    assert found.zcdp() == pytest.approx(plain**2 / 2)


def test_every_unit_is_better_than_without_amplification(found):
    plain = mmcc.epsilon(
        strategies.identity(STEPS), sampling.Poisson(1), sigma=SIGMA, delta=1e-6, method="tight"
    )
    assert found.advantage() < plain.advantage() / 5
    for rate in RATES:
        assert rate < found.true_positive_rate(rate) < plain.true_positive_rate(rate) / 2


def test_rates_rise_and_stay_below_the_advantage(found):
    rates = [1e-30, 1e-8, 1e-3, 0.1, 0.5, 0.9, 0.999]
    powers = [found.true_positive_rate(rate) for rate in rates]
    assert powers == sorted(powers)
    for rate, power in zip(rates, powers, strict=True):
        assert rate <= power <= min(rate + found.advantage() * (1 + 1e-12), 1)


def test_epsilon_anywhere_is_the_answer_that_the_question_has(found):
    identity, scheme = strategies.identity(STEPS), sampling.Poisson(0.05)
    for delta in (1e-3, 1e-9):
        asked = mmcc.epsilon(identity, scheme, sigma=SIGMA, delta=delta, method="mmcc")
        assert found.epsilon_at(delta) == asked.epsilon
    assert found.epsilon_at(found.delta) == found.epsilon


def test_the_answer_does_not_depend_on_what_was_asked_before(found):
    fresh = copy.copy(found)
    again = replace(fresh.curve, _points={})
    object.__setattr__(fresh, "curve", again)
    assert fresh.true_positive_rate(0.01) == found.true_positive_rate(0.01)
    assert fresh.gdp() == found.gdp()
    assert fresh.advantage() == found.advantage()


@pytest.mark.parametrize("floor", [-1e-12, 1.0, 2, math.nan, math.inf, 1e-101, "1e-12", True])
def test_floors_that_are_none_are_refused(found, floor):
    with pytest.raises(ParameterError, match=r"floor.* must .*\."):
        found.gdp(floor)


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, math.nan, None])
def test_rates_that_are_none_are_refused(found, rate):
    with pytest.raises(ParameterError, match="false_positive_rate must"):
        found.true_positive_rate(rate)


@pytest.mark.parametrize("delta", [0, 1, -1e-6, 1e-101])
def test_deltas_that_are_none_are_refused(found, delta):
    with pytest.raises(ParameterError, match="delta must lie"):
        found.epsilon_at(delta)


def units_asked(guarantee):
    return (
        guarantee.gdp,
        guarantee.zcdp,
        guarantee.advantage,
        lambda: guarantee.true_positive_rate(0.1),
        lambda: guarantee.epsilon_at(1e-3),
    )


def test_numbers_without_a_mechanism_say_so(found):
    by_mixture = mmcc.mixtures.last_iterate(8, 0.1, sigma=1.0, delta=1e-5)
    for alone in (pickle.loads(pickle.dumps(found)), certified(found), by_mixture):
        assert alone.curve is None
        for ask in units_asked(alone):
            with pytest.raises(MethodError, match="without its mechanism"):
                ask()


def test_nothing_else_notices_the_curve(found):
    assert pickle.loads(pickle.dumps(found)) == found
    assert "curve" not in found.to_dict()
    assert "curve" not in repr(found)
    for kept in (copy.copy(found), copy.deepcopy(found), replace(found, bound="other")):
        assert kept.gdp() == found.gdp()


def test_it_keeps_no_executor_and_nothing_that_was_computed(found):
    assert found.curve.problem.effort.executor is None
    identity, scheme = strategies.identity(4), sampling.Poisson(0.1)
    calls = []

    def progress(what, done):
        calls.append((what, done))

    made = mmcc.epsilon(identity, scheme, sigma=2.0, delta=1e-5, method="mmcc", progress=progress)
    assert not made.curve.problem._remembered
    made.advantage()
    assert ("points of the privacy curve", 1) in calls


def test_a_guarantee_without_a_setting_has_units_without_one():
    """Under Shuffle amplified numbers hold in the 0-1 setting alone."""
    shuffle, tree = sampling.Shuffle(), strategies.identity(4)
    plain = mmcc.epsilon(tree, shuffle, sigma=2.0, delta=1e-6, method="unamplified")
    assert plain.setting == ""
    assert plain.curve.winners == (PLAIN,)
    assert plain.gdp() == pytest.approx(0.5)
    amplified = mmcc.epsilon(tree, shuffle, sigma=2.0, delta=1e-3)
    assert amplified.setting
    assert amplified.advantage() < plain.advantage()


def test_all_questions_lead_to_units():
    identity, scheme = strategies.identity(4), sampling.Poisson(0.1)
    given = {"method": "mmcc"}
    pair = mmcc.epsilon(identity, scheme, sigma=2.0, delta=1e-5, **given)
    assert mmcc.delta(identity, scheme, sigma=2.0, epsilon=0.3, **given).gdp() == pytest.approx(
        pair.gdp(), rel=5e-3
    )
    noise = mmcc.sigma(identity, scheme, epsilon=pair.epsilon, delta=1e-5, **given)
    assert noise.advantage() == pytest.approx(pair.advantage(), rel=1e-2)
    both = mmcc.bracket(identity, scheme, sigma=2.0, delta=1e-5, **given)
    assert both.guarantee.gdp() == pair.gdp()


def test_where_hardly_anybody_takes_part_the_chance_bounds_attacks():
    found = mmcc.epsilon(strategies.identity(2), sampling.Poisson(1e-9), sigma=1.0, delta=1e-6)
    assert found.epsilon == 0
    assert found.advantage() <= 2.1e-9
    assert found.true_positive_rate(1e-3) <= 1e-3 + 2.1e-9
    assert found.gdp(1e-6) == 0


def test_a_group_has_units_of_its_own():
    identity, scheme = strategies.identity(4), sampling.Poisson(1)
    found = mmcc.epsilon(identity, scheme, sigma=4.0, delta=1e-6, group_size=3)
    assert found.gdp() == pytest.approx(1.5)
    assert found.zcdp() == pytest.approx(1.125)


def test_far_too_little_noise_is_no_trouble():
    identity, scheme = strategies.identity(4), sampling.Poisson(0.5)
    found = mmcc.epsilon(identity, scheme, sigma=0.02, delta=1e-6, method="mmcc")
    assert found.epsilon > 600  # e^epsilon is no number to reckon with
    assert found.gdp() <= 100 * (1 + 1e-9)
    assert found.advantage() <= 1
    assert found.true_positive_rate(0.1) <= 1


def test_the_table_has_every_number_rounded_up(found):
    told = units_of(found)
    assert told == Units(
        mu=found.gdp(),
        floor=1e-12,
        unamplified_mu=found.gdp(0),
        rho=found.zcdp(),
        advantage=found.advantage(),
        powers=tuple((rate, found.true_positive_rate(rate)) for rate in RATES),
    )
    numbers = [told.mu, told.unamplified_mu, told.rho, told.advantage]
    numbers += [power for _, power in told.powers]
    rows = told.rows()
    assert all(float(row[1]) >= number for row, number in zip(rows, numbers, strict=True))
    assert "1e-12" in rows[0][2]
    assert all("unamplified" in row[2] for row in rows[1:3])
