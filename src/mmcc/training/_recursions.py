"""Recursions that turn fresh noise into the noise of a step: row t of sigma C^-1 z.

In: rows of z, piece by piece.  Out: the noise of one step after another.
Rounding: that of the vectors' own type.  All but the dense case use single products and sums only,
coordinate by coordinate, so the same z give the same bits on every machine and device.

With w = C^-1 z, i.e. C w = z, and everything scaled by sigma:

- `PastOutputs`, C has b bands:  w_t = (z_t - sum_k C[t, t-k] w_(t-k)) / C[t, t].
- `Buffers`, a BLT, C = 1 + sum_i scale_i x / (1 - decay_i x):  u_i = sum_k decay_i^(k-1) w_(t-k)
  are its buffers,  w_t = z_t - sum_i scale_i u_i,  then  u_i <- decay_i u_i + w_t.
- `PastFresh`, C^-1 has b bands:  w_t = sum_k a_k z_(t-k).  `FreshAgain` regenerates old z.
- `Nodes`, trees: the estimate of a node of level h is  e_h = w_h z + (1 - w_h) (left + right); a
  step that completes nodes up to level h puts e_h in place of the estimates below it, one for each
  level.  The noise of the step is the change of the sum.  Online (w_h = 1) an estimate is a fresh
  vector, which `FreshAgain` regenerates.

- `Regenerated`, everything else: a block of rows of C^-1 at a time, z regenerated from the key.

A vector is a one-dimensional numpy array or torch tensor, of which only products, sums and slices
are used.  Vectors are processed in pieces that stay in the cache, from the fresh numbers on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mmcc._arrays import FloatArray
from mmcc.strategies._base import ONLINE
from mmcc.strategies._tree import Tree
from mmcc.strategies._tree_errors import level_weights
from mmcc.training._randomness import in_threads

Vector = Any
"""A one-dimensional numpy array or torch tensor."""
Draw = Callable[[slice, Vector], None]
"""Writes the fresh numbers of some coordinates into a vector of exactly that size."""
Fresh = Callable[[int], Draw]
"""Returns row r of z, valid until another row is requested."""

InverseRows = Callable[[int, int], Callable[[int, int], FloatArray]]
"""(start, stop) gives rows of C^-1, as a function that gives their columns (first, end)."""

FRESH_ROWS = 16
"""Rows of z regenerated at once for a dense strategy."""
PRODUCT = 2**13
"""Coordinates of a matrix product: its result stays in the cache until it is added."""


def add_rows(part: Vector, weights: list[float], rows: list[int], matrix: Any, start: int) -> None:
    """Add weights[k] times row rows[k] of a matrix, from column `start` on, one after another."""
    for weight, row in zip(weights, rows, strict=True):
        part += weight * matrix[row][start : start + len(part)]


@dataclass(frozen=True)
class Vectors:
    """How vectors are made, and how many of their coordinates are processed at once."""

    zeros: Callable[[int], Any]
    """Makes a matrix of a number of vectors."""
    empty: Callable[[int], Vector]
    """Makes an uninitialised vector of a number of coordinates."""
    size: int
    piece: int
    threads: int = 1
    add_rows: Callable[[Vector, list[float], list[int], Any, int], None] = add_rows
    """Like the function `add_rows`."""

    def pieces(self, length: int) -> list[slice]:
        """All coordinates, as slices of pieces."""
        starts = range(0, self.size, length)
        return [slice(start, min(start + length, self.size)) for start in starts]

    def each(self, work: Callable[[slice], None]) -> None:
        """Work on all coordinates, one piece at a time."""
        in_threads(work, self.pieces(self.piece), self.threads)

    def scaled(self, draw: Draw, piece: slice, scale: float) -> Vector:
        """Fresh numbers times a factor, in a new vector."""
        part = self.empty(piece.stop - piece.start)
        draw(piece, part)
        part *= scale
        return part


class Recursion(ABC):
    """Noise of one step after another; `buffers` is all it remembers."""

    memory: int
    """Vectors held at once, the new one included."""
    buffers: Any
    """A matrix with a row for each vector kept from earlier steps."""

    @abstractmethod
    def noise(self, step: int, fresh: Fresh) -> Vector:
        """The noise of `step`, as a new vector; steps come in order."""


class PastOutputs(Recursion):
    """C is lower triangular with `bands` diagonals; `row(t)` gives C[t, t], C[t, t-1], ..."""

    def __init__(
        self, row: Callable[[int], FloatArray], bands: int, sigma: float, vectors: Vectors
    ) -> None:
        self.memory = bands
        self.buffers = vectors.zeros(bands - 1)
        self._row, self._past, self._sigma, self._vectors = row, bands - 1, sigma, vectors

    def noise(self, step: int, fresh: Fresh) -> Vector:
        new, draw = self._vectors.empty(self._vectors.size), fresh(step)
        entries = self._row(step)
        scale = self._sigma / float(entries[0])
        # The output of step s is in row s mod past; the oldest one is overwritten.
        behind = range(1, min(self._past, step) + 1)
        weights = [-float(entries[k] / entries[0]) for k in behind]
        rows = [(step - k) % self._past for k in behind]

        def work(piece: slice) -> None:
            part = new[piece]
            draw(piece, part)
            part *= scale
            self._vectors.add_rows(part, weights, rows, self.buffers, piece.start)
            if self._past:
                self.buffers[step % self._past][piece] = part

        self._vectors.each(work)
        return new


class Buffers(Recursion):
    """A BLT: one vector for each buffer, fed by the outputs."""

    def __init__(
        self, decay: FloatArray, scale: FloatArray, sigma: float, vectors: Vectors
    ) -> None:
        self.memory = decay.size + 1
        self.buffers = vectors.zeros(decay.size)
        self._decay, self._weights = [float(d) for d in decay], [-float(s) for s in scale]
        self._sigma, self._vectors = sigma, vectors

    def noise(self, step: int, fresh: Fresh) -> Vector:
        new, draw = self._vectors.empty(self._vectors.size), fresh(step)
        rows = list(range(len(self._decay)))

        def work(piece: slice) -> None:
            part = new[piece]
            draw(piece, part)
            part *= self._sigma
            self._vectors.add_rows(part, self._weights, rows, self.buffers, piece.start)
            for row, decay in zip(rows, self._decay, strict=True):
                kept = self.buffers[row][piece]
                kept *= decay
                kept += part

        self._vectors.each(work)
        return new


class PastFresh(Recursion):
    """C^-1 is Toeplitz with coefficients 1, a_1, ...: the last fresh vectors are kept, scaled."""

    def __init__(self, inverse: FloatArray, sigma: float, vectors: Vectors) -> None:
        self.memory = inverse.size
        self.buffers = vectors.zeros(inverse.size - 1)
        self._inverse = [float(a) for a in inverse]
        self._sigma, self._vectors = sigma, vectors

    def noise(self, step: int, fresh: Fresh) -> Vector:
        new, draw = self._vectors.empty(self._vectors.size), fresh(step)
        past = len(self._inverse) - 1
        behind = range(1, min(past, step) + 1)
        weights, rows = [self._inverse[k] for k in behind], [(step - k) % past for k in behind]

        def work(piece: slice) -> None:
            own = self._vectors.scaled(draw, piece, self._sigma)
            part = new[piece]
            part[:] = own
            self._vectors.add_rows(part, weights, rows, self.buffers, piece.start)
            if past:
                self.buffers[step % past][piece] = own  # replaces the oldest, no longer needed

        self._vectors.each(work)
        return new


class FreshAgain(Recursion):
    """The noise of a step is a short sum of fresh vectors, all regenerated from the key.

    `terms(t)` gives rows of z and their weights, the first of which is 1.  The sums are those of
    the recursions that keep the vectors, in the same order: the bits are the same.
    """

    memory = 1

    def __init__(
        self, terms: Callable[[int], Sequence[tuple[int, float]]], sigma: float, vectors: Vectors
    ) -> None:
        self.buffers = vectors.zeros(0)
        self._terms, self._sigma, self._vectors = terms, sigma, vectors

    def noise(self, step: int, fresh: Fresh) -> Vector:
        new = self._vectors.empty(self._vectors.size)
        for place, (row, weight) in enumerate(self._terms(step)):
            self._vectors.each(partial(self._add, new, fresh(row), weight if place else None))
        return new

    def _add(self, new: Vector, draw: Draw, weight: float | None, piece: slice) -> None:
        """Add a fresh vector; a weight of None marks the first."""
        own, part = self._vectors.scaled(draw, piece, self._sigma), new[piece]
        if weight is None:
            part[:] = own
        else:
            part += weight * own


def past_rows(inverse: FloatArray) -> Callable[[int], list[tuple[int, float]]]:
    """The terms of `PastFresh`: as many rows as C^-1 has bands."""
    return lambda step: [(step - k, float(a)) for k, a in enumerate(inverse[: step + 1])]


def node_rows(tree: Tree) -> Callable[[int], list[tuple[int, float]]]:
    """The terms of online `Nodes`: the node that a step completes, minus those that it replaces.

    These are one of every level below its own, the left child of a node that ends now.  They are
    one more fresh vector per step on average, and at most one per level.
    """
    top = tree.levels - 1

    def terms(step: int) -> list[tuple[int, float]]:
        height = completed(step, top)
        found = [(first_row(step, top) + height, 1.0)]
        for level in range(height):
            end = (step >> level + 1 << level + 1) + (1 << level) - 1  # of the left child
            found.append((first_row(end, top) + level, -1.0))
        return found

    return terms


class Nodes(Recursion):
    """A binary tree, online or Honaker: one estimate for each level but the top.

    Before step t there is an estimate of level l where bit l of t is set.  Step t completes the
    nodes of levels 0 .. h, where h is the number of trailing ones of t; complete nodes of the top
    level are in every later sum and need not be kept.
    """

    def __init__(self, tree: Tree, decoder: str, sigma: float, vectors: Vectors) -> None:
        self.memory = tree.levels
        self.buffers = vectors.zeros(tree.levels - 1)
        self._top, self._online = tree.levels - 1, decoder == ONLINE
        self._weights = [float(weight) for weight in level_weights(tree.levels, decoder)]
        self._sigma, self._vectors = sigma, vectors

    def noise(self, step: int, fresh: Fresh) -> Vector:
        height, first = completed(step, self._top), first_row(step, self._top)
        new = self._vectors.empty(self._vectors.size)
        # Online, only the largest node matters: the others have no weight in any sum.
        draw = fresh(first + height if self._online else first)

        def leaf(piece: slice) -> None:
            part = new[piece]
            draw(piece, part)
            part *= self._sigma

        self._vectors.each(leaf)
        if not self._online:
            for level in range(1, height + 1):
                self._merge(level, new, fresh(first + level))
        self._vectors.each(lambda piece: self._exchange(height, new, piece))
        return new

    def _merge(self, level: int, estimate: Vector, draw: Draw) -> None:
        """Turn the estimate of a right child into the estimate of its parent."""
        weight = self._weights[level]

        def work(piece: slice) -> None:
            part = estimate[piece]
            part += self.buffers[level - 1][piece]
            part *= 1 - weight
            part += self._vectors.scaled(draw, piece, weight * self._sigma)

        self._vectors.each(work)

    def _exchange(self, height: int, new: Vector, piece: slice) -> None:
        """Store the new estimate, and subtract from it those that it replaces."""
        part = new[piece]
        if height < self._top:
            self.buffers[height][piece] = part
        for level in range(height):
            part -= self.buffers[level][piece]


def completed(step: int, top: int) -> int:
    """The level of the largest node that a step completes."""
    return min((step ^ (step + 1)).bit_length() - 1, top)


def first_row(step: int, top: int) -> int:
    """Nodes complete before `step`: the row of C that the step's leaf is."""
    return sum(step >> level for level in range(top + 1))


