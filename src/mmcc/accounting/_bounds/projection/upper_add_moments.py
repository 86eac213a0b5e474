"""Upper bound on delta, add, by moments: delta(eps) = e^eps E_t W(t), W(t) = E_z (e^-eps - X_t)_+.

In: the quantities of `Projected` at nodes t_i.  Out: an upper bound on delta at any epsilon.

With X_t = m + Y, W = E(-Y - (m - e^-eps))_+: the same moments and the same law of the first two
chaoses as for remove, for -Y.  Parts left out are centred, so their negative parts cost as much as
their positive parts.  Where the put of `upper_add` is smaller, it is used.

Far below its mean X_t has a lognormal tail: log X_t is convex in z, so by Ehrhard's inequality
Phi^-1 P(log X_t <= y) is concave in y, and beyond two points lies below the line through them.

W falls with t, and W = E_z (X_t - e^-eps)_+ + e^-eps - m with a convex first term, so between nodes
W is below its left end, and below its chord plus chord of m minus m.  m is convex, so it lies above
its tangents; the triangle between them and the chord has area at most h^2 (m'_(i+1) - m'_i) / 8.
Rounding: upwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._bounds.projection.high_orders import S
from mmcc.accounting._bounds.projection.line import AnyLine
from mmcc.accounting._bounds.projection.quadratic import Quadratic, quadratic
from mmcc.accounting._bounds.projection.rest import SLACK, TINY
from mmcc.accounting._bounds.projection.upper import (
    KINDS,
    Projected,
    chord_weights,
    excess_by_law,
    excess_by_moments,
)
from mmcc.accounting._bounds.projection.upper_add import ProjectedAdd, put
from mmcc.accounting._bounds.projection.upper_bins import ProjectedBins
from mmcc.accounting._bounds.projection.upper_epochs import ProjectedEpochs

SPACING = 0.03
BELOW, ABOVE = 3.5, 2.0
"""How far the nodes reach on both sides of the threshold."""
STEPS = (1.4, 1.7, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
"""Standard deviations from the mean to the points of Ehrhard's line."""
LOWEST, HIGHEST = -230.0, 600.0
"""If log(e^eps m) is outside this range, floats cannot resolve it; below, W is nearly e^-eps."""


