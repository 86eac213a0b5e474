"""Decoders: how the releases y = C x + z become estimates of x, step by step.

In: a strategy and a decoder's name.  Out: weights, matrices, and how much noise must be remembered.
Rounding: plain floating point; nothing here bears on privacy, which is a fact about y alone.

- `exact`: C^-1 y, for square C.
- `online`, trees: a prefix is the sum of the nodes of its binary decomposition.
- `honaker`, trees: the same nodes, each estimated from all the nodes below it.  It is the least
  squares estimate from what was released by then (complete nodes share no steps), so it can be
  used in training, and is the default.
- `honaker-full`, trees: least squares from all releases, later ones included.  For error figures
  only: no step of a training run can know it.

A node of level h has the estimate  w_h (its own release) + (1 - w_h) (estimates of its children).
Online has w_h = 1.  Least squares weighs by inverse variances: a node's variance v_h satisfies
1/v_h = 1 + 1/(2 v_(h-1)), v_0 = 1, so w_h = v_h = 2^h / (2^(h+1) - 1), and a node of level l below
has the weight 2^l / (2^(h+1) - 1).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import MethodError, StrategyError, suggestion, whole
from mmcc.strategies._base import Strategy
from mmcc.strategies._series import product, quotient
from mmcc.strategies._toeplitz import Toeplitz
from mmcc.strategies._tree import MAX_LEVELS, Tree

EXACT, ONLINE, HONAKER, FULL = "exact", "online", "honaker", "honaker-full"
DECODERS = (EXACT, ONLINE, HONAKER, FULL)


def decoder_name(strategy: Strategy, decoder: str | None) -> str:
    """The decoder's name, the default filled in; refused where it does not fit the strategy."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(f"a strategy comes from mmcc.strategies, got {strategy!r}.")
    tree = isinstance(strategy, Tree)
    if decoder is None:
        decoder = HONAKER if tree else EXACT
    if not isinstance(decoder, str) or decoder not in DECODERS:
        raise MethodError(f"unknown decoder {decoder!r}: {suggestion(decoder, DECODERS)}")
    if tree and decoder == EXACT:
        raise MethodError(
            f"{strategy!r} releases {strategy.rows} rows for {strategy.steps} steps and has no "
            f"inverse. Use decoder={ONLINE!r}, {HONAKER!r} or {FULL!r}."
        )
    if not tree and decoder != EXACT:
        raise MethodError(
            f"decoder={decoder!r} is for binary trees; {strategy!r} is decoded by its inverse. "
            f"Use decoder={EXACT!r}, or leave it out."
        )
    if not tree and strategy.rows != strategy.steps:
        raise StrategyError(
            f"{strategy!r} is not square and not a tree: it has no inverse, and no decoder that "
            "goes step by step is known for it. Use a square encoder or binary_tree."
        )
    return decoder


def level_weights(levels: int, decoder: str = HONAKER) -> FloatArray:
    """The weight w_h of a node's own release, by level; 1 - w_h goes to each of its children."""
    levels = whole("levels", levels, 1, MAX_LEVELS)
    if decoder == ONLINE:
        return np.ones(levels)
    if decoder == HONAKER:
        return 1 / (2 - 0.5 ** np.arange(levels))
    raise MethodError(f"decoder={decoder!r} has no weights by level: only {ONLINE} and {HONAKER}.")


def level_variances(weights: FloatArray) -> FloatArray:
    """Variance of a node's estimate, by level, at sigma = 1: w_h^2 + 2 (1 - w_h)^2 v_(h-1)."""
    variances = np.ones(weights.size)
    for h in range(1, weights.size):
        variances[h] = weights[h] ** 2 + 2 * (1 - weights[h]) ** 2 * variances[h - 1]
    return variances


@runtime_checkable
class Buffered(Protocol):
    """A BLT: c = 1, then sum_i scale_i decay_i^(k-1)."""

    @property
    def decay(self) -> FloatArray: ...

    @property
    def scale(self) -> FloatArray: ...


@runtime_checkable
class BandedInverse(Protocol):
    """A Toeplitz encoder whose inverse has a few bands, with these coefficients."""

    @property
    def inverse(self) -> FloatArray: ...


