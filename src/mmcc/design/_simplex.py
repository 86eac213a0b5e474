"""Nelder and Mead's simplex, deterministic, for functions that cost a second a point.

In: a function (infinite where it has no value), the corners of a simplex.  Out: the best point.
A value that is known already is not asked for again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mmcc._arrays import FloatArray

Corner = tuple[float, FloatArray]
REFLECT, EXPAND, CONTRACT, SHRINK = 1.0, 2.0, 0.5, 0.5


def descend(
    function: Callable[[FloatArray], float],
    best: Corner,
    edges: FloatArray,
    *,
    most: int,
    small: tuple[float, float],
) -> Corner:
    """The lowest corner after at most about `most` values of the function.

    `best` is a point with its value, `edges` lead to the other corners.  The search is over when
    values and coordinates differ by no more than `small`.
    """
    asked = 0

    def at(point: FloatArray) -> Corner:
        nonlocal asked
        asked += 1
        return function(point), point

    corners = [best, *(at(best[1] + edge) for edge in edges[: max(most, 0)])]
    while asked < most and len(corners) == len(edges) + 1:
        corners.sort(key=lambda corner: corner[0])
        if all(found <= limit for found, limit in zip(_spread(corners), small, strict=True)):
            break
        *others, worst = corners
        middle = np.mean([point for _, point in others], axis=0)
        away = middle - worst[1]
        new = at(middle + REFLECT * away)
        if new[0] < others[0][0]:
            new = min(new, at(middle + EXPAND * away), key=lambda corner: corner[0])
        elif not new[0] < others[-1][0]:
            side = CONTRACT if new[0] < worst[0] else -CONTRACT
            inner = at(middle + side * away)
            if not inner[0] < min(new[0], worst[0]):
                first = others[0][1]
                shrunk = [at(first + SHRINK * (point - first)) for _, point in corners[1:]]
                corners = [others[0], *shrunk]
                continue
            new = inner
        corners = [*others, new]
    return min(corners, key=lambda corner: corner[0])


def _spread(corners: list[Corner]) -> tuple[float, float]:
    """How much values, and coordinates, differ from those of the best; infinite before any."""
    value, point = corners[0]
    apart = max(float(np.abs(other - point).max()) for _, other in corners)
    return (corners[-1][0] - value if math.isfinite(value) else math.inf), apart
