"""Decoders: how the releases y = C x + z become estimates of x, step by step.

In: a strategy and a decoder's name.  Out: weights, matrices, and how many noise vectors must be
kept.
Rounding: plain floating point; nothing here affects privacy, which depends on y alone.

- `exact`: C^-1 y, for square C.
- `online`, trees: a prefix is the sum of the nodes of its binary decomposition.
- `honaker`, trees: the same nodes, each estimated from all the nodes below it.  It is the least
squares estimate from what was released by then (complete nodes share no steps), so it can be used
in training, and it is the default.
- `honaker-full`, trees: least squares from all releases, later ones included.  For error figures
  only: a training run cannot know later releases.

A node of level h has the estimate  w_h (its own release) + (1 - w_h) (estimates of its children).
Online has w_h = 1.  Least squares weights by inverse variances: a node's variance v_h satisfies
1/v_h = 1 + 1/(2 v_(h-1)), v_0 = 1, so w_h = v_h = 2^h / (2^(h+1) - 1), and a node of level l below
has the weight 2^l / (2^(h+1) - 1).
"""

from __future__ import annotations

from mmcc._arrays import FloatArray
from mmcc.errors import MethodError, StrategyError, suggestion
from mmcc.strategies._base import EXACT, FULL, HONAKER, ONLINE, Strategy

DECODERS = (EXACT, ONLINE, HONAKER, FULL)


def decoder_name(strategy: Strategy, decoder: str | None) -> str:
    """The decoder's name, with the default filled in; an error if it does not fit the strategy."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(f"a strategy must come from mmcc.strategies, got {strategy!r}.")
    if decoder is None:
        decoder = strategy.decoders[0]
    if not isinstance(decoder, str) or decoder not in DECODERS:
        raise MethodError(f"unknown decoder {decoder!r}: {suggestion(decoder, DECODERS)}")
    if decoder not in strategy.decoders:
        usable = " or ".join(repr(name) for name in strategy.decoders)
        why = (
            f"decoder={decoder!r} is for binary trees only; {strategy!r} is decoded by its inverse."
            if EXACT in strategy.decoders
            else f"{strategy!r} releases {strategy.rows} rows for {strategy.steps} steps and has "
            "no inverse."
        )
        raise MethodError(f"{why} Use decoder={usable}, or leave it out.")
    if decoder == EXACT and strategy.rows != strategy.steps:
        raise StrategyError(
            f"{strategy!r} is not square and not a tree: it has no inverse, and no decoder that "
            "works step by step is known for it. Use a square encoder or binary_tree."
        )
    return decoder


def decoder_matrix(strategy: Strategy, decoder: str | None = None) -> FloatArray:
    """The matrix B with B C = I: B z is the noise that the estimates of x_0, x_1, ... carry.

    A workload A is then estimated by A B y.  The array has steps x rows numbers; it is meant for
    inspection and tests.
    """
    return strategy.decoder_matrix(decoder_name(strategy, decoder))


def noise_memory(strategy: Strategy, decoder: str | None = None) -> int:
    """Noise vectors held at once when noise is made step by step, including the new one.

    With b bands of C or of C^-1 it is b; for a BLT, its buffers and the new one; for a tree, one
    estimate per level; for a dense C, its number of bands, in the worst case one vector per step.
    """
    if decoder_name(strategy, decoder) == FULL:
        raise MethodError(
            f"decoder={FULL!r} uses releases of later steps and cannot be generated step by step. "
            f"Use decoder={HONAKER!r}."
        )
    return strategy.noise_memory()
