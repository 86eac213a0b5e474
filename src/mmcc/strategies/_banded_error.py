"""|A C^-1|_F^2 of a banded C and its gradient, compiled, O(n (b + d)^2).

In: c[j, k] = C[j + k, j], k < b, and A^-1 in the same way with d bands, zero below the matrix.
Out: the value, the gradient in c.
Rounding: plain floating point.

With D = A^-1, for prefix sums the first differences, E = C D has b + d - 1 bands and |A C^-1|_F^2 =
tr Z, where Z = (E^T E)^-1.  E Z = E^-T is upper triangular with diagonal 1/E_ii, which gives Z
inside the band row by row (Takahashi's equations); the gradient is the same recursion backwards.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled


@compiled
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


@compiled
def selected_inverse(e: FloatArray) -> FloatArray:
    """Entries of Z near its diagonal: z[i, m] = Z[i, i - m] for m <= b."""
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


@compiled
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


def square_and_gradient(c: FloatArray, differences: FloatArray) -> tuple[float, FloatArray]:
    """|A C^-1|_F^2 and its gradient.  E[i, j] = sum over m of C[i, j + m] D[j + m, j]."""
    steps, bands = c.shape
    e = np.zeros((steps, bands + differences.shape[1] - 1))
    for k in range(bands):
        for m in range(min(differences.shape[1], steps - k)):
            e[k + m :, k + m] += c[m : steps - k, k] * differences[: steps - k - m, m]
    z = selected_inverse(e)
    of_e = backward(e, z)
    gradient = np.zeros((steps, bands))
    for k in range(bands):
        for m in range(min(differences.shape[1], steps - k)):
            gradient[m : steps - k, k] += of_e[k + m :, k + m] * differences[: steps - k - m, m]
    return float(z[:, 0].sum()), gradient
