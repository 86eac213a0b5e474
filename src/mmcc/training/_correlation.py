"""Which recursion makes the noise of a strategy: the one that keeps the fewest vectors.

In: a strategy, its decoder, sigma.  Out: a `Correlation`, which starts recursions.
Rounding: that of the recursions; a strategy whose inverse would amplify it noticeably is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import MethodError, ParameterError, PrecisionError, StrategyError, suggestion
from mmcc.strategies._array_inverses import lower_bands
from mmcc.strategies._base import FULL, HONAKER, ONLINE, Strategy
from mmcc.strategies._decoders import decoder_name
from mmcc.strategies._series import quotient
from mmcc.strategies._toeplitz import Toeplitz
from mmcc.strategies._tree import Tree
from mmcc.training._recursions import (
    FRESH_ROWS,
    Buffers,
    FreshAgain,
    InverseRows,
    Nodes,
    PastFresh,
    PastOutputs,
    Recursion,
    Regenerated,
    Vectors,
    node_rows,
    past_rows,
)

KEEP, REGENERATE = "keep", "regenerate"
MEMORIES = (KEEP, REGENERATE)
"""Whether old noise that a step needs is kept, or made again from the key."""
LOST = 1e-3
"""The largest rounding error of the noise, in units of sigma, at which a strategy is accepted."""
GROWTH_WORK = 2**27
"""The number of products spent on finding out whether C^-1 grows."""


@dataclass(frozen=True)
class Correlation:
    """Which recursion makes the noise of a strategy; `start` makes one for vectors of a kind."""

    decoder: str
    memory: int
    start: Callable[[Vectors], Recursion]
    block: int = 0
    """How many outputs are made at once where z is regenerated (numpy only); 0 otherwise."""
    again: bool = False
    """Whether fresh vectors of earlier steps are regenerated for each step."""


def correlation(
    strategy: Strategy,
    decoder: str | None,
    sigma: float,
    block: int | None,
    spacing: float,
    kept: str = KEEP,
) -> Correlation:
    """The recursion with the least memory; `spacing` is the rounding unit of the noise's type.

    With `kept="regenerate"`: the recursion that keeps nothing, if there is one.
    """
    decoder = decoder_name(strategy, decoder)
    if decoder == FULL:
        raise MethodError(
            f"decoder={FULL!r} uses releases of later steps and cannot be generated step by step. "
            f"Use decoder={HONAKER!r} or {ONLINE!r}."
        )
    if kept not in MEMORIES:
        raise ParameterError(f"unknown memory {kept!r}: {suggestion(kept, MEMORIES)}")
    ways = _ways(strategy, decoder, sigma, block, spacing)
    found = min((way for way in ways if not way.again), key=lambda way: way.memory)
    if kept == KEEP or found.memory == 1 or found.block:
        return found
    again = next((way for way in ways if way.again), None)
    if again is None:
        raise MethodError(
            f"memory={REGENERATE!r} needs noise that is a short sum of fresh vectors, but that of "
            f"{strategy!r} with decoder {decoder!r} is not. Use banded_inverse or a tree with "
            f"decoder={ONLINE!r}, or leave memory out, which keeps {found.memory} vectors."
        )
    return again


def _ways(
    strategy: Strategy, decoder: str, sigma: float, block: int | None, spacing: float
) -> list[Correlation]:
    """All recursions that make the noise of a strategy; those that keep vectors come first."""
    if strategy.tree is not None:
        return _tree(strategy.tree, decoder, sigma)
    steps, toeplitz = strategy.steps, strategy.toeplitz
    size = min(block or math.isqrt(steps - 1) + 1, steps)
    if toeplitz is not None:
        ways = _toeplitz(toeplitz, decoder, sigma, spacing)
        inverse = _toeplitz_rows(toeplitz)
    else:
        matrix = _triangular(strategy, spacing)
        bands = lower_bands(matrix)
        row = _matrix_row(matrix, bands)
        ways = [Correlation(decoder, bands, lambda v: PastOutputs(row, bands, sigma, v))]
        inverse = _matrix_rows(matrix)
    last = Correlation(
        decoder,
        size + min(FRESH_ROWS, steps),
        lambda v: Regenerated(inverse, steps, size, sigma, v),
        block=size,
    )
    return [*ways, last]


def _tree(tree: Tree, decoder: str, sigma: float) -> list[Correlation]:
    ways = [Correlation(decoder, tree.levels, lambda v: Nodes(tree, decoder, sigma, v))]
    if decoder == ONLINE:
        terms = node_rows(tree)
        ways.append(Correlation(decoder, 1, lambda v: FreshAgain(terms, sigma, v), again=True))
    return ways


def _toeplitz(strategy: Toeplitz, decoder: str, sigma: float, spacing: float) -> list[Correlation]:
    """The recursions known to need few vectors, the simplest first."""
    c = strategy.coefficients
    ways = [Correlation(decoder, c.size, lambda v: PastOutputs(lambda _: c, c.size, sigma, v))]
    numbers, inverse = strategy.buffer_numbers, strategy.inverse_coefficients
    if numbers is not None:
        decay, scale = numbers
        ways.append(Correlation(decoder, decay.size + 1, lambda v: Buffers(decay, scale, sigma, v)))
    elif inverse is not None:
        terms = past_rows(inverse)
        ways += [
            Correlation(decoder, inverse.size, lambda v: PastFresh(inverse, sigma, v)),
            Correlation(decoder, 1, lambda v: FreshAgain(terms, sigma, v), again=True),
        ]
    else:
        _check_growth(strategy, _largest_output(c, strategy.steps), spacing)
    return ways


def _toeplitz_rows(strategy: Toeplitz) -> InverseRows:
    """Rows of C^-1 from its coefficients, which are computed on first use."""
    found: list[FloatArray] = []

    def rows(start: int, stop: int) -> Callable[[int, int], FloatArray]:
        if not found:
            found.append(strategy.divide(np.ones(1)))

        def columns(first: int, end: int) -> FloatArray:
            distance = np.arange(start, stop)[:, None] - np.arange(first, end)
            return np.where(distance >= 0, found[0][np.maximum(distance, 0)], 0.0)

        return columns

    return rows


def _matrix_row(matrix: FloatArray, bands: int) -> Callable[[int], FloatArray]:
    """A function for C[t, t], C[t, t-1], ... within the bands."""

    def row(step: int) -> FloatArray:
        return matrix[step, max(step - bands + 1, 0) : step + 1][::-1]

    return row


def _matrix_rows(matrix: FloatArray) -> InverseRows:
    """Rows of C^-1, solved for block by block from R C = I."""

    def rows(start: int, stop: int) -> Callable[[int, int], FloatArray]:
        from scipy.linalg import solve_triangular  # takes a while to import

        unit = np.zeros((stop, stop - start))
        unit[np.arange(start, stop), np.arange(stop - start)] = 1.0
        found = solve_triangular(matrix[:stop, :stop], unit, trans="T", lower=True).T
        return lambda first, end: found[:, first:end]

    return rows


def _triangular(strategy: Strategy, spacing: float) -> FloatArray:
    """C as an array; refused if it has no step-by-step inverse."""
    from scipy.linalg import solve_triangular

    if not strategy.adaptive:
        raise StrategyError(
            f"{strategy!r} is accounted for inputs that do not depend on earlier releases, but "
            "those of a training run do. Use an encoder with adaptive=True."
        )
    matrix = strategy.to_dense()
    if np.triu(matrix, 1).any():
        raise StrategyError(
            f"{strategy!r} is not lower triangular: some step is released too late for its noise "
            "to be made in time. Sort the rows."
        )
    zero = np.flatnonzero(np.diagonal(matrix) == 0)
    if zero.size:
        raise StrategyError(
            f"{strategy!r} is singular: entry ({zero[0]}, {zero[0]}) on its diagonal is zero, so "
            f"step {zero[0]} cannot be decoded. Make that entry positive."
        )
    sample = np.random.default_rng(0).standard_normal(strategy.steps)
    outputs = solve_triangular(matrix, sample, lower=True, check_finite=False)
    _check_growth(strategy, float(np.abs(matrix @ np.abs(outputs)).max()), spacing)
    return matrix


def _largest_output(c: FloatArray, steps: int) -> float:
    """|C| times the largest standard deviation of an output, from the impulse response of 1/c."""
    if c.size == 1:
        return 1.0
    # With few bands, a few times their number of steps show whether the response grows.
    response = quotient(np.ones(1), c, min(steps, max(GROWTH_WORK // c.size, 4 * c.size)))
    with np.errstate(over="ignore", invalid="ignore"):
        return float(c.sum() * np.sqrt(np.square(response).sum()))


def _check_growth(strategy: Strategy, size: float, spacing: float) -> None:
    """Refuse noise with visible rounding errors: C w differs from z by about spacing |C| |w|."""
    if not size * spacing <= LOST:
        raise PrecisionError(
            f"the inverse of {strategy!r} grows so much over the steps that rounding would change "
            "the distribution of its noise. Use fewer steps, or decreasing coefficients."
        )
