"""How much of delta to give to bad events: a rough search along log share.

In: a bound with a share, and the value to minimise.  Out: the same bound with the best share tried.
Rounding: none; every share is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmcc.accounting._bounds.mmcc import Mmcc

STARTS = (0.02, 0.1, 0.5)
"""Two shares that the search starts from, and the paper's."""
SMALLEST = 1e-5


def best_share(bound: Mmcc, value: Callable[[Mmcc], float]) -> Mmcc:
    """Walk down while the value falls, then take the lowest point of a parabola."""
    tried: dict[Mmcc, float] = {}

    def at(share: float) -> float:
        one = replace(bound, share=share)
        if one not in tried:
            tried[one] = value(one)
        return tried[one]

    lower, middle, upper = STARTS
    while at(lower) < at(middle) and lower > SMALLEST:
        lower, middle, upper = lower / 6, lower, middle
    at(math.exp(_vertex(*((math.log(share), at(share)) for share in (lower, middle, upper)))))
    return min(tried, key=lambda one: tried[one])


def _vertex(*points: tuple[float, float]) -> float:
    """The lowest point of the parabola through three points, kept between the outer ones."""
    (x0, y0), (x1, y1), (x2, y2) = points
    left, right = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    if not right > left:
        return x1
    vertex = 0.5 * (x0 + x1) - left * (x2 - x0) / (2 * (right - left))
    return min(max(vertex, x0), x2)
