"""|A C^-1|_F^2 of a banded C and its gradient, compiled, O(n b^2).

In: c[j, k] = C[j + k, j], k < b, zero below the matrix.  Out: value and gradient in the same layout.
Rounding: plain floating point.

With D = A^-1 the first differences, E = C D has b + 1 bands and |A C^-1|_F^2 = tr Z, where
Z = (E^T E)^-1.  E Z = E^-T is upper triangular with diagonal 1/E_ii, which gives Z inside the band
row by row (Takahashi's equations); the gradient is the same recursion backwards.
"""

from __future__ import annotations

import numba
import numpy as np

from mmcc.arrays import FloatArray


@numba.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def add_product(z: FloatArray, first: int, end: int, x: FloatArray, y: FloatArray) -> None:
    """Add to y the product of the symmetric block first .. end - 1 of Z with x."""
    for k in range(first, end):
        inner = 0.0
        here = x[k - first]
        for j in range(first, k):
            entry = z[k, k - j]
            y[j - first] += here * entry
            inner += x[j - first] * entry
        y[k - first] += inner + here * z[k, 0]


@numba.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def differences(c: FloatArray) -> FloatArray:
    """E = C D by rows: e[i, m] = E[i, i - m] = C[i, i - m] - C[i, i - m + 1]."""
    steps, bands = c.shape
    e = np.zeros((steps, bands + 1))
    for i in range(steps):
        for m in range(min(bands, i) + 1):
            if m < bands:
                e[i, m] += c[i - m, m]
            if m > 0:
                e[i, m] -= c[i - m + 1, m - 1]
    return e


@numba.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def selected_inverse(e: FloatArray) -> FloatArray:
    """z[i, m] = Z[i, i - m] for m <= b."""
    steps, width = e.shape
    z = np.zeros((steps, width))
    row, sums = np.zeros(width), np.zeros(width)
    for i in range(steps):
        reach = min(i, width - 1)
        first = i - reach
        for k in range(reach):
            row[k] = e[i, reach - k]
            sums[k] = 0.0
        add_product(z, first, i, row, sums)
        inner = 0.0
        for k in range(reach):
            z[i, reach - k] = -sums[k] / e[i, 0]
            inner += row[k] * z[i, reach - k]
        z[i, 0] = (1.0 / e[i, 0] - inner) / e[i, 0]
    return z


@numba.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def backward(e: FloatArray, z: FloatArray) -> FloatArray:
    """Gradient of tr Z in the entries of E."""
    steps, width = e.shape
    of_z = np.zeros((steps, width))
    of_z[:, 0] = 1.0
    of_e = np.zeros((steps, width))
    row, pull, sums = np.zeros(width), np.zeros(width), np.zeros(width)
    for i in range(steps - 1, -1, -1):
        reach = min(i, width - 1)
        first = i - reach
        own, trace = e[i, 0], of_z[i, 0]
        of_e[i, 0] = -trace * (z[i, 0] + 1.0 / (own * own)) / own
        for k in range(reach):
            row[k] = e[i, reach - k]
            sums[k] = 0.0
            pull[k] = (of_z[i, reach - k] - trace * row[k] / own) / own
            of_e[i, 0] -= pull[k] * z[i, reach - k]
        add_product(z, first, i, pull, sums)
        for k in range(reach):
            of_e[i, reach - k] = -trace * z[i, reach - k] / own - sums[k]
        for k in range(reach):
            for j in range(k):
                of_z[first + k, k - j] -= pull[k] * row[j] + pull[j] * row[k]
            of_z[first + k, 0] -= pull[k] * row[k]
    return of_e


@numba.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def square_and_gradient(c: FloatArray) -> tuple[float, FloatArray]:
    """|A C^-1|_F^2 and its gradient."""
    steps, bands = c.shape
    e = differences(c)
    z = selected_inverse(e)
    of_e = backward(e, z)
    gradient = np.zeros((steps, bands))
    for i in range(steps):
        for m in range(min(bands, i) + 1):
            if m < bands:
                gradient[i - m, m] += of_e[i, m]
            if m > 0:
                gradient[i - m + 1, m - 1] -= of_e[i, m]
    return z[:, 0].sum(), gradient