class Regenerated(Recursion):
    """No structure: a block of rows of C^-1 at a time, and z is regenerated for each block.

    It holds `block` outputs and a few fresh rows.  A step t costs about t / block fresh vectors,
    and t products and sums a coordinate (as a product of matrices).  Nothing is remembered but the
    key: after a restart the block is made again, with the same bits if the BLAS library is the
    same.  numpy only.
    """

    def __init__(
        self, inverse: InverseRows, steps: int, block: int, sigma: float, vectors: Vectors
    ) -> None:
        self.memory = block + min(FRESH_ROWS, steps)
        self.buffers = vectors.zeros(0)
        self._inverse, self._steps, self._block = inverse, steps, block
        self._sigma, self._vectors = sigma, vectors
        self._start = -1
        self._outputs: Any = None

    def noise(self, step: int, fresh: Fresh) -> Vector:
        start = step // self._block * self._block
        if start != self._start:
            self._outputs = None  # freed before the next ones are made
            self._outputs = self._made(start, min(start + self._block, self._steps), fresh)
            self._start = start
        return self._outputs[step - start].copy()

    def _made(self, start: int, stop: int, fresh: Fresh) -> Any:
        columns = self._inverse(start, stop)
        outputs = self._vectors.zeros(stop - start)
        rows = self._vectors.zeros(min(FRESH_ROWS, stop))
        for first in range(0, stop, FRESH_ROWS):
            count = min(FRESH_ROWS, stop - first)
            for k in range(count):
                self._vectors.each(partial(_into, fresh(first + k), rows[k]))
            weights = (self._sigma * columns(first, first + count)).astype(rows.dtype)
            for piece in self._vectors.pieces(PRODUCT):  # BLAS has threads of its own
                outputs[:, piece] += weights @ rows[:count, piece]
        return outputs


def _into(draw: Draw, vector: Vector, piece: slice) -> None:
    draw(piece, vector[piece])
