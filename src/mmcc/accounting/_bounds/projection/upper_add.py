"""Upper bound on delta, add: delta(eps) = e^eps E_t E_z (e^-eps - X_t)_+.

In: Gram matrix, sampling probability, a direction.  Out: an upper bound on delta at any epsilon.

By the inequality of arithmetic and geometric means, with the weights of any node t_i,

    X_t >= m e^((t - t_i) m'/m - kappa + <z, b>),   b = A'v / m,   kappa = tr(V G') / (2m),

so what is left is the price of a put on one Gaussian.  The empty set may be treated separately: X_t
>= x_0 + the same with m - x_0 for m, x_0 = (1 - p)^n.  The price falls with t, so left end points
of cells bound the integral.  Rounding: upwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.projection.laws import rest_of
from mmcc.accounting._bounds.projection.line import Chance
from mmcc.accounting._bounds.projection.lower import overlaps
from mmcc.accounting._bounds.projection.rest import SLACK, TINY, Rest
from mmcc.sampling import Allocation
from mmcc.strategies._gram import Gram

SPACING = 0.1
CELLS = 48
"""The number of cells in each interval between nodes."""
BELOW, ABOVE = 3.5, 3.0
"""How far the nodes reach on both sides of the threshold."""


@dataclass(eq=False)
class ProjectedAdd:
    """The bound for one direction; `centre` is where e^-eps is crossed along it."""

    gram: Gram
    p: Chance
    direction: FloatArray
    centre: float

    @cached_property
    def rest(self) -> Rest:
        """Weights and moments at the nodes."""
        a = overlaps(self.gram, self.direction)
        t = self.centre + np.arange(-BELOW, ABOVE, SPACING)
        return rest_of(self.gram, a, self.p, self.direction, lambda _: t)

    @cached_property
    def log_empty(self) -> float:
        """The logarithm of x_0, rounded down."""
        if self.p is None or isinstance(self.p, Allocation) or self.p == 1.0:
            return -math.inf
        return self.gram.columns * math.log1p(-self.p) * (1 + 1e-14)

    def bound_delta(self, epsilon: float) -> float:
        """Upper bound on delta at epsilon."""
        if self.log_empty >= -epsilon:
            return 0.0  # X never falls below e^-eps
        weights = self.rest.weights
        t = weights.t
        last = t[-1] + SPACING
        prices = self._best_prices(epsilon, CELLS)
        edges = t[:, None] + SPACING * np.arange(CELLS + 1) / CELLS
        masses = np.diff(special.ndtr(edges), axis=1) + 4e-16 * special.ndtr(edges[:, 1:])
        inside = float(np.sum(masses * prices))
        below = float(special.ndtr(t[0]))
        above = float(special.ndtr(-last)) * float(prices[-1, -1])
        return (inside + below + above) * (1 + SLACK)

    def node_prices(self, epsilon: float) -> FloatArray:
        """e^eps E_z (e^-eps - X_t)_+ at the nodes."""
        return self._best_prices(epsilon, 1)[:, 0]

    def _best_prices(self, epsilon: float, cells: int) -> FloatArray:
        """The smaller of both prices, and at most what the empty set allows."""
        plain = self._prices(epsilon, -math.inf, cells)
        if self.log_empty == -math.inf:
            return plain
        apart = self._prices(epsilon, self.log_empty, cells)
        return np.minimum(np.minimum(plain, apart), -math.expm1(epsilon + self.log_empty))

    def _prices(self, epsilon: float, log_empty: float, cells: int) -> FloatArray:
        """e^eps E_z (e^-eps - X_t)_+ at the left ends of the first cells, with one row per node."""
        rest, weights = self.rest, self.rest.weights
        mass = weights.mass * (1 - SLACK) - weights.error
        if log_empty > -math.inf:
            mass = mass - np.exp(np.minimum(log_empty - weights.log_scale, 700.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            least = weights.single - weights.error[:, None] * weights.tilted
            most = mass * (1 + 3 * SLACK) + 2 * weights.error
            slope = np.maximum(least @ (rest.line.a * rest.gram.counts), 0.0) / most * (1 - SLACK)
            volatility = np.sqrt(rest.linear) / mass
            loss = rest.trace / (2 * mass)
            strike = -math.expm1(epsilon + log_empty)
            steps = SPACING * np.arange(cells) / CELLS
            level = epsilon + np.log(mass) + weights.log_scale - loss
            level = level[:, None] + np.multiply.outer(slope, steps)
            prices = put(level, volatility[:, None] + TINY, strike)
            # The price moves by at most 0.8 strike with each unit of volatility.
            uncertain = 0.8 * strike * (volatility * SLACK + 2 * rest.linear_error / mass)
        prices = prices + uncertain[:, None]
        return np.asarray(np.where(np.isfinite(prices), np.minimum(prices, strike), strike))


def put(level: FloatArray, volatility: FloatArray, strike: float) -> FloatArray:
    """The put price E(strike - e^(level + volatility xi))_+."""
    d = (math.log(strike) - level) / volatility
    first = strike * special.ndtr(d)
    with np.errstate(over="ignore", invalid="ignore"):
        second = np.exp(level + 0.5 * volatility**2 + special.log_ndtr(d - volatility))
    second = np.where(np.isfinite(second), second, 0.0)
    return np.asarray(np.maximum(first * (1 + 1e-12) - second * (1 - 1e-12), 0.0))
