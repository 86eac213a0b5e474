"""Claim: no mechanism makes more right guesses than the bounds of one-run audits allow.

Truth: all mechanisms over a few coins, by linear programming; mechanisms that attain the bound,
with the exact law of their right guesses; simulated Gaussian releases at 4 standard errors.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.samples import first
from hypothesis import given
from hypothesis import strategies as st
from oracles.one_run import (
    answers,
    chance_with_all_digits,
    most_by_law,
    most_likely,
    privacy_of,
)
from scipy.stats import binom, norm

from mmcc.accounting._curve_points import Point
from mmcc.audit._family import DELTAS
from mmcc.audit._guesses import Guesses
from mmcc.audit._one_run import (
    _of_weights,
    chance_of_correct,
    chance_under_curve,
    lower_epsilon,
    stakes,
)

SOLVER = 1e-7
"""The oracle's own error: a linear program is solved to about this."""
SHAPES = [(2, 2, None), (3, 2, None), (3, 3, None), (2, 2, (1, 1)), (3, 2, (2, 0)), (3, 3, (2, 1))]
LARGE = [(4, 4, None), (4, 3, None), (4, 4, (2, 2)), (4, 2, (0, 2))]


def kinds_of(kinds):
    return 2 if kinds is None else sum(number > 0 for number in kinds)


@pytest.mark.parametrize(
    ("coins", "guesses", "kinds"),
    [*SHAPES, *(pytest.param(*shape, marks=pytest.mark.slow) for shape in LARGE)],
)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 0.0), (1.5, 0.01), (0.7, 0.1)])
def test_no_mechanism_makes_more_right_guesses(coins, guesses, kinds, epsilon, delta):
    possible, staked = answers(coins, guesses, kinds), stakes(coins, kinds_of(kinds))
    for correct in range(1, guesses + 1):
        most = most_likely(coins, possible, correct, [(epsilon, delta)])
        bound = chance_of_correct(correct, guesses, staked, Point(epsilon, delta))
        assert most <= bound + SOLVER


@pytest.mark.parametrize(("coins", "guesses"), first([(2, 2), (3, 2), (3, 3), (4, 4)], 3))
def test_some_mechanism_makes_as_many(coins, guesses):
    """The bound cannot be improved, where guesses may be of any kind."""
    possible = answers(coins, guesses)
    for correct in range(max(1, guesses - 1), guesses + 1):
        most = most_likely(coins, possible, correct, [(1.0, 0.02)])
        bound = chance_of_correct(correct, guesses, stakes(coins, 2), Point(1.0, 0.02))
        assert most == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize(("coins", "guesses"), first([(2, 2), (3, 3), (3, 2), (4, 4)], 2))
def test_no_mechanism_with_a_curve_makes_more_right_guesses(coins, guesses):
    points = [(0.2, 0.2), (0.8, 0.06), (2.0, 0.005)]
    possible = answers(coins, guesses)
    for correct in range(1, guesses + 1):
        most = most_likely(coins, possible, correct, points)
        given_points = [Point(*point) for point in points]
        bound = chance_under_curve(correct, guesses, stakes(coins, 2), given_points)
        singles = [
            chance_of_correct(correct, guesses, stakes(coins, 2), point) for point in given_points
        ]
        assert most <= bound + SOLVER
        assert bound <= min(singles)


@given(
    weights=st.lists(st.lists(st.floats(0, 0.5), min_size=3, max_size=3), min_size=2, max_size=2),
    correct=st.integers(1, 3),
)
def test_every_choice_of_weights_gives_a_bound(weights, correct):
    points = ((0.4, 0.1), (1.2, 0.01))
    most = worst(correct, points)
    bound = _of_weights(
        np.array(weights),
        np.arange(1, 4.0),
        correct,
        3,
        np.exp([epsilon for epsilon, _ in points]),
        3 * np.array([delta for _, delta in points]),
    )
    assert most <= bound + SOLVER


def worst(correct, points, known={}):  # noqa: B006 (the same three programs for all examples)
    if correct not in known:
        known[correct] = most_likely(3, answers(3, 3), correct, points)
    return known[correct]


def test_weights_are_found_that_say_more_than_one_point():
    """About 8 % in mu at a typical audit: 100 guesses about 1000 canaries, 90 of them right."""
    mu = 0.6
    points = [Point(e, gaussian_delta(mu, e)) for e in np.linspace(0.1, 3.2, 12)]
    together = chance_under_curve(90, 100, 1000, points)
    alone = min(chance_of_correct(90, 100, 1000, point) for point in points)
    assert together < 0.7 * alone


@pytest.mark.parametrize(("correct", "guesses"), [(30, 40), (38, 40), (12, 12)])
@pytest.mark.parametrize("points", [[(1.0, 1e-3)], [(0.4, 0.05), (1.5, 2e-3), (3.0, 1e-5)]])
def test_bounds_are_the_best_that_the_inequality_gives(correct, guesses, points):
    """Truth: the law of the number of right guesses as the unknown, where ours are its weights."""
    staked = 1.5 * guesses
    most = most_by_law(guesses, staked, correct, points)
    bound = chance_under_curve(correct, guesses, staked, [Point(*point) for point in points])
    assert most <= bound * (1 + SOLVER)
    assert bound <= most * 1.03  # numbers far below the one seen get no weight
    single = [chance_of_correct(correct, guesses, staked, Point(*point)) for point in points]
    alone = [most_by_law(guesses, staked, correct, [point]) for point in points]
    assert single == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(("correct", "guesses"), [(1, 1), (93, 100), (213, 213), (600, 1000)])
