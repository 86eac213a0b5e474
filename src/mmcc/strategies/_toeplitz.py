"""Lower-triangular Toeplitz encoders: C[i, j] = c[i - j], c >= 0.

Away from its ends a banded Toeplitz matrix looks the same everywhere, so a million steps cost no
more than a few bandwidths: the equal rows in the middle are represented once, with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcc._arrays import FloatArray, IntArray, own_arrays, real_array
from mmcc.errors import StrategyError, whole
from mmcc.sampling._participations import MAX_STEPS
from mmcc.strategies._base import Order, Strategy, rounded_down, rounded_up
from mmcc.strategies._checks import check_entries
from mmcc.strategies._descriptions import MOST_LISTED, Call, Record, exact_text
from mmcc.strategies._geometry import EXACT_COLUMNS, Geometry, Piece, Tally, geometry_of
from mmcc.strategies._gram import MAX_COLUMNS, DenseGram, Gram, check_columns
from mmcc.strategies._hierarchy import Epochs, Node, apart
from mmcc.strategies._provenance import Provenance
from mmcc.strategies._registry import CONTINUAL_COUNTING, IDENTITY, TOEPLITZ
from mmcc.strategies._series import product, quotient
from mmcc.strategies._worst_sets import window_sums

if TYPE_CHECKING:
    from mmcc.strategies._iterates import OutputWorkload
    from mmcc.strategies._workloads import ScheduleWorkload, ToeplitzWorkload

MAX_COEFFICIENTS = 10**7
FEW_BANDS = 16
"""Most bands for which a convolution is faster band by band."""
NEARLY = 1 + 1e-9
"""An upper bound within this factor of the lower bound need not be improved."""


@dataclass(frozen=True, eq=False, repr=False)
class Toeplitz(Strategy):
    """C[i, j] = coefficients[i - j] for 0 <= i - j < len(coefficients), else 0."""

    coefficients: FloatArray
    length: int
    name: str = field(default="")
    provenance: Provenance | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        own_arrays(self, "coefficients")
        whole("steps", self.length, 1, MAX_STEPS)
        c = self.coefficients
        if c.ndim != 1 or c.size == 0:
            raise StrategyError(f"coefficients must be a non-empty list, got shape {c.shape}.")
        check_entries(c, "the list of coefficients")
        if not c[0] > 0:
            raise StrategyError(
                "coefficients[0] is the diagonal of C and must be positive: the last column "
                "would be zero, and a step that is never released needs no mechanism."
            )
        bands = int(np.flatnonzero(c)[-1]) + 1
        object.__setattr__(self, "coefficients", c[: min(bands, self.length)])

    @property
    def steps(self) -> int:
        return self.length

    @property
    def rows(self) -> int:
        return self.length

    @property
    def bands(self) -> int:
        """The number of diagonals from the main one to the last non-zero one."""
        return self.coefficients.size

    @property
    def correlated(self) -> bool:
        return self.bands > 1

    @property
    def toeplitz(self) -> Toeplitz:
        return self

    @property
    def buffer_numbers(self) -> tuple[FloatArray, FloatArray] | None:
        """(decay, scale) of a BLT, whose c is 1, then sum_i scale_i decay_i^(k-1); else None."""
        return None

    @property
    def inverse_coefficients(self) -> FloatArray | None:
        """The first column of C^-1, if C is defined by it and it has few bands."""
        return None

    @property
    def excess(self) -> int:
        """By how many units of 2^-52, relative to their size, coefficients may be too large."""
        return 0

    @property
    def geometric(self) -> bool:
        """Whether coefficients from the second on are a geometric series: a BLT of one buffer."""
        return False

    def __repr__(self) -> str:
        if self.provenance is not None:
            return str(self.provenance)
        if self.name:
            return f"{self.name}({self.length})"
        if self.bands <= 4:
            shown = ", ".join(map(exact_text, self.coefficients))
        else:
            shown = ", ".join(f"{c:g}" for c in self.coefficients[:4])
            shown += f", ... {self.bands} in all"
        return f"toeplitz([{shown}], {self.length})"

    def prefix(self, steps: int) -> Toeplitz:
        """The leading square: the same coefficients, and the same name if it has one."""
        return Toeplitz(self.coefficients, whole("steps", steps, 1, self.length), self.name)

    def _dense(self) -> FloatArray:
        dense = np.zeros((self.length, self.length))
        for k, c in enumerate(self.coefficients):
            np.fill_diagonal(dense[k:], c)
        return dense

    def groups(self, separation: int) -> Sequence[int]:
        """Only the first group, because a later one sees a leading part of the same matrix.

        Its Gram matrix is entrywise smaller, so it is dominated by the first group's.
        """
        return (0,)

    def same_order(self, order: Order, separation: int) -> Order:
        """Sums grow down the matrix, so `heavy` equals `reversed` unless the last block is cut."""
        full = self.length % min(separation, self.length) == 0
        return "reversed" if order == "heavy" and full else order

    def _tiles(self, separation: int) -> FloatArray:
        """Coefficients by block distance d (rows) and position in the block (columns)."""
        if separation >= self.bands:
            return self.coefficients[None, :]
        distance = (self.bands - 1) // separation + 1
        tiles = np.zeros(distance * separation)
        tiles[: self.bands] = self.coefficients
        return tiles.reshape(distance, separation)

    def sensitivity(self, separation: int) -> float:
        return rounded_up(self._spaced(separation, None), 4 * self.bands)

    def sensitivity_apart(self, separation: int, at_most: int | None = None) -> float:
        """Early steps close together are the worst case, if later coefficients do not increase.

        For s < t, G_st = sum_(u < n - t) c_u c_(u + t - s) falls as t grows; and as t - s grows
        from `separation` on, if coefficients fall from that one on.  The steps 0, separation, ...
        have the smallest t and the smallest differences, term by term, so the result is exact.
        Otherwise larger, decreasing coefficients are used instead, or the inner products decide.
        """
        spaced = self._spaced(separation, at_most)
        if self._falls_from(separation):
            return rounded_up(spaced, 4 * self.bands)
        falling = np.array(self.coefficients)
        falling[separation:] = np.maximum.accumulate(falling[separation:][::-1])[::-1]
        above = Toeplitz(falling, self.length).sensitivity_apart(separation, at_most)
        if self.length > MAX_COLUMNS or above <= NEARLY * spaced:
            return above
        return min(above, super().sensitivity_apart(separation, at_most))

    def reached_apart(self, separation: int, at_most: int | None = None) -> float:
        """|C 1_S| of the first steps, as close together as allowed: worst if coefficients fall."""
        spaced = rounded_down(self._spaced(separation, at_most), 4 * self.bands + self.excess)
        if self._falls_from(separation) or self.excess or self.length > MAX_COLUMNS:
            return spaced
        return max(spaced, super().reached_apart(separation, at_most))

    def _falls_from(self, first: int) -> bool:
        return bool((np.diff(self.coefficients[first:]) <= 0).all())

    def _spaced(self, separation: int, at_most: int | None) -> float:
        """|C 1_S| for S = 0, separation, 2 separation, ..., with at most `at_most` steps.

        Rows come in blocks of `separation`.  Block q is the sum of the tiles q, q - 1, ..., one for
        each step up to it: from the last tile on all blocks are the same, until the steps end.
        """
        separation = min(separation, self.length)
        tiles = self._tiles(separation)
        width = len(tiles)
        every = -(-self.length // separation)
        times = every if at_most is None else min(at_most, every)
        ends = times < every  # before the last row, so later blocks lose tiles again
        sums = window_sums(tiles, min(times, width)) if ends else np.cumsum(tiles, axis=0)
        more = max(times - width, 0)
        blocks, rest = divmod(self.length, separation)
        total = float(np.sum(sums[: min(blocks, width)] ** 2))
        total += min(max(blocks - width, 0), more) * float(np.sum(sums[width - 1] ** 2))
        total += float(np.sum(sums[width : max(blocks - more, width)] ** 2))
        last = blocks if blocks < width else max(blocks - more, width - 1)
        total += float(np.sum(sums[last : last + 1, :rest] ** 2))
        return float(np.sqrt(total))

    def sensitivity_shuffled(self, epoch_steps: int, times: int = 1) -> float:
        """For independent noise only the number of participations counts."""
        if self.bands == 1:
            number = times * (self.length // epoch_steps)
            return rounded_up(float(self.coefficients[0]) * np.sqrt(number), 4)
        return super().sensitivity_shuffled(epoch_steps, times)

    def geometry(self, order: Order, separation: int, group: int) -> Geometry:
        separation = min(separation, self.length)
        tiles = self._tiles(separation)
        width = len(tiles)
        blocks = -(-self.length // separation)
        last = self.length - (blocks - 1) * separation
        # Independent noise: blocks share nothing, and only the last may differ.
        first, different = (3 * width, 6 * width) if width > 1 else (0, 1 + (last < separation))
        repeated = max(blocks - different, 0)
        kept = blocks - repeated
        exact = kept <= EXACT_COLUMNS
        sums = np.cumsum(tiles, axis=0)
        places = list(range(kept))
        if order != "release":
            places.reverse()
        if order == "heavy" and last < separation and kept > 1:
            # All sums grow with the index except that of the cut block, which is sorted in.
            cut = float(sums[min(kept, width) - 1, :last].sum())
            weights = [float(sums[min(i + 1, width) - 1].sum()) for i in places[1:]]
            places.insert(sum(weight > cut for weight in weights), places.pop(0))

        def pieces() -> Iterator[Piece]:
            for i in places:
                rows = last if i == kept - 1 else separation
                reach = min(i + 1, width)
                near = tiles[reach - 1 :: -1, :rows]
                yield Piece(
                    span=slice(i + 1 - reach, i + 1),
                    squares=np.einsum("dt,dt->d", near, near),
                    sums=near @ sums[reach - 1, :rows],
                    factor=near.T if exact else None,
                    count=1 + (repeated if i == first else 0),
                )

        # A block at distance d from the diagonal occurs blocks - d times; the last may be cut.
        used = tiles.any(axis=1)
        missing = int(np.count_nonzero(used & ~tiles[:, :last].any(axis=1)))
        distances = np.flatnonzero(used)
        counted = Tally(
            nonzero=int(np.sum(blocks - distances[distances < blocks])) - missing,
            rows=blocks,
            work=int(np.sum(kept - distances[distances < kept])) - missing,
            distinct=kept,
        )
        return geometry_of(pieces, blocks, 4 * self.bands, counted)

    def encode(self, vectors: FloatArray) -> FloatArray:
        """C x as a convolution with the coefficients, cut off at the end."""
        return self._convolve(vectors)

    def adjoint(self, outputs: FloatArray) -> FloatArray:
        """C^T y as the same convolution, backwards in time."""
        return self._convolve(outputs[..., ::-1])[..., ::-1]

    def _convolve(self, vectors: FloatArray) -> FloatArray:
        if self.bands <= FEW_BANDS:
            result = np.asarray(self.coefficients[0] * vectors)
            for k in range(1, self.bands):
                result[..., k:] += self.coefficients[k] * vectors[..., :-k]
            return result
        length = 1 << (self.length + self.bands - 2).bit_length()
        spectrum = np.fft.rfft(self.coefficients, length) * np.fft.rfft(vectors, length)
        return np.asarray(np.fft.irfft(spectrum, length)[..., : self.length])

    def gram(self, separation: int, group: int, sigma: float) -> Gram:
        """G_j,j+k is the sum of c_i c_(i+k) over the remaining rows: running sums, O(n^2)."""
        check_columns(len(range(group, self.length, separation)), self)
        places = np.arange(group, self.length, separation)
        matrix = _products(self.coefficients, self.length, places)
        return DenseGram(matrix, sigma**-2.0, self.bands)

    def bins_gram(self, bins: int, sigma: float) -> DenseGram:
        """m_r is column r of the Toeplitz matrix with coefficients f_i = sum_e c_(i - e bins).

        From the last tile on f repeats, and every further block of rows adds the same amount.
        """
        check_columns(bins, self)
        sums = np.cumsum(self._tiles(bins), axis=0)
        if sums.shape[1] < bins:  # fewer coefficients than bins: nothing to sum
            sums = np.pad(sums, ((0, 0), (0, bins - sums.shape[1])))
        blocks = self.length // bins
        first = min(blocks, len(sums))
        matrix = _products(sums[:first].reshape(-1), first * bins, np.arange(bins))
        if blocks > first:
            twice = np.tile(sums[-1], 2)
            more = np.array([sums[-1] @ twice[k : k + bins] for k in range(bins)])
            for r in range(bins):
                matrix[r] += (blocks - first) * np.roll(more, r)
        return DenseGram(matrix, sigma**-2.0, (first + 1) * bins + 2 * self.bands)

    def hierarchy(self, bins: int) -> Node | None:
        """For independent noise: bins that share nothing."""
        if self.bands > 1:
            return None
        length = float(self.coefficients[0]) ** 2 * (self.length // bins)
        return apart([(length, bins)])

    def separate_epochs(self, epoch_steps: int) -> Epochs | None:
        """For independent noise: no two steps share a row."""
        if self.bands > 1:
            return None
        length = float(self.coefficients[0]) ** 2
        return ((self.length // epoch_steps, apart([(length, epoch_steps)])),)

    def divide(self, dividend: FloatArray) -> FloatArray:
        """The coefficients of A C^-1 for the Toeplitz workload A with coefficients `dividend`."""
        if self.buffer_numbers is not None:
            from mmcc.strategies._recurrences import divide_buffers  # compiles

            return np.asarray(divide_buffers(dividend, *self.buffer_numbers))
        if self.inverse_coefficients is not None:
            return product(dividend, self.inverse_coefficients, self.length)
        return quotient(dividend, self.coefficients, self.length)

    def noise_memory(self) -> int:
        """The bands of C or of C^-1, or the buffers and the new one."""
        counts = [self.bands]
        if self.buffer_numbers is not None:
            counts.append(self.buffer_numbers[0].size + 1)
        if self.inverse_coefficients is not None:
            counts.append(self.inverse_coefficients.size)
        return min(counts)

    def toeplitz_variances(self, workload: ToeplitzWorkload, decoder: str) -> FloatArray:
        return np.cumsum(np.square(self.divide(workload.coefficients)))

    def output_variance(self, workload: OutputWorkload, decoder: str) -> FloatArray:
        """The reversed row is a series, and row times C^-1 is a quotient of series."""
        return np.array([np.square(self.divide(workload.row[::-1].copy())).sum()])

    def schedule_variances(self, workload: ScheduleWorkload, decoder: str) -> FloatArray:
        """Row by row from A C^-1 = prefix sums * learning rates * (momentum C^-1): O(n^2)."""
        if workload.weight_decay:
            rows = workload.moved_rows(self.divide(np.eye(1, self.length)[0]))
            return np.array([np.einsum("s,s", row, row) for row in rows])
        powers = workload.momentum ** np.arange(workload.steps, dtype=np.float64)
        backwards = self.divide(powers)[::-1].copy()
        row, variances = np.zeros(workload.steps), np.empty(workload.steps)
        for t, rate in enumerate(workload.learning_rates):
            row[: t + 1] += rate * backwards[workload.steps - t - 1 :]
            # Not `@`: on products this short, threads cost more than they save.
            variances[t] = np.einsum("s,s", row[: t + 1], row[: t + 1])
        return variances

    def defining(self) -> tuple[Any, ...]:
        return ("toeplitz", self.length, self.coefficients)

    def record(self) -> Record:
        if self.name in NAMED:
            return Record(self.name, {"steps": self.length}, {})
        return Record("toeplitz", {"steps": self.length}, {"coefficients": self.coefficients})

    def call(self) -> Call | None:
        """A call by name or by few coefficients; exact numbers are preferred to a search."""
        if self.name in NAMED:
            return Call(NAMED[self.name], {"steps": self.length})
        if self.bands <= MOST_LISTED:
            listed = {"coefficients": self.coefficients.tolist(), "steps": self.length}
            return Call(TOEPLITZ, listed)
        return super().call()


NAMED = {entry.python: entry for entry in (IDENTITY, CONTINUAL_COUNTING)}
"""Encoders whose coefficients follow from their names."""


def _products(c: FloatArray, length: int, places: IntArray) -> FloatArray:
    """Inner products of the columns of C[i, j] = c[i - j] at evenly spaced places."""
    columns = places.size
    separation = int(places[1] - places[0]) if columns > 1 else 1
    matrix = np.zeros((columns, columns))
    flat = matrix.reshape(-1)
    for k in range(min(columns, (c.size - 1) // separation + 1)):
        distance = k * separation
        sums = np.cumsum(c[: c.size - distance] * c[distance:])
        left = length - 1 - distance - places[: columns - k]
        diagonal = sums[np.minimum(left, sums.size - 1)]
        flat[k :: columns + 1][: columns - k] = diagonal
        flat[k * columns :: columns + 1] = diagonal
    return matrix


def toeplitz(coefficients: Sequence[float] | FloatArray, steps: int) -> Toeplitz:
    """The lower-triangular Toeplitz encoder with the given first column (zeros after its end)."""
    return Toeplitz(real_array("coefficients", coefficients), whole("steps", steps, 1, MAX_STEPS))


def identity(steps: int) -> Toeplitz:
    """Independent noise: DP-SGD."""
    return Toeplitz(np.ones(1), whole("steps", steps, 1, MAX_STEPS), "identity")


def continual_counting(steps: int) -> Toeplitz:
    """The square root of the prefix-sum matrix: f(0) = 1, f(k) = f(k-1) (1 - 1/(2k))."""
    steps = whole("steps", steps, 1, MAX_STEPS)
    if steps > MAX_COEFFICIENTS:
        raise StrategyError(
            f"continual_counting({steps}) has a coefficient per step and no structure beyond "
            f"that; at most {MAX_COEFFICIENTS} steps. Use toeplitz with fewer bands, or a tree."
        )
    k = np.arange(1, steps)
    return Toeplitz(np.cumprod(np.concatenate([[1.0], 1 - 0.5 / k])), steps, "continual_counting")


def first_bands(steps: int, bands: int) -> Toeplitz:
    """A banded encoder with the first coefficients of `continual_counting`."""
    bands = whole("bands", bands, 1, steps)
    return toeplitz(continual_counting(bands).coefficients, steps)


def rebuild(made: Provenance | None, steps: int, coefficients: FloatArray) -> Toeplitz:
    """The encoder that a saved file describes."""
    return Toeplitz(coefficients, steps, provenance=made)


def rebuild_identity(_: Provenance | None, steps: int) -> Toeplitz:
    """The same, known by its name."""
    return identity(steps)


def rebuild_continual_counting(_: Provenance | None, steps: int) -> Toeplitz:
    """The same, known by its name."""
    return continual_counting(steps)
