r"""Epochs that share nothing: the law of one epoch's likelihood ratio, composed.

In: trees of steps, one step of which is drawn in every epoch, and how many epochs have each; sigma.
Out: bounds on both sides of delta at epsilon, and of epsilon.  Rounding: according to each
function's name.

The likelihood ratio is a product of independent ones, so the epochs' privacy losses compose.  With
X the ratio of an epoch under Q and m the masses of its law, the loss is log X with masses m X
(remove) or -log X with masses m (add).  A law that is above in convex order has a larger delta at
every epsilon, and composition keeps that; so upper (lower) laws give upper (lower) bounds.

    upper bound  each loss is moved to two grid points, keeping its masses under P and Q;
    lower bound  losses are merged until their common loss is a grid point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._bounds.base import Answer
from mmcc.accounting._bounds.cascade.law import End, TreeBracket
from mmcc.accounting._losses.compose import read_off
from mmcc.accounting._losses.composed import Question
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.lower import compose_down, last_above
from mmcc.errors import PrecisionError
from mmcc.strategies._hierarchy import Epochs

TOLERANCE = 2e-5
"""The fraction of epsilon that the grid may cost, roughly."""
MOST_POINTS = 2**20
FINEST, COARSEST = 1e-8, 0.1
ERROR = 1e-12
"""More than the rounding of losses up to WIDEST, of their grid points and of masses."""
TILTS = np.geomspace(1e-3, 1e4, 141)
FLATTEST = 1e-3
"""A smaller epsilon is resolved only as finely as this one."""


@dataclass(frozen=True, eq=False, slots=True)
class Losses:
    """Losses in increasing order with their masses under the first law, and mass at infinity."""

    losses: FloatArray
    masses: FloatArray
    infinite: float = 0.0

    @property
    def span(self) -> float:
        """The distance from the smallest to the largest loss."""
        return float(self.losses[-1] - self.losses[0])


@dataclass(eq=False)
class EpochsBracket:
    """The bracket of independent epochs; laws are computed once for each end and adjacency."""

    epochs: Epochs
    sigma: float
    delta: float
    """Roughly the delta of interest, which sets how far the laws reach."""
    _losses: dict[tuple[End, Adjacency], list[tuple[Losses, int]]] = field(default_factory=dict)
    _answers: dict[tuple[Adjacency, Question], float] = field(default_factory=dict)

    def bound_epsilon(self, delta: float) -> Answer:
        """Certified epsilon at delta."""
        return self._sides(lambda side: self._upper(side, Question(delta=delta)))

    def bound_delta(self, epsilon: float) -> Answer:
        """Certified delta at epsilon."""
        return self._sides(lambda side: self._upper(side, Question(epsilon=epsilon)))

    def lower_epsilon(self, delta: float) -> Answer:
        """Certified lower bounds on epsilon at delta."""

        def lower(side: Adjacency) -> float:
            about = self._upper(side, Question(delta=delta))
            if not 0 < about < math.inf:
                return 0.0
            curve = self._lower(side, about, delta, Question(delta=delta))
            return last_above(curve, delta, about)

        return self._sides(lower)

    def lower_delta(self, epsilon: float) -> Answer:
        """Certified lower bounds on delta at epsilon."""

        def lower(side: Adjacency) -> float:
            about = self._upper(side, Question(epsilon=epsilon))
            if not about > 0:
                return 0.0
            curve = self._lower(side, epsilon, about, Question(epsilon=epsilon))
            return max(curve(epsilon), 0.0)

        return self._sides(lower)

    def _sides(self, answer: Callable[[Adjacency], float]) -> Answer:
        return Answer(answer("remove"), answer("add"))

    def _upper(self, side: Adjacency, question: Question) -> float:
        if (side, question) not in self._answers:
            parts = self._parts("upper", side)
            tilt, about = _where(parts, question)
            spacing = _spacing(parts, tilt, about)
            gridded = [(put_up(part, spacing), count) for part, count in parts]
            # Masses that sum to slightly more than one enlarge each other's infinite mass.
            excess = math.fsum(
                count * math.log(max(float(part.masses.sum()) + part.infinite, 1.0))
                for part, count in gridded
            )
            factor = math.exp(min(excess, 1.0)) * (1 + ERROR)
            if not excess <= 0.5:
                raise PrecisionError(
                    "the rounding errors of this many epochs are too large to certify anything."
                )
            gridded = [
                (GridLoss(part.spacing, part.first, part.masses, part.infinite * factor), count)
                for part, count in gridded
            ]
            found = read_off(gridded, question, tilt, about)[0]
            self._answers[side, question] = found
        return self._answers[side, question]

    def _lower(
        self, side: Adjacency, epsilon: float, delta: float, question: Question
    ) -> Callable[[float], float]:
        """A function of epsilon that bounds delta from below, tight near the given pair."""
        parts = self._parts("lower", side)
        tilt, about = _where(parts, question)
        spacing = _spacing(parts, tilt, about)
        gridded = [(put_down(part, spacing), count) for part, count in parts]
        if not all(part.masses.any() for part, _ in gridded):
            return lambda _: 0.0
        return compose_down(gridded, epsilon, delta).lower_delta

    def _parts(self, end: End, side: Adjacency) -> list[tuple[Losses, int]]:
        if (end, side) not in self._losses:
            each = self.delta / sum(count for count, _ in self.epochs)
            self._losses[end, side] = [
                (losses_of(TreeBracket(tree, self.sigma, each), end, side), count)
                for count, tree in self.epochs
            ]
        return self._losses[end, side]


def losses_of(tree: TreeBracket, end: End, side: Adjacency) -> Losses:
    """The privacy loss of one epoch, from the law of its likelihood ratio.

    For add, a ratio of zero is an infinite loss; for remove, it has no mass under P.
    """
    law = tree.law(end, side)
    there = law.values > 0
    values, masses = law.values[there], law.masses[there]
    if side == "remove":
        return Losses(np.log(values), masses * values, law.lost)
    none = float(law.masses[~there].sum()) if end == "upper" else 0.0
    return Losses(-np.log(values)[::-1], masses[::-1].copy(), none * (1 + ERROR))


def _where(parts: list[tuple[Losses, int]], question: Question) -> tuple[float, float]:
    """The tilt at which the question is decided, and roughly the epsilon there, by Chernoff."""
    cumulants = np.zeros(TILTS.size)
    for part, count in parts:
        with np.errstate(divide="ignore"):
            logs = np.log(part.masses)
        for i, tilt in enumerate(TILTS):
            exponents = logs + tilt * part.losses
            top = float(exponents.max())
            cumulants[i] += count * (top + math.log(float(np.exp(exponents - top).sum())))
    if question.epsilon is not None:
        best = int(np.argmin(cumulants - TILTS * question.epsilon))
        return float(TILTS[best]), question.epsilon
    assert question.delta is not None
    values = (cumulants - math.log(question.delta) - np.log1p(TILTS)) / TILTS
    best = int(np.argmin(values))
    return float(TILTS[best]), max(float(values[best]), 0.0)


def _spacing(parts: list[tuple[Losses, int]], tilt: float, epsilon: float) -> float:
    """A spacing h at which adding h^2 / 6 to each epoch's variance hardly raises epsilon."""
    total = sum(count for _, count in parts)
    allowed = TOLERANCE * max(epsilon, FLATTEST)
    wanted = math.sqrt(12 * allowed / (total * (1 + tilt)))
    widest = max(part.span for part, _ in parts)
    return max(min(wanted, COARSEST), widest / MOST_POINTS, FINEST)