def test_chances_are_rounded_up_and_by_little(correct, guesses, epsilon):
    exact = chance_with_all_digits(correct, guesses, 2000, epsilon, 1e-6)
    bound = chance_of_correct(correct, guesses, 2000, Point(epsilon, 1e-6))
    assert exact <= bound <= exact * (1 + 1e-6)


@pytest.mark.parametrize("guesses", [1, 7, 100, 2000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_confidence_at_randomised_response_is_exact(guesses, epsilon):
    """The worst mechanism for delta = 0: N is binomial.  Level at most 5 %, and nearly that."""
    share = 1 / (1 + math.exp(-epsilon))
    numbers = range(guesses + 1)
    wrong = [lower_epsilon(n, guesses, guesses, 0.0, 0.05) > epsilon for n in numbers]
    level = sum(binom.pmf(n, guesses, share) for n in numbers if wrong[n])
    assert level <= 0.05
    least = max((v for v in numbers if binom.sf(v - 1, guesses, share) > 0.0501), default=0)
    assert level >= 0.999 * binom.sf(least, guesses, share)  # one number less would be too many


@pytest.mark.parametrize(("guesses", "epsilon", "delta"), [(40, 1.0, 1e-3), (200, 2.0, 1e-4)])
def test_confidence_at_the_worst_mechanism_with_a_delta(guesses, epsilon, delta):
    """Right guesses with a law that has the whole delta where it matters; level nearly 5 %."""
    numbers = np.arange(guesses + 1)
    usual = binom.pmf(numbers, guesses, 1 / (1 + math.exp(-epsilon)))
    wrong = [lower_epsilon(n, guesses, guesses, delta, 0.05) > epsilon for n in numbers]
    least = wrong.index(True)
    tail = usual[least:].sum()
    gain = guesses * delta * tail * (1 - tail) / (least * usual[least])
    law = usual * np.where(numbers < least, 1 - gain / (1 - tail), 1 + gain / tail)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert privacy_of(law, epsilon) == pytest.approx(delta, rel=1e-6)
    assert tail < law[least:].sum() <= 0.05


def test_the_formula_that_is_often_used_is_too_small_for_few_right_guesses():
    """At one right guess of two; there the bound is near 1, so no audit's answer rests on it.

    The formula: P[W >= v] + 2 m delta max_i P[v > W >= v - i] / i, i = 1, ..., v.
    """
    epsilon, delta, factor = 1.5, 0.01, math.exp(1.5)
    share = factor / (1 + factor)
    neither = (1 - 2 * delta * (1 + factor / 2)) / (1 + factor) ** 2
    one = 2 * factor * neither + 2 * delta
    law = [neither, one, factor * one / 2]
    assert sum(law) == pytest.approx(1, abs=1e-12)
    assert privacy_of(law, epsilon) == pytest.approx(delta, rel=1e-9)
    formula = 1 - (1 - share) ** 2 + 4 * delta * (1 - share) ** 2
    bound = chance_of_correct(1, 2, 2, Point(epsilon, delta))
    assert formula < law[1] + law[2] <= bound


def gaussian_delta(mu, epsilon):
    """Of N(mu, 1) against N(0, 1)."""
    first, second = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
    return first - math.exp(epsilon) * second


@pytest.mark.parametrize("plan", [(60, 60), (150, 150), (40, 0)])
def test_confidence_at_a_gaussian_mechanism(plan):
    """Releases N(mu x, 1): both bounds are wrong in at most 5 % of the runs."""
    mu, canaries, runs = 1.0, 300, 2000
    delta = 1e-3
    epsilon = next(e for e in np.arange(0, 9, 1e-3) if gaussian_delta(mu, e) <= delta)
    points = [Point(e, gaussian_delta(mu, e)) for e in np.linspace(0.02, 4.0, len(DELTAS))]
    generator = np.random.default_rng(7)
    guesses = Guesses(*plan)
    seen = []
    for _ in range(runs):
        included = generator.random(canaries) < 0.5
        scores = generator.normal(size=canaries) + mu * included
        seen.append(guesses.correct(scores, included, generator))
    allowed = 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
    numbers, counts = np.unique(seen, return_counts=True)
    lower = [guesses.lower_epsilon(int(n), canaries, delta, 0.05) for n in numbers]
    assert counts[np.array(lower) > epsilon].sum() / runs <= allowed
    under = [
        chance_under_curve(int(n), guesses.count, guesses.stakes(canaries), points) for n in numbers
    ]
    assert counts[np.array(under) <= 0.05].sum() / runs <= allowed
    assert np.median(lower) > 0.3  # and they do say something


def test_more_right_guesses_never_say_less():
    for guesses, staked in itertools.product((10, 300), (1000, 2000)):
        found = [lower_epsilon(v, guesses, staked, 1e-5, 0.05) for v in range(guesses + 1)]
        assert found == sorted(found)
        assert found[0] == 0.0


@pytest.mark.parametrize(("correct", "guesses"), [(10**5, 10**5), (5, 10**5), (1, 1), (700, 1000)])
def test_extreme_numbers_have_an_answer(correct, guesses):
    found = lower_epsilon(correct, guesses, 10**6, 1e-300, 1e-9)
    assert math.isfinite(found)
    bound = chance_under_curve(
        correct, guesses, 10.0**6, [Point(0.0, 0.5), Point(700.0, 1e-9), Point(20.0, 1e-100)]
    )
    assert 0 <= bound <= 1
