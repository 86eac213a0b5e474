"""A tree of bins: the law of the likelihood ratio itself, computed from the leaves up.

In: a hierarchy of bins, sigma.  Out: bounds on both sides of delta at epsilon, and of epsilon.

Under Q the likelihood ratio of a node is X = L mean_i(X_i), L = exp(s xi - s^2/2) its own lognormal
factor, X_i the independent ratios below, weighted by their leaves.  delta is the mean of a convex
function of X at the root, (X - e^eps)_+ for remove and (1 - e^eps X)_+ for add.  Convex order is
preserved by sums of independent variables and by products with independent non-negative ones.  So

    upper bound  each value is moved to the two ends of its cell, keeping the mean (reverse Jensen);
    lower bound  all values of a cell are moved to their mean (Jensen).

Cells are even in log X, and finer around 1 if a law is narrow; the error falls with the square of
their width.  Values above the last cell are cut to its edge; the mean that is cut is added to delta
(remove), or costs nothing (add).
Rounding: every sum has non-negative terms; masses are pushed up (down), and values to the side
where the function grows (falls), by more than the rounding of each operation.  Masses that
underflow are paid for (left out).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy import special

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled
from mmcc._methods import UNAMPLIFIED
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._bounds.base import Answer
from mmcc.errors import PrecisionError
from mmcc.strategies._hierarchy import Node

End = Literal["upper", "lower"]

CELLS = 2400
"""Roughly the number of cells of the law at the root."""
FINE = 0.008
"""Cells narrower than this fraction of the smallest factor's deviation gain nothing."""
DEVIATIONS = 9.0
"""The least reach of factors and laws, in standard deviations."""
LOWEST = -15.0
"""For remove, values of log X below this are negligible."""
WIDEST = 340.0
"""The farthest reach of laws in log X: products of values must fit into floats."""
SMALL, LEAST = 1e-300, 1e-318
"""Masses below the first may have lost digits to underflow: at most the second per term."""
NARROW = 1 / 64
"""Factors whose deviation is below this fraction of a cell are rounded to it, or to a constant."""
VARIANCES = 1e-11
"""Relative error of nodes' variances, which are sums of up to some ten thousand squares."""
NARROWER, SHARPEST = 40.0, 1e-9
AROUND = np.linspace(-12, 12, 1201)
"""Finer cells around 1 for laws narrower than some cells, in standard deviations."""
UNIT = 1.2e-16
TINY = 1e-290
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class Law:
    """Values in increasing order with their masses; `lost` is the mean that was cut off above."""

    values: FloatArray
    masses: FloatArray
    lost: float = 0.0


