"""Sums of kept vectors on the CPU, compiled: one pass over each vector.

In: a piece of the new vector, weights, a matrix of kept vectors.  Out: the piece with them added.
Rounding: one product and one sum at a time, in the order of the rows, never contracted: the bits
are those of numpy's and torch's own operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcc._arrays import IntArray
from mmcc._compiled import compiled

BLOCK = 2**11
"""Coordinates that fit in the innermost cache."""


def add_rows(part: Any, weights: list[float], rows: list[int], matrix: Any, start: int) -> None:
    """Add weights[k] times row rows[k] of the matrix, from column `start` on, one after another."""
    if rows:
        _add_rows(part, np.array(weights, part.dtype), np.array(rows), matrix, start)


@compiled
def _add_rows(
    part: NDArray[Any], weights: NDArray[Any], rows: IntArray, matrix: NDArray[Any], start: int
) -> None:
    for first in range(0, part.size, BLOCK):
        block = part[first : first + BLOCK]
        for k in range(rows.size):
            weight = weights[k]
            kept = matrix[rows[k], start + first : start + first + block.size]
            for i in range(block.size):
                block[i] += weight * kept[i]
