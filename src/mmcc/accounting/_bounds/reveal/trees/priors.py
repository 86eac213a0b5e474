"""Laws of counts: binomial at the root, hypergeometric at a split.

In: numbers of columns, probabilities.  Out: probabilities with a stated relative error; tails.
Rounding: tails are rounded up; everything else is within `binomial_error` or `split_error`.

With N columns under a node, k participations fall on the left half with j of them with chance

    C(N/2, j) C(N/2, k-j) / C(N, k) = C(k, j) 2^-k  R(j) R(k-j) / S(k),

R(j) = prod_{i<j} (1 - 2i/N), S(k) = prod_{i<k} (1 - i/N): products of numbers near one.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from mmcc._arrays import FloatArray, read_only

ROUND = 2.0**-52
MAX_COUNT = 400
"""Most participations in a tree that are considered; chances of splits stay above 1e-300."""
SMALLEST = 1e-300
"""Binomial chances below this are set to 0, so such counts are not considered either."""


@lru_cache(maxsize=2**14)
def split_law(columns: int, count: int) -> FloatArray:
    """Chances that j of `count` fall on the left half, for max(0, count - N/2) <= j <= count / 2.

    Larger j follow by symmetry: j and count - j are equally likely.
    """
    half = columns // 2
    least = max(0, count - half)
    places = range(least, count // 2 + 1)
    coins = np.array([math.comb(count, j) / (1 << count) for j in places])
    steps = np.arange(float(count))
    below = np.concatenate([[1.0], np.cumprod(1 - np.minimum(2 * steps / columns, 1.0))])
    whole = float(np.prod(1 - steps / columns))
    j = np.arange(least, count // 2 + 1)
    return read_only(coins * below[j] * below[count - j] / whole)


def split_error(count: int) -> float:
    """Relative error of `split_law`: three roundings per factor and a few for the rest."""
    return ROUND * (6 * count + 8)


def count_law(columns: int, probability: float, most: int) -> FloatArray:
    """Binomial chances of 0 .. most participations, most <= columns, probability < 1.

    C(N, k) p^k (1-p)^(N-k) = S(k) (N p)^k / k! (1-p)^(N-k).
    """
    k = np.arange(most + 1.0)
    first = np.concatenate([[1.0], np.cumprod(1 - k[:-1] / columns)])
    factorials = np.array([math.lgamma(value + 1) for value in k])
    rest = (columns - k) * math.log1p(-probability)
    logs = k * math.log(columns * probability) - factorials + rest
    law = first * np.exp(logs)
    return np.where(law < SMALLEST, 0.0, law)


def count_error(columns: int, probability: float, most: int) -> float:
    """Relative error of `count_law`: lgamma within 8 units, every other function within one."""
    size = most * abs(math.log(columns * probability)) - columns * math.log1p(-probability)
    return ROUND * (8 * most + 16 + 4 * size + 10 * math.lgamma(most + 2))


def tail(columns: int, probability: float, most: int) -> float:
    """Upper bound on the chance of more than `most` participations.

    From the term of most + 1 on, each term is at most a fixed multiple of the previous one; else 1.
    """
    if most >= columns:
        return 0.0
    first = float(count_law(columns, probability, most + 1)[-1])
    ratio = (columns - most - 1) / (most + 2) * probability / (1 - probability)
    if not ratio < 1:
        return 1.0
    grown = 1 + count_error(columns, probability, most + 1) + 64 * ROUND
    return min((first + SMALLEST) / (1 - ratio) * grown, 1.0)


def count_cut(columns: int, probability: float, budget: float) -> int | None:
    """The smallest count that is exceeded with at most this chance; None if it is too large."""
    low, high = -1, 1
    while not tail(columns, probability, high) <= budget:
        low, high = high, 2 * high
        if low > MAX_COUNT:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if tail(columns, probability, middle) <= budget else (middle, high)
        )
    return min(high, columns) if high <= MAX_COUNT else None
