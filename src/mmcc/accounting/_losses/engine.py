"""The engine: a question about composed mixtures of Gaussians, the grid it needs, the answer.

In: laws of sensitivities with multiplicities, a `Question`.  Out: epsilon at delta, or delta at
epsilon.  Rounding: upper bounds.

The grid, the tilt and the tails depend on the question only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._methods import UNAMPLIFIED
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._losses.compose import read_off
from mmcc.accounting._losses.composed import Composed, Question
from mmcc.accounting._losses.expansions import Expansion, expand
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.laws import Different, Law, ProductLaw
from mmcc.accounting._losses.rows import discretise, sample_losses
from mmcc.accounting._parallel import Progress, spread
from mmcc.errors import PrecisionError

TOLERANCE = 5e-5
"""The fraction of epsilon that the grid may cost, roughly; the result is an upper bound anyway."""
ROUGH = 30.0
"""The factor by which a first answer may be coarser."""
TAIL_SHARE = 1e-9
"""The fraction of delta that truncating all rows may cost together."""
CUT_SHARE = 1e-5
"""The same if fine cells are worth more than far tails."""
FIRST_TAIL = 1e-20
PRECISION = 2e-10
"""The relative error of dP/dQ allowed in a single row."""
MAX_REFINEMENTS = 6
COARSE = 20.0
"""Once the answer is known, a grid that costs more than this times the tolerance is refined."""
REFINED = 4.0
"""What the refined grid may cost, in multiples of the tolerance."""
FLAT = 0.01
"""If log delta falls by less than this before the answer, it is treated as if by this much."""
MAX_SPACING = 0.5
LARGEST_SPACING = 2.0
MAX_WIDENINGS = 8
MAX_ROW_POINTS = 2**19
MAX_REFINED_POINTS, LEAST_ROW_POINTS = 2**23, 2**12
"""On a refined grid: most points of all rows together, and fewest points of one row."""
MAX_WINDOW_POINTS = 2**23
MAX_TRANSFORMED = 2**27


@dataclass(frozen=True, eq=False, slots=True)
class Effort:
    """How to compute: the grid spacing (None: chosen automatically), an executor, a callback."""

    spacing: float | None = None
    executor: Executor | None = None
    progress: Progress | None = None
    tolerance: float = TOLERANCE
    scouting: bool = False
    """Whether rough answers suffice, to compare plans: a coarse grid, the remove adjacency only."""

    def report(self, what: str, fraction: float) -> None:
        if self.progress is not None:
            self.progress(what, fraction)


def bound(
    laws: Callable[[], Iterable[tuple[Law, int]]],
    rows: int,
    side: Adjacency,
    question: Question,
    effort: Effort,
) -> float:
    """Upper bound on the epsilon (or delta) of `rows` composed mixtures of Gaussians.

    `laws` may generate them one by one, so only one need be in memory.
    """
    if question.delta is not None:
        tail = max(TAIL_SHARE * question.delta / rows, 1e-290)
        return _answer(laws, side, question, effort, tail)
    # Tails that are small beside any ordinary delta, and smaller still for a tiny delta.
    found = _answer(laws, side, question, effort, FIRST_TAIL / rows)
    if effort.scouting or TAIL_SHARE * found >= FIRST_TAIL:
        return found
    return _answer(laws, side, question, effort, max(TAIL_SHARE * found / rows, 1e-290))


def bound_at_least(
    laws: Callable[[], Iterable[tuple[Law, int]]],
    rows: int,
    question: Question,
    effort: Effort,
    floor: float,
) -> float:
    """`bound` for the add adjacency, exact only if it exceeds `floor`, the answer for remove."""
    enough = floor if question.epsilon is None else question.epsilon
    largest = largest_add_loss(laws(), enough)
    if largest <= enough:  # no loss is larger than that: epsilon at most this, delta zero
        return largest if question.epsilon is None else 0.0
    if question.delta is not None:
        question = replace(question, floor=floor)
    rough = replace(effort, tolerance=ROUGH * effort.tolerance)
    answer = bound(laws, rows, "add", question, rough)
    return answer if answer <= floor else bound(laws, rows, "add", question, effort)


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
    question: Question,
    effort: Effort,
    tail: float,
) -> float:
    rows = _rows(laws, side, effort, tail)
    # With many different rows time grows with the grid, so they get a coarser one.
    tolerance = effort.tolerance * min(max(len(rows.counts) / 256, 1.0), 3.0)
    grid = _choose_grid(rows, question, tolerance)
    points = MAX_ROW_POINTS // 32 if effort.scouting else MAX_ROW_POINTS
    spacing = effort.spacing or max(grid.spacing, rows.finest(points))
    best, composed = _ask(rows, replace(grid, spacing=spacing), question, effort)
    points = min(points, max(MAX_REFINED_POINTS // len(rows.counts), LEAST_ROW_POINTS))
    for _ in range(0 if effort.spacing else MAX_REFINEMENTS):
        finer = _finer_grid(rows, composed, best, spacing, question, tolerance)
        if finer is None:
            break
        if finer.spacing < rows.finest(points) and tail < rows.tail_for(question.delta or best):
            tail = rows.tail_for(question.delta or best)
            rows = _rows(laws, side, effort, tail)
        finer = replace(finer, spacing=max(finer.spacing, rows.finest(points)))
        if not finer.spacing <= spacing / 2:
            break
        spacing = finer.spacing
        try:
            found, composed = _ask(rows, finer, question, effort)
        except PrecisionError:  # too fine for floating point: keep the first answer
            break
        best = min(best, found)
    return best


def _rows(
    laws: Callable[[], Iterable[tuple[Law, int]]], side: Adjacency, effort: Effort, tail: float
) -> PreparedRows:
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
    return PreparedRows(expansions, samples, different.counts, side)


@dataclass(frozen=True, eq=False, slots=True)
class PreparedRows:
    """The different rows, how often each occurs, and rough losses of them."""

    expansions: list[Expansion]
    samples: list[tuple[FloatArray, FloatArray]]
    counts: list[int]
    side: Adjacency

    @property
    def weights(self) -> FloatArray:
        """The counts, ready for sums."""
        return np.array(self.counts, np.float64)

    def finest(self, points: int) -> float:
        """The smallest spacing worth trying: `points` per row, far above the losses' errors."""
        widest = max(float(np.ptp(losses)) for losses, _ in self.samples)
        return max(widest / points, 100 * max(e.error + 1e-12 for e in self.expansions))

    def tail_for(self, delta: float) -> float:
        """The tail to cut off each row if the range of its losses limits the grid."""
        return CUT_SHARE * delta / sum(self.counts)

    def added_variance(self, spacing: float) -> float:
        """Roughly the variance that all rows together gain by spreading losses over grid cells.

        It is spacing^2/6 per row, or spacing E|L| if the row's losses L are far smaller than a
        cell.
        """
        sizes = np.array([float(np.abs(row) @ masses) for row, masses in self.samples])
        return float(self.weights @ np.minimum(spacing**2 / 6, spacing * sizes))


