r"""Privacy losses on one fixed grid, for ledgers and for mechanisms of other libraries.

In: losses on a grid k * spacing, or a distribution of laws, which is put on such a grid.
Out: epsilon(delta), delta(epsilon).  Rounding: upper bounds.

A `PrivacyLossDistribution` chooses its grid for each question; here the grid is given.  Its errors
are of second order in the spacing.  `TAIL` of the mass goes to infinite loss, so a delta below
about 1e-18 cannot be certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._losses.compose import compose, cumulant_of, read_off
from mmcc.accounting._losses.composed import Question
from mmcc.accounting._losses.distribution import (
    MARGIN,
    Distribution,
    PrivacyLossDistribution,
    add_slacks,
)
from mmcc.accounting._losses.expansions import expand
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.laws import WeightedLaws
from mmcc.accounting._losses.rows import discretise
from mmcc.errors import ParameterError, real

WeightedLosses = tuple[tuple[GridLoss, int], ...]

TAIL = 1e-20
TILTS = np.geomspace(1e-3, 1e4, 36)
CURVE_DELTAS = (1e-2, 1e-5, 1e-9, 1e-13)


@dataclass(frozen=True, eq=False, slots=True)
class GridDistribution(Distribution):
    """Composed privacy losses on one grid, both adjacencies; `slack` is added to every delta."""

    remove: WeightedLosses
    add: WeightedLosses

    def __repr__(self) -> str:
        return f"GridDistribution({self.rows} mechanisms, spacing={self.spacing:g})"

    @property
    def spacing(self) -> float:
        """The distance between neighbouring losses."""
        return self.remove[0][0].spacing

    def compose(self, other: GridDistribution | PrivacyLossDistribution) -> GridDistribution:
        """Compose with a second mechanism, which may be chosen after seeing the first's output."""
        if isinstance(other, PrivacyLossDistribution):
            other = put_on_grid(other, self.spacing)
        if not isinstance(other, GridDistribution):
            raise ParameterError(f"can only compose with another distribution, got {other!r}.")
        if other.spacing != self.spacing:
            raise ParameterError(
                f"the spacings of the two grids differ: {self.spacing:g} and {other.spacing:g}. "
                "Make both with the same spacing."
            )
        return GridDistribution(
            self.remove + other.remove,
            self.add + other.add,
            add_slacks([self.slack, other.slack]),
        )

    def curve(self, epsilons: FloatArray, side: Adjacency) -> FloatArray:
        """Upper bounds on delta at increasing epsilons, which may be negative.

        Every tilt gives upper bounds; the result is the smallest over tilts made for different
        deltas.
        """
        parts = self.remove if side == "remove" else self.add
        cumulant = cumulant_of(parts)
        logs = np.array([cumulant(t) for t in TILTS])
        chosen = {int(np.argmin(np.abs(TILTS - 0.1)))}
        for delta in CURVE_DELTAS:
            chosen.add(int(np.argmin((logs - math.log(delta) - np.log1p(TILTS)) / TILTS)))
        found = np.ones(epsilons.size)
        for place in sorted(chosen):
            composed = compose(parts, float(TILTS[place]), float(epsilons[0]))
            found = np.minimum(found, composed.deltas(epsilons))
        return np.asarray(np.minimum((found + self.slack) * (1 + MARGIN), 1.0))

    def _answer(self, question: Question, side: Adjacency, floor: float | None = None) -> float:
        parts = self.remove if side == "remove" else self.add
        cumulant = cumulant_of(parts)
        if question.delta is not None:
            log = math.log(question.delta)
            values = [(cumulant(t) - log - math.log1p(t)) / t for t in TILTS]
        else:
            assert question.epsilon is not None
            values = [cumulant(t) - t * question.epsilon for t in TILTS]
        best = int(np.argmin(values))
        return read_off(parts, question, float(TILTS[best]), max(values[best], 0.0))[0]


def put_on_grid(distribution: PrivacyLossDistribution, spacing: float) -> GridDistribution:
    """Put a distribution of laws on a grid: losses move up, and mass is never dropped."""
    spacing = real("spacing", spacing, 0, 1.0, closed="h")
    return GridDistribution(
        _losses(distribution.remove, spacing, "remove"),
        _losses(distribution.add, spacing, "add"),
        distribution.slack,
    )


def _losses(laws: WeightedLaws, spacing: float, side: Adjacency) -> WeightedLosses:
    rows = sum(count for _, count in laws)
    found = []
    for law, count in laws:
        precision = min(max(5e-8 / count, 1e-13), 2e-10)
        expansion = expand(law, TAIL / rows, precision)
        found.append((discretise(expansion, spacing, side), count))
    return tuple(found)
