r"""A lower bound for several participations per epoch: one statistic, two laws.

In: kinds of epochs of independent noise, with participation in k of t steps in each; sigma.
Out: lower bounds on epsilon at delta, and on delta at epsilon.  Rounding: down.

Any test gives a lower bound, delta >= P(T > tau) - e^epsilon Q(T > tau).  Here T is the sum over
all steps of f(y) = log(1 + z (e^(s y - s^2/2) - 1)), rounded down to a lattice: under Q all y are
N(0, 1); under P so are t - k of an epoch and k are N(s, 1), whichever these are, so the law of T is
one convolution.  For add, T < tau.  With z = k/t this is Poisson sampling's own loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._losses.compose import compose, cumulant_of
from mmcc.accounting._losses.composed import Composed
from mmcc.accounting._losses.grid import GridLoss
from mmcc.errors import PrecisionError

REACH = 9.5
LOSS = 1e-4
"""The variance that rounding may add to T, in units of epsilon^2."""
MOST_POINTS, FINEST = 2**18, 1e-9
WEIGHTS = (1.0, 0.8)
"""Values of z to try, in units of k/t; at large epsilon a smaller z is better."""
ROUNDING = 1e-14
"""A generous bound on the relative error of a normal tail."""
TILTS = np.geomspace(1e-2, 1e4, 181)
THRESHOLDS = 24
TURNS = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """Epochs of `steps` steps of length `shift` / sigma, with `times` participations in each."""

    epochs: int
    steps: int
    times: int
    shift: float


def lower_epsilon(kinds: Sequence[Kind], delta: float, adjacency: Adjacency, about: float) -> float:
    """A lower bound on epsilon at delta; `about` is a guess from above that sets the lattice."""

    def value(first: float, second: float) -> float:
        # first - e^epsilon second >= delta, solved for epsilon and rounded down.
        return math.log((first - delta) / second) - 1e-12 if first > delta else -math.inf

    return max(_best(kinds, delta, adjacency, about, value), 0.0)


def lower_delta(kinds: Sequence[Kind], epsilon: float, adjacency: Adjacency, about: float) -> float:
    """A lower bound on delta at epsilon; `about` is a guess of its value."""

    def value(first: float, second: float) -> float:
        return first - math.exp(epsilon) * second * (1 + 1e-12)

    return max(_best(kinds, about, adjacency, max(epsilon, 0.1), value), 0.0)


def _best(
    kinds: Sequence[Kind],
    delta: float,
    adjacency: Adjacency,
    scale: float,
    value: Callable[[float, float], float],
) -> float:
    """The best value over all thresholds and weights; minus infinity if beyond floats."""
    try:
        return max(
            _best_threshold(kinds, delta, adjacency, scale, weight, value) for weight in WEIGHTS
        )
    except PrecisionError:
        return -math.inf


def _best_threshold(
    kinds: Sequence[Kind],
    delta: float,
    adjacency: Adjacency,
    scale: float,
    weight: float,
    value: Callable[[float, float], float],
) -> float:
    total = sum(kind.epochs * kind.steps for kind in kinds)
    widest = max(high - low for low, high in (_ends(kind, weight) for kind in kinds))
    spacing = max(scale * math.sqrt(LOSS / total), FINEST, widest / MOST_POINTS)
    cells = [_cells(kind, weight, spacing, adjacency) for kind in kinds]
    together = list(zip(cells, kinds, strict=True))
    alone = [(idle, kind.epochs * kind.steps) for (idle, _), kind in together]
    mixed = [(active, kind.epochs * kind.times) for (_, active), kind in together]
    mixed += [(idle, kind.epochs * (kind.steps - kind.times)) for (idle, _), kind in together]
    first, second = (mixed, alone) if adjacency == "remove" else (alone, mixed)
    lower = [(part.rounded(-1), count) for part, count in first]
    upper = [(part.rounded(1), count) for part, count in second]
    cumulant = cumulant_of(lower)
    values = np.array([(cumulant(float(x)) - math.log(delta)) / x for x in TILTS])
    tilt, end = float(TILTS[np.argmin(values)]), float(values.min())
    start = end - 12 / tilt
    tested = compose(lower, tilt, start)
    cumulant = cumulant_of(upper)
    other = float(TILTS[np.argmin([cumulant(float(x)) - x * end for x in TILTS])])
    against = compose(upper, other, start)
    return _search(tested, against, start, end + 1 / tilt, value)


def _search(
    tested: Composed,
    against: Composed,
    low: float,
    high: float,
    value: Callable[[float, float], float],
) -> float:
    """The largest value over thresholds, by a few rounds of ever finer ones."""
    best = -math.inf
    for _ in range(TURNS):
        places = np.linspace(low, high, THRESHOLDS)
        found = [value(tested.lower_chance(x), against.chance(x)) for x in map(float, places)]
        top = int(np.argmax(found))
        best = max(best, found[top])
        step = float(places[1] - places[0])
        low, high = float(places[top]) - step, float(places[top]) + step
        low = max(low, against.lowest)
    return best


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """The masses of a step's statistic on the lattice, and bounds on their errors."""

    spacing: float
    first: int
    masses: FloatArray
    errors: FloatArray

    def rounded(self, up: int) -> GridLoss:
        """The masses, all rounded up or all rounded down."""
        masses = np.maximum(self.masses + up * self.errors, 0.0)
        return GridLoss(self.spacing, self.first, masses, 0.0)


def _ends(kind: Kind, weight: float) -> tuple[float, float]:
    """The smallest and the largest value of f on the lattice."""
    s, z = kind.shift, weight * kind.times / kind.steps
    lowest = math.log1p(-z) if z < 1 else -s * REACH
    return lowest, math.log1p(z * math.expm1(s * (0.5 * s + REACH)))


def _cells(kind: Kind, weight: float, spacing: float, adjacency: Adjacency) -> tuple[Cells, Cells]:
    """The law of a step's statistic without and with the example.

    Cells in y end where f is a lattice point, as nearly as possible: both laws are cut at the same
    y. The first and the last cell are unbounded, so no mass is left out.
    """
    s, z = kind.shift, weight * kind.times / kind.steps
    lowest, highest = _ends(kind, weight)
    first = math.floor(lowest / spacing)
    places = np.arange(first + 1, math.floor(highest / spacing) + 1)
    inside = np.expm1(places * spacing) / z
    edges = np.full(places.size, -np.inf)
    there = inside > -1
    edges[there] = (np.log1p(inside[there]) + 0.5 * s * s) / s
    edges = np.concatenate([[-np.inf], edges, [np.inf]])
    found = []
    for shift in (0.0, s):
        below, above = special.ndtr(edges - shift), special.ndtr(shift - edges)
        left = edges[1:] - shift <= 0
        masses = np.where(left, np.diff(below), -np.diff(above))
        # The mass of a cell around zero is the complement of both tails.
        across = (edges[:-1] - shift < 0) & (edges[1:] - shift > 0)
        masses = np.where(across, 1 - below[:-1] - above[1:], masses)
        tails = np.where(left, below[1:], above[:-1])
        errors = ROUNDING * np.where(across, 1.0, tails)
        if adjacency == "add":
            masses, errors = masses[::-1], errors[::-1]
        start = first if adjacency == "remove" else -(first + masses.size - 1)
        found.append(Cells(spacing, start, masses.copy(), errors.copy()))
    return found[0], found[1]
