"""Upper bound on delta, remove: delta(eps) = E_t U(t), U(t) = E_z (X_t - e^eps)_+.

In: Gram matrix, sampling probability, a direction.  Out: an upper bound on delta at any epsilon.

U is bounded at nodes t_i by the smallest of several proven bounds (docs/theory.md).  It is convex
and increasing in t, so chords between the nodes lie above it and are integrated against the
normal density exactly; below the first node U <= U(t_0), above the last Chernoff's bound is used.
All quantities at a node are in units of Z, so that nothing overflows.  Rounding: upwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy import special

from mmcc._arrays import BoolArray, FloatArray, IntArray
from mmcc.accounting._bounds.projection.high_orders import HighOrders, S
from mmcc.accounting._bounds.projection.laws import rest_of
from mmcc.accounting._bounds.projection.line import AnyLine, Chance
from mmcc.accounting._bounds.projection.lower import overlaps
from mmcc.accounting._bounds.projection.quadratic import Quadratic, quadratic
from mmcc.accounting._bounds.projection.rest import SLACK, TINY, Rest
from mmcc.strategies._gram import Gram

SPACING = 0.06
COARSE = 0.12
"""Spacing of the nodes around the threshold and above it, and well below it."""
NEAR, BELOW, PART = 1.2, 3.4, 0.85
"""Nodes are fine from `NEAR` below the threshold on, and reach `BELOW` or this fraction below."""
NEGLIGIBLE = math.log(1e-4)
"""Log of the fraction of delta that Chernoff's bound may be above the last node."""
MAX_NODES = 700
SHARES = (0.0, 0.02, 0.1, 0.3)
"""Fractions of e^eps set aside for the sets with very many participations."""
SIZES = (1, 2, 4, 6, 8, 10, 12, 15, 19, 24, 30, 40, 55, 75, 100, 150, 200, 300, 500, 1000)
DEVIATIONS = (1.0, 2.0, 4.0, 8.0, 16.0)
PARTS = (0.03, 0.1, 0.3, 0.6, 0.8, 0.92)
"""Thresholds for the high orders: in their standard deviations, and as fractions of the gap."""
KINDS = len(DEVIATIONS) + len(PARTS)
LOWEST, HIGHEST, NARROW = -40.0, 60.0, 6e-12
"""The interval searched for crossings, and the distance of the ends that are found."""


