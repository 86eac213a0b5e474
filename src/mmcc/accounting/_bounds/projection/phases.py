"""Inner loops of the projection, compiled.  Complex arithmetic, no rounding direction of its own.

`phases[k, j]` = exp(i gamma_k a_j) - 1.  At theta + i gamma the factor of column j, relative to its
value at theta, is 1 + u_j phase with u_j = p e^(theta a_j) / (1 - p + p e^(theta a_j)).
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc._compiled import compiled


@compiled
def relative_products(u: FloatArray, phases: ComplexArray, counts: FloatArray) -> ComplexArray:
    """prod_j (1 + u_j phases_kj)^counts_j for every k."""
    products = np.ones(phases.shape[0], np.complex128)
    for k in range(phases.shape[0]):
        product = 1.0 + 0.0j
        for j in range(phases.shape[1]):
            change = u[j] * phases[k, j]
            if counts[j] == 1.0:
                product *= 1.0 + change
            else:  # a large power would magnify the rounding of 1 + change
                size = 2.0 * change.real + change.real**2 + change.imag**2
                angle = np.arctan2(change.imag, 1.0 + change.real)
                product *= np.exp(counts[j] * (0.5 * np.log1p(size) + 1j * angle))
        products[k] = product
    return products


@compiled
def participation(
    u: FloatArray, phases: ComplexArray, weights: ComplexArray
) -> tuple[FloatArray, FloatArray, float]:
    """Real parts of sum_k weights_k r_kj and of the same with r_kj^2, for every j.

    r_kj = u_j (1 + phases_kj) / (1 + u_j phases_kj).  Last, the largest sum_k |weights_k r_kj^2|
    in units of u_j^2, to which rounding errors are proportional.
    """
    first = np.zeros(u.size)
    second = np.zeros(u.size)
    size = np.zeros(u.size)
    for k in range(phases.shape[0]):
        for j in range(u.size):
            ratio = u[j] * (1.0 + phases[k, j]) / (1.0 + u[j] * phases[k, j])
            term = weights[k] * ratio
            first[j] += term.real
            second[j] += (term * ratio).real
            size[j] += abs(term * ratio) / (u[j] * u[j])
    return first, second, size.max()


@compiled
def poisson_binomial(probs: FloatArray, largest: int) -> FloatArray:
    """P(|S| = k), k = 0 .. largest, for independent participation."""
    masses = np.zeros(largest + 1)
    masses[0] = 1.0
    for j in range(probs.size):
        u = probs[j]
        for k in range(min(j + 1, largest), 0, -1):
            masses[k] = masses[k] * (1.0 - u) + masses[k - 1] * u
        masses[0] *= 1.0 - u
    return masses


@compiled
def leave_one_out(probs: FloatArray, masses: FloatArray) -> FloatArray:
    """Upper bounds on u_j P(|S - j| = k - 1) = P(j in S, |S| = k): row k - 1, column j.

    With q_k = P(|S - j| = k) and masses P_k = (1 - u) q_k + u q_(k-1): solve for q_k upwards and
    carry the rounding error along; if that grows (u near one), q_k <= P_k / (1 - u) and u q_(k-1)
    <= P_k still hold.
    """
    unit = 1e-10  # relative error of the masses: one rounding per column, generously
    sizes = masses.size - 1
    bounds = np.empty((sizes, probs.size))
    for j in range(probs.size):
        u = probs[j]
        before, error = 0.0, 0.0
        for k in range(sizes):
            if u < 0.9:
                now = (masses[k] - u * before) / (1.0 - u)
                error = (unit * (masses[k] + u * before) + u * error) / (1.0 - u)
                before = now
                bound = min(max(now, 0.0) + error, masses[k] / (1.0 - u) * (1.0 + unit))
                bounds[k, j] = min(u * bound, masses[k + 1] * (1.0 + unit))
            else:
                bounds[k, j] = masses[k + 1] * (1.0 + unit)
    return bounds
