"""From fresh noise to the noise of a step: row t of sigma C^-1 z, one recursion a structure of C.

In: a strategy, its decoder, sigma.  Out: an object that turns rows of z into the noise of a step.
Rounding: that of the vectors' own type.  All but the dense case use single products and sums only,
coordinate by coordinate, so the same z give the same bits on every machine and device.

With w = C^-1 z, i.e. C w = z, and everything scaled by sigma:

- `PastOutputs`, C has b bands:  w_t = (z_t - sum_k C[t, t-k] w_(t-k)) / C[t, t].
- `Buffers`, a BLT, C = 1 + sum_i scale_i x / (1 - decay_i x):  u_i = sum_k decay_i^(k-1) w_(t-k)
  are its buffers,  w_t = z_t - sum_i scale_i u_i,  then  u_i <- decay_i u_i + w_t.
- `PastFresh`, C^-1 has b bands:  w_t = sum_k a_k z_(t-k).
- `Nodes`, trees: the estimate of a node of level h is  e_h = w_h z + (1 - w_h) (left + right); a
  step that completes nodes up to level h puts e_h in the place of the estimates below it, one a
  level.  The noise of the step is the change of the sum.
- `Regenerated`, everything else: a block of rows of C^-1 at a time, z made again from the key.

A vector is a one-dimensional numpy array or torch tensor: products, sums and slices are all that is
used.  Vectors are worked on in pieces that stay in the cache.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import MethodError, PrecisionError, StrategyError
from mmcc.strategies._array_inverses import lower_bands
from mmcc.strategies._base import FULL, HONAKER, ONLINE, Strategy
from mmcc.strategies._decoders import decoder_name
from mmcc.strategies._series import quotient
from mmcc.strategies._toeplitz import Toeplitz
from mmcc.strategies._tree import Tree
from mmcc.strategies._tree_errors import level_weights

Vector = Any
"""A one-dimensional numpy array or torch tensor."""
Draw = Callable[[int], Vector]
"""Row r of z as a new vector that the recursion may change and hand out."""

InverseRows = Callable[[int, int], Callable[[int, int], FloatArray]]
"""(start, stop) gives rows of C^-1, as a function that gives their columns (first, end)."""

FRESH_ROWS = 16
"""Rows of z made again at once for a dense strategy."""
LOST = 1e-3
"""The largest rounding error of the noise, in units of sigma, with which a strategy is accepted."""
GROWTH_WORK = 2**27
"""Products spent on finding out whether C^-1 grows."""


@dataclass(frozen=True)
class Vectors:
    """How vectors are made: `zeros(count)` is a matrix of so many, `piece` coordinates at once."""

    zeros: Callable[[int], Any]
    size: int
    piece: int

    def pieces(self) -> Iterator[slice]:
        """The coordinates, cut."""
        for start in range(0, self.size, self.piece):
            yield slice(start, start + self.piece)


class Recursion(ABC):
    """Noise of one step after another; `buffers` is all it remembers."""

    memory: int
    """Vectors held at once, the new one included."""
    buffers: Any
    """A matrix with a row for each vector kept from earlier steps."""

    @abstractmethod
    def noise(self, step: int, draw: Draw) -> Vector:
        """The noise of `step`, as a new vector; steps come in order."""


class PastOutputs(Recursion):
    """C is lower triangular with `bands` diagonals; `row(t)` gives C[t, t], C[t, t-1], ..."""

    def __init__(
        self, row: Callable[[int], FloatArray], bands: int, sigma: float, vectors: Vectors
    ) -> None:
        self.memory = bands
        self.buffers = vectors.zeros(bands - 1)
        self._row, self._past, self._sigma, self._vectors = row, bands - 1, sigma, vectors

    def noise(self, step: int, draw: Draw) -> Vector:
        new = draw(step)
        entries = self._row(step)
        scale = self._sigma / float(entries[0])
        # The output of step s stands in row s mod past; that of the oldest is overwritten.
        terms = [
            (float(entries[k] / entries[0]), self.buffers[(step - k) % self._past])
            for k in range(1, min(self._past, step) + 1)
        ]
        for piece in self._vectors.pieces():
            part = new[piece]
            part *= scale
            for weight, past in terms:
                part -= weight * past[piece]
            if self._past:
                self.buffers[step % self._past][piece] = part
        return new


class Buffers(Recursion):
    """A BLT: one vector a buffer, fed by the outputs."""

    def __init__(
        self, decay: FloatArray, scale: FloatArray, sigma: float, vectors: Vectors
    ) -> None:
        self.memory = decay.size + 1
        self.buffers = vectors.zeros(decay.size)
        self._numbers = [(float(d), float(s)) for d, s in zip(decay, scale, strict=True)]
        self._sigma, self._vectors = sigma, vectors

    def noise(self, step: int, draw: Draw) -> Vector:
        new = draw(step)
        buffers = [(*pair, row) for pair, row in zip(self._numbers, self.buffers, strict=True)]
        for piece in self._vectors.pieces():
            part = new[piece]
            part *= self._sigma
            for _, scale, buffer in buffers:
                part -= scale * buffer[piece]
            for decay, _, buffer in buffers:
                kept = buffer[piece]
                kept *= decay
                kept += part
        return new


class PastFresh(Recursion):
    """C^-1 is Toeplitz with coefficients 1, a_1, ...: the last fresh vectors are kept, scaled."""

    def __init__(self, inverse: FloatArray, sigma: float, vectors: Vectors) -> None:
        self.memory = inverse.size
        self.buffers = vectors.zeros(inverse.size - 1)
        self._inverse = [float(a) for a in inverse]
        self._sigma, self._vectors = sigma, vectors

    def noise(self, step: int, draw: Draw) -> Vector:
        new = draw(step)
        past = len(self._inverse) - 1
        terms = [
            (self._inverse[k], self.buffers[(step - k) % past])
            for k in range(1, min(past, step) + 1)
        ]
        newest = self.buffers[step % past]  # where the oldest is until it has been used
        for piece in self._vectors.pieces():
            part = new[piece]
            part *= self._sigma
            fresh = part * 1.0
            for weight, vector in terms:
                part += weight * vector[piece]
            newest[piece] = fresh
        return new


class Nodes(Recursion):
    """A binary tree, online or Honaker: one estimate for each level but the top.

    Before step t there is an estimate of level l where bit l of t is set.  Step t completes the
    nodes of levels 0 .. h, h the number of ones at the end of t; complete nodes of the top level
    are in every later sum and need not be kept.
    """

    def __init__(self, tree: Tree, decoder: str, sigma: float, vectors: Vectors) -> None:
        self.memory = tree.levels
        self.buffers = vectors.zeros(tree.levels - 1)
        self._top, self._online = tree.levels - 1, decoder == ONLINE
        self._weights = [float(weight) for weight in level_weights(tree.levels, decoder)]
        self._sigma, self._vectors = sigma, vectors

    def first_row(self, step: int) -> int:
        """Nodes complete before `step`: the row of C that the step's leaf is."""
        return sum(step >> level for level in range(self._top + 1))

    def noise(self, step: int, draw: Draw) -> Vector:
        ones = (step ^ (step + 1)).bit_length() - 1
        height, first = min(ones, self._top), self.first_row(step)
        # Online, only the largest node is looked at: the others have no weight in any sum.
        new = draw(first + height if self._online else first)
        for piece in self._vectors.pieces():
            part = new[piece]
            part *= self._sigma
        if not self._online:
            for level in range(1, height + 1):
                self._merge(level, new, draw(first + level))
        self._exchange(height, new)
        return new

    def _merge(self, level: int, estimate: Vector, own: Vector) -> None:
        """Make the estimate of a right child the estimate of its parent."""
        weight = self._weights[level]
        for piece in self._vectors.pieces():
            part, fresh = estimate[piece], own[piece]
            part += self.buffers[level - 1][piece]
            part *= 1 - weight
            fresh *= weight * self._sigma
            part += fresh

    def _exchange(self, height: int, new: Vector) -> None:
        """Keep the new estimate, and take from it those whose place it takes."""
        for piece in self._vectors.pieces():
            part = new[piece]
            if height < self._top:
                self.buffers[height][piece] = part
            for level in range(height):
                part -= self.buffers[level][piece]


