"""Claim: budgets are shared, and orders, shares of delta and noise are chosen, as is said."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest

from mmcc import strategies
from mmcc.accounting import Answer, Problem
from mmcc.accounting._best_bound import Best
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._bounds.mmcc import Mmcc, independent_steps
from mmcc.accounting._bounds.mmcc.algorithm import analyse
from mmcc.accounting._bounds.mmcc.conditional import bound_probabilities
from mmcc.accounting._bounds.mmcc.shares import _vertex
from mmcc.accounting._bounds.projection import Projection
from mmcc.accounting._calibrate import TOLERANCE, _search, gaussian_problem
from mmcc.accounting._losses.composed import Question
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._questions import _guarantee
from mmcc.errors import PrecisionError
from mmcc.sampling import Poisson, Rounds
from mmcc.strategies._geometry import Block


def test_a_row_is_bounded_with_half_the_budget_for_each_part():
    """Participation alone is rarer than half the budget, so it adds nothing."""
    p, budget, c, sigma = 0.045, 0.1, 0.8, 1.3
    length, one = np.array([c * c]), np.ones(1)
    block = Block(1, one, length, length, length, overlaps=length[None])
    found = float(bound_probabilities(block, p, sigma, budget, 0.0, "remove")[0])
    odds = math.log(p / (1 - p)) - (c / sigma) ** 2 / 2
    odds -= NormalDist().inv_cdf(budget / 2) * c / sigma
    assert found == pytest.approx(1 / (1 + math.exp(-odds)), rel=1e-9)


@pytest.mark.parametrize("budget", [1e-9, 0.1, 0.499])
@pytest.mark.parametrize("root", [1e-3, 0.05, 0.25, 0.8, 3.0])
def test_bounds_hold_for_all_geometries_within_the_error(root, budget):
    """Add: the odds at a normal's quantile, |c_j| as far from what was stored as it may be."""
    p, sigma, error = 0.1, 1.7, 0.01
    length, one = np.array([(root * sigma) ** 2]), np.ones(1)
    block = Block(1, one, length, length, length)
    found = float(bound_probabilities(block, p, sigma, budget, error, "add")[0])
    deviate = -NormalDist().inv_cdf(budget)
    for off in np.linspace(-error, error, 21).tolist():
        true = root * math.sqrt(1 + off)
        odds = math.log(p / (1 - p)) + deviate * true - true**2 / 2
        assert found >= 1 / (1 + math.exp(-odds))


def test_an_outcome_promises_the_larger_side_and_shows_the_largest_probability():
    strategy = strategies.dense([[1.0, 0.0, 0.0], [0.6, 1.0, 0.0], [0.2, 0.7, 1.0]])
    p, sigma, delta_1 = 0.2, 4.0, 1e-4
    outcome = analyse(
        strategy,
        Rounds(p, 1),
        sigma,
        Question(delta=1e-4),
        order="release",
        delta_1=delta_1,
        effort=Effort(tolerance=1e-2),
    )
    assert outcome.add != outcome.remove
    assert outcome.value == max(outcome.remove, outcome.add)
    geometry = strategy.geometry("release", 1, 0)
    budget = delta_1 / geometry.events
    bounds = [
        float(bound)
        for block in geometry.blocks()
        for side in ("remove", "add")
        for bound in bound_probabilities(block, p, sigma, budget, geometry.error, side)
    ]
    assert outcome.notes == {"events": geometry.events, "blow_up": max(bounds) / p}


@dataclass(frozen=True)
class Formula(Mmcc):
    """MMCC whose numbers are given by formulas."""

    at_delta: Callable | None = None
    at_epsilon: Callable | None = None
    delta_2: Callable | None = None

    def has_events(self, problem):
        return True

    def epsilon(self, problem, delta):
        return self.at_delta(self)

    def delta(self, problem, epsilon):
        return self.at_epsilon(self)

    def _analyse(self, problem, delta_1, question):
        return Answer(self.delta_2(delta_1), math.inf)


PROBLEM = Problem(strategies.binary_tree(8), Poisson(0.5), 50.0)
"""Its three orders of analysis differ."""


@pytest.mark.parametrize("share", [0.5, 0.02])
@pytest.mark.parametrize("fall", [0.05, 0.6])
@pytest.mark.parametrize("place", [-3.5, -6.5, -40.0, -200.0])
def test_bad_events_have_their_share_of_delta(place, fall, share):
    def delta_2(delta_1):
        return 10 ** (place - fall * (math.log10(delta_1) - place))

    delta_1 = Formula(share=share, delta_2=delta_2)._split(PROBLEM, 1.0)
    found = delta_1 / (delta_1 + delta_2(delta_1))
    assert math.log10(found / (1 - found) * (1 - share) / share) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("best", [0.3, 0.06, 3e-4])
