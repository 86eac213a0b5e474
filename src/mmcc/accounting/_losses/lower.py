"""Composition rounded down: where to compose, and how to read off a lower bound on epsilon.

In: grid losses whose masses and losses were rounded down.  Out: `Composed`, whose `lower_delta` is
tight near a given (epsilon, delta).  Rounding: down.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mmcc.accounting._losses.compose import Parts, compose, cumulant_of
from mmcc.accounting._losses.composed import Composed

WRAPPED = 12.0
"""By the tilt, mass from below the window is at most e^-WRAPPED times delta."""
STARTS = (0.0, 0.5, 0.9, 0.98, 0.998)
"""Fractions of an upper bound near which a lower bound is searched for."""
TILTS = np.concatenate([np.geomspace(0.05, 2000.0, 80), np.geomspace(2300.0, 1e8, 80)])


def compose_down(parts: Parts, epsilon: float, delta: float) -> Composed:
    """The parts composed for lower bounds near (epsilon, delta)."""
    cumulant = cumulant_of(parts)
    tilt = _lowest(lambda x: cumulant(x) - x * epsilon - math.log(x * (x + 1)))
    composed = compose(parts, tilt, 0.0)
    window = float(composed.losses[-1] - composed.losses[0])
    enough = (WRAPPED - math.log(delta)) / window
    if composed.below > 0 and composed.tilt < enough:
        composed = compose(parts, enough, 0.0)
    return composed


def last_above(lower: Callable[[float], float], delta: float, about: float) -> float:
    """Nearly the largest epsilon up to `about` at which delta is still reached; zero if none."""
    # A large epsilon's window does not reach down to zero.
    known = (part * about for part in STARTS if lower(part * about) >= delta)
    low, high = next(known, 0.0), about
    if low == 0.0 and lower(0.0) < delta:
        return 0.0
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if lower(middle) >= delta else (low, middle)
    return low


def _lowest(convex: Callable[[float], float]) -> float:
    """The tilt at which a convex function is smallest: the last one before it rises."""
    known: dict[int, float] = {}

    def value(place: int) -> float:
        if place not in known:
            known[place] = convex(float(TILTS[place]))
        return known[place]

    low, high = 0, TILTS.size - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if value(middle + 1) > value(middle) else (middle + 1, high)
    return float(TILTS[low])
