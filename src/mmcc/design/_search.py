"""The one search: shapes of Toeplitz encoders, at the noise that each needs.

In: shapes with few parameters, a rough calibration.  Out: the best strategy tried.
Rounding: none; the coefficients that come out are the strategy, and are certified as such later.

The objective is log error + log sigma, sigma being what our certified upper bounds need for the
target: a lower bound would lead to independent noise, where it is loose.  A simplex finds the
neighbourhood, and slopes (`_quasi_newton`) the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._parallel import Progress
from mmcc.design._rough_noise import Placement, RoughNoise
from mmcc.design._shapes import LIMITS, Family, Shapes
from mmcc.errors import MmccError
from mmcc.strategies._base import Strategy
from mmcc.strategies._toeplitz import Toeplitz

STARTS = ((1.9, -1.0), (3.0, -2.0), (1.2, -3.5))
"""One-buffer starts: (-log(1 - rho), log odds of w/rho); the last is near independent noise."""
EDGES = (0.6, 0.9, 0.35)
"""Lengths of the edges of the first simplex."""
REFLECT, EXPAND, CONTRACT, SHRINK = 1.0, 2.0, 0.5, 0.5
CLOSE = 5e-4
FLAT = 0.05
"""A simplex this small, in log error and in coordinates, has converged."""

Corner = tuple[float, FloatArray]
"""A value, and the point of the search that has it."""
ErrorOf = Callable[[Strategy], float]
"""A function that gives a strategy's error at sigma = 1."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a search knows about one strategy."""

    value: float
    error: float
    """Log error at sigma = 1."""
    placed: Placement


@dataclass(eq=False)
class Search:
    """Strategies tried for one target, and the best of them."""

    noise: RoughNoise
    error_of: ErrorOf
    limit: int
    """Roughly how many strategies may be tried."""
    progress: Progress | None = None
    allowed: Callable[[Strategy], bool] = lambda _: True
    tried: int = 0
    best: tuple[float, Toeplitz] | None = None
    best_by: frozenset[str] = frozenset()
    """The bounds that make it the best."""
    best_sigma: float = math.nan
    """Roughly the noise that it needs."""

    @property
    def left(self) -> int:
        """The number of strategies that may still be tried."""
        return self.limit - self.tried

    def value(self, strategy: Toeplitz | None) -> float:
        """Log error at roughly the noise needed; infinite if no noise suffices."""
        looked = self.look(strategy)
        return math.inf if looked is None else looked.value

    def look(self, strategy: Toeplitz | None) -> Evaluation | None:
        """The value with what its slopes start from; None if there is no value."""
        if strategy is None or not self.allowed(strategy):
            return None
        self.count()
        try:
            error = math.log(self.error_of(strategy))
            placed = self.noise.place(strategy)
        except MmccError:  # an error beyond floating point
            return None
        if placed is None or not math.isfinite(error):
            return None
        found = error + placed.log_sigma
        if self.best is None or found < self.best[0]:
            self.best, self.best_by = (found, strategy), placed.names
            self.best_sigma = math.exp(placed.log_sigma)
        return Evaluation(found, error, placed)

    def count(self) -> None:
        """Count one more strategy as tried."""
        self.tried += 1
        if self.progress is not None:
            self.progress("optimise: strategies tried", self.tried)

    def corner(self, shapes: Family, point: Sequence[float]) -> Corner:
        """A member of a family, with its value."""
        return self.value(shapes.strategy(point)), np.array(point)

    def one_buffer(self, shapes: Shapes, most: int) -> Corner:
        """The best member with two parameters, from the best of the usual starts."""
        starts = [self.corner(shapes, point) for point in STARTS]
        return self.around(shapes, min(starts, key=lambda corner: corner[0]), most)

    def around(self, shapes: Family, start: Corner, most: int) -> Corner:
        """The best member of a family near a start, trying at most about `most` strategies."""
        return descend(
            lambda point: self.value(shapes.strategy(point)),
            start,
            _edges(start[1]),
            most=most,
            small=(CLOSE, FLAT),
        )


def _edges(start: FloatArray) -> FloatArray:
    """Edges of the first simplex, reversed if they would leave the limits."""
    edges = []
    for place, (x, edge) in enumerate(zip(start, EDGES, strict=False)):
        low, high = LIMITS[place]
        edges.append(edge if low <= x + edge <= high else -edge)
    return np.diag(edges)


def descend(
    function: Callable[[FloatArray], float],
    best: Corner,
    edges: FloatArray,
    *,
    most: int,
    small: tuple[float, float],
) -> Corner:
    """Nelder and Mead's simplex: the lowest corner after at most about `most` values.

    The function costs a second per point and is infinite where it has no value; a known value is
    never computed again, which is why no library is used.  `best` is a point with its value, and
    `edges` lead to the other corners.  The search ends when values and coordinates differ by no
    more than `small`.
    """
    asked = 0

    def at(point: FloatArray) -> Corner:
        nonlocal asked
        asked += 1
        return function(point), point

    corners = [best, *(at(best[1] + edge) for edge in edges[: max(most, 0)])]
    while asked < most and len(corners) == len(edges) + 1:
        corners.sort(key=lambda corner: corner[0])
        if all(found <= limit for found, limit in zip(_spread(corners), small, strict=True)):
            break
        *others, worst = corners
        middle = np.mean([point for _, point in others], axis=0)
        away = middle - worst[1]
        new = at(middle + REFLECT * away)
        if new[0] < others[0][0]:
            new = min(new, at(middle + EXPAND * away), key=lambda corner: corner[0])
        elif not new[0] < others[-1][0]:
            side = CONTRACT if new[0] < worst[0] else -CONTRACT
            inner = at(middle + side * away)
            if not inner[0] < min(new[0], worst[0]):
                first = others[0][1]
                shrunk = [at(first + SHRINK * (point - first)) for _, point in corners[1:]]
                corners = [others[0], *shrunk]
                continue
            new = inner
        corners = [*others, new]
    return min(corners, key=lambda corner: corner[0])


def _spread(corners: list[Corner]) -> tuple[float, float]:
    """How much values and coordinates differ from those of the best; infinite if there is none."""
    value, point = corners[0]
    apart = max(float(np.abs(other - point).max()) for _, other in corners)
    return (corners[-1][0] - value if math.isfinite(value) else math.inf), apart
