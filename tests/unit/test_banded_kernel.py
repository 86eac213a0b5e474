"""Claim: the compiled error of a banded encoder and its gradient are those of the dense formula."""

from __future__ import annotations

import numpy as np
import pytest

from mmcc.strategies._banded import from_diagonals
from mmcc.strategies._banded_error import square_and_gradient


def diagonals(steps: int, bands: int) -> np.ndarray:
    rng = np.random.default_rng(steps * 100 + bands)
    found = rng.uniform(0, 0.6, (steps, bands))
    found[:, 0] += 1
    found[np.arange(steps)[:, None] + np.arange(bands) >= steps] = 0
    return found


@pytest.mark.parametrize(("steps", "bands"), [(1, 1), (2, 1), (2, 2), (7, 3), (9, 9), (30, 5)])
def test_value_and_gradient(steps, bands):
    """d |A C^-1|^2 = -2 <C^-T A^T A C^-1 C^-T, dC>."""
    given = diagonals(steps, bands)
    matrix = from_diagonals(given, None).to_dense()
    inverse = np.linalg.inv(matrix)
    decoder = np.cumsum(inverse, axis=0)
    value, gradient = square_and_gradient(given, np.tile([1.0, -1.0], (steps, 1)))
    assert value == pytest.approx(np.sum(decoder**2), rel=1e-12)
    slopes = -2 * inverse.T @ (np.tril(np.ones((steps, steps))).T @ decoder) @ inverse.T
    for j in range(steps):
        for k in range(min(bands, steps - j)):
            assert gradient[j, k] == pytest.approx(slopes[j + k, j], rel=1e-9, abs=1e-9)


def test_diagonals_and_matrix_are_the_same():
    given = diagonals(11, 4)
    found = from_diagonals(given, None)
    assert found.bands == 4
    np.testing.assert_array_equal(found.diagonals, given)
    for j in range(11):
        for k in range(11 - j):
            assert found.matrix[j + k, j] == (given[j, k] if k < 4 else 0)
