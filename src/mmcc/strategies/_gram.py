"""Gram matrices G = A^T A, A = C / sigma, and what remains of them once a direction is removed.

In: the columns in which one example may take part.  Out: products and entrywise power sums.
Columns that the strategy cannot tell apart form a class; a vector that is constant on classes is
kept as one number per class. For a unit vector d with overlaps a_j = <d, A_j> the rest is
G' = G - a a^T.

Rounding: entries of G are sums of non-negative numbers with relative error at most `error`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mmcc._arrays import FloatArray, read_only
from mmcc._methods import MMCC, UNAMPLIFIED
from mmcc.errors import StrategyError

MAX_COLUMNS = 12_000
"""Most columns of a full Gram matrix, which then takes about a gigabyte."""
STRIP = 64
"""Rows that are searched at once for their largest entries."""
BLOCK_BYTES = 2**25
"""Bytes of the blocks of rows in which dense matrices are raised to powers."""


@dataclass(frozen=True, slots=True)
class Eigenvalue:
    """An eigenvalue of G on vectors supported on one class that sum to zero there."""

    index: int
    """The index of the class."""
    value: float
    multiplicity: int


class Gram(ABC):
    """Inner products of the columns of A."""

    counts: FloatArray
    """The number of columns in each class."""
    error: float
    """Bound on the relative error of every entry."""
    free: Sequence[Eigenvalue] = ()
    """All non-zero eigenvalues of G on vectors that sum to zero on every class."""
    repeats: int = 1
    """How many copies of each column there are."""

    @property
    def columns(self) -> int:
        """The number of columns."""
        return int(self.counts.sum())

    @abstractmethod
    def product(self, vectors: FloatArray) -> FloatArray:
        """G x for class vectors x (one, or one per column)."""

    @abstractmethod
    def power_sums(self, a: FloatArray, weights: FloatArray, orders: Sequence[int]) -> FloatArray:
        """sum_l G'_jl^r weights_l for each r of `orders`: shape (orders, classes, weights)."""

    @abstractmethod
    def absolute_sums(self, a: FloatArray, weights: FloatArray) -> FloatArray:
        """sum_l |G'_jl| weights_l."""

    @abstractmethod
    def diagonal(self) -> FloatArray:
        """|A_j|^2."""

    @abstractmethod
    def top_sums(self, a: FloatArray, largest: int) -> FloatArray:
        """For k = 1 .. largest (or all columns): the k largest positive G'_jl of the worst row."""

    def rest_product(self, a: FloatArray, vectors: FloatArray) -> FloatArray:
        """G' x for class vectors x, one per column."""
        return np.asarray(self.product(vectors) - np.outer(a, (self.counts * a) @ vectors))


