"""Round numbers for the axes of plots.

In: the ends of a log scale.  Out: where its ticks stand.
"""

from __future__ import annotations

import math

LEAST_TICKS, MOST_TICKS = 4, 8
"""Of an axis, as far as round numbers allow."""
ROUND = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8))
"""Round numbers of a decade, few to many."""


def ticks_between(low: float, high: float) -> list[float]:
    """Round numbers between two ends, on a log scale: about four to eight of them."""
    best: list[float] = []
    for steps in ROUND:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        every = [s * 10.0**k for k in range(first, last + 1) for s in steps]
        inside = [t for t in every if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
        if len(inside) > MOST_TICKS and best:
            break
        best = inside
        if len(best) >= LEAST_TICKS:
            break
    if len(best) < LEAST_TICKS:  # less than an octave or so
        unit = 10.0 ** math.floor(math.log10((high - low) / LEAST_TICKS))
        unit *= next(u for u in (1, 2, 5, 10) if (high - low) / (u * unit) <= MOST_TICKS)
        best = [unit * k for k in range(math.ceil(low / unit), math.floor(high / unit) + 1)]
    return best[:: -(-len(best) // MOST_TICKS)]
