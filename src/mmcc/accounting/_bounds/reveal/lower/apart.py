r"""Lower ends for participations a gap apart: what a single direction of the output reveals.

In: a Gram matrix, the waits between participations, and a delta or an epsilon.  Out: a number below
which no method can prove anything.  Rounding: down.

Keeping only t = <d, y>, with d along the sum of all columns, is post-processing, so for every
threshold delta >= P(t > t*) - e^epsilon Q(t > t*).  Under P, t is a standard normal plus the sum of
the overlaps a_j = <d, A_j> >= 0 of the steps taken.  Overlaps are rounded down to multiples of a
grain and the sum is cut at a top: both lower P(t > t*).  With b the gap and f_t the law of the sum
if step t is open, from the last step backwards,

    f_t = (1 - p) f_{t+1} + p (f_{t+b} moved up by a_t).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._bounds.projection.lower import NORMAL_ERROR, overlaps
from mmcc.sampling import Renewal
from mmcc.strategies._gram import Gram

GRAINS, SLACK = 256, 2.0**-11
"""Grains in the largest overlap; columns far from the ends have that overlap up to the slack."""
MOST_COLUMNS, MOST_KEPT = 4096, 2**26
"""Limits on the size of Gram matrices and of the past."""
THRESHOLDS, ZOOMS = 60, 4
LARGEST = 30.0
"""Thresholds go up to this, or to this far beyond the usual size of the sum."""


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """The law of the sum under P, rounded down: `chances[k]` of k * `grain`, and their error."""

    chances: FloatArray
    grain: float
    error: float

    def above(self, thresholds: FloatArray) -> FloatArray:
        """P(t > t*), rounded down."""
        some = np.flatnonzero(self.chances)
        sums = self.grain * (1 - 2.0**-52) * some
        tails = special.ndtr(sums - thresholds[:, None]) @ self.chances[some]
        return np.asarray(tails * (1 - self.error - NORMAL_ERROR - some.size * 2.0**-52))


def sums_along(gram: Gram, renewal: Renewal) -> Sums | None:
    """The law of the sum along all columns; None if it takes too much memory."""
    steps = gram.columns
    if steps > MOST_COLUMNS:
        return None
    found = overlaps(gram, np.ones(steps)) * (1 - 8 * gram.error - 1e-15 * steps)
    grain = float(found.max()) / GRAINS * (1 - SLACK)
    jumps = np.floor(found / grain * (1 - 2.0**-50)).astype(np.int64)
    usual = renewal.rate * steps
    most = min(-(-steps // renewal.gap), math.ceil(usual + 12 * math.sqrt(usual) + 20))
    if (most * GRAINS + 1) * (min(renewal.gap, steps) + 1) > MOST_KEPT:
        return None
    chances = _chances(jumps, renewal, most * GRAINS)
    return Sums(chances, grain, (8 * steps + 64) * 2.0**-53)


def _chances(jumps: IntArray, renewal: Renewal, top: int) -> FloatArray:
    """The law of the sum of the jumps taken; what is above the top is moved down to it."""
    p, gap = renewal.probability, renewal.gap
    never = np.zeros(top + 1)
    never[0] = 1.0
    later = deque([never], maxlen=gap)  # f_{t+1}, ..., f_{t+b}
    for jump in jumps[::-1]:
        taken = later[0] if len(later) == gap else never
        now = (1 - p) * later[-1]
        now[jump:] += p * taken[: top + 1 - jump]
        now[top] += p * float(taken[top + 1 - jump :].sum())
        later.append(now)
    found = later[-1]
    if not renewal.stationary:
        return np.asarray(found)
    for blocked in list(later)[-2::-1]:
        found = found + p * blocked
    found = found + p * max(gap - len(later), 0) * never
    return np.asarray(found / (1 + (gap - 1) * p))


def lower_epsilon(sums: Sums, delta: float) -> float:
    """A lower bound: no method can prove a smaller epsilon at delta; 0 if nothing is known."""

    def value(thresholds: FloatArray) -> FloatArray:
        found, logs = sums.above(thresholds), special.log_ndtr(-thresholds)
        gained = np.where(found > delta, found - delta, np.nan)
        values = np.log(gained) - logs - 1e-12 * (1 + np.abs(logs))
        return np.asarray(np.where(np.isnan(values), -math.inf, values))

    return _best(sums, value)


def lower_delta(sums: Sums, epsilon: float) -> float:
    """A lower bound: no method can prove a smaller delta at epsilon; 0 if nothing is known."""

    def value(thresholds: FloatArray) -> FloatArray:
        exponents = epsilon + special.log_ndtr(-thresholds)
        exponents = exponents + 1e-12 * (1 + np.abs(exponents) + epsilon)
        return np.asarray(sums.above(thresholds) - np.exp(np.minimum(exponents, 700.0)))

    return _best(sums, value)


def _best(sums: Sums, value: Callable[[FloatArray], FloatArray]) -> float:
    """The largest value over the thresholds tried; any threshold is valid."""
    low, high = -3.0, LARGEST + sums.grain * sums.chances.size
    best = 0.0
    for _ in range(ZOOMS):
        thresholds = np.linspace(low, high, THRESHOLDS)
        values = value(thresholds)
        place = int(np.argmax(values))
        best = max(best, float(values[place]))
        low, high = (
            float(thresholds[max(place - 1, 0)]),
            float(thresholds[min(place + 1, THRESHOLDS - 1)]),
        )
    return best