def divided(dividend: FloatArray, strategy: Toeplitz) -> FloatArray:
    """Coefficients of A C^-1 for the Toeplitz workload A with coefficients `dividend`."""
    from mmcc.strategies._recurrences import divide_buffers  # compiles

    if isinstance(strategy, Buffered):
        return np.asarray(divide_buffers(dividend, strategy.decay, strategy.scale))
    if isinstance(strategy, BandedInverse):
        return product(dividend, strategy.inverse, strategy.steps)
    return quotient(dividend, strategy.coefficients, strategy.steps)


def lower_bands(matrix: FloatArray) -> int:
    """Diagonals that are not zero, from the main one down to the last."""
    last = len(matrix) - 1 - np.argmax(matrix[::-1] != 0, axis=0)
    return int((last - np.arange(len(matrix))).max()) + 1


def inverse(matrix: FloatArray, workload: FloatArray, causal: bool) -> FloatArray:
    """A C^-1 for a square array C; refused where C is singular or cannot be decoded in time."""
    if not np.triu(matrix, 1).any():
        from scipy.linalg import solve_triangular

        zero = np.flatnonzero(np.diagonal(matrix) == 0)
        if zero.size:
            raise StrategyError(
                f"C is singular: entry ({zero[0]}, {zero[0]}) on its diagonal is zero, so step "
                f"{zero[0]} cannot be decoded. Put a positive number there."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(solve_triangular(matrix, workload.T, trans="T", lower=True)).T
    if causal:
        raise StrategyError(
            "C is square but not lower triangular: some step is released too late to be decoded "
            "in time. Sort the rows, or pass adaptive=False if nothing is needed before the end."
        )
    try:
        inverted = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        inverted = np.full_like(matrix, np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        residual = float(np.abs(matrix @ inverted - np.eye(len(matrix))).max())
        if not residual <= 1e-6:
            raise StrategyError("C is singular, or so nearly that its inverse has no good digits.")
        return np.asarray(workload @ inverted)


def decoder_matrix(strategy: Strategy, decoder: str | None = None) -> FloatArray:
    """The matrix B with B C = I: B z is the noise that the estimates of x_0, x_1, ... carry.

    A workload A is then estimated by A B y.  Steps times rows: for looking at and for tests.
    """
    decoder = decoder_name(strategy, decoder)
    encoder = strategy.to_dense()  # refused where it would not fit in memory
    if not isinstance(strategy, Tree):
        return inverse(encoder, np.eye(strategy.steps), strategy.adaptive)
    if decoder == FULL:
        return np.asarray(np.linalg.pinv(encoder))
    prefixes = np.zeros((strategy.steps, strategy.rows))
    weights = level_weights(strategy.levels, decoder)
    top = strategy.levels - 1
    estimates = np.zeros((0, strategy.rows))
    for level in range(strategy.levels):
        nodes = strategy.steps >> level
        own = np.zeros((nodes, strategy.rows))
        own[np.arange(nodes), strategy.node_rows(level)] = weights[level]
        if level:
            children = estimates[0 : 2 * nodes : 2] + estimates[1 : 2 * nodes : 2]
            own += (1 - weights[level]) * children
        estimates = own
        for node in range(0, nodes, 1 if level == top else 2):
            first = (node + 1) << level
            end = strategy.steps + 1 if level == top else first + (1 << level)
            prefixes[first - 1 : end - 1] += estimates[node]
    return np.diff(prefixes, axis=0, prepend=0)


def noise_memory(strategy: Strategy, decoder: str | None = None) -> int:
    """Noise vectors held at once to make the noise of one step after another, the new one included.

    b bands of C or of C^-1: b.  A BLT: its buffers and the new one.  A tree: one estimate for each
    level.  A dense C: the bands it has, in the worst case one vector for each step.
    """
    decoder = decoder_name(strategy, decoder)
    if decoder == FULL:
        raise MethodError(
            f"decoder={FULL!r} uses releases of later steps and cannot be generated step by step. "
            f"Use decoder={HONAKER!r}."
        )
    if isinstance(strategy, Tree):
        return strategy.levels
    if not isinstance(strategy, Toeplitz):
        dense = strategy.to_dense()
        return strategy.rows if np.triu(dense, 1).any() else lower_bands(dense)
    counts = [strategy.bands]
    if isinstance(strategy, Buffered):
        counts.append(strategy.decay.size + 1)
    if isinstance(strategy, BandedInverse):
        counts.append(strategy.inverse.size)
    return min(counts)
