"""The projection bracket of a mechanism: both adjacencies, every group of examples.

In: strategy, scheme, sigma and a delta or an epsilon.  Out: certified upper bounds (`bound_*`) and
lower bounds (`lower_*`) on the other one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Protocol

from mmcc.accounting.gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting.parallel import Progress
from mmcc.accounting.participation import Adjacency
from mmcc.accounting.projection.lower import Lower, lower_delta, lower_epsilon
from mmcc.accounting.projection.upper import Projected
from mmcc.accounting.projection.upper_add import ProjectedAdd
from mmcc.accounting.sides import Sides
from mmcc.errors import MethodError
from mmcc.sampling import Scheme
from mmcc.strategies.base import Strategy
from mmcc.strategies.gram import DenseGram, Gram

MAX_GROUPS = 10_000
MAX_EPSILON = 1e5
TOLERANCE = 2e-5
"""Epsilon is found to this relative accuracy, on the safe side."""
REPLAN = 0.02
"""Plans are made anew where epsilon has moved by more than this part."""
ADJACENCIES: tuple[Adjacency, ...] = ("remove", "add")


class Curve(Protocol):
    """Something that bounds delta at an epsilon."""

    def bound_delta(self, epsilon: float) -> float:
        """Upper bound on delta."""
        ...


def bound_epsilon(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    delta: float,
    progress: Progress | None = None,
) -> Sides:
    """Certified epsilon at delta for the worst group, both adjacencies."""
    if scheme.probability == 1.0:
        return _certain(strategy, scheme, sigma, lambda r: bound_gaussian_epsilon(r, delta))

    def side(gram: Gram, adjacency: Adjacency) -> float:
        return _bound_epsilon(gram, scheme.probability, delta, adjacency)

    return _worst(strategy, scheme, sigma, side, progress)


def bound_delta(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    epsilon: float,
    progress: Progress | None = None,
) -> Sides:
    """Certified delta at epsilon for the worst group, both adjacencies."""
    if scheme.probability == 1.0:
        return _certain(strategy, scheme, sigma, lambda r: bound_gaussian_delta(r, epsilon))

    def side(gram: Gram, adjacency: Adjacency) -> float:
        low = lower_delta(gram, scheme.probability, epsilon, adjacency)
        curve = _curve(gram, scheme.probability, low, adjacency, max(low.value, 1e-30), epsilon)
        return min(curve.bound_delta(epsilon), 1.0)

    return _worst(strategy, scheme, sigma, side, progress)


def lower_bound_epsilon(strategy: Strategy, scheme: Scheme, sigma: float, delta: float) -> Sides:
    """Certified lower bounds on epsilon at delta: no method can prove less."""

    def side(gram: Gram, adjacency: Adjacency) -> float:
        return max(lower_epsilon(gram, scheme.probability, delta, adjacency).value, 0.0)

    return _worst(strategy, scheme, sigma, side, None)


def _certain(
    strategy: Strategy, scheme: Scheme, sigma: float, answer: Callable[[float], float]
) -> Sides:
    """Every step is taken part in: one Gaussian, along the mean direction exactly."""
    separation = min(scheme.separation, strategy.steps)
    value = answer(strategy.sensitivity(separation) / sigma * (1 + 2.0**-50))
    return Sides(value, value)


def _worst(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    side: Callable[[Gram, Adjacency], float],
    progress: Progress | None,
) -> Sides:
    """The largest answer for each adjacency, and the group with the largest of all."""
    remove, add, worst, group = 0.0, 0.0, -math.inf, 0
    for done, (index, gram) in enumerate(grams(strategy, scheme, sigma)):
        found = [side(gram, adjacency) for adjacency in ADJACENCIES]
        remove, add = max(remove, found[0]), max(add, found[1])
        if max(found) > worst:
            worst, group = max(found), index
        if progress is not None:
            progress("projection: groups", done + 1)
    return Sides(remove, add, group)


def grams(strategy: Strategy, scheme: Scheme, sigma: float) -> Iterator[tuple[int, Gram]]:
    """The Gram matrix of every group that can be the worst; equal ones once."""
    separation = min(scheme.separation, strategy.steps)
    groups = strategy.groups(separation)
    if len(groups) > MAX_GROUPS:
        raise MethodError(
            f"{strategy!r} has {len(groups)} groups of steps to analyse one by one, more than "
            f"{MAX_GROUPS}. Use a smaller separation, or method='unamplified'."
        )
    seen = set()
    for group in groups:
        gram = strategy.gram(separation, group, sigma)
        if len(groups) > 1 and isinstance(gram, DenseGram):
            key = gram.matrix.tobytes()
            if key in seen:
                continue
            seen.add(key)
        yield group, gram


def _bound_epsilon(gram: Gram, p: float, delta: float, adjacency: Adjacency) -> float:
    """The smallest epsilon found at which delta is certified."""
    low = lower_epsilon(gram, p, delta, adjacency)
    if not low.value > 0:
        low = lower_delta(gram, p, 0.0, adjacency)
        if _curve(gram, p, low, adjacency, delta, 0.0).bound_delta(0.0) <= delta:
            return 0.0
    guess = max(low.value, 1e-9) if low.value < MAX_EPSILON else MAX_EPSILON
    best = math.inf
    base: Projected | ProjectedAdd | None = None
    for _ in range(3):
        if adjacency == "remove":
            base = base or Projected(gram, p, low.direction, low.threshold, delta)
            assert isinstance(base, Projected)
            curve: Curve = base.plan(guess)
        else:
            curve = ProjectedAdd(gram, p, low.direction, low.threshold)
        found = _solve(curve, delta, guess)
        best = min(best, found)
        if adjacency == "add" or not math.isfinite(found) or found <= guess * (1 + REPLAN):
            break
        guess = found
    return best


def _curve(
    gram: Gram, p: float, low: Lower, adjacency: Adjacency, delta: float, epsilon: float
) -> Curve:
    if adjacency == "add":
        return ProjectedAdd(gram, p, low.direction, low.threshold)
    return Projected(gram, p, low.direction, low.threshold, delta).plan(epsilon)


def _solve(curve: Curve, delta: float, guess: float) -> float:
    """The smallest epsilon found with bound_delta(epsilon) <= delta; infinite if there is none.

    What is returned was computed at that epsilon, so nothing rests on the search.
    """
    goal = math.log(delta)

    def excess(epsilon: float) -> float:
        return math.log(max(curve.bound_delta(epsilon), 1e-300)) - goal

    low, high = guess, guess
    above = below = excess(guess)
    step = 0.01
    while below > 0:
        low, above = high, below
        high = high * (1 + step) + 1e-9
        step = min(2 * step, 1.0)
        if high > MAX_EPSILON:
            return math.inf
        below = excess(high)
    while above <= 0:
        high, below = low, above
        low = low * (1 - step)
        step = min(2 * step, 0.5)
        if low < 1e-9:
            return high
        above = excess(low)
    for turn in range(40):
        if high - low <= TOLERANCE * high:
            break
        share = above / (above - below) if turn % 3 else 0.5
        middle = low + min(max(share, 0.02), 0.98) * (high - low) + 0.2 * TOLERANCE * high
        value = excess(min(middle, high))
        if value <= 0:
            high, below = middle, value
        else:
            low, above = middle, value
    return high
