r"""A certified lower bound if rows share no column: composed subsampled Gaussians.

In: steps that are independent of one another, each a mixture (1-p) N(0,1) + p N(a,1) against
N(0,1).  Out: a lower bound on epsilon at delta, or on delta at epsilon, for one adjacency.

Outputs y of a step are put into cells, which is post-processing and can only reduce the loss.  The
cells are chosen one after another so that the loss of each, log P(cell)/Q(cell), is a grid point:
then nothing is rounded, and what is lost is of second order in the spacing.  The grid losses are
composed as for upper bounds, with every error subtracted.  Rounding: down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy import special

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.lower import compose_down, last_above
from mmcc.errors import PrecisionError

Step = tuple[float, int]
"""The shift a of a step in units of its noise, and the number of such steps."""

REACH = 9.5
"""Outputs farther out are ignored; mass that is not counted lowers the bound."""
MAX_POINTS = 400_000
FINEST = 1e-9
LEFT_OUT = 1e-4
"""The fraction of delta that may be ignored at the top if the range of losses limits the grid."""
LOSS = 1e-4
"""How much of the loss's variance, in units of epsilon^2, the cells may remove."""
FEW = 4
"""With fewer grid points below zero than this, the grid is shifted."""
MARGIN = 1e-12
"""Margin by which a cell's loss exceeds its grid point, to cover the rounding of masses."""
NODES, WEIGHTS = leggauss(10)
WIDE = 1.0
"""Cells wider than this, relative to the scale on which the density falls, are measured by the
normal distribution function; in narrower ones ten points integrate e^(-y^2/2) up to rounding."""


def lower_epsilon(
    steps: Sequence[Step], p: float, delta: float, adjacency: Adjacency, about: float
) -> float:
    """A lower bound on epsilon at delta; `about` is a guess from above that sets the grid."""
    if not 0 < about < math.inf or p >= 1.0:
        return 0.0
    lower = _lower_curve(steps, p, adjacency, about, delta, about)
    return 0.0 if lower is None else last_above(lower, delta, about)


def lower_delta(
    steps: Sequence[Step], p: float, epsilon: float, adjacency: Adjacency, about: float
) -> float:
    """A lower bound on delta at epsilon; `about` is a guess of its value that sets the grid."""
    if not about > 0 or p >= 1.0:
        return 0.0
    variances = (count * p * p * math.expm1(min(a * a, 100.0)) for a, count in steps)
    scale = max(epsilon, min(math.sqrt(math.fsum(variances)), 1.0))
    lower = _lower_curve(steps, p, adjacency, epsilon, about, scale)
    return 0.0 if lower is None else max(lower(epsilon), 0.0)


def _lower_curve(
    steps: Sequence[Step],
    p: float,
    adjacency: Adjacency,
    epsilon: float,
    delta: float,
    scale: float,
) -> Callable[[float], float] | None:
    """Bound delta from below as a function of epsilon, with outputs in cells; None beyond floats.

    It is tight near (epsilon, delta), for a curve that falls on the given scale.
    """
    total = sum(count for _, count in steps)
    # Second-order loss: each of `total` steps loses about h^2 / 24 of variance.
    spacing = max(scale * math.sqrt(LOSS / total), FINEST)
    reach = REACH
    if any(_size(a, p, spacing, adjacency, REACH) > MAX_POINTS for a, _ in steps):
        reach = _short_reach(p if adjacency == "remove" else 1.0, total, delta)
        widest = max(_size(a, p, spacing, adjacency, reach) for a, _ in steps)
        spacing *= max(1.01 * widest / MAX_POINTS, 1.0)
    try:
        cells = [_cells(a, p, spacing, adjacency, reach) for a, _ in steps]
        parts = [(part, count) for (_, part), (_, count) in zip(cells, steps, strict=True)]
        if not all(part.masses.any() for part, _ in parts):
            return None
        offset = math.fsum(o * count for (o, _), (_, count) in zip(cells, steps, strict=True))
        composed = compose_down(parts, epsilon - offset, delta)
        return lambda epsilon: composed.lower_delta(epsilon - offset)
    except PrecisionError:
        return None


