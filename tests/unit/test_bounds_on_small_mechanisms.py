"""Claim: on mechanisms with a closed form each bound answers each question from the right side.

Truth: one Gaussian, one subsampled Gaussian, composed ones, and two bins in a plane, by formulas
and quadrature that share nothing with the package.  A bound that claims to lose little is close.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pytest
from oracles import truth

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting import Problem
from mmcc.accounting._best_bound import best_delta, best_epsilon, bounds_for
from mmcc.accounting._bounds import CHANCE, PLAIN, Bound, Mmcc
from mmcc.accounting._bounds.cascade import Cascade
from mmcc.accounting._bounds.projection import Projection
from mmcc.accounting._calibrate import impossible_sigma, smallest_sigma

Ends = tuple[float, float]


@dataclass(frozen=True)
class Small:
    """A mechanism, its delta at (epsilon, adjacency) between two ends, and how close bounds are."""

    problem: Problem
    curve: Callable[[float, str], Ends]
    bounds: tuple[tuple[Bound, float], ...]
    """Each with the part of epsilon that it may lose."""


def exact(value: float) -> Ends:
    return float(value) * (1 - 1e-12), float(value) * (1 + 1e-12)


def once(p: float, sigma: float, column: float) -> Small:
    @cache
    def curve(epsilon, side):
        return exact(truth.mixture_delta([0.0, column], [1 - p, p], sigma, epsilon, side))

    problem = Problem(strategies.dense([[column]]), sampling.Poisson(p), sigma)
    return Small(problem, curve, ((Mmcc(), 1e-3), (Projection(), 1e-3)))


def independent(count: int, p: float, sigma: float) -> Small:
    largest = -count * math.log1p(-p)  # loss of add: nobody took part

    @cache
    def curve(epsilon, side):
        if side == "add" and epsilon > 0.8 * largest:  # too near for the oracle; remove is larger
            return 0.0, curve(epsilon, "remove")[1]
        return truth.composed_subsampled_gaussian_delta(count, 1.0, p, sigma, epsilon, side)

    problem = Problem(strategies.identity(count), sampling.Poisson(p), sigma)
    return Small(problem, curve, ((Mmcc(), 1e-3),))


def grouped(p: float, sigma: float) -> Small:
    """Two rounds of each example, two steps apart; the columns of the second group are longest.

    Each group has one row, so its mean direction is all that it shows.
    """
    columns = [0.4, 1.0, 0.5, 1.1]
    matrix = np.zeros((2, 4))
    matrix[np.arange(4) % 2, np.arange(4)] = columns

    @cache
    def curve(epsilon, side):
        pair = columns[1], columns[3]
        return exact(truth.product_mixture_delta(pair, [p, p], sigma, epsilon, side))

    problem = Problem(strategies.dense(matrix, adaptive=False), sampling.CyclicPoisson(p, 2), sigma)
    return Small(problem, curve, ((Mmcc(), 1e-3), (Projection(), 1e-2)))


def correlated(p: float, sigma: float) -> Small:
    matrix = np.array([[1.0, 0.0], [0.6, 0.9]])
    curve = cache(partial(truth.two_row_bracket, matrix, p, sigma))
    problem = Problem(strategies.dense(matrix), sampling.Poisson(p), sigma)
    return Small(problem, curve, ((Mmcc(), 1.5), (Mmcc("reversed", 0.1), 1.5), (Projection(), 0.1)))


def two_bins(sigma: float) -> Small:
    curve = cache(partial(truth.bins_bracket, np.eye(2) / sigma))
    problem = Problem(strategies.identity(2), sampling.BallsInBins(2), sigma)
    return Small(problem, curve, ((Cascade(), 1e-3), (Projection(), 0.25)))


def tree_of_bins(sigma: float) -> Small:
    """Two bins below a root: columns (1, 0, 1) and (0, 1, 1) in the order of release."""
    bins = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    curve = cache(partial(truth.bins_bracket, bins / sigma))
    problem = Problem(strategies.binary_tree(2), sampling.BallsInBins(2), sigma)
    return Small(problem, curve, ((Cascade(), 1e-3), (Projection(), 0.25)))


CASES = {
    "one step": once(0.1, 1.3, 0.8),
    "one rare step": replace(once(1e-3, 0.7, 1.0), bounds=((Mmcc(), 1e-3),)),
    "independent": independent(12, 0.2, 1.4),
    "groups": grouped(0.2, 1.5),
    "correlated": correlated(0.15, 1.4),
    "two bins": two_bins(1.2),
    "tree": tree_of_bins(1.7),
}
ASKED = [(name, bound, near) for name, case in CASES.items() for bound, near in case.bounds]
DELTAS = (1e-2, 1e-6)
EPSILONS = (0.0, 0.3, 2.0)


def few(bound: Bound, values: tuple[float, ...]) -> tuple[float, ...]:
    """One of the values where each costs most of a second."""
    return values[1:2] if isinstance(bound, Projection) else values


def worst(name: str, epsilon: float) -> Ends:
    """The true delta of the larger adjacency."""
    ends = [CASES[name].curve(epsilon, side) for side in truth.ADJACENCIES]
    return max(low for low, _ in ends), max(high for _, high in ends)


def fresh(name: str) -> Problem:
    """Nothing is kept of earlier questions."""
    problem = CASES[name].problem
    return problem.at(problem.sigma)


@pytest.mark.parametrize(("name", "bound", "near"), ASKED)
def test_epsilon_holds_on_both_sides_and_little_is_lost(name, bound, near):
    for delta in few(bound, DELTAS):
        found = bound.epsilon(fresh(name), delta)
        assert CASES[name].curve(found.remove, "remove")[0] <= delta
        assert CASES[name].curve(found.add, "add")[0] <= delta
        assert found.value == 0.0 or worst(name, found.value / (1 + near))[1] >= delta


@pytest.mark.parametrize(("name", "bound", "near"), ASKED)
def test_delta_holds_on_both_sides_and_little_is_lost(name, bound, near):
    for epsilon in few(bound, EPSILONS):
        found = bound.delta(fresh(name), epsilon)
        assert found.remove >= CASES[name].curve(epsilon, "remove")[0]
        assert found.add >= CASES[name].curve(epsilon, "add")[0]
        if epsilon > 0:  # what is lost in epsilon, in delta
            assert found.value <= worst(name, epsilon / (1 + near))[1] * (1 + 10 * near)


@pytest.mark.parametrize(("name", "bound", "near"), ASKED)
def test_lower_ends_lie_below_the_truth_and_near_it(name, bound, near):
    close = name == "independent" if isinstance(bound, Mmcc) else True
    for delta in few(bound, DELTAS):
        found = bound.lower_epsilon(fresh(name), delta).value
        assert found == 0.0 or worst(name, found)[1] >= delta
        if close:
            assert worst(name, found * (1 + near))[0] <= delta
    for epsilon in few(bound, EPSILONS):
        least = bound.lower_delta(fresh(name), epsilon).value
        assert 0.0 <= least <= worst(name, epsilon)[1]
        if close:
            assert least >= 0.98 * worst(name, epsilon * (1 + near))[0]


@pytest.mark.parametrize("name", CASES)
def test_the_best_of_all_bounds_is_as_good_as_the_best_and_names_it(name):
    case = CASES[name]
    problem = case.problem.at(case.problem.sigma)
    bounds = bounds_for(problem)
    best = best_epsilon(problem, 1e-4, bounds)
    for side in truth.ADJACENCIES:
        assert case.curve(best.value, side)[0] <= 1e-4
    assert best.lower <= best.value
    answers = [bound.epsilon(problem, 1e-4).value for bound, _ in case.bounds]
    assert best.value <= min(answers) * 1.021  # closed within two per cent is enough
    assert best.winner.bound in (*bounds, *best.bounds)
    told = best_delta(problem, 0.5, bounds)
    for side in truth.ADJACENCIES:
        assert case.curve(0.5, side)[0] <= told.value <= problem.chance
    assert told.lower <= told.value


@pytest.mark.parametrize("name", ["one step", "independent", "two bins"])
def test_the_smallest_noise_is_enough_and_less_is_impossible(name):
    """By the truth: at the sigma found epsilon is met, at the impossible one it is not."""
    make = {
        "one step": lambda sigma: once(0.1, sigma, 0.8),
        "independent": lambda sigma: independent(12, 0.2, sigma),
        "two bins": two_bins,
    }[name]
    case = make(5.0)
    bounds = [bound for bound, near in case.bounds if near <= 1e-3][:1]
    problem, best, floor = smallest_sigma(case.problem, bounds, 1.0, 1e-5)

    def true(sigma):
        return max(make(sigma).curve(1.0, side)[0] for side in truth.ADJACENCIES)

    assert best.value <= 1.0
    assert true(problem.sigma) <= 1e-5
    assert true(problem.sigma * (1 - 3e-3)) > 1e-5
    assert 0.9 * problem.sigma <= floor <= problem.sigma
    assert true(floor) >= 1e-5 * (1 - 1e-9)
    assert impossible_sigma(case.problem, 1.0, 1e-5) == floor


@pytest.mark.parametrize("p", [0.05, 0.6])
def test_the_chance_to_take_part_holds_at_every_epsilon_and_at_no_smaller_delta(p):
    problem = Problem(strategies.identity(3), sampling.Poisson(p), 0.01)
    chance = problem.chance
    assert chance == pytest.approx(1 - (1 - p) ** 3, rel=1e-12)
    assert CHANCE.refusal(problem) is None
    assert CHANCE.epsilon(problem, chance).value == 0.0
    assert CHANCE.epsilon(problem, chance * (1 - 1e-9)).value == math.inf
    assert CHANCE.delta(problem, 3.0).remove == CHANCE.delta(problem, 0.0).add == chance
    # Without noise the example is seen whenever it takes part, and never otherwise.
    assert truth.mixture_delta([0.0, 99.0], [1 - chance, chance], 1.0, 0.2, "remove") <= chance
    always = Problem(strategies.identity(3), sampling.Poisson(1.0), 1.0)
    assert CHANCE.refusal(always) == "every example takes part."
    assert dict(CHANCE.details(problem, CHANCE.delta(problem, 0.0), 0.1)) == {
        "chance_to_take_part": chance
    }


@pytest.mark.parametrize("bound", [PLAIN, Projection()])
@pytest.mark.parametrize("scheme", [sampling.Poisson(1.0), sampling.BallsInBins(1)])
def test_who_always_takes_part_sees_one_gaussian(scheme, bound):
    """Every step, so |C 1| = sqrt(1^2 + 2^2 + 3^2) for lower triangular ones."""
    problem = Problem(strategies.dense(np.tril(np.ones((3, 3)))), scheme, 4.0)
    sensitivity = math.sqrt(14.0)
    for delta in few(bound, DELTAS):
        found = bound.epsilon(problem, delta)
        least = truth.smallest_epsilon(lambda e: truth.gaussian_delta(sensitivity, 4.0, e), delta)
        assert found.remove == found.add
        assert least <= found.value <= least * (1 + 1e-9)
    for epsilon in EPSILONS:
        true = float(truth.gaussian_delta(sensitivity, 4.0, epsilon))
        assert true * (1 - 1e-12) <= bound.delta(problem, epsilon).value <= true * (1 + 1e-9)


def test_questions_answer_with_what_they_were_asked_and_what_they_found():
    strategy, scheme = strategies.identity(4), sampling.Poisson(0.2)
    at_delta = mmcc.epsilon(strategy, scheme, sigma=1.5, delta=1e-5)
    at_epsilon = mmcc.delta(strategy, scheme, sigma=1.5, epsilon=at_delta.epsilon)
    noise = mmcc.sigma(strategy, scheme, epsilon=at_delta.epsilon, delta=1e-5)
    assert (at_delta.delta, at_delta.sigma, at_epsilon.epsilon) == (1e-5, 1.5, at_delta.epsilon)
    assert at_epsilon.delta == pytest.approx(1e-5, rel=1e-2)
    assert noise.sigma == pytest.approx(1.5, rel=1e-3)
    assert noise.epsilon <= at_delta.epsilon
    assert noise.details["sigma_lower"] <= noise.sigma
    assert noise.details["slack"] == noise.sigma / noise.details["sigma_lower"] - 1
    assert at_delta.details["epsilon_lower"] <= at_delta.epsilon
    ends = mmcc.bracket(strategy, scheme, sigma=1.5, delta=1e-5)
    assert (ends.lower, ends.upper) == (at_delta.details["epsilon_lower"], at_delta.epsilon)
    plain = mmcc.bracket(strategy, scheme, sigma=1.5, delta=1e-5, method="unamplified")
    assert plain.lower == ends.lower < ends.upper < plain.upper
    assert plain.guarantee.details["sensitivity"] == pytest.approx(2.0)
    assert plain.estimate is None


def test_no_noise_is_needed_where_hardly_anybody_takes_part():
    strategy, scheme = strategies.identity(4), sampling.Poisson(1e-3)
    found = mmcc.sigma(strategy, scheme, epsilon=1.0, delta=0.01)
    assert found.details["any_sigma"] is True
    assert found.sigma == pytest.approx(2e-6)
    assert found.epsilon == 0.0
    assert mmcc.epsilon(strategy, scheme, sigma=found.sigma, delta=0.01).epsilon == 0.0
    ends = mmcc.bracket(strategy, scheme, sigma=1.0, delta=0.01)
    assert (ends.lower, ends.upper, ends.ratio) == (0.0, 0.0, 1.0)
