r"""From the results of a test to a lower confidence bound on epsilon.

In: a statistic of runs with the canary (P) and without (Q).  Out: a number that is at most the true
epsilon with the stated confidence.  Rounding: binomial tails to a relative 1e-12 or so.

(epsilon, delta)-DP means  P(A) <= e^epsilon Q(A) + delta  and the same with P and Q exchanged, for
every set A.  So  epsilon >= log((P(A) - delta) / Q(A)):  A is chosen on one part of the runs, and
its two probabilities are bounded on the other part by Clopper and Pearson.  Nothing is assumed
about P, Q or the statistic; only that runs are independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from mmcc._arrays import FloatArray

CANDIDATES = 400
"""The number of thresholds tried on the first part of the runs."""
BOUNDS = 4
"""Probabilities that are bounded: those of two sets, each under P and under Q."""


@dataclass(frozen=True, slots=True)
class LowerBounds:
    """Lower confidence bounds on epsilon; both hold together."""

    remove: float
    add: float

    @property
    def epsilon(self) -> float:
        """The larger of the two bounds."""
        return max(self.remove, self.add, 0.0)


def smallest_chance(hits: FloatArray, runs: int, error: float) -> FloatArray:
    """Clopper and Pearson: with probability 1 - error a hit has at least this probability."""
    safe = np.maximum(hits, 1)
    return np.where(hits > 0, betaincinv(safe, runs - safe + 1, error), 0.0)


def largest_chance(hits: FloatArray, runs: int, error: float) -> FloatArray:
    """Clopper and Pearson: with probability 1 - error a hit has at most this probability."""
    return 1 - smallest_chance(runs - np.asarray(hits), runs, error)


def lower_bounds(
    tuning: tuple[FloatArray, FloatArray],
    judged: tuple[FloatArray, FloatArray],
    delta: float,
    confidence: float,
) -> LowerBounds:
    """Bounds from the statistic with the canary and without it; it tends to be larger with it.

    Thresholds are chosen on `tuning`, and judged on runs that had no part in that.
    """
    error = (1 - confidence) / BOUNDS

    def one(sign: int) -> float:
        with_it, without = (sign * part for part in tuning[::sign])
        likely, rare = (sign * part for part in judged[::sign])
        threshold = best_threshold(with_it, without, len(likely), delta, error)
        hits = np.array([np.sum(likely >= threshold)]), np.array([np.sum(rare >= threshold)])
        return float(_epsilon(*hits, len(likely), len(rare), delta, error)[0])

    return LowerBounds(one(1), one(-1))


def best_threshold(
    likely: FloatArray, rare: FloatArray, runs: int, delta: float, error: float
) -> float:
    """The threshold whose bound would be largest if `runs` runs went as these did."""
    tails = np.geomspace(1 / len(rare), 1, CANDIDATES // 2)
    chosen = np.unique(
        np.concatenate([np.quantile(part, 1 - tails, method="higher") for part in (likely, rare)])
    )

    def hits(part: FloatArray) -> FloatArray:
        above = len(part) - np.searchsorted(np.sort(part), chosen, side="left")
        return np.asarray(above * (runs / len(part)))

    return float(chosen[np.argmax(_epsilon(hits(likely), hits(rare), runs, runs, delta, error))])


def _epsilon(
    likely: FloatArray, rare: FloatArray, runs: int, others: int, delta: float, error: float
) -> FloatArray:
    """log((P(A) - delta) / Q(A)), both probabilities at the unfavourable end; at least zero."""
    low = smallest_chance(likely, runs, error)
    high = largest_chance(rare, others, error)
    gain = np.maximum(low - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(gain) - np.log(high), 0.0))
