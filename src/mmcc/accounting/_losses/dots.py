r"""Losses on a grid from dots of a delta curve.

In: certified heights at places of the grid.  Out: masses on the grid.
Rounding: upwards; the losses dominate every privacy curve that lies below the dots.

The curve h(x) = sup_A P(A) - x Q(A), x = e^epsilon, is convex with h(0) = 1 and never rises.  The
lower convex hull of the dots is the largest convex function below them, so h lies below the hull.
The hull is the curve of a discrete pair: mass x_i (slope after - slope before) at loss log x_i, the
last height at infinity.
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._losses.grid import GridLoss
from mmcc.errors import PrecisionError

MARGIN = 1e-12
SMALLEST_MASS = 1e-290
"""Smaller masses are moved to infinite loss, because numbers near 1e-308 lose their digits."""


def connect(places: IntArray, heights: FloatArray, spacing: float) -> GridLoss:
    """Losses whose delta curve is above the dots (places * spacing, heights), places increasing."""
    x = np.append(0.0, np.exp(places * spacing))
    corners = _hull(x, np.append(1.0, heights))[1:] - 1  # from (0, 1) on
    places, heights = places[corners], heights[corners]
    x, epsilons = np.append(0.0, x[corners + 1]), places * spacing
    slopes = np.append(np.diff(np.append(1.0, heights)) / np.diff(x), 0.0)
    masses = np.maximum(x[1:] * np.diff(slopes), 0.0) * (1 + MARGIN)
    masses[masses < SMALLEST_MASS] = 0.0
    # Both curves bend only at corners, so a pair that is high enough there, and has mass one, is
    # high enough everywhere.  What rounding took away is paid for at infinity; the margin covers
    # the rounding of these sums of positive terms.
    reached = [math.fsum(masses * np.maximum(-np.expm1(e - epsilons), 0.0)) for e in epsilons]
    reached.append(math.fsum(masses))
    lost = np.append(heights, 1.0) - heights[-1] - np.array(reached) * (1 - 0.1 * MARGIN)
    infinite = (float(heights[-1]) + max(float(lost.max()), 0.0)) * (1 + MARGIN)
    if not (infinite < 1.0 and masses.any()):
        raise PrecisionError("nearly all of a privacy loss is infinite: nothing can be composed.")
    grid = np.zeros(int(places[-1] - places[0]) + 1)
    grid[places - places[0]] = masses
    return GridLoss(spacing, int(places[0]), grid, infinite)


def _hull(x: FloatArray, heights: FloatArray) -> IntArray:
    """Indices of the corners of the lower convex hull, x increasing; both ends are corners."""
    corners: list[int] = []
    for place in range(x.size):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            rise = (heights[place] - heights[a]) * (x[b] - x[a])
            if (heights[b] - heights[a]) * (x[place] - x[a]) < rise:
                break
            corners.pop()
        corners.append(place)
    return np.array(corners)
