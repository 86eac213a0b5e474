"""The utility of a strategy: the error of prefix sums, or of other workloads, at a given sigma.

In: a strategy, sigma, a lower-triangular workload A (prefix sums unless given) and a decoder.
Out: the standard deviation of the noise in A x: since B C = I, A x is estimated with noise A B z.
Rounding: plain floating point, about ten digits.  Errors are not part of a guarantee; sigma is.

>>> from mmcc import strategies
>>> round(rmse(strategies.identity(8), sigma=1.0), 6)
2.12132
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray
from mmcc.errors import PrecisionError, real
from mmcc.strategies._base import Strategy
from mmcc.strategies._decoders import decoder_matrix, decoder_name, noise_memory
from mmcc.strategies._iterates import (
    average_iterate,
    final_mix,
    last_iterate,
    weighted_iterates,
)
from mmcc.strategies._learning_rates import constant_rates, cooldown, cosine_rates, linear_rates
from mmcc.strategies._tree_errors import level_weights
from mmcc.strategies._workloads import Workload, momentum, schedule, workload_of

__all__ = (
    "Workload",
    "average_iterate",
    "constant_rates",
    "cooldown",
    "cosine_rates",
    "decoder_matrix",
    "final_mix",
    "last_iterate",
    "level_weights",
    "linear_rates",
    "max_error",
    "momentum",
    "noise_memory",
    "rmse",
    "schedule",
    "step_errors",
    "weighted_iterates",
)


def rmse(
    strategy: Strategy,
    sigma: float,
    workload: ArrayLike | Workload | None = None,
    *,
    decoder: str | None = None,
) -> float:
    """Root mean squared error over the steps: sigma |A B|_F / sqrt(n), or with the steps' weights.

    It is per coordinate, in units of the clip norm.  Published constants for one participation take
    sigma to be the largest column norm of C.
    """
    scale, variances, weights = _scaled(strategy, sigma, workload, decoder)
    mean = variances.mean() if weights is None else weights @ variances
    return _finite(scale * math.sqrt(float(mean)))


def max_error(
    strategy: Strategy,
    sigma: float,
    workload: ArrayLike | Workload | None = None,
    *,
    decoder: str | None = None,
) -> float:
    """The largest standard deviation of a step with positive weight: sigma max_t |row t of A B|."""
    scale, variances, weights = _scaled(strategy, sigma, workload, decoder)
    counted = variances if weights is None else variances[weights > 0]
    return _finite(scale * math.sqrt(float(counted.max())))


def step_errors(
    strategy: Strategy,
    sigma: float,
    workload: ArrayLike | Workload | None = None,
    *,
    decoder: str | None = None,
) -> FloatArray:
    """The standard deviation of every row of A x, sigma |row t of A B|: one per step, or one."""
    scale, variances, _ = _scaled(strategy, sigma, workload, decoder)
    return np.asarray(scale * np.sqrt(variances))


def _scaled(
    strategy: Strategy, sigma: float, workload: ArrayLike | Workload | None, decoder: str | None
) -> tuple[float, FloatArray, FloatArray | None]:
    """Sigma, the variance of every step at sigma = 1, and the weight of each step."""
    sigma = real("sigma", sigma, 0, math.inf)
    decoder = decoder_name(strategy, decoder)
    asked = workload_of(workload, strategy.steps)
    with np.errstate(over="ignore", invalid="ignore"):
        variances = asked.variances(strategy, decoder)
        finite = bool(np.isfinite(variances.sum()))
    if not finite:
        raise PrecisionError(
            f"the error of {strategy!r} is too large for floating point: its inverse grows with "
            "the steps. Use fewer steps, or an encoder whose inverse is bounded."
        )
    return sigma, np.maximum(variances, 0.0), asked.weights


def _finite(error: float) -> float:
    """The error, checked to be finite."""
    if not math.isfinite(error):
        raise PrecisionError(
            "sigma times the error of the strategy is too large for floating point."
        )
    return error
