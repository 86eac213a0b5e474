r"""Columns revealed in the order of the leaves: the walk from the root to a leaf, on a lattice.

In: a complete tree, the largest counts, what leaving the lattice may cost.  Out: a `Walk`.
Rounding: exits are rounded up; the lattice errs by `Walk.inflation`, which the caller pays.

Let r_a be the number of participations in the right half of a node a, w_a = u (H - h + 1) what a
pair of leaves that parts at a node of height h shares, and c_h constants.  Leaf l sees

    x_l - m_l = z_v + (s_l - 1/2) G_ll + noise of the leaf (+ r w - c if l is left),  v its parent,
    z_v = z_parent + N(0, u) + (r w - c if v is a left child),                  z_root = N(0, u),

so that, given all participations and all x, the density as a function of one z_v is Gaussian with
curvature at most B = 3/u.  A sum over multiples of a step h in place of the integral over z_v
changes it by a factor between 1 - kappa and 1 + kappa, kappa = 1 / sinh(2 pi^2 / (h^2 B)); with a
factor e^{theta z_v} as well.

*Exits.*  z_v is followed between a floor and a ceiling of its height.  Under P~, z_v is normal with
variance u (number of nodes from v up) around a sum of independent binomials; beyond the ends it has
at most Chernoff's chance, and there are 2^(H-h) nodes of height h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.inversion import UP
from mmcc.accounting._bounds.reveal.trees.forest import DIGITS, Forest, Grove, short

LATTICE = 1e-8
"""The target for kappa times the number of nodes."""
RATES = np.exp(np.linspace(math.log(0.3), math.log(40.0), 48))
"""Rates theta to try, in units of one over the standard deviation of z_v."""
MOST_POINTS = 600


@dataclass(frozen=True, eq=False, slots=True)
class Walk:
    """The range of z_v, node by node on the way from a root to its leaves."""

    height: int
    probability: float
    unit: float
    """u: the variance of one node's noise."""
    own: float
    """The variance of a leaf's own noise, in all nodes that contain only it."""
    centres: FloatArray
    """centres[h]: c_h, subtracted on the way from a node of height h to its left child."""
    points: FloatArray
    step: float
    inside: list[tuple[int, int]]
    """inside[h]: the first point, and the first beyond the last, for nodes of height h."""
    exits: float
    """The chance of leaving under P~; (1 + kappa)^nodes times as much on the grid."""
    inflation: float
    """Logarithm of (1 - kappa)^-nodes."""

    @property
    def diagonal(self) -> float:
        """G_ll."""
        return self.height * self.unit + self.own

    def shared(self, height: int) -> float:
        """w_h: what two leaves share if they part at a node of this height."""
        return self.unit * (self.height - height + 1)


def walks_for(forest: Forest, budget: float) -> list[tuple[Walk, int]] | None:
    """The walks of all trees, with multiplicities; leaving any of them costs about `budget`."""
    walks = []
    for grove in forest.groves:
        ends = 2 * max(grove.height, 1) * grove.count * len(forest.groves)
        walk = walk_for(forest, grove, budget / ends)
        if walk is None:
            return None
        walks.append((walk, grove.count))
    return walks


def walk_for(forest: Forest, grove: Grove, budget: float) -> Walk | None:
    """The walk in a tree of a grove; None if it would need too many points.

    Each end at each height is passed with chance at most `budget`.
    """
    height, unit = grove.height, short(short(1 / forest.sigma) ** 2)
    if not 0 < unit < 1e3:
        return None
    nodes = (1 << height) - 1
    centres = np.zeros(height + 1)
    for level in range(1, height + 1):
        mean = forest.probability * 2.0 ** (level - 1) * unit * (height - level + 1)
        centres[level] = _short_down(mean)
    step = math.pi * math.sqrt(2 * unit / (3 * math.log(2 * (nodes + 1) / LATTICE)))
    step = _short_down(step, 12)
    kappa = UP / math.sinh(2 * math.pi**2 * unit / (3 * step * step) * (1 - 2.0**-40))
    ends = [_ends(forest, height, level, unit, centres, budget) for level in range(1, height + 1)]
    lowest = math.floor(min((low for low, _ in ends), default=0.0) / step)
    highest = math.ceil(max((high for _, high in ends), default=0.0) / step)
    if highest - lowest > MOST_POINTS:
        return None
    points = step * np.arange(float(lowest), highest + 1.0)
    inside = [(0, 0)]
    for low, high in ends:
        # The first point left out is at or beyond the end at which the cost was computed.
        first = int(np.searchsorted(points, low, side="right"))
        last = int(np.searchsorted(points, high, side="left"))
        inside.append((first, last))
    exits = 2 * height * budget * UP
    inflation = -nodes * math.log1p(-kappa) * UP
    return Walk(
        height=height,
        probability=forest.probability,
        unit=unit,
        own=(forest.doublings + 1) * unit if height else grove.amplitude**2,
        centres=centres,
        points=points,
        step=step,
        inside=inside,
        exits=exits,
        inflation=inflation,
    )


def _ends(
    forest: Forest,
    height: int,
    level: int,
    unit: float,
    centres: FloatArray,
    budget: float,
) -> tuple[float, float]:
    """Floor and ceiling of z_v at a height, each passed somewhere with chance at most `budget`.

    The worst node is in the left half of those ancestors for which that raises the moment.
    """
    variance = unit * (height - level + 1)
    rates = RATES / math.sqrt(variance)
    found = []
    for sign in (-1.0, 1.0):
        logs = 0.5 * rates * rates * variance
        for above in range(level + 1, height + 1):
            pull = sign * rates * (unit * (height - above + 1))
            with np.errstate(over="ignore"):
                one = np.log1p(forest.probability * np.expm1(pull))
            factor = 2.0 ** (above - 1) * one - sign * rates * centres[above]
            logs += np.maximum(factor, 0.0)
        slack = 2.0**-30 * (1 + np.abs(logs))
        reach = (logs + slack + math.log(2.0 ** (height - level) / budget)) / rates
        found.append(sign * float(np.min(reach)) * (1 + 2.0**-30))
    return found[0], found[1]


def _short_down(value: float, digits: int = DIGITS) -> float:
    """A number with few binary digits, at most the value."""
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.floor(math.ldexp(mantissa, digits)), exponent - digits)
