"""Conversion of strategies to and from jax_privacy.

In: C on one side.  Out: C on the other.
Rounding: if jax has only float32, numbers are rounded towards zero.  Then C is entrywise no larger,
so what was certified for our strategy holds for theirs: a larger C, entry by entry, has a larger
Gram matrix and a larger epsilon.  (Coefficients of a BLT increase with its decays and scales, those
of 1 / (1 - a_1 x - ...) with the a_k.)  An array converted to our side is not rounded.

Their strategies are arrays of Toeplitz coefficients, `BufferedToeplitz`, `ColumnNormalizedBanded`
or arrays C.  A `StreamingMatrix` is two functions, which do not reveal the matrix that they apply.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcc._arrays import FloatArray
from mmcc.bridge.jax_privacy._library import load, real_type, their
from mmcc.errors import StrategyError, shown
from mmcc.strategies import Strategy, blt, dense, toeplitz
from mmcc.strategies._banded import from_diagonals, inside_matrix
from mmcc.strategies._base import checked_strategy, rounded_up


def strategy_from(theirs: Any, steps: int | None = None) -> Strategy:
    """Convert a strategy of jax_privacy to ours.

    `theirs`: Toeplitz coefficients (one dimension), a `BufferedToeplitz`, a
    `ColumnNormalizedBanded` or the matrix C (two dimensions).  The first two need `steps`.  C is
    used as it is: only the columns of a `ColumnNormalizedBanded` are normalised, as in jax_privacy.
    """
    factorization = their("matrix_factorization")
    if isinstance(theirs, factorization.StreamingMatrix):
        raise StrategyError(
            "a StreamingMatrix is two functions and does not reveal which matrix it applies. Pass "
            "what it was made from: the coefficients, the BufferedToeplitz, the "
            "ColumnNormalizedBanded or the array."
        )
    if isinstance(theirs, factorization.buffered_toeplitz.BufferedToeplitz):
        decay, scale = (np.asarray(part) for part in (theirs.buf_decay, theirs.output_scale))
        return blt(_steps(steps), decay=np.atleast_1d(decay), scale=np.atleast_1d(scale))
    if isinstance(theirs, factorization.banded.ColumnNormalizedBanded):
        found: Strategy = _normalised(np.asarray(theirs.params, dtype=np.float64))
        return _of_length(found, steps)
    try:
        array = np.asarray(theirs, dtype=np.float64)
    except (TypeError, ValueError):
        raise StrategyError(
            f"need Toeplitz coefficients, a BufferedToeplitz, a ColumnNormalizedBanded or a "
            f"matrix, got {shown(theirs)}."
        ) from None
    if array.ndim == 1:
        return toeplitz(array[: _steps(steps)], _steps(steps))
    return _of_length(dense(array), steps)


def strategy_to(strategy: Strategy) -> Any:
    """Convert our strategy to the form from which jax_privacy computes errors and sensitivities.

    A BLT becomes a `BufferedToeplitz`, another Toeplitz encoder its coefficients up to the last
    non-zero one, and any other strategy the array C.
    """
    checked_strategy(strategy)
    encoder = strategy.toeplitz
    if encoder is None:
        return load("jax.numpy").asarray(rounded_down(strategy.to_dense(), real_type()))
    if encoder.buffer_numbers is not None:
        return buffered(*encoder.buffer_numbers)
    return load("jax.numpy").asarray(rounded_down(encoder.coefficients, real_type()))


def buffered(decay: FloatArray, scale: FloatArray) -> Any:
    """A `BufferedToeplitz` with these numbers."""
    kind = real_type()
    build = their("matrix_factorization").buffered_toeplitz.BufferedToeplitz.build
    return build(rounded_down(decay, kind), rounded_down(scale, kind), dtype=kind)


def rounded_down(values: FloatArray, kind: Any) -> NDArray[Any]:
    """The values in a narrower type, rounded towards zero."""
    cast = values.astype(kind)
    return np.where(np.abs(cast) > np.abs(values), np.nextafter(cast, np.zeros_like(cast)), cast)


def column_normalised(coefficients: FloatArray, norms: FloatArray) -> Strategy:
    """The banded Toeplitz encoder with column j divided by norms[j], rounded up."""
    rows = coefficients / norms[:, None] * rounded_up(1.0, 1)
    return from_diagonals(np.where(inside_matrix(*rows.shape), rows, 0.0), None)


def _normalised(parameters: FloatArray) -> Strategy:
    """The encoder with each column divided by the norm of its part inside the matrix.

    Their noise divides by the norm of a whole row of `params`, which is no smaller, so its C is
    entrywise no larger than this one.
    """
    inside = np.where(inside_matrix(*parameters.shape), parameters, 0.0)
    norms = np.linalg.norm(inside, axis=1, keepdims=True)
    if not (norms > 0).all():
        raise StrategyError("a column of this ColumnNormalizedBanded is zero; leave that step out.")
    return from_diagonals(inside / norms * rounded_up(1.0, inside.shape[1]), None)


def _steps(steps: int | None) -> int:
    if steps is None:
        raise StrategyError(
            "coefficients and BLTs have no length in jax_privacy. Pass steps, the iterations of "
            "the sampler."
        )
    return steps


def _of_length(strategy: Strategy, steps: int | None) -> Strategy:
    if steps is not None and steps != strategy.steps:
        raise StrategyError(
            f"this matrix is for {strategy.steps} steps, not for {steps}. Pass one for as many "
            "steps as the run has."
        )
    return strategy
