r"""High powers of the operator, applied to one vector for each z: certified Arnoldi iterations.

In: S_z, a starting vector y, the norm l of errors.  Out: l_0 . S_z^N y and a bound on its error.
Rounding: the error is stated and includes rounding.

Let A = S^p, N = p q, and let v_1 = y/b, v_2, ... satisfy A v_j = sum_{i<=j+1} H_ij v_i + r_j, where
the r_j are rounding errors.  For w_0 = b e_1, w_{k+1} = H w_k (H without its last row, m columns)

    A V w_k = V w_{k+1} + d_k,   d_k = H_{m+1,m} (w_k)_m v_{m+1} + sum_j r_j (w_k)_j,

so A^q y = V w_q + sum_{k<q} A^{q-1-k} d_k, and l_0 . A^q y is known up to sum_k l |d_k|.  No
property of the v_j is used except their norms; orthogonal ones, in the inner product with weights
l, make (w_k)_m small after a few dozen steps, however large q is.  l |v| <= (sum l) |v|_2 for the
norm with weights l / sum l, in which |v_j|_2 = 1.
*Long runs.*  Once w_{K+1} = lam w_K + t with a tiny t, A V w_K = lam V w_K + V t + d_K, and
A^{q-K} V w_K = lam^{q-K} V w_K up to (q - K) max(1, |lam|)^{q-K} times the norm of V t + d_K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.inversion import ROUND
from mmcc.accounting._bounds.reveal.planes.operator import Operator

SIZES = (8, 12, 16, 20, 24, 28, 32, 40, 48, 64)
"""Numbers of vectors after which the error is checked."""
OFTEN = 16
TRUNCATED = 1e-10
"""What too few vectors may cost, relative to the start, apart from rounding."""
SETTLED = 1e-11
"""The same for the end of long runs."""
SILENT = 1e-11
"""Results smaller than this, relative to the start of the real power, are set to 0."""
TINY = 1e-300


@dataclass(frozen=True, eq=False, slots=True)
class Power:
    """q applications of A = S^p; errors are measured with weights l."""

    operator: Operator
    stride: int
    count: int
    weights: FloatArray
    """The weights l / sum l."""
    functional: FloatArray
    """The functional l_0 / sum l."""
    slip: float
    """Bound on the rounding of one application of S to v, relative to S_al |v|."""
    scale: float
    """The norm of the real power's start, beside which errors should be small."""

    def __call__(self, start: ComplexArray) -> tuple[ComplexArray, FloatArray]:
        """l_0 . A^q y / sum l for each starting field y, and bounds on the errors."""
        fields = start.reshape(len(start), -1)
        sizes = self._norms(fields)
        most = min(SIZES[-1], self.count + 1)  # q + 1 vectors are complete
        basis = np.empty((len(fields), most + 1, fields.shape[1]), dtype=complex)
        basis[:, 0] = fields / np.maximum(sizes, TINY)[:, None]
        heads = np.zeros((len(fields), most + 1, most), dtype=complex)
        final, errors = heads[:, 0], sizes
        for m in range(1, most + 1):
            self._extend(basis, heads, m, start.shape)
            if m in SIZES or m == most:
                final, truncated, errors = self._run(heads[:, : m + 1, :m], sizes)
                if truncated.max() <= TRUNCATED * self.scale:
                    break
        used = final.shape[1]
        values = np.matmul(basis[:, :used], self.functional.astype(complex))
        errors = errors + 8 * ROUND * (fields.shape[1] + used) * np.abs(final).sum(axis=1)
        return np.asarray((values * final).sum(axis=1)), errors

    def _norms(self, fields: ComplexArray) -> FloatArray:
        return np.sqrt((np.abs(fields) ** 2) @ self.weights)

    def _extend(
        self, basis: ComplexArray, heads: ComplexArray, m: int, shape: tuple[int, ...]
    ) -> None:
        """Compute the m-th column of H, and the next vector."""
        fields = basis[:, m - 1].reshape(shape)
        for _ in range(self.stride):
            fields = self.operator(fields)
        vector = fields.reshape(len(basis), -1)
        for _ in range(2):  # the second pass removes what rounding left of the inner products
            inner = np.matmul(basis[:, :m], (self.weights * vector.conj())[:, :, None])
            inner = inner[:, :, 0].conj()
            vector = vector - np.matmul(inner[:, None], basis[:, :m])[:, 0]
            heads[:, :m, m - 1] += inner
        sizes = self._norms(vector)
        heads[:, m, m - 1] = sizes
        basis[:, m] = vector / np.maximum(sizes, TINY)[:, None]

    def _run(
        self, heads: ComplexArray, sizes: FloatArray
    ) -> tuple[ComplexArray, FloatArray, FloatArray]:
        """w_q for each z, the cost of the missing vectors, and the total error."""
        m = heads.shape[2]
        slips = 2 * self.stride * self.slip
        slips = slips + 16 * ROUND * (m + 8) * (1 + np.abs(heads).sum(axis=1))
        ends = np.abs(heads[:, m, m - 1])
        square = np.ascontiguousarray(heads[:, :m])
        vector = np.zeros((len(heads), m), dtype=complex)
        vector[:, 0] = sizes
        truncated, errors = np.zeros(len(heads)), np.zeros(len(heads))
        for k in range(self.count):
            missed, moduli = ends * np.abs(vector[:, -1]), np.abs(vector)
            lost = missed + (slips * moduli).sum(axis=1)
            after = np.matmul(square, vector[:, :, None])[:, :, 0]
            if k % OFTEN == OFTEN - 1:
                final, cost = _finish_steady(vector, after, lost, self.count - k, self.scale)
                if final is not None:
                    left = np.where(moduli.sum(axis=1) > SILENT * self.scale, self.count - k, 0)
                    return final, truncated + left * missed, errors + cost
            truncated, errors = truncated + missed, errors + lost
            vector = after
        return vector, truncated, errors


def _finish_steady(
    vector: ComplexArray, after: ComplexArray, lost: FloatArray, left: int, scale: float
) -> tuple[ComplexArray | None, FloatArray]:
    """lam^left w and its error if each w is an eigenvector or nearly 0; else None."""
    moduli = np.abs(vector).sum(axis=1)
    rates = (vector.conj() * after).sum(axis=1) / np.maximum(
        (np.abs(vector) ** 2).sum(axis=1), TINY
    )
    rest = np.abs(after - rates[:, None] * vector).sum(axis=1)
    silent = moduli <= SILENT * scale
    if not (silent | (left * rest <= SETTLED * scale)).all():
        return None, lost
    powers = np.where(silent, 0.0, rates**left)
    errors = left * (rest + lost) * np.maximum(np.abs(rates), 1.0) ** left
    errors += 64 * ROUND * left * np.abs(powers) * moduli
    return powers[:, None] * vector, np.where(silent, moduli, errors)
