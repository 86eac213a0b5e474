r"""Privacy losses on one fixed grid: what is needed to compose with other libraries' mechanisms.

In: losses on a grid k * spacing, or a distribution of ours, which is put on one.
Out: epsilon(delta), delta(epsilon).  Rounding: upper bounds.

A `PrivacyLossDistribution` chooses its grid for each question; here the grid is given.  Its errors
are of second order in the spacing.  `TAIL` of the mass goes to infinite loss, so a delta below
about 1e-18 cannot be certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.mmcc.conditional import Adjacency
from mmcc.accounting._losses.compose import Composed, Parts, compose, cumulant_of
from mmcc.accounting._losses.engine import SIDES, PrivacyLossDistribution, Side, WeightedLaws
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.laws import EPS, expand
from mmcc.accounting._losses.rows import discretise
from mmcc.errors import MethodError, ParameterError, PrecisionError, real, suggestion, whole

WeightedLosses = tuple[tuple[GridLoss, int], ...]

TAIL = 1e-20
SMALLEST_DELTA = 1e-290
TILTS = np.geomspace(1e-3, 1e4, 36)
MAX_COUNT = 10**12
CURVE_DELTAS = (1e-2, 1e-5, 1e-9, 1e-13)


@dataclass(frozen=True, eq=False, slots=True)
class GridDistribution:
    """Composed privacy losses on one grid, both adjacencies; `slack` is added to every delta."""

    remove: WeightedLosses
    add: WeightedLosses
    slack: float = 0.0

    def __repr__(self) -> str:
        count = sum(count for _, count in self.remove)
        return f"GridDistribution({count} mechanisms, spacing={self.spacing:g})"

    @property
    def spacing(self) -> float:
        """Distance of neighbouring losses."""
        return self.remove[0][0].spacing

    def compose(self, other: GridDistribution | PrivacyLossDistribution) -> GridDistribution:
        """Both mechanisms run, the second possibly chosen after seeing the first."""
        if isinstance(other, PrivacyLossDistribution):
            other = gridded(other, self.spacing)
        if not isinstance(other, GridDistribution):
            raise ParameterError(f"can only compose with another distribution, got {other!r}.")
        if other.spacing != self.spacing:
            raise ParameterError(
                f"the spacings of the grids differ: {self.spacing:g} and {other.spacing:g}. Make "
                "both with the same one."
            )
        return GridDistribution(
            self.remove + other.remove,
            self.add + other.add,
            min((self.slack + other.slack) * (1 + 1e-15), 1.0),
        )

    def self_compose(self, count: int) -> GridDistribution:
        """The mechanism run `count` times."""
        count = whole("count", count, 1, MAX_COUNT)
        return replace(
            self,
            remove=tuple((loss, n * count) for loss, n in self.remove),
            add=tuple((loss, n * count) for loss, n in self.add),
            slack=min(self.slack * count * (1 + 1e-15), 1.0),
        )

    def epsilon(self, delta: float, adjacency: Side = "both") -> float:
        """Smallest certified epsilon at this delta."""
        delta = real("delta", delta, 0, 1)
        left = (delta - self.slack) * (1 - 1e-12)
        if not left >= SMALLEST_DELTA:
            raise PrecisionError(
                f"delta = {delta:g} is too small to be certified here (bad events have probability "
                f"{self.slack:g}). Use a larger delta."
            )
        return max(_epsilon(parts, left) for parts in self._sides(adjacency))

    def delta(self, epsilon: float, adjacency: Side = "both") -> float:
        """Smallest certified delta at this epsilon."""
        epsilon = real("epsilon", epsilon, 0, 1e6, closed="l")
        found = max(_delta(parts, epsilon) for parts in self._sides(adjacency))
        return min((found + self.slack) * (1 + 1e-12), 1.0)

    def curve(self, epsilons: FloatArray, side: Adjacency) -> FloatArray:
        """Upper bounds on delta at increasing epsilons, which may be negative."""
        parts = self.remove if side == "remove" else self.add
        found = _curve(parts, epsilons) + self.slack
        return np.asarray(np.minimum(found * (1 + 1e-12), 1.0))

    def _sides(self, adjacency: Side) -> tuple[WeightedLosses, ...]:
        if adjacency not in SIDES:
            raise MethodError(f"unknown adjacency {adjacency!r}; {suggestion(adjacency, SIDES)}")
        sides = {"remove": (self.remove,), "add": (self.add,), "both": (self.remove, self.add)}
        return sides[adjacency]


def gridded(distribution: PrivacyLossDistribution, spacing: float) -> GridDistribution:
    """A distribution of ours on a grid: losses move up, and mass is never dropped."""
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


def _epsilon(parts: Parts, delta: float) -> float:
    """Every tilt is valid; the one for this delta is tried first, then flatter ones."""
    cumulant = cumulant_of(parts)
    values = [(cumulant(t) - math.log(delta) - math.log1p(t)) / t for t in TILTS]
    best = int(np.argmin(values))
    found, infinite = math.inf, 0.0
    for tilt in (float(TILTS[best]), 1.0, 1e-3):
        composed = compose(parts, tilt, math.inf)
        infinite = composed.infinite
        if composed.lowest <= 0.0 and composed.delta(0.0) <= delta:
            return 0.0
        found = min(found, max(composed.epsilon(delta), 0.0))
        if found <= 1.5 * max(values[best], 0.0):
            break
    if not math.isfinite(found):
        raise PrecisionError(
            f"delta = {delta:g} is below the mass that truncation and round-off leave at infinity "
            f"({infinite:.2g}). Use a larger delta."
        )
    return found


def _delta(parts: Parts, epsilon: float) -> float:
    cumulant = cumulant_of(parts)
    values = [cumulant(t) - t * epsilon for t in TILTS]
    tilts = (float(TILTS[int(np.argmin(values))]), 1.0, 1e-3)
    found = 1.0
    for tilt in tilts:
        found = min(found, compose(parts, tilt, epsilon).delta(epsilon))
        if found < 0.999:
            break
    return found


def _curve(parts: Parts, epsilons: FloatArray) -> FloatArray:
    """Every tilt gives upper bounds: the smallest over tilts made for different deltas."""
    cumulant = cumulant_of(parts)
    logs = np.array([cumulant(t) for t in TILTS])
    chosen = {int(np.argmin(np.abs(TILTS - 0.1)))}
    for delta in CURVE_DELTAS:
        chosen.add(int(np.argmin((logs - math.log(delta) - np.log1p(TILTS)) / TILTS)))
    found = np.ones(epsilons.size)
    for place in sorted(chosen):
        composed = compose(parts, float(TILTS[place]), float(epsilons[0]))
        found = np.minimum(found, _read(composed, epsilons))
    return found


def _read(composed: Composed, epsilons: FloatArray) -> FloatArray:
    r"""`Composed.delta` at many increasing epsilons in one pass over the window.

    With W_i = sum_(l > e_i) m(l) e^(e_i - l), g = e_(i+1) - e_i, all terms positive:
    delta_i = sum_(e_i < l <= e_(i+1)) m(l) (1 - e^(e_i - l)) + delta_(i+1) + (1 - e^-g) W_(i+1).
    """
    deltas = np.ones(epsilons.size)
    usable = composed.cumulant - composed.tilt * epsilons <= 300.0
    usable &= epsilons >= composed.lowest
    if not usable.any():
        return deltas
    at = epsilons[usable]
    losses = composed.losses
    start = int(np.searchsorted(losses, at[0], side="right"))
    losses = losses[start:]
    weights = np.exp(composed.cumulant - composed.tilt * losses)
    masses = np.maximum(composed.tilted[start:], 0.0) * weights
    edges = np.append(np.searchsorted(losses, at, side="right"), losses.size)
    owner = np.repeat(np.arange(at.size), np.diff(edges))
    gaps = at[owner] - losses
    near = np.bincount(owner, masses * -np.expm1(gaps), at.size)
    carried = np.bincount(owner, masses * np.exp(gaps), at.size)
    squares = np.bincount(owner, weights**2, at.size)
    for i in range(at.size - 2, -1, -1):
        gap = at[i] - at[i + 1]
        near[i] += near[i + 1] - math.expm1(gap) * carried[i + 1]
        carried[i] += math.exp(gap) * carried[i + 1]
        squares[i] += squares[i + 1]
    # As in `Composed.delta`, but for the recursion: three more roundings for each epsilon.
    rounding = composed.relative + EPS * (
        4 * losses.size + 8 * at.size + 16 * (1 + abs(composed.cumulant))
    )
    slack = composed.error * np.sqrt(squares)
    deltas[usable] = (near + slack) * (1 + 2 * rounding) + composed.infinite
    return np.asarray(np.minimum(deltas, 1.0))
