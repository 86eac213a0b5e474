"""What every strategy offers: its shape, its dense form, and its geometry for the accounting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import StrategyError
from mmcc.sampling import Participations
from mmcc.strategies._geometry import Geometry
from mmcc.strategies._gram import DenseGram, Gram
from mmcc.strategies._hierarchy import Node
from mmcc.strategies._worst_sets import largest_apart, largest_shuffled

Order = Literal["release", "reversed", "heavy"]
ORDERS: tuple[Order, ...] = ("release", "reversed", "heavy")

MAX_DENSE_BYTES = 4 * 2**30
CHUNK = 2**22
"""Numbers held at once where many vectors are encoded."""


class Strategy(ABC):
    """An encoder C >= 0: row i of C x + z is released; column j is training step j.

    A strategy holds public facts only.  It is used as given, never rescaled.
    """

    @property
    @abstractmethod
    def steps(self) -> int:
        """Columns of C: training steps."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of C: released vectors."""

    @property
    def adaptive(self) -> bool:
        """True if inputs may depend on what was released before them."""
        return True

    @abstractmethod
    def prefix(self, steps: int) -> Strategy:
        """The mechanism that ends after `steps` steps: its columns, the rows released by then."""

    @abstractmethod
    def groups(self, separation: int) -> Sequence[int]:
        """Groups of columns g, g + separation, ... that can be the worst one for an example."""

    @abstractmethod
    def geometry(self, order: Order, separation: int, group: int) -> Geometry:
        """The rows, restricted to one group of columns, in the order of analysis.

        With separation 1 each row is a block; otherwise a block is all the rows released in
        `separation` consecutive steps from the group's first column on.
        """

    @abstractmethod
    def sensitivity(self, separation: int) -> float:
        """Upper bound on |C 1_group| for the worst group: every allowed step is taken part in."""

    def sensitivity_apart(self, separation: int) -> float:
        """Upper bound on |C 1_S| over all S whose steps are at least `separation` apart."""
        total = largest_apart(self._inner_products(), separation)
        return rounded_up(float(np.sqrt(total)), self.rows + 2 * self.steps)

    def sensitivity_shuffled(self, epoch_steps: int) -> float:
        """Upper bound on |C 1_S| over all S with one step in each epoch."""
        total = largest_shuffled(self._inner_products(), epoch_steps)
        return rounded_up(float(np.sqrt(total)), self.rows + 2 * self.steps)

    def _inner_products(self) -> FloatArray:
        """C^T C, where there is no closed form for what is asked of it."""
        gram = self.gram(1, 0, 1.0)
        assert isinstance(gram, DenseGram)
        return gram.matrix

    @abstractmethod
    def gram(self, separation: int, group: int, sigma: float) -> Gram:
        """Inner products of the columns of one group of C / sigma."""

    @abstractmethod
    def bins_gram(self, bins: int, sigma: float) -> DenseGram:
        """Inner products of m_r = sum_e (column r + e bins of C / sigma), r = 0 .. bins - 1."""

    def hierarchy(self, bins: int) -> Node | None:
        """The tree of nodes that the m_r share, for sigma = 1; None where they form no tree."""
        return None

    def encode(self, vectors: FloatArray) -> FloatArray:
        """C x for each row x of `vectors` (steps long); plain floating point."""
        return np.asarray(vectors @ self.to_dense().T)

    def adjoint(self, outputs: FloatArray) -> FloatArray:
        """C^T y for each row y of `outputs` (one number for each row of C)."""
        return np.asarray(outputs @ self.to_dense())

    def squared_norms(self, sets: Participations) -> FloatArray:
        """|C 1_S|^2 for each participation set S."""
        squares = np.empty(len(sets))
        size = max(CHUNK // (self.rows + self.steps), 1)
        for start in range(0, len(sets), size):
            edges = sets.edges[start : start + size + 1]
            marks = np.zeros((len(edges) - 1, self.steps))
            owners = np.repeat(np.arange(len(marks)), np.diff(edges))
            marks[owners, sets.steps[edges[0] : edges[-1]]] = 1.0
            squares[start : start + size] = np.square(self.encode(marks)).sum(axis=1)
        return squares

    def same_order(self, order: Order, separation: int) -> Order:
        """The name under which an order is known, where two names mean the same analysis."""
        return order

    def to_dense(self) -> FloatArray:
        """C as an array; refused where it would not fit in memory."""
        size = 8 * self.rows * self.steps
        if size > MAX_DENSE_BYTES:
            raise StrategyError(
                f"{self!r} as a dense array would take {size / 2**30:.3g} GiB, more than the "
                f"{MAX_DENSE_BYTES / 2**30:.0f} GiB allowed. Use its structure, or fewer steps."
            )
        return self._dense()

    @abstractmethod
    def _dense(self) -> FloatArray:
        """C as an array, size already checked."""


def checked_strategy(strategy: object) -> Strategy:
    """The strategy, if it is one."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(
            f"strategy must come from mmcc.strategies, got {type(strategy).__name__}; "
            "wrap an array with mmcc.strategies.dense."
        )
    return strategy


def rounded_up(value: float, operations: int) -> float:
    """An upper bound on a sum of `operations` non-negative terms computed as `value`."""
    return value * (1.0 + (operations + 16) * 2.0**-52)
