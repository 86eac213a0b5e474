"""Banded Toeplitz encoders, optimised for prefix sums at one participation.

In: steps and bands.  Out: coefficients c >= 0, c_0 = 1, with the least |c| |A C^-1|_F / sqrt(n).
A C^-1 is Toeplitz with the coefficients s of 1 / ((1 - x) c(x)), so |A C^-1|_F^2 =
sum_k (n - k) s_k^2, and ds/dc_m = -x^m s / c(x): two filters of length `bands`, O(n bands).
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import StrategyError, whole
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._descent import Progress, check_progress, minimise
from mmcc.strategies._provenance import made_by
from mmcc.strategies._toeplitz import MAX_COEFFICIENTS, Toeplitz

TOLERANCE = 1e-8
"""Of the gradient of log error."""


def banded_toeplitz(steps: int, bands: int, *, progress: Progress | None = None) -> Toeplitz:
    """The best Toeplitz encoder found with so many bands, for prefix sums; diagonal 1."""
    steps = whole("steps", steps, 1, 10**12)
    bands = whole("bands", bands, 1, steps)
    check_progress(progress)
    if steps > MAX_COEFFICIENTS:
        raise StrategyError(
            f"banded_toeplitz({steps}, {bands}) is optimised over all steps; at most "
            f"{MAX_COEFFICIENTS}. Use toeplitz with the coefficients found for fewer steps."
        )
    coefficients, error = best_coefficients(steps, bands, progress)
    arguments = {"steps": steps, "bands": bands}
    made = made_by("banded_toeplitz", arguments, "mean", error)
    return Toeplitz(coefficients, steps, provenance=made)


def best_coefficients(
    steps: int, bands: int, progress: Progress | None
) -> tuple[FloatArray, float]:
    """The coefficients and the error that they reach."""
    from scipy import signal  # takes a while to import, and few need it

    left = np.arange(steps, 0, -1.0)
    ones = np.ones(steps)

    def log_error(later: FloatArray) -> tuple[float, FloatArray]:
        c = np.concatenate([[1.0], later])
        sums = signal.lfilter([1.0], c, ones)
        twice = signal.lfilter([1.0], c, sums)
        weighted = left * sums
        square, norm = float(weighted @ sums), float(c @ c)
        slope = np.array([weighted[m:] @ twice[: steps - m] for m in range(1, bands)])
        return 0.5 * math.log(norm * square / steps), later / norm - slope / square

    # The square root of the prefix sums.
    start: FloatArray = np.cumprod(1 - 0.5 / np.arange(1.0, bands), dtype=np.float64)
    if bands == 1:
        return np.ones(1), math.exp(log_error(start)[0])
    later, value = minimise(
        log_error, start, (0.0, np.inf), tolerance=TOLERANCE, what="bands", progress=progress
    )
    return np.concatenate([[1.0], np.where(later < SMALLEST, 0.0, later)]), math.exp(value)