@dataclass(eq=False)
class Projected:
    """The bound for one direction; `centre` is where e^eps is crossed along it."""

    gram: Gram
    p: Chance
    direction: FloatArray
    centre: float
    delta: float
    """Roughly the delta of interest, which sets how far the nodes reach."""
    shares: Sequence[float] = SHARES

    @cached_property
    def rest(self) -> Rest:
        """Weights and moments at the nodes."""
        a = overlaps(self.gram, self.direction)
        return rest_of(self.gram, a, self.p, self.direction, self._nodes)

    def _nodes(self, line: AnyLine) -> FloatArray:
        fine = np.asarray(self.centre - NEAR + SPACING * np.arange(MAX_NODES, dtype=np.float64))
        far = line.chernoff(fine) > math.log(self.delta) + NEGLIGIBLE
        fine = fine[: int(np.count_nonzero(far)) + 2]
        reach = max(BELOW, PART * self.centre) - NEAR
        low = fine[0] - COARSE * np.arange(min(math.ceil(reach / COARSE), MAX_NODES), 0, -1)
        return np.concatenate([low, fine])

    @cached_property
    def high(self) -> HighOrders:
        """Bounds on the chaos orders from two on."""
        return HighOrders(self.rest)

    @cached_property
    def mass(self) -> FloatArray:
        """E_z X_t, rounded up."""
        weights = self.rest.weights
        return np.asarray(np.maximum(weights.mass, 0.0) * (1 + SLACK) + weights.error)

    @property
    def variance(self) -> FloatArray | None:
        """A bound on Var X_t in units of Z^2; None if sets are left out of the moments."""
        return None

    @property
    def above(self) -> float:
        """A bound on P(T > the last node)."""
        weights = self.rest.weights
        return math.exp(min(float(weights.exponent[-1]), 0.0)) if weights.theta[-1] > 0 else 1.0

    @cached_property
    def limits(self) -> list[int]:
        """The largest set sizes to try."""
        sizes = self.high.sizes
        return [*(k for k in SIZES if k < sizes), sizes]

    @cached_property
    def totals(self) -> tuple[FloatArray, FloatArray]:
        """Chaos sums from order two and from order three on: shape (limits, S, nodes)."""
        return self.high.totals(self.limits)

    @cached_property
    def lengths(self) -> tuple[FloatArray, FloatArray]:
        """Weights at each node, and bounds on the |A'_S| they stand for."""
        weights, squares = self.high.lengths(0)
        return weights, np.sqrt(squares)

    @property
    def beyond(self) -> FloatArray:
        """The cost of sets that are larger than any limit."""
        return self.high.beyond

    def cost(self, limit: int, share: float, threshold: FloatArray, here: BoolArray) -> FloatArray:
        """The cost of sets beyond the limit, with a share of e^eps set aside for them, or none."""
        if share == 0.0:
            return self.high.excluded(limit)[here]
        return self.excess_of_large(limit, share * threshold, here)

    def recipe(self, epsilon: float) -> Recipe:
        """The best way to bound U at each node, for epsilons near this one."""
        threshold = self.thresholds(epsilon)
        gap = threshold - self.mass
        law = quadratic(self.rest, gap)
        recipe = Recipe(self, law)
        recipe.choose(epsilon)
        return recipe

    def thresholds(self, epsilon: float) -> FloatArray:
        """e^eps / Z, rounded down; beyond the range of floats it counts as infinite."""
        exponent = epsilon - self.rest.weights.log_scale
        return np.asarray(np.exp(np.minimum(exponent, 300.0)) * (1 - SLACK))

    def excess_of_large(self, limit: int, threshold: FloatArray, here: BoolArray) -> FloatArray:
        """E(X_large - E_2)_+ less chaos 0, 1, 2, X_large the sets of more than `limit` steps.

        Half of E_2 is for X_large itself (the collinear bound: all its shifts along one line, as
        long as they can be), half for the negative of its linear and quadratic chaos, which is at
        most N(0, r^2) + q, r = sum W_k b_k, q = sum W_k b_k^2 / 2.
        """
        cost = self.high.beyond[here]
        if limit == self.high.sizes:
            return cost
        weights, squares = self.high.lengths(limit + 1)
        weights, lengths = weights[here], np.sqrt(squares)
        half = 0.5 * threshold[here]
        cost += collinear(weights, lengths, half)
        spread = weights @ lengths + TINY
        margin = (half - 0.5 * weights @ lengths**2) / spread
        # E(r xi - half + q)_+ <= r phi(margin) for margin >= 1, else r + (q - half)_+.
        tail = np.exp(-0.5 * np.minimum(np.abs(margin), 38.0) ** 2)
        cost += spread * np.where(margin >= 1, tail, 1 + np.maximum(-margin, 0.0))
        return np.asarray(cost)