class DenseGram(Gram):
    """A full matrix times `scale`, every column its own class."""

    def __init__(self, matrix: FloatArray, scale: float, terms: int) -> None:
        self.matrix = read_only(matrix)
        self.scale = scale
        self.counts = read_only(np.ones(len(matrix)))
        self.error = (terms + 16) * 2.0**-53

    def product(self, vectors: FloatArray) -> FloatArray:
        return np.asarray(self.scale * (self.matrix @ vectors))

    def power_sums(self, a: FloatArray, weights: FloatArray, orders: Sequence[int]) -> FloatArray:
        sums = np.empty((len(orders), *weights.shape))
        for rows, rest in self.rest_rows(a):
            power = rest.copy()
            for r in range(1, max(orders) + 1):
                if r > 1:
                    power *= rest
                if r in orders:
                    sums[orders.index(r), rows] = power @ weights
        return sums

    def absolute_sums(self, a: FloatArray, weights: FloatArray) -> FloatArray:
        sums = np.empty(weights.shape)
        for rows, rest in self.rest_rows(a):
            sums[rows] = np.abs(rest, out=rest) @ weights
        return sums

    def diagonal(self) -> FloatArray:
        return np.asarray(np.diagonal(self.matrix) * self.scale)

    def top_sums(self, a: FloatArray, largest: int) -> FloatArray:
        most = min(largest, len(a))
        worst = np.zeros(most)
        for rows, rest in self.rest_rows(a):
            np.maximum(rest, 0.0, out=rest)
            for start in range(0, len(rest), STRIP):
                strip = rest[start : start + STRIP]
                top = _largest_near(strip, rows.start + start, most)
                np.maximum(worst, np.cumsum(top, axis=1).max(axis=0), out=worst)
        return worst

    def rest_rows(self, a: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """The rows of G' in blocks, each a fresh array."""
        size = max(BLOCK_BYTES // (8 * len(a)), 1)
        for start in range(0, len(a), size):
            rows = slice(start, start + size)
            rest = self.matrix[rows] * self.scale
            rest -= np.multiply.outer(a[rows], a)
            yield rows, rest


class ForestGram(Gram):
    """Disjoint complete binary trees: leaves j, l of one tree share the nodes above both.

    A class is all trees with the same number of levels.  In a tree with levels 0 .. top a leaf
    shares top - h + 1 nodes with each of the 2^(h-1) leaves that first meet it at level h.
    """

    def __init__(self, trees: Sequence[tuple[int, int]], scale: float) -> None:
        """Each entry of `trees` is (top level, number of such trees)."""
        self.counts = read_only(np.array([float(many << top) for top, many in trees]))
        self.error = 64 * 2.0**-53
        self._entries = [_tree_entries(top, scale) for top, _ in trees]
        self.free = tuple(
            Eigenvalue(index, scale * ((1 << height) - 1), multiplicity)
            for index, (top, many) in enumerate(trees)
            # Haar wavelets: by level, one half of a node minus the other; last, tree minus tree.
            for height, multiplicity in [
                *((h, many << (top - h)) for h in range(1, top + 1)),
                (top + 1, many - 1),
            ]
            if multiplicity
        )

    def product(self, vectors: FloatArray) -> FloatArray:
        diagonal = np.array([values @ counts for values, counts in self._entries])
        return np.asarray((diagonal * vectors.T).T)

    def power_sums(self, a: FloatArray, weights: FloatArray, orders: Sequence[int]) -> FloatArray:
        return np.array([self._matrix(a, partial(_power, order=r)) @ weights for r in orders])

    def absolute_sums(self, a: FloatArray, weights: FloatArray) -> FloatArray:
        return np.asarray(self._matrix(a, np.abs) @ weights)

    def diagonal(self) -> FloatArray:
        return np.array([values[0] for values, _ in self._entries])

    def top_sums(self, a: FloatArray, largest: int) -> FloatArray:
        worst = np.zeros(min(largest, self.columns))
        for (values, counts), mean in zip(self._entries, a, strict=True):
            repeats = np.minimum(counts, largest).astype(np.int64)
            top = np.repeat(np.maximum(values - mean * mean, 0.0), repeats)[: len(worst)]
            top = np.cumsum(np.concatenate([top, np.zeros(len(worst) - len(top))]))
            np.maximum(worst, top, out=worst)
        return worst

    def _matrix(self, a: FloatArray, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Entry (i, k): the function of G'_jl for j in class i, summed over all l in class k."""
        matrix = np.multiply.outer(a, a)
        matrix = function(-matrix) * self.counts
        for i, (values, counts) in enumerate(self._entries):
            own = function(values - a[i] ** 2) @ counts
            matrix[i, i] = own + function(-np.square(a[i])) * (self.counts[i] - counts.sum())
        return matrix


class RepeatedGram(Gram):
    """Another Gram matrix with every column `repeats` times; copies belong to one class.

    Differences of two copies have eigenvalue zero; on vectors that are equal on all copies G acts
    as `repeats` times the other matrix.
    """

    def __init__(self, once: Gram, repeats: int) -> None:
        self._once = once
        self.repeats = repeats
        self.counts = read_only(once.counts * repeats)
        self.error = once.error + 4 * 2.0**-53
        self.free = tuple(Eigenvalue(e.index, e.value * repeats, e.multiplicity) for e in once.free)

    def product(self, vectors: FloatArray) -> FloatArray:
        return self.repeats * self._once.product(vectors)

    def power_sums(self, a: FloatArray, weights: FloatArray, orders: Sequence[int]) -> FloatArray:
        return self.repeats * self._once.power_sums(a, weights, orders)

    def absolute_sums(self, a: FloatArray, weights: FloatArray) -> FloatArray:
        return self.repeats * self._once.absolute_sums(a, weights)

    def diagonal(self) -> FloatArray:
        return self._once.diagonal()

    def top_sums(self, a: FloatArray, largest: int) -> FloatArray:
        """Each entry occurs `repeats` times: between multiples of it the sums of a row are linear.

        The largest over several rows then lies on or below the line between its values there.
        """
        once = self._once.top_sums(a, -(-largest // self.repeats))
        sizes = np.arange(1, min(largest, self.repeats * once.size) + 1)
        ends = np.concatenate([[0.0], self.repeats * once])
        return np.asarray(np.interp(sizes, self.repeats * np.arange(ends.size), ends))


def _largest_near(rows: FloatArray, first: int, most: int) -> FloatArray:
    """The `most` largest entries of each row, in falling order.

    Nearby columns overlap most, so they are searched first: if no other entry is larger than the
    last one found, these are the largest.  `first` is the index of the first row.
    """
    low, high = max(first - most, 0), min(first + len(rows) + most, rows.shape[1])
    found = _largest(rows[:, low:high], most)
    outside = np.maximum(
        np.max(rows[:, :low], axis=1, initial=0.0), np.max(rows[:, high:], axis=1, initial=0.0)
    )
    missed = outside > found[:, -1]
    if missed.any():
        found[missed] = _largest(rows[missed], most)
    return found


def _largest(rows: FloatArray, most: int) -> FloatArray:
    return np.sort(np.partition(rows, -most, axis=1)[:, -most:], axis=1)[:, ::-1]


def _power(base: FloatArray, order: int) -> FloatArray:
    return np.asarray(base**order)


def _tree_entries(top: int, scale: float) -> tuple[FloatArray, FloatArray]:
    """The distinct entries of a leaf's row, largest first, and how often each occurs."""
    heights = np.arange(top + 1)
    values = np.array(scale * (top + 1.0 - heights), dtype=np.float64)
    counts = np.concatenate([[1.0], 2.0 ** (heights[1:] - 1.0)])
    return values, np.asarray(counts, dtype=np.float64)


def check_columns(columns: int, strategy: object) -> None:
    """Raise an error if a full Gram matrix would be too large."""
    if columns > MAX_COLUMNS:
        raise StrategyError(
            f"{strategy!r} has {columns} columns, but a full Gram matrix is kept for at most "
            f"{MAX_COLUMNS}. Use a tree, a larger separation, "
            f"or method={MMCC!r} or {UNAMPLIFIED!r}."
        )
