"""What the accounting needs to know about a strategy: its rows in the order of analysis.

In: blocks of rows of C, restricted to the columns in which one example may take part.
Out: for each block, its non-zero entries and how much of each column earlier blocks revealed.

For a block analysed after the rows "before", and a column j that it touches, with
g_jj' = <C_before,j , C_before,j'>:

    values   |C_block,j|         squares  |C_before,j|^2
    sums     sum_j' g_jj'        peaks    >= max_j' g_jj'

Rounding: sums of non-negative numbers, relative error at most `Geometry.error` each;
`participation` pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, IntArray

EXACT_COLUMNS = 512
"""Most columns for which the prefix Gram matrix is kept, for the paper's participation tail."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """One block of rows: what it adds to the columns in `span`.

    `factor` holds the rows themselves, which are needed only if overlaps are kept exactly.
    `count` neighbouring blocks have the same law, and this piece stands for all of them.
    """

    span: slice
    squares: FloatArray
    sums: FloatArray
    factor: FloatArray | None = None
    count: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """A block of rows as the analysis sees it, with one entry per kind of column it touches."""

    count: int
    values: FloatArray
    squares: FloatArray
    sums: FloatArray
    peaks: FloatArray
    repeats: int = 1
    """The number of columns that share each entry (in trees: all leaves below a node)."""
    overlaps: FloatArray | None = None
    """Row e: the overlaps g_jj' of entry e with the columns j', if they are known exactly."""
    overlap_counts: IntArray | None = None
    """The number of columns that share each overlap; None means one."""

    @property
    def is_fresh(self) -> bool:
        """Whether nothing of these columns was revealed before: every p~ is p, without an event."""
        return not self.squares.any()


@dataclass(frozen=True, eq=False, slots=True)
class Geometry:
    """All blocks in the order of analysis; `blocks()` may be iterated more than once."""

    columns: int
    events: int
    """Pairs (block, column) that are neither zero nor the first of their column."""
    rows: int
    """The number of blocks."""
    work: int
    """The number of entries that `blocks()` yields."""
    distinct: int
    """The number of different blocks that `blocks()` yields."""
    error: float
    """Bound on the relative error of the numbers in the blocks."""
    blocks: Callable[[], Iterator[Block]]


@dataclass(frozen=True, slots=True)
class Tally:
    """The amount to analyse: over all blocks, and over the different ones only."""

    nonzero: int
    rows: int
    work: int
    distinct: int


def tally(pieces: Iterable[Piece]) -> Tally:
    """Count by looking at every piece; structured strategies have faster ways."""
    nonzero = rows = work = distinct = 0
    for piece in pieces:
        entries = int(np.count_nonzero(piece.squares))
        nonzero += entries * piece.count
        rows += piece.count
        work += entries
        distinct += 1
    return Tally(nonzero, rows, work, distinct)


def geometry_of(
    pieces: Callable[[], Iterable[Piece]], columns: int, terms: int, counted: Tally
) -> Geometry:
    """The geometry of a sequence of pieces whose sums have at most `terms` terms."""
    return Geometry(
        columns=columns,
        events=counted.nonzero - columns,
        rows=counted.rows,
        work=counted.work,
        distinct=counted.distinct,
        error=(terms + 16) * 2.0**-52,
        blocks=lambda: stream(pieces()),
    )


def stream(pieces: Iterable[Piece]) -> Iterator[Block]:
    """Turn the pieces into blocks, tracking what has been revealed of each column so far."""
    squares = np.zeros(0)
    sums = np.zeros(0)
    gram = np.zeros((0, 0))
    largest = 0.0
    for piece in pieces:
        stop = piece.span.stop
        if stop > squares.size:
            grown = max(stop, 2 * squares.size)
            squares = np.concatenate([squares, np.zeros(grown - squares.size)])
            sums = np.concatenate([sums, np.zeros(grown - sums.size)])
        if piece.factor is not None and stop > gram.shape[0]:
            wider = np.zeros((squares.size, squares.size))
            wider[: gram.shape[0], : gram.shape[0]] = gram
            gram = wider
        touched = piece.squares > 0
        before = squares[piece.span][touched]
        overlaps = None
        if piece.factor is not None and before.any():
            overlaps = gram[piece.span][touched]
            peaks = overlaps.max(axis=1, initial=0.0)
        else:
            peaks = np.sqrt(before * largest)
        if touched.any():
            yield Block(
                count=piece.count,
                values=np.sqrt(piece.squares[touched]),
                squares=before,
                sums=sums[piece.span][touched],
                peaks=peaks,
                overlaps=overlaps,
            )
        squares[piece.span] += piece.squares
        sums[piece.span] += piece.sums
        largest = max(largest, float(squares[piece.span].max(initial=0.0)))
        if piece.factor is not None:
            gram[piece.span, piece.span] += piece.factor.T @ piece.factor
