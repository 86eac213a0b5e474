"""Encoders given as an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, IntArray, own_arrays, real_array
from mmcc.errors import StrategyError, whole
from mmcc.strategies._base import Order, Strategy, rounded_up
from mmcc.strategies._geometry import EXACT_COLUMNS, Geometry, Piece, geometry_of, tally
from mmcc.strategies._gram import MAX_COLUMNS, DenseGram, Gram, check_columns
from mmcc.strategies._hierarchy import Node
from mmcc.strategies._provenance import Provenance
from mmcc.strategies._toeplitz import check_entries

MAX_LENGTHS = 16
"""Bins that share nothing are taken one by one up to this many different lengths."""


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Strategy):
    """An m x n encoder.  Rows in causal order unless `causal` is False."""

    matrix: FloatArray
    causal: bool = True
    provenance: Provenance | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        own_arrays(self, "matrix")
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise StrategyError(
                f"a strategy is a matrix with at least one row and one column, "
                f"got shape {self.matrix.shape}."
            )
        check_entries(self.matrix, "the matrix")
        empty = np.flatnonzero(~self.matrix.any(axis=0))
        if empty.size:
            raise StrategyError(
                f"column {empty[0]} is zero: step {empty[0]} would never be released. "
                "Leave that step out."
            )
        if self.causal:
            self._check_causal()

    def _check_causal(self) -> None:
        last = self._last_columns()
        square = self.rows == self.steps
        if square and (last <= np.arange(self.rows)).all():
            return
        used = np.flatnonzero(last >= 0)
        late = np.flatnonzero(np.diff(last[used]) < 0)
        if late.size:
            row, after = used[late[0]], used[late[0] + 1]
            raise StrategyError(
                f"rows are not in a causal order: row {row} needs step {last[row]}, but row "
                f"{after}, which comes later, only step {last[after]}. Sort the rows by their last "
                "non-zero column, or pass adaptive=False (the guarantee then holds for "
                "non-adaptive inputs only)."
            )

    def _last_columns(self) -> IntArray:
        """Last non-zero column of each row; -1 for a row of zeros."""
        reverse = self.matrix[:, ::-1] > 0
        last = self.steps - 1 - np.argmax(reverse, axis=1)
        return np.where(reverse.any(axis=1), last, -1)

    @property
    def steps(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def adaptive(self) -> bool:
        return self.causal

    def prefix(self, steps: int) -> Dense:
        """The leading columns, and the rows that need no later one."""
        return Dense(self._leading(steps))

    def _leading(self, steps: int) -> FloatArray:
        steps = whole("steps", steps, 1, self.steps)
        if not self.causal:
            raise StrategyError(
                f"{self!r} has no order of release, so nothing can be said about its first "
                f"{steps} steps alone. Sort the rows by their last non-zero column."
            )
        return self.matrix[self._release() < steps, :steps]

    def __repr__(self) -> str:
        if self.provenance is not None and self.causal:
            return str(self.provenance)
        suffix = "" if self.causal else ", adaptive=False"
        return f"dense({self.rows} x {self.steps}{suffix})"

    def _dense(self) -> FloatArray:
        return self.matrix

    def groups(self, separation: int) -> Sequence[int]:
        """All of them; of single columns the longest alone."""
        if separation < self.steps:
            return range(separation)
        return (int(np.argmax(np.linalg.norm(self.matrix, axis=0))),)

    def sensitivity(self, separation: int) -> float:
        norms = (
            float(np.linalg.norm(self.matrix[:, group::separation].sum(axis=1)))
            for group in self.groups(separation)
        )
        return rounded_up(max(norms), self.rows + self.steps)

    def _release(self) -> IntArray:
        """The step at which each row is released, in the order of the rows."""
        last = self._last_columns()
        if self.causal and self.rows == self.steps and (last <= np.arange(self.rows)).all():
            return np.arange(self.rows)
        return np.maximum.accumulate(np.maximum(last, 0))

    def geometry(self, order: Order, separation: int, group: int) -> Geometry:
        matrix = self.matrix[:, group::separation]
        if separation == 1:
            edges = np.arange(self.rows + 1)
        else:
            block = (self._release() - group) // separation
            edges = np.flatnonzero(np.diff(block, prepend=block[0] - 1, append=block[-1] + 1))
        used = matrix > 0
        first = np.argmax(used, axis=1)
        end = matrix.shape[1] - np.argmax(used[:, ::-1], axis=1)
        full = np.asarray(used.any(axis=1))
        exact = matrix.shape[1] <= EXACT_COLUMNS
        places = np.arange(edges.size - 1)
        if order == "reversed":
            places = places[::-1]
        elif order == "heavy":
            weights = np.add.reduceat(matrix.sum(axis=1), edges[:-1])
            places = np.lexsort((-places, -weights))

        def pieces() -> Iterator[Piece]:
            for place in places:
                rows = slice(edges[place], edges[place + 1])
                if not full[rows].any():
                    continue
                start = int(first[rows][full[rows]].min())
                stop = int(end[rows][full[rows]].max())
                block = matrix[rows, start:stop]
                yield Piece(
                    span=slice(start, stop),
                    squares=np.einsum("rj,rj->j", block, block),
                    sums=block.sum(axis=1) @ block,
                    factor=block if exact else None,
                )

        return geometry_of(pieces, matrix.shape[1], self.rows + 2 * self.steps, tally(pieces()))

    def gram(self, separation: int, group: int, sigma: float) -> Gram:
        columns = self.matrix[:, group::separation]
        check_columns(columns.shape[1], self)
        return DenseGram(columns.T @ columns, sigma**-2.0, self.rows)

    def bins_gram(self, bins: int, sigma: float) -> DenseGram:
        check_columns(bins, self)
        return DenseGram(self._bins_products(bins), sigma**-2.0, self.rows + self.steps // bins)

    def hierarchy(self, bins: int) -> Node | None:
        """Bins that share nothing hang below one root, if they have few different lengths."""
        if bins > MAX_COLUMNS:
            return None
        products = self._bins_products(bins)
        own = np.diagonal(products)
        lengths, counts = np.unique(own, return_counts=True)
        if np.count_nonzero(products) > bins or len(lengths) > MAX_LENGTHS:
            return None
        return Node(
            0.0,
            tuple((int(many), Node(float(v))) for v, many in zip(lengths, counts, strict=True)),
        )

    def _bins_products(self, bins: int) -> FloatArray:
        sums = self.matrix.reshape(self.rows, -1, bins).sum(axis=1)
        return np.asarray(sums.T @ sums)


def dense(array: ArrayLike, adaptive: bool = True) -> Dense:
    """The encoder given by an m x n array, m rows released over n steps."""
    return Dense(real_array("a strategy", array), bool(adaptive))
