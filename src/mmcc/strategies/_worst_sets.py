"""The longest |C 1_S| over participation sets that are not evenly spaced.

In: the matrix of inner products G = C^T C >= 0.  Out: upper bounds on max_S 1_S^T G 1_S.  For each
column j, the most that a set with j can add to it is c_j = max_(S with j) sum_(l in S) G_jl; then
the bound is the largest total, max_S sum_(j in S) c_j.  All are sums of non-negative terms.  The
functions below serve strategies with more structure (docs/theory-unsampled.md).
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray, IntArray

HELD = 2**22
"""Most numbers of a table that are held in memory at once."""


def largest_apart(
    gram: FloatArray, separation: int, at_most: int | None = None
) -> tuple[float, IntArray]:
    """The bound for at most `at_most` steps at least `separation` apart, and one long set.

    Dynamic programming in O(n^2), or O(n^2 at_most) if the limit matters.  A set with j has no
    other step less than `separation` from j, and at most `at_most - 1` others.
    """
    steps = len(gram)
    most = -(-steps // separation) if at_most is None else min(at_most, -(-steps // separation))
    others = np.array(gram)
    for near in range(min(separation, steps)):
        np.fill_diagonal(others[near:], 0.0)
        np.fill_diagonal(others[:, near:], 0.0)
    columns = np.array(np.diagonal(gram))
    linked = np.flatnonzero(others.any(axis=1))
    if most > 1 and linked.size:
        size = max(HELD // (steps + (separation + 1) * most), 1)
        for start in range(0, linked.size, size):
            rows = linked[start : start + size]
            columns[rows] += _most_apart(others[rows], separation, most - 1)
    chosen = _heaviest(columns, separation, most)
    return float(columns[chosen].sum()), chosen


def largest_shuffled(gram: FloatArray, epoch_steps: int, times: int = 1) -> float:
    """The bound for sets with `times` steps in each epoch."""
    most = _most_in_epochs(gram, epoch_steps, times)
    return float(_most_in_epochs(most[None], epoch_steps, times)[0])


def _most_in_epochs(rows: FloatArray, epoch_steps: int, times: int) -> FloatArray:
    """The largest sum of `times` entries from each epoch, for every row."""
    epochs = rows.reshape(len(rows), -1, epoch_steps)
    if times == 1:
        return np.asarray(epochs.max(axis=2).sum(axis=1))
    largest = np.partition(epochs, epoch_steps - times, axis=2)[:, :, epoch_steps - times :]
    return np.asarray(largest.sum(axis=(1, 2)))


def window_sums(tiles: FloatArray, width: int) -> FloatArray:
    """Row q is the sum of the existing tiles among q - width + 1 .. q, for all q that have any.

    Tiles are cut into pieces of `width`; a window is the end of one piece and the start of the
    next, so nothing is subtracted.
    """
    count, size = tiles.shape
    rows = count + width - 1
    pieces = -(-rows // width)
    padded = np.zeros((pieces * width, size))
    padded[:count] = tiles
    padded = padded.reshape(pieces, width, size)
    ends = np.cumsum(padded[:, ::-1], axis=1)[:, ::-1].reshape(-1, size)
    sums = np.cumsum(padded, axis=1).reshape(-1, size)
    inside = np.arange(width, rows)
    inside = inside[(inside + 1) % width > 0]  # all other windows are whole pieces
    sums[inside] += ends[inside - width + 1]
    return np.asarray(sums[:rows])


def most_in_two(first: IntArray, second: IntArray, most: int) -> IntArray:
    """The largest first[i] + second[m - i], for each m up to `most` that has such a pair."""
    found = np.zeros(min(first.size + second.size - 2, most) + 1, np.int64)
    for i in range(min(first.size, found.size)):
        part = found[i : i + second.size]
        np.maximum(part, first[i] + second[: part.size], out=part)
    return found


def _most_apart(rows: FloatArray, separation: int, at_most: int) -> FloatArray:
    """The largest sum of at most `at_most` entries at least `separation` apart, for every row."""
    steps, kept = rows.shape[1], separation + 1
    less, counts = _counts(steps, separation, at_most)
    # best[l mod kept, m]: the best of the first l entries with at most m of them.
    best = np.zeros((kept, counts, len(rows)))
    entries = np.ascontiguousarray(rows.T)
    for step in range(steps):
        taken = entries[step] + best[max(step + 1 - separation, 0) % kept, less]
        np.maximum(best[step % kept, 1:], taken, out=best[(step + 1) % kept, 1:])
    return np.array(best[steps % kept, -1])


def _heaviest(weights: FloatArray, separation: int, at_most: int) -> IntArray:
    """The heaviest set of at most `at_most` steps at least `separation` apart."""
    steps = weights.size
    less, counts = _counts(steps, separation, at_most)
    best = np.zeros((steps + 1, counts))  # the best of the first l steps, at most m of them
    for step in range(steps):
        taken = weights[step] + best[max(step + 1 - separation, 0), less]
        np.maximum(best[step, 1:], taken, out=best[step + 1, 1:])
    chosen: list[int] = []
    step, left = steps, counts - 1
    while step > 0 and left > 0:
        if best[step, left] > best[step - 1, left]:
            chosen.append(step - 1)
            step, left = max(step - separation, 0), left - (less.start is None)
        else:
            step -= 1
    return np.array(chosen[::-1], np.int64)


def _counts(steps: int, separation: int, at_most: int) -> tuple[slice, int]:
    """Where m - 1 is stored for m = 1, 2, ..., and the number of values of m, from 0 on.

    A limit that cannot bind is ignored: a single m then stands for all of them.
    """
    if at_most < -(-steps // separation):
        return slice(None, -1), at_most + 1
    return slice(1, None), 2
