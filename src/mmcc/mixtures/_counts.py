r"""How many examples of a group take part: binomial and hypergeometric laws in floating point.

In: whole numbers and a probability.  Out: a `CountLaw`.
Rounding: `error` bounds the relative error of every probability, `beyond` the mass that is not
listed; the functions that use a law pay for both.  Counts are merged upwards.

Probabilities are products of the ratios of neighbours from the mode outwards, scaled to a sum of
one: no logarithm of a factorial, no cancellation.  Both laws are log-concave, so the mass beyond a
count j with ratio r = p_(j+1)/p_j < 1 is at most p_j r/(1 - r).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, own_arrays
from mmcc.errors import PrecisionError

EPS = 2.0**-53
SMALLEST = 1e-280
"""Least weight kept, relative to the mode's: *add* depends on even the least likely zero."""
MAX_COUNTS = 2**21
MAX_VALUES = 1024
"""More counts than this are merged into this many."""

Ratio = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False, slots=True)
class CountLaw:
    """A count is `values[i]` with probability `probs[i] (1 +- error)`, or lies elsewhere.

    The latter has probability at most `beyond`.  Merged counts are listed as the largest of them.
    """

    values: FloatArray
    probs: FloatArray
    beyond: float
    error: float

    def __post_init__(self) -> None:
        own_arrays(self, "values", "probs")


def binomial(trials: int, probability: float, rare: float) -> CountLaw:
    """Binomial(trials, probability) without counts whose mass is below `rare`."""
    if probability == 1.0:
        return CountLaw(np.array([float(trials)]), np.ones(1), 0.0, 0.0)
    odds = probability / (1.0 - probability)
    mode = min(int((trials + 1) * probability), trials)
    return _law(0, trials, mode, lambda j: (trials - j) / (j + 1) * odds, rare)


def hypergeometric(population: int, marked: int, drawn: int, rare: float) -> CountLaw:
    """The number of marked examples among `drawn` out of `population`, without replacement."""
    unmarked = population - marked
    lowest, highest = max(0, drawn - unmarked), min(marked, drawn)
    mode = (marked + 1) * (drawn + 1) // (population + 2)
    mode = min(max(mode, lowest), highest)
    left = unmarked - drawn

    def ratio(j: FloatArray) -> FloatArray:
        return (marked - j) / (j + 1) * ((drawn - j) / (left + j + 1))

    return _law(lowest, highest, mode, ratio, rare)


def _law(lowest: int, highest: int, mode: int, ratio: Ratio, rare: float) -> CountLaw:
    above, over = _outwards(ratio, mode, highest, rare)

    def downwards(k: FloatArray) -> FloatArray:  # p_(mode-k-1) / p_(mode-k)
        return 1.0 / ratio(mode - k - 1.0)

    below, under = _outwards(downwards, 0, mode - lowest, SMALLEST)
    weights = np.concatenate([below[::-1], [1.0], above])
    first = mode - below.size
    counts = np.arange(first, first + weights.size, dtype=np.float64)
    # Five roundings a ratio, one in each product, then the sum and the division.  The sum is at
    # least one, so `over` and `under` bound masses, and leaving them out scales up by as little.
    error = (8 * weights.size + 64) * EPS
    beyond = (over + under) * (1 + 1e-6)
    probs = weights / weights.sum()
    if counts.size > MAX_VALUES:
        counts, probs = _merged(counts, probs)
        error *= 2
    return CountLaw(counts, probs, beyond, error)


def _outwards(ratio: Ratio, start: int, end: int, rare: float) -> tuple[FloatArray, float]:
    """Weights of start + 1, start + 2, ... relative to that of start, and a bound on the rest."""
    kept: list[FloatArray] = []
    weight, place, chunk = 1.0, start, 64
    while place < end:
        if place - start > MAX_COUNTS:
            raise PrecisionError(
                f"more than {MAX_COUNTS} counts of participations are too likely to be left out; "
                "nothing useful can be certified here. Use a smaller group or fewer steps."
            )
        size = min(chunk, end - place)
        ratios = ratio(np.arange(place, place + size, dtype=np.float64))
        before = weight * np.cumprod(np.concatenate([[1.0], ratios[:-1]]))
        with np.errstate(divide="ignore"):
            rest = np.where(ratios < 1, before * ratios / np.maximum(1 - ratios, EPS), np.inf)
        enough = np.flatnonzero((rest <= rare) | (before * ratios < SMALLEST))
        if enough.size:
            stop = int(enough[0])
            kept.append(before[1 : stop + 1])
            return np.concatenate(kept), float(rest[stop]) + 1e-300
        kept.append(before[1:])
        weight = float(before[-1] * ratios[-1])
        kept.append(np.array([weight]))
        place, chunk = place + size, 2 * chunk
    return np.concatenate(kept) if kept else np.empty(0), 0.0


def _merged(counts: FloatArray, probs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Counts rounded up to multiples of a step: a larger sensitivity dominates.  Zero stays."""
    step = -(-counts.size // MAX_VALUES)
    values = np.ceil(counts / step) * step
    starts = np.flatnonzero(np.diff(values, prepend=-1.0))
    return values[starts], np.add.reduceat(probs, starts)
