"""Inverses of encoders given as arrays.

In: a square array C.  Out: A C^-1, and the number of diagonals of C.
Rounding: plain floating point; nothing here bears on privacy.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import StrategyError


def lower_bands(matrix: FloatArray) -> int:
    """The number of diagonals from the main one down to the last non-zero one."""
    last = len(matrix) - 1 - np.argmax(matrix[::-1] != 0, axis=0)
    return int((last - np.arange(len(matrix))).max()) + 1


def inverse(matrix: FloatArray, workload: FloatArray, causal: bool) -> FloatArray:
    """A C^-1 for a square C; an error if C is singular or cannot be decoded step by step."""
    if not np.triu(matrix, 1).any():
        from scipy.linalg import solve_triangular

        zero = np.flatnonzero(np.diagonal(matrix) == 0)
        if zero.size:
            raise StrategyError(
                f"C is singular: entry ({zero[0]}, {zero[0]}) on its diagonal is zero, so step "
                f"{zero[0]} cannot be decoded. Put a positive number there."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(solve_triangular(matrix, workload.T, trans="T", lower=True)).T
    if causal:
        raise StrategyError(
            "C is square but not lower triangular: some step is released too late to be decoded "
            "in time. Sort the rows, or pass adaptive=False if nothing is needed before the end."
        )
    try:
        inverted = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        inverted = np.full_like(matrix, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        residual = float(np.abs(matrix @ inverted - np.eye(len(matrix))).max())
        if not residual <= 1e-6:
            raise StrategyError("C is singular, or so nearly that its inverse has no good digits.")
        return np.asarray(workload @ inverted)
