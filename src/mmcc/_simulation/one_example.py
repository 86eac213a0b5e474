"""One example's view of a mechanism: the columns it may take part in, and products with them.

In: strategy, scheme, sigma, group.  Out: u = A^T y and |A_S|^2 for A = C / sigma, restricted to
those columns.  Plain floating point: nothing here is a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation import set_mixtures as kernels
from mmcc.sampling import Participations, Renewal, Scheme
from mmcc.sampling._scheme import checked_sets
from mmcc.strategies._base import Strategy
from mmcc.strategies._gram import DenseGram

MAX_GRAM = 4096
"""Up to this many columns, their inner products are kept as an array."""


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A = C / sigma for the examples of one group; columns are numbered within the group."""

    strategy: Strategy
    scheme: Scheme
    sigma: float
    group: int = 0

    @property
    def separation(self) -> int:
        """Steps between two columns."""
        return self.scheme.stride(self.strategy.steps)

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return self.scheme.columns(self.strategy.steps, self.group)

    @property
    def renewal(self) -> Renewal | None:
        """How columns are drawn one after the other, if they are."""
        return self.scheme.renewal

    @property
    def presence(self) -> float:
        """The probability of taking part at all."""
        return 1.0 if self.renewal is None else self.renewal.chance(self.columns)

    def draw(self, count: int, generator: np.random.Generator) -> Participations:
        """Sets of columns, as the scheme draws them."""
        steps = self.strategy.steps
        drawn = checked_sets(self.scheme.draw(steps, count, generator, self.group), steps, count)
        return Participations((drawn.steps - self.group) // self.separation, drawn.edges)

    @cached_property
    def gram(self) -> FloatArray | None:
        """A^T A, if it is small enough and useful."""
        if self.columns > MAX_GRAM:
            return None
        gram = self.strategy.gram(self.separation, self.group, self.sigma)
        return gram.matrix * gram.scale if isinstance(gram, DenseGram) else None

    def adjoint(self, outputs: FloatArray) -> FloatArray:
        """A^T y for each row y."""
        every = self.strategy.adjoint(outputs)[..., self.group :: self.separation]
        return np.ascontiguousarray(every) / self.sigma

    def encode(self, weights: FloatArray) -> FloatArray:
        """A x for each row x of weights of the columns."""
        every = np.zeros((*weights.shape[:-1], self.strategy.steps))
        every[..., self.group :: self.separation] = weights
        return self.strategy.encode(every) / self.sigma

    def squared_norms(self, sets: Participations) -> FloatArray:
        """|A_S|^2 for each set of columns."""
        pairs = np.square(sets.sizes(), dtype=np.float64).sum()
        if self.gram is not None and pairs < 16.0 * self.columns * len(sets):
            return kernels.pair_sums(self.gram, sets.steps, sets.edges)
        steps = Participations(sets.steps * self.separation + self.group, sets.edges)
        return self.strategy.squared_norms(steps) / self.sigma**2
