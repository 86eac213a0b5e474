"""Deterministic minimisation within bounds, with progress.

In: a function that returns its value and gradient, a start, bounds.  Out: the best point and value.
Rounding: plain floating point; stopping short of the optimum costs error, never privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import ParameterError

Progress = Callable[[str, float], None]
"""A function called with what is being done and how much of it is done."""
Objective = Callable[[FloatArray], tuple[float, FloatArray]]

MOST_ITERATIONS = 2000
LEAST_GAIN = 1e-13
"""An iteration whose relative gain is smaller is the last."""
FAR = 1e6
"""Replaces values beyond the range of floats, so that the line search turns back."""


def check_progress(progress: object) -> None:
    """Raise an error unless `progress` is callable or None."""
    if progress is not None and not callable(progress):
        raise ParameterError(f"progress must be a function of (what, done), got {progress!r}.")


def minimise(
    objective: Objective,
    start: FloatArray,
    bounds: tuple[FloatArray | float, FloatArray | float],
    *,
    tolerance: float,
    most: int = MOST_ITERATIONS,
    what: str,
    progress: Progress | None,
) -> tuple[FloatArray, float]:
    """L-BFGS within bounds, until the projected gradient is within the tolerance."""
    from scipy import optimize  # takes a while to import, and few need it

    best, least = start, math.inf
    done = 0

    def watched(point: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, least
        with np.errstate(all="ignore"):
            value, gradient = objective(point)
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return FAR, np.zeros_like(point)
        if value < least:
            best, least = point.copy(), value
        return value, gradient

    def report(_: FloatArray) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(f"{what}: iterations", done)

    search: Any = optimize.minimize
    search(
        watched,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(bounds[0], bounds[1]),
        callback=report,
        options={
            "gtol": tolerance,
            "ftol": LEAST_GAIN,
            "maxiter": most,
            "maxfun": 2 * most,
        },
    )
    return best, least
