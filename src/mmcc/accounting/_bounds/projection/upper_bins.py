"""Upper bounds on delta for balls-in-bins: as for Poisson sampling, but with exact sums.

Nothing is truncated and no order is bounded: the chaos sums sum_r s^r T_r are entrywise functions
of H' = (<m_r, m_s>) - a a^T.  Rounding: upwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmcc._arrays import BoolArray, FloatArray
from mmcc.accounting._bounds.projection.bins import BinsRest
from mmcc.accounting._bounds.projection.high_orders import S
from mmcc.accounting._bounds.projection.rest import SLACK, TINY
from mmcc.accounting._bounds.projection.upper import Projected

LENGTHS = 200
"""Most different values of |m'_r|; beyond, they are rounded up to these."""


@dataclass(eq=False)
class ProjectedBins(Projected):
    """The bound for remove; every set has one column, so nothing is set aside for larger ones."""

    shares: Sequence[float] = (0.0,)

    @property
    def above(self) -> float:
        """P(T > the last node), rounded up."""
        value, error = self.rest.line.tail(float(self.rest.weights.t[-1]), "above")
        return value + error

    @cached_property
    def limits(self) -> list[int]:
        """Every set has the same size."""
        return [1]

    @cached_property
    def totals(self) -> tuple[FloatArray, FloatArray]:
        """Chaos sums from order two and from order three on: shape (1, S, nodes)."""
        rest = self.rest
        assert isinstance(rest, BinsRest)
        second = np.array([rest.higher(float(s)) for s in S])
        with np.errstate(invalid="ignore"):
            third = second - np.multiply.outer(S**2, rest.lower_quadratic)
        return second[None], np.maximum(third, TINY)[None]

    @cached_property
    def lengths(self) -> tuple[FloatArray, FloatArray]:
        """omega_r / m at each node, and |m'_r|, rounded up."""
        rest = self.rest
        own = rest.gram.diagonal()
        squares = np.maximum(own - rest.line.a**2, 0.0) + (16 * rest.gram.error + 1e-14) * own
        order = np.argsort(squares)
        parts = np.array_split(order, min(LENGTHS, order.size))
        shares = rest.weights.single * (1 + SLACK + rest.weights.error[:, None])
        weights = np.stack([np.sum(shares[:, part], axis=1) for part in parts], axis=1)
        return weights, np.sqrt([squares[part[-1]] for part in parts])

    @property
    def beyond(self) -> FloatArray:
        """Nothing."""
        return np.zeros(len(self.rest.weights.t))

    def cost(self, limit: int, share: float, threshold: FloatArray, here: BoolArray) -> FloatArray:
        """Nothing."""
        return np.zeros(int(np.count_nonzero(here)))
