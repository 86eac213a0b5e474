r"""How likely an example took part in a step, given everything released before a row.

In: a block's geometry, p, sigma, the budget of each bad event.  Out: p~ for each entry, such that
outside the bad events the conditional probability is at most p~ (ProbabilityTailBounds of the
paper, and its generalised form for blocks of rows).
Rounding: p~ is an upper bound; sums and tails are inflated by more than their own error.

Given the rows before, the odds of step j are those of p times exp(<y, c_j>/sigma^2 - |c_j|^2/(2
sigma^2)), c_j the column's part in those rows.  Remove (y drawn with the example): <y, c_j> is a
participation term plus a normal of deviation sigma |c_j|, with half the event's budget each.  Add
(y drawn without it): the normal alone, with the whole budget.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._losses.laws import binomial_quantile
from mmcc.strategies._geometry import Block

SAFETY = 1e-11
"""Relative inflation that covers the rounding of the closed forms below."""


def bound_probabilities(
    block: Block,
    probability: float,
    sigma: float,
    budget: float,
    error: float,
    adjacency: Adjacency,
) -> FloatArray:
    """Upper bounds p~ on the conditional participation probability, one for each entry.

    `budget` is delta_1 divided by the number of events; `error` the geometry's relative error.
    """
    if block.is_fresh or probability == 1.0:
        return np.full(block.values.size, probability)
    # An entry that is the first of its column has no event and nothing to bound.
    shown = block.squares > 0
    if adjacency == "remove":
        term = bound_participation(block, probability, budget / 2)
        deviate = -special.ndtri(budget / 2)
    else:
        term = np.zeros(block.values.size)
        deviate = -special.ndtri(budget)
    root = np.sqrt(block.squares) / sigma
    exponent = deviate * root + term / sigma**2 - 0.5 * root**2
    margin = (error + SAFETY) * (deviate * root + term / sigma**2 + root**2)
    odds = special.logit(probability) + np.where(shown, exponent + margin, 0.0)
    bound = special.expit(odds + SAFETY * (1.0 + np.abs(odds)))
    return np.where(shown, np.minimum(bound, 1.0), probability)


def bound_participation(block: Block, probability: float, tail: float) -> FloatArray:
    """An s with Pr[sum_j' x_j' g_jj' > s] <= tail, x_j' independent Bernoulli(probability).

    It is the smallest of three valid bounds: full participation; the Poisson-Chernoff bound; and
    the paper's binomial bound if the overlaps are known.
    """
    bound = np.minimum(block.sums, _chernoff(block, probability, tail))
    if block.overlaps is not None:
        bound = np.minimum(bound, _binomial(block, probability, tail))
    return bound


def _chernoff(block: Block, probability: float, tail: float) -> FloatArray:
    """Chernoff's bound after comparing with g* Poisson(L), L = p sum g / g*.

    Convexity: e^{lam g} - 1 <= (g/g*)(e^{lam g*} - 1).  With x = k/L the bound g* k solves
    x log x - x + 1 = log(1/tail)/L.  Newton's method from the right (Bennett's bound) on a convex
    function stays on the right, so every iterate is a valid bound.
    """
    peaks = np.where(block.peaks > 0, block.peaks, 1.0)
    rate = np.maximum(probability * block.sums / peaks, 1e-100)  # a larger rate is valid too
    goal = -np.log(tail) / rate
    ratio = 1.0 + goal / 3.0 + np.sqrt(goal**2 / 9.0 + 2.0 * goal)
    for _ in range(5):
        log = np.log(ratio)
        ratio -= (ratio * log - ratio + 1.0 - goal) / log
    return np.where(block.sums > 0, peaks * rate * ratio * (1.0 + SAFETY), 0.0)


def _binomial(block: Block, probability: float, tail: float) -> FloatArray:
    """The paper's bound: at most t participations, in the steps with the t largest overlaps."""
    overlaps = block.overlaps
    assert overlaps is not None
    counts = block.overlap_counts
    if counts is None:
        trials = int((overlaps > 0).sum(axis=1).max(initial=0))
        most = binomial_quantile(trials, probability, tail)
        if most >= trials:
            return block.sums
        if most == 0:
            return np.zeros(block.values.size)
        place = overlaps.shape[1] - most
        top: FloatArray = np.partition(overlaps, place, axis=1)[:, place:].sum(axis=1)
        return top * (1.0 + SAFETY)
    most = binomial_quantile(int(counts[overlaps[0] > 0].sum()), probability, tail)
    taken = np.clip(most - (np.cumsum(counts) - counts), 0, counts)  # overlaps fall with the index
    sums: FloatArray = overlaps @ taken
    return sums * (1.0 + SAFETY)