def put_up(part: Losses, spacing: float) -> GridLoss:
    r"""Losses on the grid k h that dominate the given ones: delta is no smaller at any epsilon.

    A loss l in [a, a + h] puts (1 - e^(a - l)) / (1 - e^-h) of its mass on a + h, which keeps its
    masses under both laws and spreads its ratio without moving the mean.
    """
    places = np.floor(part.losses / spacing).astype(np.int64)
    above = np.clip(part.losses - places * spacing, 0.0, spacing)
    upper = part.masses * (np.expm1(-above) / math.expm1(-spacing))
    first = int(places[0])
    size = int(places[-1]) - first + 2
    masses = np.zeros(size)
    masses += np.bincount(places - first, part.masses - upper, size)
    masses += np.bincount(places - first + 1, upper, size)
    return GridLoss(spacing, first, masses, part.infinite).push_up(ERROR)


def put_down(part: Losses, spacing: float) -> GridLoss:
    """Losses on the grid below the given ones: merging outputs is post-processing."""
    first = math.floor(float(part.losses[0]) / spacing)
    size = math.floor(float(part.losses[-1]) / spacing) - first + 2
    masses = merge(part.losses, part.masses, spacing, first, size)
    return GridLoss(spacing, first, masses * (1 - ERROR), 0.0)


@compiled
def merge(
    losses: FloatArray, masses: FloatArray, spacing: float, first: int, size: int
) -> FloatArray:
    """Masses at grid points first, first + 1, ... after merging outputs in order of loss.

    Outputs are collected until their common log P/Q is a grid point; the last one may be split at
    random.  What is left at the end is rounded down.  ERROR is the margin.
    """
    found = np.zeros(size)
    k = 0
    level = math.exp(first * spacing + ERROR)
    p, q = 0.0, 0.0
    for i in range(losses.size):
        more_p, more_q = masses[i], masses[i] * math.exp(-losses[i])
        while p + more_p >= level * (q + more_q) and more_p > 0.0 and k < size - 1:
            if p > 0.0:
                part = (level * q - p) / (more_p - level * more_q)
                part = min(max(part, 0.0), 1.0)
                found[k] += p + part * more_p
                more_p, more_q = (1.0 - part) * more_p, (1.0 - part) * more_q
                p, q = 0.0, 0.0
            k += 1
            level = math.exp((first + k) * spacing + ERROR)
        p, q = p + more_p, q + more_q
    if p > 0.0:
        last = math.floor((math.log(p / q) - ERROR) / spacing) - first
        if last >= 0:
            found[min(last, size - 1)] += p
    return found
