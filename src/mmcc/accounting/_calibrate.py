"""The smallest noise level that certifies a target, and what a proof costs there.

In: a mechanism without its sigma, a target (epsilon, delta).  Out: the safe end of a search, with
the guarantee computed there; and the sigma below which the target is impossible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mmcc.accounting._best_bound import (
    Best,
    ask_epsilon,
    best_epsilon,
    best_of,
    lower_epsilon,
)
from mmcc.accounting._bounds import PLAIN, Answer, Bound, Problem
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.errors import MethodError

TOLERANCE = 1e-4
"""Epsilon may be this much (relative) below the target."""
NARROW = 1e-5
"""Sigma may be this much (relative) above one that certifies less, where epsilon jumps."""
ONE_STEP = 5e-3
"""From this near the next step is expected to meet the target."""
MAX_TURNS = 16
EXPLORED = (5, 9, 13, 15)
"""Turns in which all bounds are tried again: one that was good elsewhere may have failed here."""
FLOOR_TURNS = 12
SLOPE = -1.2
"""Of log epsilon against log sigma, before anything is known."""

NO_ADD = Answer(math.inf, 0.0)
"""Taken for granted on the way to a sigma where remove sets the promise: add costs as much."""

Points = list[tuple[float, float]]
"""Log sigma, log epsilon against the target."""


def smallest_sigma(
    problem: Problem, bounds: Sequence[Bound], epsilon: float, delta: float
) -> tuple[Problem, Best, float]:
    """The problem at the sigma found, its bounds, and a sigma that is too small for any proof.

    `problem.sigma` is where the search may end at the latest (0: unknown).
    """
    floor, ends = _floor(problem, epsilon, delta)
    start = floor * 1.002 if floor > 0 else _first_guess(problem)
    if problem.sigma > 0:
        start = min(start, problem.sigma)
    # Upper bounds fall about as fast as lower ones.
    slope = _slope(ends, 0.0, SLOPE) if floor > 0 else SLOPE
    found, best = _search(problem.at(start), bounds, epsilon, delta, slope)
    if len(bounds) > 1 and best.lower == 0:
        best = replace(best, lower=lower_epsilon(found, delta))
    return found, best, floor


def impossible_sigma(problem: Problem, epsilon: float, delta: float) -> float:
    """A sigma at which epsilon is certainly above the target; 0 where nothing is known."""
    return _floor(problem, epsilon, delta)[0]


def _floor(problem: Problem, epsilon: float, delta: float) -> tuple[float, Points]:
    """That sigma, and lower ends at it and around it."""
    largest = 0.0

    def excess(sigma: float) -> float:
        nonlocal largest
        value = lower_epsilon(problem.at(sigma), delta)
        if value >= epsilon:
            largest = max(largest, sigma)
        return math.log(max(value, 1e-12) / epsilon)

    guess = _first_guess(problem)
    points: Points = []
    above = math.inf
    for _ in range(FLOOR_TURNS):
        found = excess(guess)
        points.append((math.log(guess), found))
        if 0 <= found <= TOLERANCE or (found <= -20 and len(points) > 2 and not largest):
            break
        above = min(above, guess) if found < 0 else above
        guess = next_sigma(points, 0.3 * TOLERANCE)
        if largest > 0 and not largest < guess < above and above < math.inf:
            guess = math.sqrt(largest * above)
    return largest, points


def _first_guess(problem: Problem) -> float:
    column = problem.strategy.sensitivity(problem.strategy.steps)
    ceiling = problem.sigma if problem.sigma > 0 else 10 * column
    rounds = problem.rounds
    chance = problem.scheme.rate(problem.steps) if rounds is None else rounds.probability
    return min(1.5 * chance * ceiling + 0.3 * column, ceiling)


def _search(
    problem: Problem,
    bounds: Sequence[Bound],
    epsilon: float,
    delta: float,
    slope: float = SLOPE,
) -> tuple[Problem, Best]:
    """Close in on epsilon(sigma) = epsilon from both sides; return the safe side.

    A single bound is asked as it is.  Of several all are tried at the first guess; those that were
    best alone, and roughly, while the target is far; and all at the answer, so that asking for
    epsilon at this sigma gives the same number.
    """
    safe: tuple[Problem, Best] | None = None
    points: Points = []
    low, high = 0.0, math.inf
    refused = 0.0  # the largest sigma at which all bounds were tried in vain
    chosen, several = list(bounds), len(bounds) > 1
    explore = several
    granted: tuple[Answer, ...] = ()
    for turn in range(MAX_TURNS):
        known = () if explore else granted
        asked = bounds if explore else chosen
        best = _ask(problem, asked, delta, explore=explore, known=known)
        now, away = problem.sigma, math.log(max(best.value, 1e-12) / epsilon)
        if explore and best.bounds != chosen:
            # What other bounds could not certify says nothing about these.
            low, points = refused, []
        if explore:
            chosen = best.bounds
            granted = (NO_ADD,) if best.remove.remove >= best.add.add else ()
        if best.value <= epsilon:
            high, safe = now, safe if known else (problem, best)
        else:
            low, high = now, high if high > now else math.inf
            refused = max(refused, now) if explore else refused
        near = best.value >= epsilon * (1 - TOLERANCE) or high - low <= NARROW * high
        if near and best.value <= epsilon and (explore or not several):
            break
        if near and away <= TOLERANCE and several and not explore:
            explore = True  # at the same sigma
            continue
        points.append((math.log(now), away))
        slope = _slope(points, -0.5 * TOLERANCE, slope)
        problem = problem.at(_between(low, high, now, points, slope))
        explore = several and (turn + 1 in EXPLORED or (explore and abs(away) <= ONE_STEP))
    if safe is None:
        raise MethodError(
            f"no sigma up to {problem.sigma:g} reaches epsilon = {epsilon:g} by "
            f"{', '.join(map(str, bounds))}. Use method='tight', or a larger epsilon or delta."
        )
    return safe


def _between(low: float, high: float, now: float, points: Points, slope: float) -> float:
    """The next sigma, between those that are too small and large enough."""
    guess = next_sigma(points, -0.5 * TOLERANCE, slope)
    if low < guess < high:
        return guess
    if low == 0:
        return now / 4
    return math.sqrt(low * high) if high < math.inf else 2 * now


def _ask(
    problem: Problem,
    bounds: Sequence[Bound],
    delta: float,
    *,
    explore: bool,
    known: Sequence[Answer] = (),
) -> Best:
    """Several bounds in earnest (`explore`), or each of some; `known` is taken for granted."""
    if explore:
        return best_epsilon(problem, delta, bounds)
    answers = list(known)
    for bound in sorted(bounds, key=lambda bound: bound.cost(problem)):
        answers.append(ask_epsilon(bound, problem, delta, answers))
    return best_of(answers)


def next_sigma(points: Points, goal: float, usual: float = SLOPE) -> float:
    """Secant through the two points nearest to the goal; the usual slope from one point."""
    x, y = min(points, key=lambda point: abs(point[1] - goal))
    step = min(max((goal - y) / _slope(points, goal, usual), -3.0), 3.0)
    return math.exp(x + step)


def _slope(points: Points, goal: float, usual: float) -> float:
    """Of log epsilon against log sigma near the goal; the usual one if two points do not tell."""
    nearest = sorted(points, key=lambda point: abs(point[1] - goal))[:2]
    if len(nearest) < 2 or nearest[0][0] == nearest[1][0]:
        return usual
    (x, y), (other, height) = nearest
    return min(max((height - y) / (other - x), -20.0), -0.3)


def gaussian_problem(problem: Problem, epsilon: float, delta: float) -> Problem:
    """The mechanism with the noise that needs no amplification: enough, rounded up."""
    problem = problem.at(_gaussian_sigma(problem.sensitivity, epsilon, delta))
    for step in (10.0**k for k in range(-12, 0)):  # the last digits of both searches
        if PLAIN.epsilon(problem, delta).value <= epsilon:
            break
        problem = problem.at(problem.sigma * (1 + step))
    return problem


def _gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise of the Gaussian mechanism, rounded up."""
    low, high = 1e-12, 1e12
    for _ in range(100):
        middle = math.sqrt(low * high)
        enough = bound_gaussian_delta(1 / middle, epsilon) <= delta
        low, high = (low, middle) if enough else (middle, high)
        if high - low <= 1e-12 * high:
            break
    return sensitivity * high * (1 + 2.0**-50)