def _short_reach(share: float, total: int, delta: float) -> float:
    """A reach above the mean beyond which outputs make up only a small fraction of delta in all.

    For remove, only participations, a `share` of all steps, reach far above N(0, 1).
    """
    rare = LEFT_OUT * delta / (total * share)
    return min(float(-special.ndtri(min(rare, 0.1))), REACH)


def _ends(a: float, p: float, adjacency: Adjacency, reach: float) -> tuple[float, float]:
    """The smallest and the largest loss that the cells may have."""
    if adjacency == "remove":
        return math.log1p(-p), _log_ratio(a + reach, a, p)
    return -_log_ratio(a + reach, a, p), -math.log1p(-p)


def _size(a: float, p: float, spacing: float, adjacency: Adjacency, reach: float) -> int:
    lowest, highest = _ends(a, p, adjacency, reach)
    return math.floor(highest / spacing) - math.floor(lowest / spacing)


def _cells(
    a: float, p: float, spacing: float, adjacency: Adjacency, reach: float
) -> tuple[float, GridLoss]:
    """The loss of one step after its outputs were put into cells: an offset and a grid loss."""
    remove = adjacency == "remove"
    lowest, highest = _ends(a, p, adjacency, reach)
    size = _size(a, p, spacing, adjacency, reach)
    if not 1 <= size <= MAX_POINTS:
        raise PrecisionError(f"a step needs {size} grid points.")
    first, offset = math.floor(lowest / spacing) + 1, 0.0
    left, end = (-REACH, a + reach) if remove else (-a - reach, REACH)
    ordinary = 0.0
    if remove and first > -FEW and highest > spacing:
        # Hardly any grid point is as low as the loss of ordinary outputs, which are nearly all:
        # the grid is shifted so that they have one, and lose nothing.
        half = 0.5 * spacing
        above = half if half > 40 else math.log(math.expm1(half))
        place = (above + math.log1p(-p) - math.log(p)) / a + 0.5 * a  # loss: half a cell above
        place = min(max(place, -0.9 * REACH), end)
        loss, ordinary = _cell(left, place, a, p, True, NODES, WEIGHTS)
        left, offset, first = place, loss - MARGIN, 0
        size = max(math.floor((highest - offset) / spacing), 1)
    masses = _fill(a, p, spacing, first, size, remove, offset, left, end, NODES, WEIGHTS)
    masses[0] += ordinary
    return offset, GridLoss(spacing, first, masses * (1 - 1e-12), 0.0)


@compiled
def _log_ratio(y: float, a: float, p: float) -> float:
    """Log of the density of the mixture over that of N(0, 1) at y."""
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
    offset: float,
    left: float,
    end: float,
    nodes: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Masses of the first law in the cells of grid points first, first + 1, ... above `offset`.

    Cells lie between `left` and `end`.  For add the loss falls with y, so y runs downwards; in
    mirrored coordinates x = -y it increases.
    """
    masses = np.zeros(size)
    sign = 1.0 if remove else -1.0
    width = end - left
    for k in range(size):
        goal = offset + (first + k) * spacing + MARGIN
        if sign * _log_ratio(sign * left, a, p) >= goal:
            continue  # this grid point was skipped
        if _cell(left, end, a, p, remove, nodes, weights)[0] < goal:
            break  # everything that is left has a smaller loss
        low, high = left, min(left + 2.0 * width, end)
        below, above = sign * _log_ratio(sign * left, a, p) - goal, 0.0
        while True:  # cells are about as wide as the previous one
            above = _cell(left, high, a, p, remove, nodes, weights)[0] - goal
            if above >= 0.0 or high >= end:
                break
            low, below, high = high, above, min(left + 2.0 * (high - left), end)
        for turn in range(60):  # false position, with halving if one end stays
            if high - low <= 1e-13 * (1.0 + abs(high)) or above <= 1e-9 * spacing:
                break
            share = below / (below - above) if turn % 3 else 0.5
            middle = low + share * (high - low)
            found = _cell(left, middle, a, p, remove, nodes, weights)[0] - goal
            if found >= 0.0:
                high, above = middle, found
            else:
                low, below = middle, found
        loss, mass = _cell(left, high, a, p, remove, nodes, weights)
        if loss >= goal:
            masses[k] = mass
            width = high - left
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