@dataclass(eq=False)
class Recipe:
    """Which limit, share and deviation to use at each node; any choice is valid."""

    projected: Projected
    law: Quadratic
    moments: IntArray = field(init=False)
    """For each node, the indices of limit and share if only moments are used."""
    fourier: IntArray = field(init=False)
    """For each node, the indices of limit, share and kind if the law of two chaoses is used."""

    def choose(self, epsilon: float) -> None:
        """Try all combinations at one epsilon and keep the best of either kind for each node."""
        projected = self.projected
        nodes = len(projected.mass)
        threshold = projected.thresholds(epsilon)
        every = np.ones(nodes, np.bool_)
        limits, shares = len(projected.limits), len(projected.shares)
        costs = np.empty((limits, shares, nodes))
        found = np.empty((limits, shares, nodes))
        for i, j in product(range(limits), range(shares)):
            costs[i, j] = self._cost(i, j, threshold, every)
            left = threshold * (1 - projected.shares[j])
            found[i, j] = self._by_moments(np.full(nodes, i), left) + costs[i, j]
        order = np.argmin(found.reshape(-1, nodes), axis=0)
        self.moments = np.array(np.unravel_index(order, (limits, shares)))
        # The law of the first two chaoses is best used with about the same limit.
        self.fourier = np.zeros((3, nodes), np.int64)
        best = np.full(nodes, np.inf)
        for shift, j, kind in product((-1, 0, 1, 2), range(shares), range(KINDS)):
            i = np.clip(self.moments[0] + shift, 0, limits - 1)
            left = threshold * (1 - projected.shares[j])
            tried = self._by_fourier(i, np.full(nodes, kind), left)
            tried = tried + costs[i, j, np.arange(nodes)]
            choice = np.array([i, np.full(nodes, j), np.full(nodes, kind)])
            self.fourier = np.where(tried < best, choice, self.fourier)
            best = np.minimum(best, tried)

    def bound_delta(self, epsilon: float) -> float:
        """Upper bound on delta at epsilon."""
        rest = self.projected.rest
        weights = rest.weights
        u = self.bound_excess(epsilon)
        density = np.exp(np.minimum(weights.exponent, 0.0)) / math.sqrt(2 * math.pi)
        left, right = chord_weights(weights.t)
        inside = float(np.sum((density * u)[:-1] * left) + np.sum((density * u)[1:] * right))
        with np.errstate(over="ignore"):
            start = weights.log_scale[0] + special.log_ndtr(weights.t[0])
            below = float(np.exp(np.minimum(start, 700.0)) * u[0])
        return (inside + below + self.projected.above) * (1 + SLACK)

    def bound_excess(self, epsilon: float) -> FloatArray:
        """Upper bounds on U / Z at the nodes."""
        projected = self.projected
        threshold = projected.thresholds(epsilon)
        best = projected.mass.copy()
        shares = np.array(projected.shares)
        for chosen, fourier in ((self.moments, False), (self.fourier, True)):
            left = threshold * (1 - shares[chosen[1]])
            cost = np.zeros(len(best))
            for i, j in {(int(i), int(j)) for i, j in chosen[:2].T}:
                here = (chosen[0] == i) & (chosen[1] == j)
                cost[here] = self._cost(i, j, threshold, here)
            if fourier:
                found = self._by_fourier(chosen[0], chosen[2], left)
            else:
                found = self._by_moments(chosen[0], left)
            best = np.minimum(best, found + cost)
        alone = collinear(*projected.lengths, threshold) + projected.beyond
        return np.asarray(np.minimum(best, alone) + 1e-300)

    def _cost(self, i: int, j: int, threshold: FloatArray, here: BoolArray) -> FloatArray:
        projected = self.projected
        return projected.cost(projected.limits[i], projected.shares[j], threshold, here)

    def _by_moments(self, limits: IntArray, threshold: FloatArray) -> FloatArray:
        """Variance near the threshold, Nelson's inequality below it."""
        projected = self.projected
        nodes = np.arange(len(threshold))
        norms = projected.totals[0][limits, :, nodes].T
        norms = norms + np.multiply.outer(S, projected.rest.linear)
        return excess_by_moments(norms, threshold - projected.mass)

    def _by_fourier(self, limits: IntArray, kinds: IntArray, threshold: FloatArray) -> FloatArray:
        """Chaos one and two by their law, with a part of the threshold left to all others."""
        norms = self.projected.totals[1][limits, :, np.arange(len(threshold))].T
        return excess_by_law(self.law, norms, threshold - self.projected.mass, kinds)


@np.errstate(over="ignore", invalid="ignore")  # infinite or NaN: nothing is known there
def excess_by_law(
    law: Quadratic, norms: FloatArray, gap: FloatArray, kinds: IntArray
) -> FloatArray:
    """E(Y - gap)_+ by the law of the first two chaoses, leaving a part tau of the gap to others.

    `norms` are those of orders three and more; `kinds` selects tau for each node.
    """
    norms = norms + np.multiply.outer(S, law.left_linear)
    norms = norms + np.multiply.outer(S**2, law.left_quadratic)
    deviation = np.sqrt(np.minimum(norms[0], 1e200))
    options = [*(d * deviation for d in DEVIATIONS), *(part * np.abs(gap) for part in PARTS)]
    tau = np.array(options)[kinds, np.arange(len(gap))] + TINY
    return np.asarray(law.bound_excess(gap - tau) + excess_by_moments(norms, tau))


