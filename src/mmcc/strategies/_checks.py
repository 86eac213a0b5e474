"""Checks of an encoder: non-negative, within range, no step left out, rows in a causal order.

In: arrays.  Out: nothing, or an error with a remedy.  NaN fails every check.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.errors import StrategyError

SMALLEST, LARGEST = 1e-100, 1e100


def check_entries(entries: FloatArray, what: str) -> None:
    """Raise an error for entries that the theory or the arithmetic does not cover."""
    if not np.isfinite(entries).all():
        raise StrategyError(f"{what} has entries that are not finite numbers (NaN or infinity).")
    if not (entries >= 0).all():
        raise StrategyError(
            f"{what} has negative entries (smallest {entries.min():g}); the amplification proof "
            "needs C >= 0. Use a non-negative encoder."
        )
    positive = entries[entries > 0]
    if positive.size and not (positive.min() >= SMALLEST and positive.max() <= LARGEST):
        raise StrategyError(
            f"{what} has entries between {positive.min():g} and {positive.max():g}; entries must "
            f"be 0 or lie in [{SMALLEST:g}, {LARGEST:g}]. Rescale C and sigma together."
        )


def check_matrix(matrix: FloatArray, causal: bool) -> None:
    """Raise an error unless this is an encoder; `causal`: inputs may depend on earlier releases."""
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise StrategyError(
            f"a strategy is a matrix with at least one row and one column, "
            f"got shape {matrix.shape}."
        )
    check_entries(matrix, "the matrix")
    empty = np.flatnonzero(~matrix.any(axis=0))
    if empty.size:
        raise StrategyError(
            f"column {empty[0]} is zero: step {empty[0]} would never be released. "
            "Leave that step out."
        )
    if causal:
        _check_causal(matrix)


def _check_causal(matrix: FloatArray) -> None:
    last = _last_columns(matrix)
    if _one_a_step(matrix, last):
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


def release_steps(matrix: FloatArray, causal: bool) -> IntArray:
    """The step at which each row is released, in the order of the rows."""
    last = _last_columns(matrix)
    if causal and _one_a_step(matrix, last):
        return np.arange(len(matrix))
    return np.maximum.accumulate(np.maximum(last, 0))


def _one_a_step(matrix: FloatArray, last: IntArray) -> bool:
    """Whether the matrix is lower triangular, so that row t is released in step t."""
    rows, steps = matrix.shape
    return rows == steps and bool((last <= np.arange(rows)).all())


def _last_columns(matrix: FloatArray) -> IntArray:
    """The last non-zero column of each row; -1 for a row of zeros."""
    reverse = matrix[:, ::-1] > 0
    last = matrix.shape[1] - 1 - np.argmax(reverse, axis=1)
    return np.where(reverse.any(axis=1), last, -1)