@dataclass(frozen=True, slots=True)
class Grid:
    """How to put losses on a grid, for an answer of about `epsilon`."""

    spacing: float
    tilt: float
    epsilon: float


def _ask(
    rows: PreparedRows, grid: Grid, question: Question, effort: Effort
) -> tuple[float, Composed]:
    """The answer on one grid, coarser if cells are too narrow for their rounding errors."""
    spacing = grid.spacing
    for widening in range(MAX_WIDENINGS):
        if not spacing <= LARGEST_SPACING:
            raise PrecisionError(
                "the privacy loss is too large for a grid; nothing useful can be certified by "
                f"composition here. Use a larger sigma, or method={UNAMPLIFIED!r}."
            )
        try:
            parts = _on_grid(rows.expansions, rows.counts, spacing, rows.side, effort)
            break
        except PrecisionError:
            if effort.spacing or widening == MAX_WIDENINGS - 1:
                raise
            spacing *= 8
    return read_off(parts, question, grid.tilt, grid.epsilon)


def _finer_grid(
    rows: PreparedRows,
    composed: Composed,
    found: float,
    spacing: float,
    question: Question,
    tolerance: float,
) -> Grid | None:
    """A finer grid, if the answer shows that the first guess of epsilon made the grid too coarse.

    The guess comes from Chernoff's bound.  If large losses are rare, as with small probabilities
    and little noise, the true epsilon can be a thousandth of it, and delta falls far faster at
    first, on the scale of the losses of one participation.  So both are read off the composed
    curve.
    """
    epsilon = found if question.epsilon is None else question.epsilon
    if epsilon == 0.0 and question.epsilon is None:
        return None
    slope = composed.slope(max(epsilon, composed.lowest))
    scale = max(epsilon, question.floor, FLAT / slope)

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


def _prepare(
    weighted: tuple[Law, int], tail: float, tolerance: float, side: Adjacency
) -> tuple[Expansion, FloatArray, FloatArray]:
    law, count = weighted
    # An error of dP/dQ costs about 8 times itself in epsilon, for every row with this law.
    precision = min(max(1e-3 * tolerance / count, 1e-13), PRECISION)
    expansion = expand(law, tail, precision)
    losses, p, q = sample_losses(expansion)
    return (expansion, losses, p) if side == "remove" else (expansion, -losses, q)


def _choose_grid(rows: PreparedRows, question: Question, tolerance: float) -> Grid:
    """Spacing, tilt and epsilon from rough losses of the rows.

    Spreading each loss over its cell adds a variance, v over all rows (`added_variance`), which
    raises epsilon by v (1 + tilt)/2 if delta falls as e^(-tilt epsilon).
    """
    counts = rows.weights
    losses = np.array([row for row, _ in rows.samples])
    with np.errstate(divide="ignore"):
        logs = np.log(np.array([masses for _, masses in rows.samples]))

    def cumulant(tilt: float) -> float:
        exponents = logs + tilt * losses
        peaks = exponents.max(axis=1)
        return float(counts @ (peaks + np.log(np.exp(exponents - peaks[:, None]).sum(axis=1))))

    if question.delta is not None:
        log_delta = math.log(question.delta)
        tilt = _best_tilt(lambda t: (cumulant(t) - log_delta - math.log1p(t)) / t)
        epsilon = (cumulant(tilt) - log_delta - math.log1p(tilt)) / tilt
    else:
        assert question.epsilon is not None
        epsilon = question.epsilon
        tilt = _best_tilt(lambda t: cumulant(t) - t * epsilon)
    epsilon = max(epsilon, question.floor, 1e-3 / tilt)
    spacing = _spacing_for(rows.added_variance, 2 * tolerance * epsilon / (1 + tilt))
    curvature = abs(cumulant(1.01 * tilt) - 2 * cumulant(tilt) + cumulant(0.99 * tilt))
    width = 16 * math.sqrt(curvature) / (0.01 * tilt)
    points = max(min(MAX_WINDOW_POINTS, MAX_TRANSFORMED // len(rows.samples)), 2**16)
    return Grid(max(spacing, width / points), tilt, epsilon)


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
