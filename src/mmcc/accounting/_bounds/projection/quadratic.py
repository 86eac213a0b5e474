"""Chaos orders one and two of the rest, exactly, on a subspace that holds most of them.

In: a `Rest`.  On the span of K columns of A' (and, for trees, on all wavelets) the first two
chaoses of X_t are Y = <b, z> + (z^T B z - tr B) / 2, whose law is known through

    log M(c) = sum_i [ b_i^2 c^2 / (1 - c lam_i) - log(1 - c lam_i) - c lam_i ] / 2,
    E(Y - x)_+ = (1/2pi) int M(c + iw) e^(-(c + iw) x) / (c + iw)^2 dw,   0 < c < 1 / lam_max.

The trapezoid errs upwards (its error is a sum of non-negative copies), |M| falls along the line
because B is positive semidefinite, and the cut-off is paid for.  What lies outside the subspace is
left to the moments: `left_linear`, `left_quadratic`.  Rounding: upwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.projection.rest import SLACK, TINY, Rest
from mmcc.accounting._bounds.waves import waves

SUBSPACE = 48
FULL = 400
"""Most columns for which all eigenvectors are computed; beyond, roughly the largest ones."""
BLOCK, PASSES = 56, 2
"""Columns that are mapped at once, and the number of passes."""
NODES = 160
TILTS = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])


@dataclass(frozen=True, eq=False, slots=True)
class Quadratic:
    """The law of the first two chaoses on the subspace, at every t."""

    left_linear: FloatArray
    left_quadratic: FloatArray
    tilt: FloatArray
    """The tilt c, by node."""
    steps: FloatArray
    """The spacing in w, by node."""
    values: ComplexArray
    """M(c + iw) / (c + iw)^2, by node and k, in units of `exp(level)`."""
    level: FloatArray
    cut: FloatArray
    """Bound on what lies beyond the last node, in the same units."""

    def bound_excess(self, x: FloatArray) -> FloatArray:
        """Upper bound on E(Y - x)_+ at every t."""
        terms = self.values * waves(-self.steps * x, np.arange(float(NODES)))
        sums = terms[:, 0].real + 2 * np.sum(terms[:, 1:].real, axis=1)
        sizes = np.sum(np.abs(self.values), axis=1)
        sums = self.steps / (2 * math.pi) * (sums + (1e-14 * NODES + 1e-13) * sizes)
        with np.errstate(over="ignore"):
            excess = np.exp(np.minimum(self.level - self.tilt * x, 700.0)) * (sums + self.cut)
        # E(Y - x)_+ >= (-x)_+, so a smaller number is rounding.
        return np.asarray(np.maximum(np.maximum(excess, 0.0), -x) * (1 + 1e-12))


@np.errstate(over="ignore", invalid="ignore")  # infinite or NaN: no bound there
def quadratic(rest: Rest, gaps: FloatArray, sign: float = 1.0) -> Quadratic:
    """The law of Y (or -Y), sharpest near the thresholds `gaps` and valid everywhere."""
    gram, weights = rest.gram, rest.weights
    frame = _frame(rest)
    image = gram.rest_product(rest.line.a, frame)
    linear = (weights.single * gram.counts) @ image
    mixed = (image * gram.counts[:, None]).T @ rest.basis
    nodes = len(weights.t)
    eigenvalues = np.zeros((nodes, frame.shape[1]))
    squares = np.zeros((nodes, frame.shape[1]))
    for i in range(nodes if frame.shape[1] else 0):
        matrix = (image * (gram.counts * weights.spare[i])[:, None]).T @ image
        matrix += mixed @ rest.core[i] @ mixed.T
        eigenvalues[i], vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        squares[i] = (linear[i] @ vectors) ** 2
    eigenvalues = np.maximum(eigenvalues, 0.0)
    free = np.array([e.value for e in gram.free])
    times = np.array([float(e.multiplicity) for e in gram.free])
    wavelets = weights.spare[:, [e.index for e in gram.free]] * free
    seen = 0.5 * (np.sum(eigenvalues**2, axis=1) + wavelets**2 @ times)
    left = np.sqrt(np.maximum(rest.quadratic - seen, 0.0) + SLACK * rest.quadratic)
    left_linear = np.maximum(rest.linear - np.sum(squares, axis=1), 0.0) + SLACK * rest.linear
    spectrum = _Spectrum(sign * eigenvalues, squares, sign * wavelets, times)
    tilt = spectrum.best_tilt(gaps)
    level = spectrum.log_moment(tilt[:, None])[:, 0].real
    period = (32 + np.maximum(tilt * gaps - level, 0.0)) / tilt
    steps = 2 * math.pi / period
    z = tilt[:, None] + 1j * np.multiply.outer(steps, np.arange(NODES))
    values = np.exp(spectrum.log_moment(z) - level[:, None])
    last = np.abs(values[:, -1])
    return Quadratic(
        left_linear=(np.sqrt(left_linear) + 2 * rest.linear_error) ** 2,
        left_quadratic=(left + 2 * rest.residual) ** 2 + TINY,
        tilt=tilt,
        steps=steps,
        values=values / z**2,
        level=level,
        cut=last / (math.pi * steps * (NODES - 1)),
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Spectrum:
    """Eigenvalues of B with the squares of b along them, and eigenvalues with b = 0.

    All are negated for the law of -Y, which has no pole.
    """

    eigenvalues: FloatArray
    squares: FloatArray
    wavelets: FloatArray
    times: FloatArray

    def log_moment(self, z: ComplexArray | FloatArray) -> ComplexArray:
        """Log M at z[node, k]."""
        total = np.zeros(z.shape, np.complex128)
        for lam, square in zip(self.eigenvalues.T, self.squares.T, strict=True):
            x = z * lam[:, None]
            total += 0.5 * (square[:, None] * z**2 / (1 - x) - np.log(1 - x) - x)
        for lam, many in zip(self.wavelets.T, self.times, strict=True):
            x = z * lam[:, None]
            total -= 0.5 * many * (np.log(1 - x) + x)
        return total

    def best_tilt(self, gaps: FloatArray) -> FloatArray:
        """The c that roughly minimises M(c) e^(-c x) / c^2 within (0, 1 / lam_max)."""
        every = np.concatenate([self.eigenvalues, self.wavelets], axis=1)
        largest = np.max(every, axis=1, initial=0.0) + TINY
        variance = np.sum(self.squares + 0.5 * self.eigenvalues**2, axis=1)
        variance += 0.5 * self.wavelets**2 @ self.times
        widest = np.minimum(1 / largest, 60 / np.sqrt(variance + TINY))
        choices = widest[:, None] * TILTS
        costs = self.log_moment(choices).real - choices * gaps[:, None] - 2 * np.log(choices)
        return np.asarray(np.take_along_axis(choices, np.argmin(costs, axis=1)[:, None], 1)[:, 0])


def _frame(rest: Rest) -> FloatArray:
    """Class vectors x_i with <A'x_i, A'x_j> = 1{i = j} along the largest part of B, mid-range.

    Any frame is valid; this one leaves little outside.
    """
    gram, a = rest.gram, rest.line.a
    middle = len(rest.weights.t) // 2
    root = np.sqrt(np.maximum(rest.weights.spare[middle], 0.0))
    scale = root / np.sqrt(gram.counts)
    if a.size <= FULL:
        small = rest.centred(np.eye(a.size))
        small = rest.centred_back(gram.rest_product(a, small) * gram.counts[:, None])
        lam, vectors = np.linalg.eigh(scale[:, None] * (small + small.T) * scale / 2)
    else:

        def apply(x: FloatArray) -> FloatArray:
            y = gram.rest_product(a, rest.centred(scale[:, None] * x)) * gram.counts[:, None]
            return np.asarray(scale[:, None] * rest.centred_back(y))

        lam, vectors = _largest_part(apply, a.size)
    # If the projection takes all of G (a single class), only rounding is left of it.
    size = float(np.max(root**2 * gram.product(np.ones(a.size))))
    keep = lam > max(1e-7 * float(np.max(lam)), 1e-9 * size)
    keep &= lam >= np.sort(lam)[-min(SUBSPACE, lam.size)]
    frame = rest.centred(scale[:, None] * vectors[:, keep])
    if not frame.shape[1]:
        return np.asarray(frame)
    inner = (frame * gram.counts[:, None]).T @ gram.rest_product(a, frame)
    return np.asarray(linalg.solve_triangular(np.linalg.cholesky(inner), frame.T, lower=True).T)


def _largest_part(
    apply: Callable[[FloatArray], FloatArray], size: int
) -> tuple[FloatArray, FloatArray]:
    """Roughly the largest eigenvalues of a symmetric map, and their vectors: a block Krylov space.

    A few products with many columns cost less than many products with one.
    """
    block = np.cos(np.multiply.outer(np.arange(size) + 0.5, np.arange(BLOCK) * math.pi / size))
    space = [np.linalg.qr(block)[0]]
    for _ in range(PASSES):
        space.append(np.linalg.qr(apply(space[-1]))[0])
    basis = np.linalg.qr(np.concatenate(space, axis=1))[0]
    small = basis.T @ apply(basis)
    lam, vectors = np.linalg.eigh(0.5 * (small + small.T))
    return lam[-SUBSPACE:], basis @ vectors[:, -SUBSPACE:]
