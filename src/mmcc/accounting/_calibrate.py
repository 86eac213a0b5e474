"""The smallest noise level that certifies a target, and what a proof costs there.

In: a mechanism without its sigma, a target (epsilon, delta).  Out: the safe end of a search, with
the guarantee computed there; and the sigma below which the target is impossible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from mmcc.accounting._best_bound import (
    CLOSED,
    Best,
    ask_epsilon,
    best_epsilon,
    best_of,
    lower_epsilon,
)
from mmcc.accounting._bounds import PLAIN, Bound, Problem
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.errors import MethodError

TOLERANCE = 1e-4
"""Epsilon may be this much (relative) below the target."""
NARROW = 1e-5
"""Sigma may be this much (relative) above one that certifies less, where epsilon jumps."""
MAX_TURNS = 16
EXPLORED = (0, 4, 8, 12)
"""Turns in which all bounds are tried."""
FLOOR_TURNS = 12
SLOPE = -1.2
"""Of log epsilon against log sigma, before anything is known."""


def smallest_sigma(
    problem: Problem, bounds: Sequence[Bound], epsilon: float, delta: float
) -> tuple[Problem, Best, float]:
    """The problem at the sigma found, its bounds, and a sigma that is too small for any proof.

    `problem.sigma` is where the search may end at the latest (0: unknown).
    """
    floor = impossible_sigma(problem, epsilon, delta)
    start = floor * 1.002 if floor > 0 else _first_guess(problem)
    if problem.sigma > 0:
        start = min(start, problem.sigma)
    found, best = _search(problem.at(start), bounds, epsilon, delta)
    if len(bounds) > 1 and best.lower == 0:
        best = replace(best, lower=lower_epsilon(found, delta))
    return found, best, floor


def impossible_sigma(problem: Problem, epsilon: float, delta: float) -> float:
    """A sigma at which epsilon is certainly above the target; 0 where nothing is known."""
    largest = 0.0

    def excess(sigma: float) -> float:
        nonlocal largest
        value = lower_epsilon(problem.at(sigma), delta)
        if value >= epsilon:
            largest = max(largest, sigma)
        return math.log(max(value, 1e-12) / epsilon)

    guess = _first_guess(problem)
    points: list[tuple[float, float]] = []
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
    return largest


def _first_guess(problem: Problem) -> float:
    column = problem.strategy.sensitivity(problem.strategy.steps)
    ceiling = problem.sigma if problem.sigma > 0 else 10 * column
    rounds = problem.rounds
    chance = problem.scheme.rate(problem.steps) if rounds is None else rounds.probability
    return min(1.5 * chance * ceiling + 0.3 * column, ceiling)


def _search(
    problem: Problem, bounds: Sequence[Bound], epsilon: float, delta: float
) -> tuple[Problem, Best]:
    """Close in on epsilon(sigma) = epsilon from both sides; return the safe side.

    A single bound is asked as it is; of several, those that were best are asked again.
    """
    safe: tuple[Problem, Best] | None = None
    points: list[tuple[float, float]] = []  # log sigma, log epsilon against the target
    low, high = 0.0, math.inf
    refused = 0.0  # the largest sigma at which all bounds were tried in vain
    goal = -0.5 * TOLERANCE
    chosen = list(bounds)
    several = len(bounds) > 1
    confirmed, closed = False, False
    for turn in range(MAX_TURNS):
        # All bounds are tried at the first guess, after the first steps, and at the answer, so that
        # asking for epsilon at this sigma gives the same number.
        # Later again: a bound that was good elsewhere may have failed here.
        explore = several and (confirmed or turn in EXPLORED)
        best = _ask(problem, bounds if explore else chosen, delta, explore=explore)
        near = abs(best.value / epsilon - 1) <= TOLERANCE
        if near and several and not explore and not closed:
            confirmed = explore = True
            best = _ask(problem, bounds, delta, explore=True)
        now = problem.sigma
        closed = best.value <= CLOSED * best.lower if explore else closed
        if explore and best.bounds != chosen:
            # What other bounds could not certify says nothing about these.
            low, points = refused, []
        chosen = best.bounds
        if best.value <= epsilon:
            high = now
            safe = (problem, best)
            if best.value >= epsilon * (1 - TOLERANCE) or high - low <= NARROW * high:
                break
        else:
            low = now
            refused = max(refused, now) if explore else refused
        points.append((math.log(now), math.log(max(best.value, 1e-12) / epsilon)))
        guess = next_sigma(points, goal)
        if not low < guess < high:
            guess = math.sqrt(low * high) if low > 0 and high < math.inf else 2 * now
            guess = now / 4 if low == 0 else guess
        problem = problem.at(guess)
    if safe is None:
        raise MethodError(
            f"no sigma up to {problem.sigma:g} reaches epsilon = {epsilon:g} by "
            f"{', '.join(map(str, bounds))}. Use method='tight', or a larger epsilon or delta."
        )
    return safe


def _ask(problem: Problem, bounds: Sequence[Bound], delta: float, *, explore: bool) -> Best:
    if explore:
        return best_epsilon(problem, delta, bounds)
    lower = lower_epsilon(problem, delta) if len(bounds) > 1 else 0.0
    return best_of((ask_epsilon(bound, problem, delta) for bound in bounds), lower)


def next_sigma(points: list[tuple[float, float]], goal: float) -> float:
    """Secant through the two points nearest to the goal; a usual slope from one point."""
    nearest = sorted(points, key=lambda point: abs(point[1] - goal))[:2]
    x, y = nearest[0]
    slope = SLOPE
    if len(nearest) == 2 and nearest[1][0] != x:
        slope = (nearest[1][1] - y) / (nearest[1][0] - x)
        slope = min(max(slope, -20.0), -0.3)
    step = min(max((goal - y) / slope, -3.0), 3.0)
    return math.exp(x + step)


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
