"""Privacy loss distributions: independent mixtures of Gaussians, put on a grid when asked.

In: laws of sensitivities with multiplicities.  Out: epsilon(delta) and delta(epsilon).
Rounding: upper bounds.

A distribution keeps the laws themselves.  Only a question (epsilon at this delta, delta at that
epsilon) decides the grid, the tilt and the tails, so nothing is lost by composing step by step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.mmcc.conditional import Adjacency
from mmcc.accounting._losses.compose import Composed, compose
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.laws import Expansion, Law, ProductLaw, expand
from mmcc.accounting._losses.rows import discretise, sample_losses
from mmcc.accounting._parallel import Progress, spread
from mmcc.errors import MethodError, ParameterError, PrecisionError, real, suggestion, whole

Side = Literal["remove", "add", "both"]
SIDES: tuple[Side, ...] = ("remove", "add", "both")
WeightedLaws = tuple[tuple[Law, int], ...]

TOLERANCE = 5e-5
"""How much of epsilon the grid may cost, roughly (the result is an upper bound either way)."""
ROUGH = 30.0
"""How much coarser a first answer may be."""
TAIL_SHARE = 1e-9
"""Share of delta that truncation of all rows together may cost."""
CUT_SHARE = 1e-5
"""The same where fine cells are worth more than far tails."""
FIRST_TAIL = 1e-20
PRECISION = 2e-10
"""Relative error of dP/dQ that a single row may have."""
MAX_REFINEMENTS = 6
COARSE = 20.0
"""A grid that costs more than this times the tolerance is refined, once the answer is known."""
REFINED = 4.0
"""What it may cost then."""
FLAT = 0.01
"""A curve that falls by less than this part down to the answer is resolved like one that does."""
MAX_SPACING = 0.5
LARGEST_SPACING = 2.0
MAX_WIDENINGS = 8
MAX_ROW_POINTS = 2**19
MAX_REFINED_POINTS, LEAST_ROW_POINTS = 2**23, 2**12
"""Points of all rows together on a grid that is refined, and of each at least."""
MAX_WINDOW_POINTS = 2**23
MAX_TRANSFORMED = 2**27
MAX_COUNT = 10**12


@dataclass(frozen=True, slots=True)
class Target:
    """The question: epsilon at a delta, or delta at an epsilon."""

    epsilon: float | None = None
    delta: float | None = None
    floor: float = 0.0
    """An epsilon below this need not be exact: the answer is a maximum with it."""


@dataclass(frozen=True, eq=False, slots=True)
class Effort:
    """How to compute: the grid (None: chosen), an executor, a progress callback."""

    spacing: float | None = None
    executor: Executor | None = None
    progress: Progress | None = None
    tolerance: float = TOLERANCE
    scouting: bool = False
    """Rough answers for comparing plans: a coarse grid, the remove adjacency alone."""

    def report(self, what: str, fraction: float) -> None:
        if self.progress is not None:
            self.progress(what, fraction)


def bound(
    laws: Callable[[], Iterable[tuple[Law, int]]],
    rows: int,
    side: Adjacency,
    target: Target,
    effort: Effort,
) -> float:
    """Upper bound on the epsilon (or delta) of `rows` composed mixtures of Gaussians.

    `laws` may make them one by one, so that only one need be in memory.
    """
    if target.delta is not None:
        return _answer(laws, side, target, effort, max(TAIL_SHARE * target.delta / rows, 1e-290))
    # Tails that are small beside any ordinary delta; smaller ones if this delta is not ordinary.
    found = _answer(laws, side, target, effort, FIRST_TAIL / rows)
    if effort.scouting or TAIL_SHARE * found >= FIRST_TAIL:
        return found
    return _answer(laws, side, target, effort, max(TAIL_SHARE * found / rows, 1e-290))


def bound_at_least(
    laws: Callable[[], Iterable[tuple[Law, int]]],
    rows: int,
    target: Target,
    effort: Effort,
    floor: float,
) -> float:
    """The same for the add adjacency, exact only where it exceeds `floor`, remove's answer."""
    enough = floor if target.epsilon is None else target.epsilon
    largest = largest_add_loss(laws(), enough)
    if largest <= enough:  # no loss is larger than that: epsilon at most this, delta zero
        return largest if target.epsilon is None else 0.0
    if target.delta is not None:
        target = replace(target, floor=floor)
    rough = replace(effort, tolerance=ROUGH * effort.tolerance)
    answer = bound(laws, rows, "add", target, rough)
    return answer if answer <= floor else bound(laws, rows, "add", target, effort)


