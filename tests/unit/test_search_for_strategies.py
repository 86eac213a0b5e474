"""Claim: the parts of the search do what they say: shapes, the simplex, rough noise levels."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._best_bound import Budget
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.design._certified_noise import Target
from mmcc.design._optimise import budget_for, fixed_strategies
from mmcc.design._quasi_newton import follow
from mmcc.design._rough_noise import Placement, RoughNoise
from mmcc.design._search import Evaluation, descend
from mmcc.design._shapes import LIMITS, Bands, Buffers, InverseBands, Shapes, coefficients


@pytest.mark.parametrize(
    ("power", "decay", "other"),
    [(1.0, 0.9, 0.3), (0.5, 1.0, 0.0), (0.5, 0.95, 0.2), (2.3, 0.8, 0.79), (0.1, 0.999, 0.5)],
)
def test_coefficients_are_those_of_the_power(power, decay, other):
    with mpmath.workdps(40):
        exact = mpmath.taylor(lambda x: ((1 - other * x) / (1 - decay * x)) ** power, 0, 11)
    found = coefficients(12, power, decay, other)
    assert found == pytest.approx([float(c) for c in exact], rel=1e-12)


def test_coefficients_are_never_negative():
    for power in (0.1, 1.0, 4.0):
        for decay, other in ((1.0, 0.0), (0.9, 0.8999), (0.5, 0.0), (0.02, 0.01)):
            found = coefficients(300, power, decay, other)
            assert (found >= 0).all()
            assert np.isfinite(found).all()


def test_known_strategies_are_members():
    counting = strategies.continual_counting(50).coefficients
    assert coefficients(50, 0.5, 1.0, 0.0) == pytest.approx(counting, rel=1e-12)
    member = Shapes(20).strategy((2.0, -1.0))
    assert isinstance(member, strategies.Blt)
    cut = Shapes(20, bands=5).strategy((2.0, -1.0))
    assert cut.coefficients == pytest.approx(member.coefficients[:5], rel=1e-12)
    power = Shapes(20).strategy((2.0, -1.0, 0.0))
    assert power.coefficients == pytest.approx(member.coefficients, rel=1e-12)


def test_outside_the_limits_there_is_nothing():
    for place, (low, high) in enumerate(LIMITS):
        for outside in (low - 1, high + 1, math.nan):
            point = [2.0, -1.0, 0.0]
            point[place] = outside
            assert Shapes(20).strategy(point) is None


@pytest.mark.parametrize("edge", LIMITS[0])
@pytest.mark.parametrize("other", LIMITS[1])
@pytest.mark.parametrize("power", [(), (LIMITS[2][0],), (LIMITS[2][1],)])
def test_the_limits_themselves_are_strategies(edge, other, power):
    assert Shapes(40).strategy((edge, other, *power)).bands >= 1


@pytest.mark.parametrize(
    ("family", "point"),
    [
        (Buffers(30), (1.0, -1.0)),
        (Buffers(30), (1.0, 2.0, 3.0, 1.0)),
        (Buffers(30), (3.0, 9.0, 1.0, 9.0, 5.0, -9.0)),
        (InverseBands(30), (0.3, -1.1)),
        (InverseBands(30), (9.0, 9.0, 9.0)),
        (Bands(30), (-0.7, -1.7)),
    ],
)
def test_families_have_members_that_can_be_accounted(family, point):
    member = family.strategy(np.array(point))
    assert (member.coefficients >= 0).all()
    assert member.coefficients[0] == 1
    assert member.steps == 30
    assert family.strategy(np.array(point) + 40.0) is None


def test_one_buffer_is_the_same_in_both_families():
    one = Buffers(20).strategy((2.0, -1.0))
    assert one.coefficients == pytest.approx(
        Shapes(20).strategy((2.0, -1.0)).coefficients, rel=1e-5
    )


def test_buffers_that_are_alike_are_one():
    assert Buffers(20).strategy((2.0, 0.0, 2.01, 0.0)) is None


class ClosedForm:
    """A search whose noise is known: log epsilon falls with sigma, over a bowl."""

    def __init__(self, least):
        self.least, self.tried, self.best = least, 0, None
        self.noise = self

    def error_of(self, strategy):
        return 1.0

    def count(self):
        self.tried += 1

    def _log_epsilon(self, strategy, log_sigma):
        x, y = np.log(strategy.coefficients[1:]) - self.least
        return 1 - 1.5 * log_sigma + x**2 + 10 * (y - x) ** 2

    def look(self, strategy):
        if strategy is None:
            return None
        self.count()
        place = self._log_epsilon(strategy, 0.0) / 1.5
        return Evaluation(place, 0.0, Placement(place, place, 0.0, ()))

    def excess_near(self, strategy, placed, move=0.0):
        return self._log_epsilon(strategy, placed.asked + move)


def test_slopes_lead_to_the_least_value():
    search = ClosedForm(np.array([-1.0, -2.0]))
    found = follow(search, Bands(9), np.array([-0.2, -0.9]), 200)
    assert found.settled
    assert found.value <= 1 / 1.5 + 2e-3
    assert found.point == pytest.approx([-1.0, -2.0], abs=0.08)
    assert search.tried <= 80


def test_with_the_curvature_of_another_search_one_slope_is_enough():
    before = follow(ClosedForm(np.array([-1.0, -2.0])), Bands(9), np.array([-0.2, -0.9]), 200)
    near = ClosedForm(np.array([-1.0, -2.0]))
    found = follow(near, Bands(9), before.point, 50, before.inverse)
    assert found.settled
    assert near.tried == 5
    moved = ClosedForm(np.array([-1.2, -2.3]))
    found = follow(moved, Bands(9), before.point, 50, before.inverse)
    assert found.value <= 1 / 1.5 + 2e-3
    assert moved.tried <= 30


def test_slopes_keep_to_their_budget():
    search = ClosedForm(np.array([-1.0, -2.0]))
    found = follow(search, Bands(9), np.array([-0.2, -0.9]), 7)
    assert search.tried <= 12
    assert not found.settled
    assert found.inverse is None
    assert follow(search, Bands(9), np.array([99.0, 0.0]), 7) is None


def test_the_simplex_finds_a_minimum_and_counts():
    asked = []

    def bowl(point):
        asked.append(point)
        if point[0] < 0:
            return math.inf
        return float((point[0] - 0.3) ** 2 + 10 * (point[1] - point[0] ** 2) ** 2)

    start = np.array([1.0, 2.0])
    value, point = descend(
        bowl, (bowl(start), start), 0.5 * np.eye(2), most=200, small=(1e-10, 1e-5)
    )
    assert point == pytest.approx([0.3, 0.09], abs=1e-3)
    assert value == bowl(point)
    assert len(asked) < 200


@pytest.mark.parametrize("most", [0, 1, 2, 5])
def test_the_simplex_keeps_to_its_budget(most):
    asked = []

    def line(point):
        asked.append(point)
        return float(point.sum())

    value, _ = descend(line, (3.0, np.ones(3)), np.eye(3), most=most, small=(1e-9, 1e-9))
    assert value <= 3.0
    assert len(asked) <= most + 4


def test_the_simplex_ends_where_nothing_has_a_value():
    value, _ = descend(
        lambda _: math.inf, (math.inf, np.zeros(2)), np.eye(2), most=30, small=(1e-9, 1e-9)
    )
    assert value == math.inf


@pytest.mark.parametrize(
    ("strategy", "scheme"),
    [
        pytest.param(
            strategies.blt(24, decay=[0.8], scale=[0.3]),
            sampling.Poisson(1 / 24),
            marks=pytest.mark.slow,
        ),
        (strategies.continual_counting(24), sampling.BallsInBins(6)),
        (strategies.continual_counting(24), sampling.CyclicPoisson(1.0, 6)),
        (strategies.toeplitz([1.0, 0.5], 24), sampling.CyclicPoisson(0.2, 3)),
    ],
)
def test_rough_noise_is_near_the_certified_one(strategy, scheme):
    certified = mmcc.sigma(strategy, scheme, epsilon=1.0, delta=1e-5).sigma
    noise = RoughNoise(scheme, Target(1.0, 1e-5, budget=Budget.SECONDS))
    assert math.exp(noise.log_sigma(strategy)) == pytest.approx(certified, rel=5e-3)


@pytest.mark.parametrize(
    ("strategy", "scheme", "method"),
    [
        (strategies.identity(700), sampling.Poisson(0.1), "tight"),
        (strategies.toeplitz([1.0, 0.5], 700), sampling.Poisson(0.1), "reveal"),
        (strategies.toeplitz([1.0, 0.5], 600), sampling.Poisson(0.1), "tight"),
        (strategies.blt(700, decay=[0.9], scale=[0.1]), sampling.Poisson(0.1), "reveal"),
        (strategies.blt(700, decay=[0.9], scale=[0.1]), sampling.CyclicPoisson(0.1, 2), "tight"),
        (strategies.blt(700, decay=[0.9], scale=[0.1]), sampling.Poisson(1.0), "tight"),
        (strategies.blt(700, decay=[0.9], scale=[0.1]), sampling.BallsInBins(700), "tight"),
        (strategies.continual_counting(700), sampling.Poisson(0.1), "tight"),
        (strategies.binary_tree(1024), sampling.Poisson(0.1), "tight"),
    ],
)
def test_many_rounds_of_few_bands_are_calibrated_by_the_reveal_bound(strategy, scheme, method):
    target = Target(1.0, 1e-5, budget=budget_for(strategy))
    assert target.methods(strategy, scheme) == (method,)


@pytest.mark.slow
def test_a_quick_bound_does_not_choose_the_best_fixed_strategy(monkeypatch):
    """By a loose quick bound two bands are better than four, by all bounds four are."""
    scheme, target = sampling.Poisson(0.25), {"epsilon": 4.0, "delta": 1e-5}
    counting = strategies.continual_counting(64).coefficients
    rivals = [strategies.toeplitz(counting[:bands], 64) for bands in (2, 4)]
    sharp = Reveal.epsilon

    def loose(self, problem, delta):
        found = sharp(self, problem, delta)
        return replace(found, remove=1.6 * found.remove, add=1.6 * found.add)

    monkeypatch.setattr(Reveal, "epsilon", loose)
    quick = [
        mmcc.utility.rmse(rival, mmcc.sigma(rival, scheme, **target, method="reveal").sigma)
        for rival in rivals
    ]
    assert quick[0] < quick[1]
    monkeypatch.setattr("mmcc.accounting._best_bound.FEW_COLUMNS", 10)
    found = strategies.optimise(64, scheme, **target, fixed=rivals, evaluations=0)
    assert found.fixed.strategy == rivals[1]
    assert found.error < min(quick)


def test_fixed_strategies():
    few = fixed_strategies(10, sampling.Poisson(0.1), None)
    assert [one.bands for one in few] == [10, 1, 2, 4, 10]
    within = fixed_strategies(20, sampling.BallsInBins(5), 3)
    assert [one.bands for one in within] == [1, 2, 3]
    long = fixed_strategies(5000, sampling.Poisson(0.1), None)
    assert {one.bands for one in long} == {1, 2, 4, 16, 64, 5000}
    assert isinstance(long[-1], strategies.Blt)
    assert [one.bands for one in fixed_strategies(1, sampling.Poisson(0.1), None)] == [1]