@dataclass(eq=False)
class TreeBracket:
    """The bracket of one hierarchy; laws are computed once for each end and adjacency."""

    root: Node
    sigma: float
    delta: float = 1e-12
    """Roughly the delta of interest, which sets how far the laws reach."""
    _laws: dict[tuple[End, Adjacency], Law] = field(default_factory=dict)

    def bound_epsilon(self, delta: float) -> Answer:
        """Certified epsilon at delta."""
        return self._sides(lambda side: self._solve("upper", side, delta))

    def bound_delta(self, epsilon: float) -> Answer:
        """Certified delta at epsilon."""
        return self._sides(lambda side: min(self._delta("upper", side, epsilon), 1.0))

    def lower_epsilon(self, delta: float) -> Answer:
        """Certified lower bounds on epsilon at delta."""
        return self._sides(lambda side: self._solve("lower", side, delta))

    def lower_delta(self, epsilon: float) -> Answer:
        """Certified lower bounds on delta at epsilon."""
        return self._sides(lambda side: self._delta("lower", side, epsilon))

    def _sides(self, answer: Callable[[Adjacency], float]) -> Answer:
        return Answer(answer("remove"), answer("add"))

    def _solve(self, end: End, adjacency: Adjacency, delta: float) -> float:
        """The safe side of the smallest epsilon that meets delta, a decreasing function."""

        def missed(epsilon: float) -> bool:
            return not self._delta(end, adjacency, epsilon) <= delta

        return solve(missed, end)

    def _delta(self, end: End, adjacency: Adjacency, epsilon: float) -> float:
        if end == "lower" and epsilon > WIDEST:
            return 0.0
        law = self.law(end, adjacency)
        up = 1.0 if end == "upper" else -1.0
        if adjacency == "remove":
            threshold = math.exp(min(epsilon, WIDEST)) * (1 - 1e-14 * up)
            gains = np.maximum(law.values - threshold, 0.0)
        else:
            gains = np.maximum(1 - math.exp(min(epsilon, WIDEST)) * law.values + 1e-14 * up, 0.0)
        total = float(gains @ law.masses) * (1 + 1e-12 * up) + up * TINY
        found = max(total + (law.lost if adjacency == "remove" else 0.0), 0.0)
        if math.isnan(found):
            raise PrecisionError("the law of the privacy loss is beyond floating point.")
        return found

    def law(self, end: End, adjacency: Adjacency) -> Law:
        """The law of the likelihood ratio under Q, rounded to one side for one adjacency."""
        key = end, adjacency
        if key not in self._laws:
            self._laws[key] = _Builder(self, end, adjacency).law(self.root)
        return self._laws[key]

    @cached_property
    def deviations(self) -> float:
        """The number of standard deviations beyond which mass is negligible against delta."""
        return max(DEVIATIONS, 1 - float(special.ndtri(max(1e-6 * self.delta, 1e-300))))

    @cached_property
    def reach(self) -> float:
        """With little mass excepted, log X is below this under P and above minus this under Q.

        X is below exp(s xi - s^2/2), s^2 the largest |m_r|^2, in convex order.
        """
        spread = math.sqrt(self.root.height) / self.sigma
        reach = 0.5 * spread**2 + self.deviations * spread
        if reach > WIDEST:
            raise PrecisionError(
                "the noise is too small against the strategy for the law of the privacy loss; "
                f"use a larger sigma, or method={UNAMPLIFIED!r}."
            )
        return reach

    @cached_property
    def width(self) -> float:
        """The width of the cells in log X."""
        smallest = math.sqrt(min(_variances(self.root))) / self.sigma
        return max(FINE * smallest, 2 * self.reach / CELLS)