def test_the_best_order_and_share_are_found(best):
    """Epsilon is a parabola in log share, lower in one order than in the others."""

    def epsilon(bound):
        order = {"release": 0.3, "reversed": 0.0, "heavy": 0.1}[bound.order]
        return Answer(1 + order + 0.01 * math.log(bound.share / best) ** 2, 9.0)

    found = Formula(at_delta=epsilon).tune_for_epsilon(PROBLEM, 1e-5)
    assert found.order == "reversed"
    assert found.share == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("better", [0.5, 0.02])
def test_delta_is_asked_with_the_best_order_and_share_that_were_tried(better):
    def delta(bound):
        order = {"release": 0.03, "reversed": 0.0, "heavy": 0.01}[bound.order]
        value = 0.1 + order + 0.001 * abs(bound.share - better)
        return Answer(value, value)

    found = Formula(at_epsilon=delta).tune_for_delta(PROBLEM, 1.0)
    assert (found.order, found.share) == ("reversed", better)


def test_the_lowest_point_of_a_parabola_is_kept_between_the_points():
    def through(lowest, *places):
        return _vertex(*((x, (x - lowest) ** 2) for x in places))

    assert through(0.3, -1.0, 0.5, 2.0) == pytest.approx(0.3)
    assert through(-4.0, -1.0, 0.5, 2.0) == -1.0
    assert through(7.0, -1.0, 0.5, 2.0) == 2.0
    assert _vertex((0.0, 0.0), (1.0, 2.0), (2.0, 4.0)) == 1.0  # a line has none
    assert _vertex((0.0, 0.0), (1.0, 1.0), (2.0, 0.0)) == 1.0


# Answers.


def test_nothing_is_known_from_below_where_the_upper_bound_fails():
    def refuses(_bound):
        raise PrecisionError("too far.")

    problem = Problem(strategies.identity(3), Poisson(0.5), 50.0)
    assert independent_steps(problem)
    assert Mmcc().lower_epsilon(problem, 1e-5).value > 0
    assert Formula(at_delta=refuses).lower_epsilon(problem, 1e-5).value == 0.0
    assert Formula(at_epsilon=refuses).lower_delta(problem, 0.1).value == 0.0


@pytest.mark.parametrize("short", [0.0, 1e-11, 1e-7, 1e-3])
def test_noise_that_is_a_little_short_is_raised_until_it_is_enough(short):
    class Short(Problem):
        def at(self, sigma):
            return Problem(self.strategy, self.scheme, sigma * (1 - short))

    enough = gaussian_problem(Short(strategies.identity(4), Poisson(0.5), 1.0), 1.0, 1e-5)
    assert PLAIN.epsilon(enough, 1e-5).value <= 1.0
    less = Problem(enough.strategy, enough.scheme, enough.sigma * (1 - 1e-9 - 12 * short))
    assert PLAIN.epsilon(less, 1e-5).value > 1.0


@pytest.mark.parametrize("power", [0.8, 1.2, 2.5])
def test_a_search_ends_at_the_first_noise_that_is_enough_and_no_more(power):
    asked = []

    class Falling(Projection):
        def epsilon(self, problem, delta):
            asked.append((3.0 / problem.sigma) ** power)
            return Answer(asked[-1], 0.0)

    first = Problem(strategies.identity(2), Poisson(0.5), 8.0)
    found, best = _search(first, [Falling()], 0.7, 1e-5)
    enough = [0.7 * (1 - TOLERANCE) <= value <= 0.7 for value in asked]
    assert enough == [False] * (len(asked) - 1) + [True]
    assert best.value == asked[-1] == (3.0 / found.sigma) ** power


def test_a_guarantee_says_which_bound_gave_what():
    notes = {"delta_1": 0.0, "events": 0, "blow_up": 1.0}
    one = Answer(1.0, 0.8, bound=Projection())
    other = Answer(1.2, 0.7, notes=notes, bound=Mmcc("reversed"))
    problem = Problem(strategies.identity(2), Poisson(0.5), 2.0)
    best = Best(one, other, 0.9)
    found = _guarantee(problem, "tight", best.bounds, best, best.value, 1e-5, "sigma", 1.6)
    assert found.epsilon == 1.0
    assert found.details["remove"] == 1.0
    assert found.details["add"] == 0.7
    assert found.details["remove_by"] == "projection"
    assert found.details["add_by"] == "mmcc, rows in reversed order"
    assert found.details["epsilon_lower"] == 0.9
    assert found.details["sigma_lower"] == 1.6
    assert found.details["slack"] == pytest.approx(0.25)
    delta = _guarantee(problem, "tight", [Projection()], Best(one, one, 0.9), 1.0, 1.0, "delta")
    assert delta.details["delta_lower"] == 0.9
    assert "remove_by" not in delta.details
