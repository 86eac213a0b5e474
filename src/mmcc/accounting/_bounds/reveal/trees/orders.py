"""Choosing the order of the inversion: any order is valid, so the search may be rough.

In: logarithms of real moments, delta.  Out: a `Saddle`.
Rounding: none.  The order minimises the epsilon that the real moment alone gives (Renyi).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

FIRST = 4.0
LEAST, MOST = 1e-3, 3e4
"""The range of order - 1."""
FAINT = 7.0
WIDE, NARROW = 2.5, 1.25
"""Factors between the orders tried."""


@dataclass(frozen=True, slots=True)
class Saddle:
    """An order, roughly the epsilon that it leads to, and the deviation of log Lhat there."""

    order: float
    epsilon: float
    deviation: float
    period: float
    """The period of the Fourier sum in epsilon; aliases are below e^-FAINT times delta."""


def renyi_epsilon(log_moment: float, order: float, delta: float) -> float:
    """Solve E (X - e^eps)_+ <= M(al) e^{(1-al) eps} (1-1/al)^{al-1} / al for eps."""
    gain = (order - 1) * math.log1p(-1 / order) - math.log(order)
    return (log_moment + gain - math.log(delta)) / (order - 1)


def saddle(log_moment: Callable[[float], float], delta: float) -> Saddle | None:
    """A good order; None if no moment is finite.  The moment is E[X^order], or infinity."""
    kept: dict[float, float] = {}

    def known(order: float) -> float:
        if order not in kept:
            kept[order] = log_moment(order)
        return kept[order]

    def value(excess: float) -> float:
        return renyi_epsilon(known(1 + excess), 1 + excess, delta)

    excess = descend(value, descend(value, FIRST, WIDE), NARROW)
    epsilon = value(excess)
    if not math.isfinite(epsilon):
        return None
    # Just below the order at which moments diverge the deviation is huge; a smaller one is better.
    for _ in range(12):
        step = 0.1 * excess
        low, middle, high = (known(1 + excess + shift) for shift in (-step, 0.0, step))
        variance = (low - 2 * middle + high) / step**2
        if variance > 0 and math.sqrt(variance) * excess < 2 * math.sqrt(-math.log(delta)) + 4:
            deviation = math.sqrt(variance)
            break
        deviation = math.log(1 / delta) / excess
        excess *= 0.85
    period = period_for(kept, 1 + excess, epsilon, delta)
    return Saddle(1 + excess, epsilon, deviation, period)


def period_for(
    log_moments: dict[float, float], order: float, epsilon: float, delta: float
) -> float:
    """A period P whose aliases e^{(al-1) P} delta(eps + P) and e^{-(al-1) P} are negligible.

    On the right delta(x) <= M(be) e^{-(be-1) x} for every order be that was tried.
    """
    wanted = FAINT - math.log(delta)
    right = [
        (value - (other - 1) * epsilon + wanted) / (other - order)
        for other, value in log_moments.items()
        if other > order and math.isfinite(value)
    ]
    return max(wanted / (order - 1), min(right, default=0.0))


def descend(value: Callable[[float], float], start: float, factor: float) -> float:
    """The point where the value stops falling, in steps of this factor; small orders are finite."""
    here = value(start)
    while not math.isfinite(here) and start / factor >= LEAST:
        start /= factor
        here = value(start)
    for ratio in (factor, 1 / factor):
        moved = False
        while LEAST <= start * ratio <= MOST:
            there = value(start * ratio)
            if not there < here:
                break
            start, here, moved = start * ratio, there, True
        if moved:
            break
    return start