def excess_by_moments(norms: FloatArray, gap: FloatArray) -> FloatArray:
    """E(Y - gap)_+ for centred Y with |Y|_(s+1)^2 <= norms[s]; the first is the variance.

    (sqrt(Var + gap^2) - gap) / 2, and for gap > 0 and l = s + 1 by Nelson's inequality
    |Y|_l^l (l - 1)^(l-1) / (l^l gap^(l-1)).
    """
    variance = norms[0]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        root = np.sqrt(variance + gap**2)
        best = np.where(gap > 0, variance / (2 * (root + gap)), 0.5 * (root - gap))
        order = S[:, None] + 1
        logs = 0.5 * order * np.log(norms) + S[:, None] * np.log(S[:, None] / gap)
        logs -= order * np.log(order)
        tails = np.exp(np.where(gap > 0, logs, np.inf))
    every = np.concatenate([best[None], tails])
    every[np.isnan(every)] = np.inf  # infinity over infinity: no bound
    return np.asarray(np.min(every, axis=0) * (1 + SLACK))


def collinear(weights: FloatArray, lengths: FloatArray, threshold: FloatArray) -> FloatArray:
    """E(sum_k W_k e^(b_k xi - b_k^2/2) - E)_+ at every node, with all shifts along one line.

    With f(g) = sum_k W_k e^(b_k g - b_k^2/2) and f(g_1) <= E <= f(g_2) it is at most
    sum_k W_k Phi(b_k - g_1) - E Phi(-g_2).
    """
    with np.errstate(divide="ignore"):
        logs = np.log(weights) - 0.5 * lengths**2
        level = np.log(threshold)

    def rising(g: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The logarithm of f and its slope."""
        terms = logs + np.multiply.outer(g, lengths)
        top = np.maximum(np.max(terms, axis=1), -1e300)  # all weights may be zero
        parts = np.exp(terms - top[:, None])
        total = np.sum(parts, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(top + np.log(total)), np.asarray(parts @ lengths / total)

    def height(g: FloatArray) -> FloatArray:
        return rising(g)[0]

    low, high = crossing(rising, level - 1e-12)
    at_low = height(low)
    first = np.where(at_low <= level - 1e-13, low, -np.inf)
    second = np.full(len(threshold), np.inf)
    for beyond in (1.0, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10):  # a flat f needs a longer step
        second = np.where(height(high + beyond) >= level + 1e-13, high + beyond, second)
    second = np.where(at_low >= level + 1e-13, low, second)  # the constant part is enough
    gain = np.sum(weights * special.ndtr(lengths - first[:, None]), axis=1)
    loss = threshold * special.ndtr(-second)
    return np.asarray(np.maximum(gain * (1 + 1e-13) - loss * (1 - 1e-13), 0.0) + TINY * gain)


def crossing(
    rising: Callable[[FloatArray], tuple[FloatArray, FloatArray]], level: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Ends between which convex increasing functions cross their levels, for each node.

    Newton's steps from above stay above; each is made a little longer, so that the last one ends
    just below.  Every third point is the middle, so the search ends for any function.
    """
    low, high = np.full(len(level), LOWEST), np.full(len(level), HIGHEST)
    value, slope = rising(high)
    low = np.where(value <= level, high - 0.5 * NARROW, low)  # beyond: no search
    high = np.where(rising(low)[0] > level, low + 0.5 * NARROW, high)
    for turn in range(1, 3 * 44):
        if not (high - low > NARROW).any():
            break
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            middle = high - (value - level) / slope - 0.5 * NARROW
        middle = np.maximum(middle, low + 0.9 * NARROW)
        usable = (middle < high) & (turn % 3 != 0)
        middle = np.where(usable, middle, 0.5 * (low + high))
        found, steep = rising(middle)
        under = found <= level
        low, high = np.where(under, middle, low), np.where(under, high, middle)
        value, slope = np.where(under, value, found), np.where(under, slope, steep)
    return low, high


def chord_weights(t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Integrals of both ends' half hats over each interval against phi.

    Relative to exp(-t_i^2 / 2) of the end that the half hat belongs to.

    Gauss-Legendre on each side: the integrand e^(-+t s - s^2/2) (1 - s/h) is entire and h is
    small, so 20 points are exact to rounding.
    """
    x, w = leggauss(20)
    x, w = 0.5 * (x + 1), 0.5 * w * (1 - 0.5 * (x + 1))
    gaps = np.diff(t)
    s = np.multiply.outer(gaps, x)
    left = gaps * (np.exp(-t[:-1, None] * s - 0.5 * s**2) @ w)
    right = gaps * (np.exp(t[1:, None] * s - 0.5 * s**2) @ w)
    return left * (1 + 1e-12), right * (1 + 1e-12)
