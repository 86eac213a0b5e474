r"""Group privacy from the guarantee of a single example, by the standard lemma.

In: epsilon(delta) or delta(epsilon) of one example, both adjacencies.  Out: the same of a group.
Rounding: upper bounds; every step of the chain is a certified epsilon at its own delta.

Two data sets that differ in k examples are joined by a chain of k links, each changing one example.
If link j is (e_j, d_j)-private then, for all outputs B,

    P_0(B) <= d_1 + e^(e_1) P_1(B) <= ...
           <= sum_j e^(e_1 + ... + e_(j-1)) d_j + e^(e_1 + ... + e_k) P_k(B).

Equal links give (k e, d (e^(k e) - 1)/(e^e - 1)), the lemma as it is usually stated.  Unequal links
are better: shares s_j of delta with sum 1, and d_j = s_j delta e^-(e_1 + ... + e_(j-1)).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import PrecisionError

SMALLEST_DELTA = 1e-280
SMALLEST = 1e-300
"""The smallest delta assumed for one example: a smaller one may have underflowed."""
LARGEST_EPSILON = 700.0
MAX_LINKS = 32
"""Longer chains use equal links only."""
MARGIN = 1e-12
EVEN_TOLERANCE = 5e-4

EpsilonAt = Callable[[float], float]
"""A function from delta to the certified epsilon of one example."""
DeltaAt = Callable[[float], float]
"""A function from epsilon to the certified delta of one example."""


def bound_group_epsilon(epsilon_at: EpsilonAt, group: int, delta: float) -> float:
    """The better of equal and unequal links; only equal links if there are too many."""
    found = bound_by_links(epsilon_at, group, delta)
    if found is None:
        found = bound_by_even_links(epsilon_at, group, delta)
    return math.inf if found is None else found


def bound_group_delta(delta_at: DeltaAt, group: int, epsilon: float) -> float:
    """The lemma with k equal links: delta at epsilon / k, summed with growing weights.

    Rounding a link's epsilon down makes its delta larger, which is valid; the sum 1 + e^e + ... +
    e^((k-1) e) is taken at the e that was not rounded down, where it is larger.
    """
    each = epsilon / group
    log_sum = math.log(group)
    if each > 0:
        grown = math.log(-math.expm1(-epsilon)) - math.log(-math.expm1(-each))
        log_sum = min((group - 1) * each + max(grown, 0.0), log_sum + (group - 1) * each)
    log_sum += MARGIN * (1 + group + epsilon)
    one = max(delta_at(each * (1 - MARGIN)), SMALLEST)
    return min(math.exp(min(math.log(one) + log_sum, 0.0)) * (1 + MARGIN), 1.0)


def bound_by_even_links(epsilon_at: EpsilonAt, group: int, delta: float) -> float | None:
    """The lemma with k equal links, at the smallest epsilon found; None if there is none."""
    if group == 1:
        return epsilon_at(delta)
    if delta / group < SMALLEST_DELTA:
        return None

    def holds(epsilon: float) -> bool:
        grown = math.log(-math.expm1(-group * epsilon)) - math.log(-math.expm1(-epsilon))
        log_each = math.log(delta) - (group - 1) * epsilon - grown - MARGIN * group
        if log_each < math.log(SMALLEST_DELTA):
            return False
        return _try(epsilon_at, math.exp(log_each)) <= epsilon

    most = LARGEST_EPSILON / group
    low = _try(epsilon_at, delta / group)
    high = max(1.1 * low, 1e-9)
    while not holds(high):
        low, high = high, 1.5 * high
        if high > most:
            return None
    while high - low > EVEN_TOLERANCE * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return group * high * (1 + MARGIN)


def bound_by_links(epsilon_at: EpsilonAt, group: int, delta: float) -> float | None:
    """The lemma with unequal links: equal shares of delta first, then better ones.

    None if there are more than `MAX_LINKS`, or if a link's delta becomes too small.
    """
    if group == 1:
        return epsilon_at(delta)
    if group > MAX_LINKS or delta / group < SMALLEST_DELTA:
        return None
    first = _chain(epsilon_at, np.full(group, 1 / group), delta)
    if first is None:
        return None
    second = _chain(epsilon_at, _better_shares(*first), delta)
    sums = [float(chain[0].sum()) for chain in (first, second) if chain is not None]
    return min(sums) * (1 + MARGIN)


def _chain(
    epsilon_at: EpsilonAt, shares: FloatArray, delta: float
) -> tuple[FloatArray, FloatArray] | None:
    """The epsilons and log deltas of the links; any shares that sum to one are valid."""
    epsilons, logs = np.zeros(shares.size), np.zeros(shares.size)
    spent = 0.0
    for place, share in enumerate(shares):
        log_delta = math.log(delta) + math.log(share) - spent * (1 + MARGIN) - MARGIN
        if log_delta < math.log(SMALLEST_DELTA):
            return None
        epsilons[place] = _try(epsilon_at, math.exp(log_delta) * (1 - MARGIN))
        logs[place] = log_delta
        spent += float(epsilons[place])
        if not spent < LARGEST_EPSILON:
            return None
    return epsilons, logs


def _better_shares(epsilons: FloatArray, logs: FloatArray) -> FloatArray:
    """Shares of delta at which moving epsilon between links gains nothing.

    With t_j = s_j delta and l_j the slope of -log delta, l_j t_j = c + sum_(i > j) t_i, c free.
    """
    rises = np.maximum(np.diff(epsilons), 1e-12)
    slopes = np.maximum(-np.diff(logs) / rises, 1.0)
    slopes = np.append(slopes, slopes[-1])
    shares = np.zeros(epsilons.size)
    for place in reversed(range(epsilons.size)):
        shares[place] = (1.0 + shares.sum()) / slopes[place]
    return np.asarray(shares / shares.sum())


def _try(epsilon_at: EpsilonAt, delta: float) -> float:
    try:
        return epsilon_at(delta)
    except PrecisionError:  # this delta cannot be certified, so this split fails
        return math.inf