@dataclass(eq=False)
class Deficit:
    """The bound for one direction, made for epsilons near `epsilon`."""

    projected: Projected
    """The quantities at the nodes of `nodes_around`."""
    epsilon: float
    law: Quadratic = field(init=False)
    fourier: IntArray = field(init=False)
    """The indices of limit and kind for each node."""

    def __post_init__(self) -> None:
        self.law = quadratic(self.projected.rest, self._gaps(self.epsilon), sign=-1.0)
        self.fourier = self._choice()

    def bound_delta(self, epsilon: float) -> float:
        """Upper bound on delta at epsilon."""
        if self._put.log_empty >= -epsilon:
            return 0.0  # X never falls below e^-eps
        weights = self.projected.rest.weights
        t = weights.t
        prices = self.bound_prices(epsilon)
        masses = np.diff(special.ndtr(t)) + 4e-16 * special.ndtr(t[1:])
        left, right = chord_weights(t)
        density = np.exp(-0.5 * t**2) / math.sqrt(2 * math.pi)
        chords = (density * prices)[:-1] * left + (density * prices)[1:] * right
        inside = float(np.sum(np.minimum(prices[:-1] * masses, chords + self._bend(epsilon))))
        below = float(special.ndtr(t[0]))
        above = float(special.ndtr(-t[-1])) * float(prices[-1])
        return (inside + below + above) * (1 + SLACK)

    def bound_prices(self, epsilon: float) -> FloatArray:
        """Upper bounds on e^eps W at the nodes."""
        projected = self.projected
        strike, gaps = self._strikes(epsilon), self._gaps(epsilon)
        best = strike.copy()
        for i, cost in enumerate(self._costs):
            best = np.minimum(best, excess_by_moments(self._norms(i), gaps) + cost)
        found = self._by_fourier(self.fourier[0], self.fourier[1], gaps)
        nodes = np.arange(len(best))
        best = np.minimum(best, found + self._costs[self.fourier[0], nodes])
        exponent = epsilon + projected.rest.weights.log_scale
        inside = (exponent > LOWEST) & (exponent < HIGHEST)
        best = np.where(inside, best * np.exp(np.where(inside, exponent, 0.0)), 1.0)
        best = np.minimum(best, self._by_ehrhard(epsilon))
        return np.asarray(np.minimum(np.minimum(best, self._put.node_prices(epsilon)), 1.0))

    def _by_ehrhard(self, epsilon: float) -> FloatArray:
        """e^eps W by a lognormal law below that of X_t on [0, x_1], e^-eps <= x_1 = m - k sd.

        By Cantelli's inequality P(X <= x_1) and P(X > x_2) are at most 1 / (1 + k^2) = Phi(-g) with
        x_2 = m + k sd, so that P(X <= x) <= Phi(-g - (log x_1 - log x) / vol) for x <= x_1, where
        vol = (log x_2 - log x_1) / 2g.
        """
        projected, weights = self.projected, self.projected.rest.weights
        best = np.ones(len(weights.t))
        if projected.variance is None:
            return best
        mass = weights.mass * (1 - SLACK) - weights.error
        for k in STEPS:
            step = k * np.sqrt(projected.variance) * (1 + SLACK)
            g = -float(special.ndtri(1 / (1 + k * k))) * (1 - 1e-12)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                first = np.log(mass - step)
                volatility = (np.log(projected.mass + step) - first + SLACK) / (2 * g)
                start = epsilon + weights.log_scale + first - SLACK
                prices = put(start + g * volatility, volatility, 1.0)
                best = np.where((start >= 0) & (prices < best), prices, best)
        return best

    @cached_property
    def _put(self) -> ProjectedAdd:
        projected = self.projected
        put = ProjectedAdd(projected.gram, projected.p, projected.direction, projected.centre)
        put.rest = projected.rest
        return put

    @cached_property
    def _costs(self) -> FloatArray:
        """The cost of sets beyond each limit at each node."""
        projected = self.projected
        every = np.ones(len(projected.mass), np.bool_)
        return np.array([projected.cost(k, 0.0, projected.mass, every) for k in projected.limits])

    def _norms(self, limit: int) -> FloatArray:
        """|Y|_(s+1)^2 at each node."""
        projected = self.projected
        return np.asarray(projected.totals[0][limit] + np.multiply.outer(S, projected.rest.linear))

    def _strikes(self, epsilon: float) -> FloatArray:
        """e^-eps / Z, rounded up."""
        exponent = -epsilon - self.projected.rest.weights.log_scale
        return np.asarray(np.exp(np.minimum(exponent, -LOWEST)) * (1 + SLACK))

    def _gaps(self, epsilon: float) -> FloatArray:
        """(m - e^-eps) / Z, rounded down."""
        weights = self.projected.rest.weights
        mass = np.maximum(weights.mass * (1 - SLACK) - weights.error, 0.0)
        return np.asarray(mass - self._strikes(epsilon))

    def _bend(self, epsilon: float) -> FloatArray:
        """How far the chord of e^eps m may be above e^eps m, integrated against phi."""
        rest = self.projected.rest
        weights, t = rest.weights, rest.weights.t
        moves = rest.line.a * rest.gram.counts
        slope = np.maximum(weights.single @ moves, 0.0)
        error = slope * SLACK + weights.error * (weights.tilted @ moves)
        exponent = epsilon + weights.log_scale
        scale = np.exp(np.minimum(exponent, HIGHEST))
        rise = (scale * (slope + error))[1:] - (scale * (slope - error))[:-1]
        nearest = np.where(t[:-1] > 0, t[:-1], np.minimum(t[1:], 0.0))
        density = np.exp(-0.5 * nearest**2) / math.sqrt(2 * math.pi)
        bend = density * np.diff(t) ** 2 / 8 * np.maximum(rise, 0.0) + TINY
        return np.asarray(np.where(exponent[1:] < HIGHEST, bend, np.inf))

    def _choice(self) -> IntArray:
        """The best limit and kind at `epsilon` for each node; any choice is valid."""
        gaps = self._gaps(self.epsilon)
        nodes = np.arange(len(gaps))
        limits = range(len(self.projected.limits))
        by_moments = [excess_by_moments(self._norms(i), gaps) + self._costs[i] for i in limits]
        start = np.argmin(by_moments, axis=0)
        best, choice = np.full(len(gaps), np.inf), np.zeros((2, len(gaps)), np.int64)
        for shift, kind in product((-1, 0, 1, 2), range(KINDS)):
            i = np.clip(start + shift, 0, len(limits) - 1)
            kinds = np.full(len(gaps), kind)
            found = self._by_fourier(i, kinds, gaps) + self._costs[i, nodes]
            choice = np.where(found < best, np.array([i, kinds]), choice)
            best = np.minimum(best, found)
        return choice

    def _by_fourier(self, limits: IntArray, kinds: IntArray, gaps: FloatArray) -> FloatArray:
        """Chaos one and two by their law, with a part of the threshold left to all others."""
        norms = self.projected.totals[1][limits, :, np.arange(len(gaps))].T
        return excess_by_law(self.law, norms, gaps, kinds)


class NodesAround(Projected):
    """`Projected` with nodes evenly spaced around the threshold of add."""

    def _nodes(self, line: AnyLine) -> FloatArray:
        return np.asarray(self.centre + np.arange(-BELOW, ABOVE, SPACING))


class BinsNodesAround(NodesAround, ProjectedBins):
    """`NodesAround` for balls-in-bins."""


class EpochNodesAround(NodesAround, ProjectedEpochs):
    """`NodesAround` for random allocation."""
