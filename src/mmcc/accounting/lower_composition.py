r"""A certified lower bound where rows share no column: composed subsampled Gaussians.

In: steps that are independent of one another, each a mixture (1-p) N(0,1) + p N(a,1) against
N(0,1).  Out: a lower bound on epsilon at delta, for one adjacency.

Outputs y of a step are put into cells, which is post-processing and loses privacy loss only.  The
cells are chosen one after another so that the loss of each, log P(cell)/Q(cell), is a grid point:
then nothing is rounded, and what is lost is of second order in the spacing.  The grid losses are
composed as for upper bounds, with every error subtracted.  Rounding: down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.polynomial.legendre import leggauss

from mmcc.accounting.compose import compose, cumulant_of
from mmcc.accounting.grid import GridLoss
from mmcc.accounting.kernels import compiled
from mmcc.accounting.participation import Adjacency
from mmcc.arrays import FloatArray
from mmcc.errors import PrecisionError

Step = tuple[float, int]
"""Shift a of a step in units of its noise, and how many such steps there are."""

REACH = 9.5
"""Outputs farther out are left away: mass that is not counted lowers the bound."""
MAX_POINTS = 400_000
FINEST = 1e-7
LOSS = 1e-4
"""How much of the variance of the loss, in units of epsilon^2, the cells may take."""
MARGIN = 1e-12
"""Cells get at least this much more than their grid point: rounding of the masses."""
TILTS = np.geomspace(0.05, 2000.0, 80)
NODES, WEIGHTS = leggauss(10)
WIDE = 1.0
"""Cells wider than this, in units of the scale on which the density falls, are measured by the
normal distribution function; below, ten points integrate e^(-y^2/2) to rounding."""


def lower_epsilon(
    steps: Sequence[Step], p: float, delta: float, adjacency: Adjacency, about: float
) -> float:
    """A lower bound on epsilon at delta; `about` is a guess, from above, that sets the grid."""
    if not 0 < about < math.inf or p >= 1.0:
        return 0.0
    total = sum(count for _, count in steps)
    # Second-order loss: each of `total` steps loses about h^2 / 24 of variance.
    spacing = max(about * math.sqrt(LOSS / total), FINEST)
    try:
        parts = [(_cells(a, p, spacing, adjacency), count) for a, count in steps]
        if not all(part.masses.any() for part, _ in parts):
            return 0.0
        cumulant = cumulant_of(parts)
        tilt = float(min(TILTS, key=lambda x: cumulant(x) - x * about - math.log(x * (x + 1))))
        composed = compose(parts, tilt, 0.0)
    except PrecisionError:
        return 0.0
    low, high = 0.0, about
    if composed.lower_delta(0.0) < delta:
        return 0.0
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if composed.lower_delta(middle) >= delta else (low, middle)
    return low


def _cells(a: float, p: float, spacing: float, adjacency: Adjacency) -> GridLoss:
    """The loss of one step after its outputs were put into cells, every loss a grid point."""
    remove = adjacency == "remove"
    lowest = math.log1p(-p) if remove else -_log_ratio(a + REACH, a, p)
    highest = _log_ratio(a + REACH, a, p) if remove else -math.log1p(-p)
    first = math.floor(lowest / spacing) + 1
    size = math.floor(highest / spacing) - first + 1
    if not 1 <= size <= MAX_POINTS:
        raise PrecisionError(f"a step needs {size} grid points.")
    masses = _fill(a, p, spacing, first, size, remove, NODES, WEIGHTS)
    return GridLoss(spacing, first, masses * (1 - 1e-12), 0.0)


@compiled
def _log_ratio(y: float, a: float, p: float) -> float:
    """Log of mixture over N(0, 1) at y."""
    x = a * y - 0.5 * a * a
    if x > 30.0:
        return x + math.log(p) + math.log1p((1.0 - p) / p * math.exp(-x))
    return math.log1p(p * math.expm1(x))


@compiled
def _normal(low: float, high: float, nodes: FloatArray, weights: FloatArray) -> float:
    """Mass of N(0, 1) between two points, to nearly full relative accuracy."""
    if (high - low) * (1.0 + max(abs(low), abs(high))) < WIDE:
        half = 0.5 * (high - low)
        total = 0.0
        for i in range(nodes.size):
            y = low + half * (nodes[i] + 1.0)
            total += weights[i] * math.exp(-0.5 * y * y)
        return total * half / math.sqrt(2.0 * math.pi)
    root = math.sqrt(0.5)
    if low > 0.0:
        return 0.5 * (math.erfc(low * root) - math.erfc(high * root))
    return 0.5 * (math.erfc(-high * root) - math.erfc(-low * root))


@compiled
def _fill(
    a: float,
    p: float,
    spacing: float,
    first: int,
    size: int,
    remove: bool,
    nodes: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Masses of the first law in the cells of grid points first, first + 1, ...

    For add the loss falls with y, so y runs from above; in mirrored coordinates x = -y it grows.
    """
    masses = np.zeros(size)
    sign = 1.0 if remove else -1.0
    end = a + REACH if remove else REACH
    left = -REACH if remove else -a - REACH
    for k in range(size):
        goal = (first + k) * spacing + MARGIN
        if sign * _log_ratio(sign * left, a, p) >= goal:
            continue  # this grid point was passed
        low, high = left, end
        if _cell(left, end, a, p, remove, nodes, weights)[0] < goal:
            break  # all that is left has a smaller loss
        for _ in range(60):
            middle = 0.5 * (low + high)
            if _cell(left, middle, a, p, remove, nodes, weights)[0] >= goal:
                high = middle
            else:
                low = middle
            if high - low <= 1e-13 * (1.0 + abs(high)):
                break
        loss, mass = _cell(left, high, a, p, remove, nodes, weights)
        if loss >= goal:
            masses[k] = mass
            left = high
        if left >= end:
            break
    return masses


@compiled
def _cell(
    low: float,
    high: float,
    a: float,
    p: float,
    remove: bool,
    nodes: FloatArray,
    weights: FloatArray,
) -> tuple[float, float]:
    """Loss log P/Q of a cell, and its mass under the first law; mirrored for add."""
    if remove:
        idle = _normal(low, high, nodes, weights)
        mixed = (1.0 - p) * idle + p * _normal(low - a, high - a, nodes, weights)
        return math.log(mixed / idle), mixed
    idle = _normal(low, high, nodes, weights)
    mixed = (1.0 - p) * idle + p * _normal(low + a, high + a, nodes, weights)
    return math.log(idle / mixed), idle
