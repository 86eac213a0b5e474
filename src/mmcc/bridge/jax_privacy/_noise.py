"""Noise of our strategies in JAX: the matrices by which jax_privacy multiplies fresh noise.

In: a strategy C, sigma, the largest contribution of an example.  Out: C^-1 (for trees a decoder B
with B C = I), and a transformation that adds sigma * B z to a stream of sums.
Rounding: the standard deviation goes up; coefficients go towards zero, as in `_strategies`.  What
jax computes from them, float32 normals and recursions, is floating point and not part of any proof.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.bridge.jax_privacy._library import load, real_type, their
from mmcc.bridge.jax_privacy._strategies import buffered, rounded_down
from mmcc.errors import ParameterError, StrategyError, real
from mmcc.strategies import Strategy
from mmcc.strategies._base import checked_strategy
from mmcc.strategies._decoders import decoder_matrix

MOST_KEPT = 64
"""Most noise vectors that are kept; if more would be needed, old noise is regenerated."""
TYPES = ("float32", "float64")
LARGEST_NOISE = 1e30


def noising_matrix(strategy: Strategy, *, dense: bool | None = None) -> Any:
    """C^-1 in the form that jax_privacy's `matrix_factorization_privatizer` takes.

    If few vectors suffice it is a `StreamingMatrix`, which keeps the buffers of a BLT, or the bands
    of C or of C^-1.  Otherwise, for trees, or if `dense`, it is the array of decoder weights, which
    keeps nothing and regenerates old noise in every step.
    """
    checked_strategy(strategy)
    if not strategy.adaptive:
        raise StrategyError(
            f"{strategy!r} has no causal order of its rows, but training uses every release. "
            "Sort the rows, and leave out adaptive=False."
        )
    square = strategy.rows == strategy.steps
    if dense is None:
        dense = not square or strategy.noise_memory() > MOST_KEPT
    if dense:
        return load("jax.numpy").asarray(decoder_matrix(strategy))
    if not square:
        raise StrategyError(
            f"{strategy!r} has {strategy.rows} rows for {strategy.steps} steps and no inverse to "
            "apply step by step. Leave dense out."
        )
    return _streaming(strategy)


def privatizer(
    strategy: Strategy,
    *,
    sigma: float,
    sensitivity: float,
    key: Any = None,
    dtype: str = "float32",
    dense: bool | None = None,
) -> Any:
    """jax_privacy's gradient privatizer with the noise of our mechanism.

    `sigma` is the certified noise in units of the largest contribution; `sensitivity` is that
    contribution, `clipped.sensitivity()` of the clipped gradient, after any division.  `key` is a
    key of `jax.random` or a number; None takes 64 bits from the operating system.  The key is as
    secret as the data.

    It makes noise for as many steps as the strategy has.  After the last step it returns NaN,
    because the certificate ends there and a dense matrix would repeat its last noise.
    """
    if dtype not in TYPES:
        raise ParameterError(f"dtype must be one of {', '.join(TYPES)}, got {dtype!r}.")
    if np.dtype(dtype).itemsize > np.dtype(real_type()).itemsize:
        raise ParameterError(
            f"dtype={dtype!r} needs jax.config.update('jax_enable_x64', True): without it jax "
            "would use float32."
        )
    size = real("sigma", sigma, 0, LARGEST_NOISE) * real("sensitivity", sensitivity, 0, 1e30)
    matrix = noising_matrix(strategy, dense=dense)
    make = their("noise_addition").matrix_factorization_privatizer
    return make(
        _ending(matrix, strategy.steps),
        stddev=_rounded_up(size),
        prng_key=_fresh_key() if key is None else key,
        dtype=np.dtype(dtype),
    )


def _streaming(strategy: Strategy) -> Any:
    factorization = their("matrix_factorization")
    encoder = strategy.toeplitz
    if encoder is None:
        matrix = strategy.to_dense()
        if np.triu(matrix, 1).any():
            raise StrategyError(
                f"{strategy!r} is square but not lower triangular: some step is released too late "
                "for its noise to be made in time. Sort the rows."
            )
        return _banded(matrix, strategy.noise_memory())
    if encoder.buffer_numbers is not None:
        return buffered(*encoder.buffer_numbers).inverse_as_streaming_matrix()
    if encoder.inverse_coefficients is not None:
        return _moving_sum(encoder.inverse_coefficients)
    coefficients = load("jax.numpy").asarray(rounded_down(encoder.coefficients, real_type()))
    return factorization.toeplitz.inverse_as_streaming_matrix(coefficients)


def _moving_sum(coefficients: FloatArray) -> Any:
    """The banded Toeplitz matrix with these coefficients: the last few inputs, weighted."""
    jnp = load("jax.numpy")
    weights = jnp.asarray(rounded_down(coefficients, real_type()))

    def start(value: Any) -> Any:
        return jnp.zeros((weights.size - 1, *value.shape), value.dtype)

    def following(value: Any, past: Any) -> tuple[Any, Any]:
        recent = jnp.concatenate([value[None], past])
        return _weighted(weights, recent), recent[:-1]

    return _lifted(start, following)


def _banded(matrix: FloatArray, bands: int) -> Any:
    """The inverse of a lower triangular matrix with this many bands, by substitution."""
    jnp = load("jax.numpy")
    steps = len(matrix)
    places = np.arange(steps)[:, None] - np.arange(bands)
    entries = np.where(places >= 0, np.take_along_axis(matrix, np.maximum(places, 0), axis=1), 0)
    rows = jnp.asarray(rounded_down(entries, real_type()))

    def start(value: Any) -> Any:
        return jnp.array(0), jnp.zeros((bands - 1, *value.shape), value.dtype)

    def following(value: Any, state: Any) -> tuple[Any, Any]:
        step, past = state
        row = rows[step]
        solved = ((value - _weighted(row[1:], past)) / row[0]).astype(value.dtype)
        return solved, (step + 1, jnp.concatenate([solved[None], past])[: bands - 1])

    return _lifted(start, following)


def _weighted(weights: Any, vectors: Any) -> Any:
    """A weighted sum of vectors in their own type, without products that accelerators shorten."""
    shape = (weights.size,) + (1,) * (vectors.ndim - 1)
    return (weights.reshape(shape).astype(vectors.dtype) * vectors).sum(axis=0)


def _lifted(start: Any, following: Any) -> Any:
    streaming = their("matrix_factorization").StreamingMatrix
    return streaming.from_array_implementation(start, following)


def _ending(matrix: Any, steps: int) -> Any:
    """The same matrix, with NaN for everything after its last step."""
    jax, jnp = load("jax"), load("jax.numpy")
    streaming = their("matrix_factorization").StreamingMatrix
    if not isinstance(matrix, streaming):
        # In jax an index beyond the end of an array means its last row.
        return jnp.concatenate([matrix, jnp.full((1, matrix.shape[1]), jnp.nan, matrix.dtype)])

    def start(value: Any) -> Any:
        return jnp.array(0), matrix.init_multiply(value)

    def following(value: Any, state: Any) -> tuple[Any, Any]:
        step, inner = state
        noise, inner = matrix.multiply_next(value, inner)
        kept = jax.tree.map(lambda part: jnp.where(step < steps, part, jnp.nan), noise)
        return kept, (step + 1, inner)

    return streaming(start, following)


def _rounded_up(size: float) -> float:
    """The size rounded up to float32, the type in which noise is multiplied by it."""
    size *= 1 + 2.0**-50
    near = np.float32(size)
    # As Python floats: next to a float32, numpy would round the other number first.
    return float(near if float(near) >= size else np.nextafter(near, np.float32(np.inf)))


def _fresh_key() -> Any:
    """A key of 64 random bits, as many as jax's default generator has; a number would have 32."""
    words = np.frombuffer(os.urandom(8), dtype=np.uint32)
    return load("jax").random.wrap_key_data(words, impl="threefry2x32")