class Regenerated(Recursion):
    """No structure: a block of rows of C^-1 at a time, and z is made again for each block.

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

    def noise(self, step: int, draw: Draw) -> Vector:
        start = step // self._block * self._block
        if start != self._start:
            self._outputs = None  # given back before the next ones are made
            self._outputs = self._made(start, min(start + self._block, self._steps), draw)
            self._start = start
        return self._outputs[step - start].copy()

    def _made(self, start: int, stop: int, draw: Draw) -> Any:
        columns = self._inverse(start, stop)
        outputs = self._vectors.zeros(stop - start)
        fresh = self._vectors.zeros(min(FRESH_ROWS, stop))
        for first in range(0, stop, FRESH_ROWS):
            count = min(FRESH_ROWS, stop - first)
            for k in range(count):
                fresh[k] = draw(first + k)
            weights = (self._sigma * columns(first, first + count)).astype(fresh.dtype)
            for piece in self._vectors.pieces():
                outputs[:, piece] += weights @ fresh[:count, piece]
        return outputs


@dataclass(frozen=True)
class Correlation:
    """Which recursion makes the noise of a strategy; `start` makes one for vectors of a kind."""

    decoder: str
    memory: int
    start: Callable[[Vectors], Recursion]
    block: int = 0
    """Outputs made at once where z is made again and again (numpy only); 0 where it is not."""


def correlation(
    strategy: Strategy, decoder: str | None, sigma: float, block: int | None, spacing: float
) -> Correlation:
    """The recursion with the least memory; `spacing` is that of the stream's numbers at 1."""
    decoder = decoder_name(strategy, decoder)
    if decoder == FULL:
        raise MethodError(
            f"decoder={FULL!r} uses releases of later steps and cannot be generated step by step. "
            f"Use decoder={HONAKER!r} or {ONLINE!r}."
        )
    tree, toeplitz = strategy.tree, strategy.toeplitz
    if tree is not None:
        return Correlation(decoder, tree.levels, lambda v: Nodes(tree, decoder, sigma, v))
    steps = strategy.steps
    size = min(block or math.isqrt(steps - 1) + 1, steps)
    if toeplitz is not None:
        ways = _toeplitz(toeplitz, decoder, sigma, spacing)
        inverse = _toeplitz_rows(toeplitz)
    else:
        matrix = _triangular(strategy, spacing)
        bands = lower_bands(matrix)
        row = _matrix_row(matrix, bands)
        ways = [Correlation(decoder, bands, lambda v: PastOutputs(row, bands, sigma, v))]
        inverse = _matrix_rows(matrix)
    last = Correlation(
        decoder,
        size + min(FRESH_ROWS, steps),
        lambda v: Regenerated(inverse, steps, size, sigma, v),
        block=size,
    )
    return min([*ways, last], key=lambda way: way.memory)