def largest_add_loss(laws: Iterable[tuple[Law, int]], enough: float) -> float:
    """Upper bound on the loss under add, -log P(X = 0) summed; infinity once beyond `enough`."""
    total = 0.0
    for law, count in laws:
        if isinstance(law, ProductLaw):
            present = law.values > 0
            with np.errstate(divide="ignore"):
                absent = law.repeats * float(np.sum(np.log1p(-law.probs[present])))
        else:
            share = math.fsum(law.probs[law.values == 0])
            absent = math.log(share) if share > 0 else -math.inf
        total -= count * absent * (1 + 1e-9)
        if not total <= enough:
            return math.inf
    return total + 1e-15


def _answer(
    laws: Callable[[], Iterable[tuple[Law, int]]],
    side: Adjacency,
    target: Target,
    effort: Effort,
    tail: float,
) -> float:
    rows = _rows(laws, side, effort, tail)
    # Many different rows cost time in proportion to the grid: let them have a coarser one.
    tolerance = effort.tolerance * min(max(len(rows.counts) / 256, 1.0), 3.0)
    grid = _choose_grid(rows.samples, rows.weights, target, tolerance)
    points = MAX_ROW_POINTS // 32 if effort.scouting else MAX_ROW_POINTS
    spacing = effort.spacing or max(grid.spacing, rows.finest(points))
    best, composed = _ask(rows, replace(grid, spacing=spacing), target, effort)
    points = min(points, max(MAX_REFINED_POINTS // len(rows.counts), LEAST_ROW_POINTS))
    for _ in range(0 if effort.spacing else MAX_REFINEMENTS):
        finer = _refined(rows, composed, best, spacing, target, tolerance)
        if finer is None:
            break
        if finer.spacing < rows.finest(points) and tail < rows.tail_for(target.delta or best):
            tail = rows.tail_for(target.delta or best)
            rows = _rows(laws, side, effort, tail)
        finer = replace(finer, spacing=max(finer.spacing, rows.finest(points)))
        if not finer.spacing <= spacing / 2:
            break
        spacing = finer.spacing
        try:
            found, composed = _ask(rows, finer, target, effort)
        except PrecisionError:  # too fine for floating point: what is known will do
            break
        best = min(best, found)
    return best


def _rows(
    laws: Callable[[], Iterable[tuple[Law, int]]], side: Adjacency, effort: Effort, tail: float
) -> Rows:
    different = Different(laws())
    expansions: list[Expansion] = []
    samples: list[tuple[FloatArray, FloatArray]] = []
    work = spread(
        partial(_prepare, tail=tail, tolerance=effort.tolerance, side=side),
        different,
        effort.executor,
    )
    for expansion, losses, masses in work:
        expansions.append(expansion)
        samples.append((losses, masses))
        effort.report("laws of the rows", len(expansions))
    return Rows(expansions, samples, different.counts, side)


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """The different rows, how often each one comes, and rough losses of them."""

    expansions: list[Expansion]
    samples: list[tuple[FloatArray, FloatArray]]
    counts: list[int]
    side: Adjacency

    @property
    def weights(self) -> FloatArray:
        """The counts, ready for sums."""
        return np.array(self.counts, np.float64)

    def finest(self, points: int) -> float:
        """The smallest spacing worth trying: so many points a row, far above the losses' errors."""
        widest = max(float(np.ptp(losses)) for losses, _ in self.samples)
        return max(widest / points, 100 * max(e.error + 1e-12 for e in self.expansions))

    def tail_for(self, delta: float) -> float:
        """Tails that may be cut off each row where the range of its losses limits the grid."""
        return CUT_SHARE * delta / sum(self.counts)

    def added_variance(self, spacing: float) -> float:
        """About the variance that spreading losses over the cells of a grid adds, rows together.

        It is spacing^2/6 a row, or spacing E|L| if the row's losses L are far smaller than a cell.
        """
        return _added_variance(self.samples, self.weights, spacing)


@dataclass(frozen=True, slots=True)
class Grid:
    """How to put losses on a grid: for an answer of about `epsilon`."""

    spacing: float
    tilt: float
    epsilon: float


def _ask(rows: Rows, grid: Grid, target: Target, effort: Effort) -> tuple[float, Composed]:
    """The answer on one grid, coarser if cells are too narrow for their rounding errors."""
    spacing = grid.spacing
    for widening in range(MAX_WIDENINGS):
        if not spacing <= LARGEST_SPACING:
            raise PrecisionError(
                "the privacy loss is too large for a grid; nothing useful can be certified by "
                "composition here. Use a larger sigma, or method='unamplified'."
            )
        try:
            parts = _on_grid(rows.expansions, rows.counts, spacing, rows.side, effort)
            break
        except PrecisionError:
            if effort.spacing or widening == MAX_WIDENINGS - 1:
                raise
            spacing *= 8
    return _read_off(parts, grid.tilt, grid.epsilon, target)


def _refined(
    rows: Rows,
    composed: Composed,
    found: float,
    spacing: float,
    target: Target,
    tolerance: float,
) -> Grid | None:
    """A finer grid, if the answer shows that the first guess at epsilon made it too coarse.

    The guess is Chernoff's.  Where large losses are rare, as with small probabilities and little
    noise, the true epsilon can be a thousandth of it, and delta falls far faster at first: on the
    scale of the losses of one participation.  So both are read off the composed curve.
    """
    epsilon = found if target.epsilon is None else target.epsilon
    if epsilon == 0.0 and target.epsilon is None:
        return None
    slope = composed.slope(max(epsilon, composed.lowest))
    scale = max(epsilon, target.floor, FLAT / slope)

    def added(spacing: float) -> float:
        # Between grid points the curve is a chord, as if the whole loss were spread over a cell.
        return max(rows.added_variance(spacing), spacing**2 / 4)

    if added(spacing) * (1 + slope) / 2 <= COARSE * tolerance * scale:
        return None
    wanted = _spacing_for(added, 2 * REFINED * tolerance * scale / (1 + slope))
    # Small tilts keep the window narrow; the slope is where delta is decided.
    tilt = min(max(composed.tilt, 1.0), slope)
    return Grid(wanted, tilt, max(epsilon, composed.lowest))


def _on_grid(
    expansions: list[Expansion],
    counts: list[int],
    spacing: float,
    side: Adjacency,
    effort: Effort,
) -> list[tuple[GridLoss, int]]:
    parts: list[tuple[GridLoss, int]] = []
    work = spread(partial(discretise, spacing=spacing, adjacency=side), expansions, effort.executor)
    for loss, count in zip(work, counts, strict=True):
        parts.append((loss, count))
        effort.report("losses of the rows", len(parts))
    return parts


class Different:
    """Iterates over the different laws; `counts` then says how often each one came.

    Equality by a hash of the bytes: no two laws are ever compared.
    """

    def __init__(self, laws: Iterable[tuple[Law, int]]) -> None:
        self._laws = laws
        self._place: dict[bytes, int] = {}
        self.counts: list[int] = []

    def __iter__(self) -> Iterator[tuple[Law, int]]:
        for law, count in self._laws:
            key = fingerprint(law)
            if key in self._place:
                self.counts[self._place[key]] += count
            else:
                self._place[key] = len(self.counts)
                self.counts.append(count)
                yield law, count


def fingerprint(law: Law) -> bytes:
    """A hash that two laws share only if they are equal."""
    digest = hashlib.blake2b(law.values.tobytes(), digest_size=16)
    digest.update(law.probs.tobytes())
    repeats = law.repeats if isinstance(law, ProductLaw) else 0
    digest.update(f"{law.values.size} {repeats}".encode())
    return digest.digest()


def _prepare(
    weighted: tuple[Law, int], tail: float, tolerance: float, side: Adjacency
) -> tuple[Expansion, FloatArray, FloatArray]:
    law, count = weighted
    # An error of dP/dQ costs about 8 times itself in epsilon, for each row of this law.
    precision = min(max(1e-3 * tolerance / count, 1e-13), PRECISION)
    expansion = expand(law, tail, precision)
    losses, p, q = sample_losses(expansion)
    return (expansion, losses, p) if side == "remove" else (expansion, -losses, q)


def _read_off(
    parts: list[tuple[GridLoss, int]], tilt: float, estimate: float, target: Target
) -> tuple[float, Composed]:
    # Every tilt gives a certified answer; others are tried where the first did not do its work.
    composed = compose(parts, tilt, target.epsilon if target.epsilon is not None else math.inf)
    found = _read(composed, target)
    scale = 1.5 * estimate if target.epsilon is None else 0.999
    for other in (1.0, 1e-3):
        if found <= scale:
            break
        try:
            another = compose(parts, other, composed.lowest)
        except PrecisionError:
            break
        if (value := _read(another, target)) < found:
            found, composed = value, another
    if not math.isfinite(found):
        raise PrecisionError(
            f"delta = {target.delta:g} is below the mass that truncation and round-off leave at "
            f"infinity ({composed.infinite:.2g}). Use a larger delta."
        )
    return found, composed


def _read(composed: Composed, target: Target) -> float:
    if target.epsilon is not None:
        return composed.delta(target.epsilon)
    assert target.delta is not None
    if composed.lowest <= 0.0 and composed.delta(0.0) <= target.delta:
        return 0.0
    return max(composed.epsilon(target.delta), 0.0)


def _choose_grid(
    samples: list[tuple[FloatArray, FloatArray]],
    counts: FloatArray,
    target: Target,
    tolerance: float,
) -> Grid:
    """Spacing, tilt and epsilon from rough losses of the rows.

    Spreading each loss over its cell adds a variance (`Rows.added_variance`), v in all, which
    raises epsilon by v (1 + tilt)/2 where delta falls as e^(-tilt epsilon).
    """
    losses = np.array([row for row, _ in samples])
    with np.errstate(divide="ignore"):
        logs = np.log(np.array([masses for _, masses in samples]))

    def cumulant(tilt: float) -> float:
        exponents = logs + tilt * losses
        peaks = exponents.max(axis=1)
        return float(counts @ (peaks + np.log(np.exp(exponents - peaks[:, None]).sum(axis=1))))

    if target.delta is not None:
        log_delta = math.log(target.delta)
        tilt = _best_tilt(lambda t: (cumulant(t) - log_delta - math.log1p(t)) / t)
        epsilon = (cumulant(tilt) - log_delta - math.log1p(tilt)) / tilt
    else:
        assert target.epsilon is not None
        epsilon = target.epsilon
        tilt = _best_tilt(lambda t: cumulant(t) - t * epsilon)
    epsilon = max(epsilon, target.floor, 1e-3 / tilt)
    spacing = _spacing_for(
        lambda middle: _added_variance(samples, counts, middle),
        2 * tolerance * epsilon / (1 + tilt),
    )
    curvature = abs(cumulant(1.01 * tilt) - 2 * cumulant(tilt) + cumulant(0.99 * tilt))
    width = 16 * math.sqrt(curvature) / (0.01 * tilt)
    points = max(min(MAX_WINDOW_POINTS, MAX_TRANSFORMED // len(samples)), 2**16)
    return Grid(max(spacing, width / points), tilt, epsilon)


def _added_variance(
    samples: list[tuple[FloatArray, FloatArray]], counts: FloatArray, spacing: float
) -> float:
    sizes = np.array([float(np.abs(row) @ masses) for row, masses in samples])
    return float(counts @ np.minimum(spacing**2 / 6, spacing * sizes))


def _spacing_for(added: Callable[[float], float], allowed: float) -> float:
    """The widest cells, to 5 %, that add no more variance than allowed."""
    low, high = 1e-14, MAX_SPACING
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if added(middle) <= allowed else (low, middle)
    return low


def _best_tilt(objective: Callable[[float], float]) -> float:
    """Roughly the tilt in [1e-3, 1e5] that minimises a quasi-convex function."""
    tilts = np.geomspace(1e-3, 1e5, 65)
    low, high = 0, tilts.size - 1
    while high - low > 2:
        middle = (low + high) // 2
        if objective(float(tilts[middle])) <= objective(float(tilts[middle + 1])):
            high = middle + 1
        else:
            low = middle
    return float(tilts[(low + high) // 2])


@dataclass(frozen=True, eq=False, slots=True)
class PrivacyLossDistribution:
    """Composed mixtures of Gaussians, both adjacencies, and the probability of bad events.

    `slack` is added to every delta.  All answers are upper bounds.
    """

    remove: WeightedLaws
    add: WeightedLaws
    slack: float = 0.0
    spacing: float | None = None

    def __repr__(self) -> str:
        slack = f", slack={self.slack:g}" if self.slack else ""
        return (
            f"PrivacyLossDistribution({self.rows} mechanisms, {len(self.remove)} different{slack})"
        )

    @property
    def rows(self) -> int:
        """How many mechanisms are composed."""
        return sum(count for _, count in self.remove)

    def compose(self, other: PrivacyLossDistribution) -> PrivacyLossDistribution:
        """Both mechanisms run, the second possibly chosen after seeing the first."""
        if not isinstance(other, PrivacyLossDistribution):
            raise ParameterError(f"can only compose with another distribution, got {other!r}.")
        return composed((self, other), 0.0)

    def self_compose(self, count: int) -> PrivacyLossDistribution:
        """The mechanism run `count` times."""
        count = whole("count", count, 1, MAX_COUNT)
        return replace(
            self,
            remove=tuple((law, n * count) for law, n in self.remove),
            add=tuple((law, n * count) for law, n in self.add),
            slack=min(self.slack * count, 1.0),
        )

    def epsilon(self, delta: float, adjacency: Side = "both") -> float:
        """Smallest certified epsilon at this delta."""
        delta = real("delta", delta, 0, 1)
        left = delta - self.slack
        if not left > 0:
            raise PrecisionError(
                f"delta = {delta:g} is not larger than the probability of the bad events, "
                f"{self.slack:g}. Use a larger delta."
            )
        return self._largest(Target(delta=left * (1 - 1e-12)), adjacency)

    def delta(self, epsilon: float, adjacency: Side = "both") -> float:
        """Smallest certified delta at this epsilon."""
        epsilon = real("epsilon", epsilon, 0, 1e6, closed="l")
        found = self._largest(Target(epsilon=epsilon), adjacency)
        return min((found + self.slack) * (1 + 1e-12), 1.0)

    def _largest(self, target: Target, adjacency: Side) -> float:
        if adjacency not in SIDES:
            raise MethodError(f"unknown adjacency {adjacency!r}; {suggestion(adjacency, SIDES)}")
        effort = Effort(spacing=self.spacing)
        if adjacency == "add":
            return bound(lambda: self.add, self.rows, "add", target, effort)
        remove = bound(lambda: self.remove, self.rows, "remove", target, effort)
        if adjacency == "remove":
            return remove
        return max(remove, bound_at_least(lambda: self.add, self.rows, target, effort, remove))


def composed(
    distributions: Iterable[PrivacyLossDistribution], bad_event_probability: float
) -> PrivacyLossDistribution:
    """All distributions together, equal laws counted, plus the probability of bad events."""
    listed = list(distributions)
    spacings = [d.spacing for d in listed if d.spacing is not None]
    return PrivacyLossDistribution(
        remove=merged(pair for d in listed for pair in d.remove),
        add=merged(pair for d in listed for pair in d.add),
        slack=min(math.fsum([d.slack for d in listed]) + bad_event_probability, 1.0),
        spacing=min(spacings) if spacings else None,
    )


def merged(laws: Iterable[tuple[Law, int]]) -> WeightedLaws:
    """Equal laws once, with their number."""
    different = Different(laws)
    kept = [law for law, _ in different]
    return tuple(zip(kept, different.counts, strict=True))
