"""Banded Toeplitz encoders, optimised for a workload and for the participations allowed.

In: steps, bands, an objective.  Out: coefficients c >= 0, c_0 = 1, with the least sensitivity times
|A C^-1|_F / sqrt(n); for one participation the sensitivity is |c|.
The squared norm of A C^-1 is a form in the coefficients s of a / c.  For prefix sums A C^-1 is
Toeplitz with the coefficients s of 1 / ((1 - x) c(x)), so the form is sum_k (n - k) s_k^2.
ds/dc_m = -x^m s / c(x): two filters of length `bands`, O(n bands).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray
from mmcc.errors import StrategyError, whole
from mmcc.sampling._unsampled import Limits
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._descent import Progress, check_progress, minimise
from mmcc.strategies._provenance import made_by
from mmcc.strategies._toeplitz import MAX_COEFFICIENTS, Toeplitz
from mmcc.strategies._toeplitz_objective import Objective, objective_of
from mmcc.strategies._workloads import Workload

TOLERANCE = 1e-8
"""On the gradient of the log error."""


def banded_toeplitz(
    steps: int,
    bands: int,
    *,
    workload: ArrayLike | Workload | None = None,
    participations: Limits | None = None,
    progress: Progress | None = None,
) -> Toeplitz:
    """The best Toeplitz encoder found with the given number of bands; its diagonal is 1.

    It is optimised for prefix sums at one participation, unless a workload (docs/workloads.md) or
    `Unsampled(separation, at_most)` is given.
    """
    steps = whole("steps", steps, 1, 10**12)
    bands = whole("bands", bands, 1, steps)
    check_progress(progress)
    if steps > MAX_COEFFICIENTS:
        raise StrategyError(
            f"banded_toeplitz({steps}, {bands}) is optimised over all steps; at most "
            f"{MAX_COEFFICIENTS}. Use toeplitz with coefficients found for fewer steps."
        )
    objective = objective_of(steps, workload, participations)
    coefficients, error = best_coefficients(objective, bands, progress)
    arguments = {"steps": steps, "bands": bands, **objective.extra}
    made = made_by("banded_toeplitz", arguments, "mean", error)
    return Toeplitz(coefficients, steps, provenance=made)


def best_coefficients(
    objective: Objective, bands: int, progress: Progress | None
) -> tuple[FloatArray, float]:
    """The best coefficients found, and the error that they reach."""
    from scipy import signal  # takes a while to import, and few need it

    steps, form = objective.steps, objective.form
    free = objective.longest

    def log_error(unknowns: FloatArray) -> tuple[float, FloatArray]:
        later = _falling(unknowns, free)
        c = np.concatenate([[1.0], later])
        sums = signal.lfilter([1.0], c, form.numerator)
        twice = signal.lfilter([1.0], c, sums)
        weighted = form.weighted(sums)
        norm, rise = objective.sensitivity(c)
        square = float(weighted @ sums)
        slope = np.array([weighted[m:] @ twice[: steps - m] for m in range(1, bands)])
        slope = rise[1:] / norm - slope / square
        return 0.5 * math.log(norm * square / steps), _summed(slope, free)

    # Start from the square root of the prefix sums.
    start: FloatArray = np.cumprod(1 - 0.5 / np.arange(1.0, bands), dtype=np.float64)
    if bands == 1:
        return np.ones(1), math.exp(log_error(start)[0])
    unknowns, value = minimise(
        log_error,
        _differences(start, free),
        (0.0, np.inf),
        tolerance=TOLERANCE,
        what="bands",
        progress=progress,
    )
    later = _falling(unknowns, free)
    return np.concatenate([[1.0], np.where(later < SMALLEST, 0.0, later)]), math.exp(value)


# From k = `free` on c_k must not increase, so the unknowns there are its differences.


def _falling(unknowns: FloatArray, free: int) -> FloatArray:
    """The coefficients c_1, c_2, ... that the unknowns stand for."""
    if unknowns.size < free:
        return unknowns
    sums = np.cumsum(unknowns[free - 1 :][::-1])[::-1]
    return np.concatenate([unknowns[: free - 1], sums])


def _differences(later: FloatArray, free: int) -> FloatArray:
    """The unknowns that stand for c_1, c_2, ..."""
    if later.size < free:
        return later
    return np.concatenate([later[: free - 1], -np.diff(later[free - 1 :], append=0.0)])


def _summed(slope: FloatArray, free: int) -> FloatArray:
    """The gradient in the unknowns, from the one in the coefficients."""
    if slope.size < free:
        return slope
    return np.concatenate([slope[: free - 1], np.cumsum(slope[free - 1 :])])