def _toeplitz(strategy: Toeplitz, decoder: str, sigma: float, spacing: float) -> list[Correlation]:
    """What is known to need few vectors, the simplest first."""
    c = strategy.coefficients
    ways = [Correlation(decoder, c.size, lambda v: PastOutputs(lambda _: c, c.size, sigma, v))]
    numbers, inverse = strategy.buffer_numbers, strategy.inverse_coefficients
    if numbers is not None:
        decay, scale = numbers
        ways.append(Correlation(decoder, decay.size + 1, lambda v: Buffers(decay, scale, sigma, v)))
    elif inverse is not None:
        ways.append(Correlation(decoder, inverse.size, lambda v: PastFresh(inverse, sigma, v)))
    else:
        _check_growth(strategy, _largest_output(c, strategy.steps), spacing)
    return ways


def _toeplitz_rows(strategy: Toeplitz) -> InverseRows:
    """Rows of C^-1 from its coefficients, which are found when they are first needed."""
    found: list[FloatArray] = []

    def rows(start: int, stop: int) -> Callable[[int, int], FloatArray]:
        if not found:
            found.append(strategy.divide(np.ones(1)))

        def columns(first: int, end: int) -> FloatArray:
            distance = np.arange(start, stop)[:, None] - np.arange(first, end)
            return np.where(distance >= 0, found[0][np.maximum(distance, 0)], 0.0)

        return columns

    return rows


