"""BLTs with the least error: in closed form for prefix sums, by recurrences for other workloads.

In: steps, buffers, objective.  Out: decay and scale of each buffer, slowest last.
Rounding: plain floating point; a strategy that is not quite optimal costs error, never privacy.

With c(x) = prod (1 - lam_i x) / prod (1 - rho_i x) the encoder is non-negative and its inverse
stable if 0 <= lam_1 < rho_1 < lam_2 < ... < rho_d < 1.  Then scale_i = prod_j (rho_i - lam_j) /
prod_{j != i} (rho_i - rho_j), and A C^-1 is Toeplitz with b_k = r_0 + sum_i r_i lam_i^k, r_0 = prod
(1 - rho) / prod (1 - lam), r_i = prod_j (rho_j - lam_i) / ((1 - lam_i) prod_{j != i} (lam_j -
lam_i)), all positive.  The unknowns are the log-odds of the ratios between neighbours among 1 > 1 -
lam_1 > 1 - rho_1 > ...; derivatives are taken by complex steps.

For other workloads the error is a form in s = a / c.  Its slope in c_m is -2 (w correlated with
s)_m, where w solves C^T w = (half the slope in s); decay and scale follow by the chain rule.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcc._arrays import FloatArray
from mmcc.strategies._descent import Objective as Descended
from mmcc.strategies._descent import Progress, minimise
from mmcc.strategies._series import product
from mmcc.strategies._toeplitz_objective import Objective

TOLERANCE = 1e-8
"""On the gradient of the log error."""
MOST_ITERATIONS = 400
"""More iterations are used only if some buffers are superfluous, and gain nothing."""
STEP = 1e-30
NEAREST = 8.0
"""Largest log-odds: keeps neighbours apart, and lam_1 above 0."""

Numbers = NDArray[Any]
"""Real numbers, or complex ones while a derivative is taken."""


def best_buffers(
    steps: int, buffers: int, objective: str, progress: Progress | None
) -> tuple[FloatArray, FloatArray]:
    """Decay and scale with the least prefix error, scale and 1 - decay rounded to six digits."""

    def log_error(odds: FloatArray) -> tuple[float, FloatArray]:
        found = _log_error(steps, *_gaps(_step_each_axis(odds)), objective)
        return float(found[0].real), found.imag / STEP

    return _best(log_error, steps, buffers, progress)


def best_buffers_for(
    objective: Objective, buffers: int, progress: Progress | None
) -> tuple[FloatArray, FloatArray]:
    """Decay and scale with the least error for any workload and participations."""

    def log_error(odds: FloatArray) -> tuple[float, FloatArray]:
        zeros, poles = _gaps(_step_each_axis(odds))
        scales = _residues(zeros, poles)
        value, of_decay, of_scale = _error_and_slopes(objective, 1 - poles[0].real, scales[0].real)
        return value, (scales.imag @ of_scale - poles.imag @ of_decay) / STEP

    return _best(log_error, objective.steps, buffers, progress)


def buffers_error(objective: Objective, decay: FloatArray, scale: FloatArray) -> float:
    """Sensitivity times the root mean squared error of the workload."""
    return math.exp(_error_and_slopes(objective, decay, scale)[0])


def _error_and_slopes(
    objective: Objective, decay: FloatArray, scale: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """The log error and its derivatives in decay and scale."""
    from mmcc.strategies._recurrences import divide_buffers  # compiles

    form, steps = objective.form, objective.steps
    powers = decay[:, None] ** np.arange(steps - 1)
    c = np.concatenate([[1.0], scale @ powers])
    norm, rise = objective.sensitivity(c)
    series = divide_buffers(form.numerator, decay, scale)
    weighted = form.weighted(series)
    square = float(weighted @ series)
    backwards = divide_buffers(np.ascontiguousarray(weighted[::-1]), decay, scale)
    slope = (rise / norm - product(backwards, series, steps)[::-1] / square)[1:]
    falling = np.arange(steps - 1) * powers / decay[:, None]
    return 0.5 * math.log(norm * square / steps), scale * (falling @ slope), powers @ slope


def _step_each_axis(odds: FloatArray) -> Numbers:
    """Copies of the point, each with a complex step along one axis."""
    return np.asarray(odds + 1j * STEP * np.eye(odds.size))


def _best(
    log_error: Descended, steps: int, buffers: int, progress: Progress | None
) -> tuple[FloatArray, FloatArray]:
    """Decay and scale, rounded, at the log-odds with the least log error."""
    depth = math.log(steps) + 0.5
    ratio = math.exp(-depth / (2 * buffers + 1))  # gaps evenly spaced in logarithms
    start = np.full(2 * buffers, math.log(ratio / (1 - ratio)))
    odds, _ = minimise(
        log_error,
        start,
        (-depth - 4, NEAREST),
        tolerance=TOLERANCE,
        most=MOST_ITERATIONS,
        what="blt",
        progress=progress,
    )
    zeros, poles = _gaps(odds)
    scale = _residues(zeros, poles)
    rounded = np.array([[float(f"{value:.6g}") for value in row] for row in (poles, scale)])
    return 1 - rounded[0], rounded[1]


def prefix_error(
    steps: int,
    decay: float | FloatArray,
    scale: float | FloatArray,
    objective: str = "mean",
) -> float:
    """Largest column norm of C times the root mean square, or the largest, row norm of A C^-1.

    Decays must differ.  1 - lam are the eigenvalues of diag(1 - decay) + sqrt(scale) sqrt(scale)^T.
    """
    poles, weights = 1 - np.atleast_1d(decay), np.sqrt(np.atleast_1d(scale))
    zeros = np.linalg.eigvalsh(np.diag(poles) + np.outer(weights, weights))
    zeros = np.minimum(zeros, 1 - 2.0**-53)
    return math.exp(float(_log_error(steps, zeros, poles, objective)))


def _gaps(odds: Numbers) -> tuple[Numbers, Numbers]:
    """1 - lam and 1 - rho, both decreasing along the last axis, as in all functions below."""
    gaps = np.exp(np.cumsum(-np.log1p(np.exp(-odds)), axis=-1))
    return gaps[..., 0::2], gaps[..., 1::2]


def _residues(top: Numbers, bottom: Numbers) -> Numbers:
    """prod_j (top_j - bottom_i) / prod_{j != i} (bottom_j - bottom_i)."""
    column = bottom[..., :, None]
    others = bottom[..., None, :] - column + np.eye(bottom.shape[-1])
    return np.asarray(np.prod((top[..., None, :] - column) / others, axis=-1))


def _log_error(steps: int, zeros: Numbers, poles: Numbers, objective: str) -> Numbers:
    scale = _residues(zeros, poles)
    column = 1 + _sum_of_pairs(scale, _powers(steps - 1, *_pairs(poles)))
    first = np.prod(poles / zeros, axis=-1)
    rest = -_residues(poles, zeros) / zeros
    sums, ones = (_powers, steps) if objective == "max" else (_falling, 0.5 * (steps + 1))
    square = ones * first * first
    square = square + 2 * first * np.sum(rest * sums(steps, zeros, np.log1p(-zeros)), axis=-1)
    square = square + _sum_of_pairs(rest, sums(steps, *_pairs(zeros)))
    return np.asarray(0.5 * np.log(column * square))


def _sum_of_pairs(weights: Numbers, values: Numbers) -> Numbers:
    """sum_ij weights_i weights_j values_ij."""
    return np.asarray(np.einsum("...i,...j,...ij->...", weights, weights, values))


def _pairs(gaps: Numbers) -> tuple[Numbers, Numbers]:
    """1 - t and log t of t = (1 - gap_i) (1 - gap_j)."""
    logs = np.log1p(-gaps)
    column, row = gaps[..., :, None], gaps[..., None, :]
    return column + row - column * row, logs[..., :, None] + logs[..., None, :]


def _powers(terms: int, gap: Numbers, log: Numbers) -> Numbers:
    """sum_{k < terms} t^k."""
    return np.asarray(-np.expm1(terms * log) / gap)


def _falling(terms: int, gap: Numbers, log: Numbers) -> Numbers:
    """sum_{k < terms} (1 - k / terms) t^k."""
    return np.asarray((1 - (1 - gap) * _powers(terms, gap, log) / terms) / gap)
