"""Compiled: participations are revealed leaf by leaf, in time O(n) whatever their reach.

In: noise g ~ N(0, G) of a tree's leaves, one sample a row; the law of participation.
Out: log Lhat (see `dominating`); the noise is overwritten.
Rounding: plain floating point, which `dominating` accounts for.
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._compiled import compiled
from mmcc._simulation.reveal_loops import STEEP, draw_taken, reveal_one


@compiled
def enter(nodes: IntArray, counts: IntArray, step: int) -> int:
    """Move to a step: nodes that are left reset their counts; returns what they held."""
    gone = 0
    for level in range(nodes.size):
        if nodes[level] == step >> level:
            break
        nodes[level] = step >> level
        gone += counts[level]
        counts[level] = 0
    return gone


@compiled
def reveal_leaves(
    noise: FloatArray,
    rng: np.random.Generator,
    remove: bool,
    drawing: FloatArray,
    numbers: IntArray,
    probability: FloatArray,
    after: IntArray,
    steps: IntArray,
    depths: IntArray,
    levels: int,
    scale: float,
    centres: FloatArray,
) -> FloatArray:
    """Like `reveal_columns`, for trees, in a time that does not depend on how far columns reach.

    G_jl is `scale` times the number of nodes above both steps; `depths[i]` nodes are above column
    i.  Each node on the way up from the present column counts the participations under it.
    """
    samples, columns = noise.shape
    losses = np.zeros(samples)
    taken = np.zeros(columns, np.int64)
    nodes, counts = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    last = probability.shape[0] - 1
    for sample in range(samples):
        x = noise[sample]
        if remove:
            numbers[sample] = draw_taken(rng, drawing, after, taken)
            nodes[:], counts[:], total = -1, 0, 0
            for i in range(columns - 1, -1, -1):
                total -= enter(nodes, counts, steps[i])
                if taken[i] == 1:
                    counts[: depths[i]] += 1
                    total += depths[i]
                x[i] += scale * total
        nodes[:], counts[:], total = -1, 0, 0
        state, loss, product = 0, 0.0, 1.0
        for i in range(columns):
            total -= enter(nodes, counts, steps[i])
            chance = probability[min(i, last), state]
            here, taking = x[i] - scale * 0.5 * depths[i], 0
            if not remove:
                here -= scale * total
            if chance >= 1.0:
                taking = 1
                loss += here
            elif chance > 0.0:
                ratio, own = centres[i], math.exp(min(here, STEEP))
                coin = 0.0 if remove else rng.random()
                taking, loss, product = reveal_one(
                    here, own, chance, ratio, taken[i] if remove else -1, coin, loss, product
                )
            if taking == 1 and not remove:
                counts[: depths[i]] += 1
                total += depths[i]
            state = after[state, taking]
        losses[sample] = loss + math.log(product)
    return losses
