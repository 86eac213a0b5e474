r"""Privacy loss of one row: a mixture of Gaussians against a Gaussian, on a grid.

In: the expansion of the row's law.  Out: its privacy loss on a grid, for one adjacency (remove: P
is the mixture and Q = N(0,1); add: the other way round).
Rounding: losses are upper bounds (they dominate the exact loss for every epsilon).
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._losses import row_loops
from mmcc.accounting._losses.expansions import EPS, Expansion
from mmcc.accounting._losses.grid import GridLoss
from mmcc.errors import PrecisionError

MAX_NODES = 2**23


def sample_losses(
    expansion: Expansion, points: int = 41
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Losses at evenly spaced y, with rough masses of P and Q: for choosing a grid, not a bound."""
    y = np.linspace(-expansion.reach, expansion.top, points)
    losses = row_loops.log_ratios(y, expansion.centres, expansion.coefficients)
    q = np.exp(-0.5 * y**2)
    log_p = losses - 0.5 * y**2
    p = np.exp(log_p - log_p.max())
    return losses, p / p.sum(), q / q.sum()


def discretise(expansion: Expansion, spacing: float, adjacency: Adjacency) -> GridLoss:
    r"""The privacy loss of one adjacency on the grid k * spacing.

    This connects the dots: y is cut where the loss is a grid point; each cell's mass goes to its
    two grid points so that its mass under P and under Q are kept, which spreads the likelihood
    ratio without moving its mean.  Mass beyond the cuts moves up to a grid point where its loss is
    small and gets infinite loss where it is large.  Errors of cuts and masses are paid for by
    `GridLoss.push_up`.
    """
    centres, coefficients = expansion.centres, expansion.coefficients
    left, right = -expansion.reach, expansion.top
    ends = row_loops.log_ratios(np.array([left, right]), centres, coefficients)
    if not np.isfinite(ends).all():
        raise PrecisionError(
            "the privacy loss of a row is beyond floating point: sigma is too small for this "
            "strategy. Use a larger sigma."
        )
    first = math.floor(ends[0] / spacing) + 1
    last = max(math.ceil(ends[1] / spacing) - 1, first - 1)
    if last - first > MAX_NODES:
        raise PrecisionError(
            f"a row needs {last - first} grid points at spacing {spacing:g}; use a larger spacing."
        )
    cuts, residual = row_loops.node_cuts(spacing, first, last, left, right, centres, coefficients)
    remove = adjacency == "remove"
    masses, narrowest = row_loops.connect_dots(cuts, first, spacing, remove, centres, coefficients)
    # Remove: P(Y < -reach) <= tail, with losses below the grid point `first`.
    # Add: N(0) has at most `tail` above `top`, with losses below the grid point -`last`.
    masses[1] += expansion.tail
    infinite = expansion.tail + (expansion.dropped if remove else 0.0)
    split, mass = cell_errors(expansion, narrowest)
    start = first - 1 if remove else -(last + 1)
    loss = GridLoss(spacing, start, masses * (1 + 2 * mass), infinite)
    return loss.push_up(expansion.error + residual + split)


def cell_errors(expansion: Expansion, narrowest: float) -> tuple[float, float]:
    """Bounds on the relative errors of a cell's masses: of their difference, and in common.

    They cover rounding and the sixth-order term of narrow cells.  Where tails are subtracted, in
    cells of width w or more, the larger normal tail is at most 1 + 2.1/w times the cell's normal
    mass, and the density at its near end t at most t + 1 times that tail.  With one class around
    zero the normal mass is the same number in P and in Q: its error scales both and splits nothing.
    """
    orders = expansion.coefficients.shape[1]
    operations = EPS * (32 + 4 * expansion.span**2 + 16 * orders)
    split = operations * expansion.condition
    split += row_loops.NARROW**6 / 322560 * expansion.condition
    if not narrowest < math.inf:
        return split, 0.0
    cancelled = 1 + 2.1 / narrowest
    split += operations * expansion.ripple * (expansion.span + 1) * cancelled
    normal = operations * expansion.condition * cancelled
    if expansion.centres.size == 1 and expansion.centres[0] == 0.0:
        return split, normal
    return split + normal, 0.0