@dataclass(eq=False)
class _Builder:
    """Laws of all nodes on one lattice, rounded in one direction."""

    cascade: TreeBracket
    end: End
    adjacency: Adjacency
    _known: dict[Node, Law] = field(default_factory=dict)

    @property
    def up(self) -> float:
        """1 if masses are rounded up, else -1."""
        return 1.0 if self.end == "upper" else -1.0

    @property
    def push(self) -> float:
        """1 if values are rounded up, else -1; the function to be bounded increases for remove."""
        return self.up if self.adjacency == "remove" else -self.up

    @cached_property
    def edges(self) -> FloatArray:
        """The edges of the cells: exp(k width) for whole k."""
        width, reach = self.cascade.width, self.cascade.reach
        lowest = max(-reach, LOWEST) if self.adjacency == "remove" else -reach
        first, last = math.floor(lowest / width) - 2, math.ceil(reach / width) + 2
        return np.asarray(np.exp(width * np.arange(first, last + 1)))

    def _edges(self, deviation: float) -> FloatArray:
        """Edges with finer cells around 1 for means of many leaves; any edges are valid."""
        if deviation > NARROWER * self.cascade.width or not deviation > SHARPEST:
            return self.edges
        fine = 1 + deviation * AROUND
        fine = fine[fine > 0]
        coarse = self.edges[(self.edges < fine[0]) | (self.edges > fine[-1])]
        return np.sort(np.concatenate([coarse, fine]))

    def law(self, node: Node) -> Law:
        """The law of X at a node."""
        if node not in self._known:
            self._known[node] = self._law(node)
        return self._known[node]

    def _law(self, node: Node) -> Law:
        below: Law | None = None
        leaves = 0
        for count, child in node.children:
            part = self._mean(self.law(child), count)
            many = count * child.leaves
            if below is None:
                below, leaves = part, many
            else:
                below = self._sum(below, part, leaves, many)
                leaves += many
        if not node.variance:
            return below or Law(np.ones(1), np.ones(1))
        factor = self._factor(node.variance)
        return factor if below is None else self._product(factor, below)

    def _mean(self, law: Law, count: int) -> Law:
        """The mean of independent copies, by halves, and one more if the number is odd."""
        if count == 1:
            return law
        half = self._mean(law, count // 2)
        even = self._sum(half, half, 1, 1)
        return self._sum(even, law, count - 1, 1) if count % 2 else even

    def _sum(self, first: Law, second: Law, leaves: int, others: int) -> Law:
        """The law of the mean over the leaves of both."""
        shares = leaves / (leaves + others), others / (leaves + others)
        lost = shares[0] * first.lost + shares[1] * second.lost
        return self._combine(first, second, *shares, lost)

    def _product(self, first: Law, second: Law) -> Law:
        return self._combine(first, second, 0.0, 0.0, first.lost + second.lost)

    def _combine(self, first: Law, second: Law, share: float, other: float, lost: float) -> Law:
        """The law of share * X + other * Y, or of X Y if both are zero, put back on the cells."""
        room = UNIT * (first.values.size * second.values.size + 64)
        edges = self._edges(_deviation(first, second, share, other))
        masses, moments, cut = combine(
            first.values,
            first.masses,
            second.values,
            second.masses,
            share,
            other,
            edges,
            self.end == "upper",
            self.push * 16 * UNIT / float(np.min(np.diff(np.log(edges)))),
            first is second and share == other,
        )
        kept = masses > 0
        if self.end == "upper":
            values = np.concatenate([[0.0], edges])[kept]
        else:
            values = moments[kept] / masses[kept] * (1 + 2 * self.push * room)
        return Law(
            values, masses[kept] * (1 + self.up * room), (lost + cut) * (1 + room) * (1 + 1e-12)
        )

    def _factor(self, variance: float) -> Law:
        """The law of exp(s xi - s^2/2); a larger variance is larger in convex order."""
        s = math.sqrt(variance) / self.cascade.sigma * (1 + VARIANCES * self.up)
        width = self.cascade.width
        if s < NARROW * width:  # negligible against a cell: a larger variance, or none
            if self.end == "lower":
                return Law(np.ones(1), np.ones(1))
            s = NARROW * width
        return lognormal(s, width, self.cascade.deviations, self.end, self.push)


def lognormal(s: float, width: float, deviations: float, end: End, push: float = 1.0) -> Law:
    """The law of exp(s xi - s^2/2) on cells of this width, each integrated by Gauss-Legendre.

    With a the lower edge of a cell in xi and tau from there, mean above the edge =
    edge * int expm1(s tau) phi(a + tau) dtau: no cancellation anywhere.
    """
    reach = deviations * s
    first = math.floor((-reach - 0.5 * s**2) / width)
    last = math.ceil((reach + 0.5 * s**2) / width)
    logs = width * np.arange(first, last + 1)
    starts = (logs[:-1] + 0.5 * s**2) / s
    parts = max(math.ceil(width / s), 1)
    nodes, weights = leggauss(24)
    tau = np.concatenate([(np.arange(parts) + 0.5 * (x + 1)) / parts for x in nodes]) * width / s
    weights = np.repeat(0.5 * weights, parts) / parts * width / s
    with np.errstate(under="ignore"):
        density = np.exp(-0.5 * (starts[:, None] + tau) ** 2) / math.sqrt(2 * math.pi) * weights
    inside = np.sum(density, axis=1)
    right = density @ np.expm1(s * tau) / math.expm1(width)
    left = density @ (-np.expm1(s * tau - width)) / -math.expm1(-width)
    edges = np.exp(logs)
    bottom = float(special.ndtr(starts[0]))
    stop = (logs[-1] + 0.5 * s**2) / s
    top, top_mean = float(special.ndtr(-stop)), float(special.ndtr(s - stop))
    room = 64 * UNIT + 1e-13
    if end == "upper":
        masses = np.zeros(edges.size + 1)
        masses[0] = bottom
        masses[1] = bottom  # at 0 and at the first edge: more than enough for either
        masses[1:-1] += left * (1 + room)
        masses[2:] += right * (1 + room)
        masses[-1] += top * (1 + room)
        lost = top_mean * (1 + room) + LEAST * density.size * edges[-1]
        return Law(np.concatenate([[0.0], edges]), masses, lost)
    values = edges[:-1] * (1 + math.expm1(width) * right / np.maximum(inside, TINY))
    values = np.concatenate([values, [top_mean / max(top, TINY)]])
    masses = np.concatenate([inside, [top]]) * (1 - room)
    kept = masses > TINY
    return Law(values[kept] * (1 + room * push), masses[kept])


def solve(missed: Callable[[float], bool], end: End) -> float:
    """The safe side of the smallest epsilon that is not missed; all smaller ones are missed."""
    low, high = 0.0, 1.0
    if not missed(low):
        return 0.0
    while missed(high):
        low, high = high, 2 * high
        if high > 2 * WIDEST:
            return math.inf if end == "upper" else low
    while high - low > TOLERANCE * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if missed(middle) else (low, middle)
    return high if end == "upper" else low


def _deviation(first: Law, second: Law, share: float, other: float) -> float:
    """Roughly the standard deviation of share * X + other * Y, or of X Y; both have mean 1."""
    variances = [float((law.values - 1) ** 2 @ law.masses) for law in (first, second)]
    if share:
        return math.sqrt(share**2 * variances[0] + other**2 * variances[1])
    return math.sqrt((1 + variances[0]) * (1 + variances[1]) - 1)


def _variances(node: Node) -> list[float]:
    own = [node.variance] if node.variance else []
    return own + [variance for _, child in node.children for variance in _variances(child)]


@compiled
def combine(
    first: FloatArray,
    first_masses: FloatArray,
    second: FloatArray,
    second_masses: FloatArray,
    share: float,
    other: float,
    edges: FloatArray,
    split: bool,
    nudge: float,
    twice: bool = False,
) -> tuple[FloatArray, FloatArray, float]:
    """All pairs of values, put into cells: 0 .. edges[0], ..., edges[-1] .. infinity.

    A value is share * x + other * y, or x y if both are zero.  With `split`, masses belong to the
    ends of the cells (0 first), values beyond the last edge are cut to it, and the third result is
    the mean that is cut, with what underflow may have removed.  Otherwise the results are the
    masses and first moments of the cells, without masses that underflow.  With `twice`, both laws
    and shares are the same, so pairs (i, j) and (j, i) are counted together.
    """
    cells = edges.size
    masses = np.zeros(cells + 1)
    moments = np.zeros(cells + 1)
    cut = 0.0
    product = share == 0.0
    lows = np.zeros(cells)
    lows[1:] = edges[:-1]
    slopes = 1.0 / (edges - lows)
    start = 0
    for i in range(first.size):
        cell = start  # values grow with j, so the cell is found by walking
        for j in range(i if twice else 0, second.size):
            value = first[i] * second[j] if product else share * first[i] + other * second[j]
            mass = first_masses[i] * second_masses[j]
            pairs = 2.0 if twice and j > i else 1.0
            while cell < cells and value >= edges[cell]:
                cell += 1
            if twice and j == i:
                start = cell
            if mass < SMALL:
                if not split:
                    continue
                cut += pairs * LEAST * value
            mass *= pairs
            if not split:
                masses[cell] += mass
                moments[cell] += mass * value
            elif cell == cells:
                masses[cells] += mass
                cut += mass * (value - edges[cells - 1])
            else:
                part = (value - lows[cell]) * slopes[cell] + nudge
                part = min(max(part, 0.0), 1.0)
                masses[cell] += mass * (1.0 - part)
                masses[cell + 1] += mass * part
    return masses, moments, cut