def _matrix_row(matrix: FloatArray, bands: int) -> Callable[[int], FloatArray]:
    """C[t, t], C[t, t-1], ... as far as the bands go."""

    def row(step: int) -> FloatArray:
        return matrix[step, max(step - bands + 1, 0) : step + 1][::-1]

    return row


def _matrix_rows(matrix: FloatArray) -> InverseRows:
    """Rows of C^-1, solved for block by block: R C = I."""

    def rows(start: int, stop: int) -> Callable[[int, int], FloatArray]:
        from scipy.linalg import solve_triangular  # takes a while to import

        unit = np.zeros((stop, stop - start))
        unit[np.arange(start, stop), np.arange(stop - start)] = 1.0
        found = solve_triangular(matrix[:stop, :stop], unit, trans="T", lower=True).T
        return lambda first, end: found[:, first:end]

    return rows


def _triangular(strategy: Strategy, spacing: float) -> FloatArray:
    """C as an array; refused where no step-by-step inverse exists."""
    from scipy.linalg import solve_triangular

    if not strategy.adaptive:
        raise StrategyError(
            f"{strategy!r} is accounted for inputs that do not depend on earlier releases, and "
            "those of a training run do. Use an encoder with adaptive=True."
        )
    matrix = strategy.to_dense()
    if np.triu(matrix, 1).any():
        raise StrategyError(
            f"{strategy!r} is not lower triangular: some step is released too late for its noise "
            "to be made in time. Sort the rows."
        )
    zero = np.flatnonzero(np.diagonal(matrix) == 0)
    if zero.size:
        raise StrategyError(
            f"{strategy!r} is singular: entry ({zero[0]}, {zero[0]}) on its diagonal is zero, so "
            f"step {zero[0]} cannot be decoded. Put a positive number there."
        )
    sample = np.random.default_rng(0).standard_normal(strategy.steps)
    outputs = solve_triangular(matrix, sample, lower=True, check_finite=False)
    _check_growth(strategy, float(np.abs(matrix @ np.abs(outputs)).max()), spacing)
    return matrix


def _largest_output(c: FloatArray, steps: int) -> float:
    """|C| times the largest standard deviation of an output, from the impulse response of 1/c."""
    if c.size == 1:
        return 1.0
    # Few bands show within a few times their number whether the response grows.
    response = quotient(np.ones(1), c, min(steps, max(GROWTH_WORK // c.size, 4 * c.size)))
    with np.errstate(over="ignore", invalid="ignore"):
        return float(c.sum() * np.sqrt(np.square(response).sum()))


def _check_growth(strategy: Strategy, size: float, spacing: float) -> None:
    """Refuse noise whose rounding would show: C w differs from z by about spacing |C| |w|."""
    if not size * spacing <= LOST:
        raise PrecisionError(
            f"the inverse of {strategy!r} grows so much over the steps that rounding would change "
            "the law of its noise. Use fewer steps, or coefficients that fall."
        )
