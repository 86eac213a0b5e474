r"""The exact likelihood ratio of banded encoders, by a transfer matrix.

In: a mechanism whose columns are orthogonal beyond a few neighbours.  Out: the integral over t of
`batches` for each z.  With G = A^T A and u_j = <y, A_j>,

    X = sum_S pi_S exp(sum_{j in S} u_j - 1/2 sum_{j, l in S} G_jl)

is a product over columns in which column j needs to know only which of the last bands - 1 columns
take part, and whether it is eligible: a state.  The integral over t is a Gauss rule on panels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc.accounting.kernels import INV_SQRT_2PI, compiled
from mmcc.accounting.montecarlo.kernels import CLOSE
from mmcc.accounting.montecarlo.mechanism import Mechanism
from mmcc.arrays import FloatArray, IntArray
from mmcc.sampling import BallsInBins, MinSeparation, Shuffle

MAX_STATES = 64
PANEL = 1.0
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
"""On a panel of length 1 the rule's error is below 1e-12 of the integrand."""
NEGLIGIBLE = 1e-12
MAX_PANELS = 200


@dataclass(frozen=True, eq=False)
class Chain:
    """States 0 .. : what happens at each column in each state."""

    probability: float
    factors: FloatArray
    """exp(-G_jj/2 - sum of G_jl over the members l of the state), column by state; 0: blocked."""
    idle: IntArray
    """The next state if the column does not take part."""
    take: IntArray
    """The next state if it does."""

    def excess(
        self,
        shadows: FloatArray,
        log_weights: FloatArray,
        overlaps: FloatArray,
        guess: float,
        epsilons: FloatArray,
        remove: bool,
    ) -> FloatArray:
        """For each z and epsilon the integral over t, times the weight."""
        return integrals(
            shadows,
            log_weights,
            overlaps,
            guess,
            epsilons,
            remove,
            self.probability,
            self.factors,
            self.idle,
            self.take,
        )


def chain_of(mechanism: Mechanism) -> Chain | None:
    """The chain of a mechanism, if it needs few states."""
    scheme, gram = mechanism.scheme, mechanism.gram
    if isinstance(scheme, BallsInBins | Shuffle) or gram is None or scheme.probability == 1.0:
        return None
    if 8 * np.count_nonzero(gram[0]) > MAX_STATES * 8:
        return None
    far = np.flatnonzero([np.diagonal(gram, k).any() for k in range(len(gram))])
    gap = scheme.separation if isinstance(scheme, MinSeparation) else 1
    memory = max(int(far[-1]), gap - 1)
    states = _states(memory, gap)
    if states is None:
        return None
    index = {state: i for i, state in enumerate(states)}
    mask = (1 << memory) - 1
    blocked = (1 << (gap - 1)) - 1
    factors = np.zeros((len(gram), len(states)))
    take = np.zeros(len(states), np.int64)
    idle = np.array([index[(state << 1) & mask] for state in states])
    for i, state in enumerate(states):
        if state & blocked:
            continue
        take[i] = index[(state << 1 | 1) & mask]
        cost = np.diagonal(gram) / 2
        for k in range(1, min(memory, len(gram) - 1) + 1):
            if state >> (k - 1) & 1:
                cost = cost + np.concatenate([np.zeros(k), np.diagonal(gram, k)])
        factors[:, i] = np.exp(-cost)
    return Chain(scheme.probability, factors, idle, take)


def _states(memory: int, gap: int) -> list[int] | None:
    """Every history of `memory` columns that can occur, the last column in the lowest bit."""
    found, fresh = {0}, [0]
    mask, blocked = (1 << memory) - 1, (1 << (gap - 1)) - 1
    while fresh:
        state = fresh.pop()
        follow = [(state << 1) & mask]
        if not state & blocked:
            follow.append((state << 1 | 1) & mask)
        new = [s for s in follow if s not in found]
        found.update(new)
        fresh.extend(new)
        if len(found) > MAX_STATES:
            return None
    return sorted(found)


@compiled
def chain_log_ratio(
    t: float,
    shadow: FloatArray,
    overlaps: FloatArray,
    probability: float,
    factors: FloatArray,
    idle: IntArray,
    take: IntArray,
    now: FloatArray,
    new: FloatArray,
) -> float:
    """log X at z + t d."""
    states = now.size
    now[:] = 0.0
    now[0] = 1.0
    scale = 0.0
    for j in range(shadow.size):
        exponent = shadow[j] + t * overlaps[j]
        shift = exponent if exponent > 0.0 else 0.0
        gain = probability * math.exp(exponent - shift)
        stay = math.exp(-shift)
        rest = (1.0 - probability) * stay
        new[:] = 0.0
        total = 0.0
        for s in range(states):
            if factors[j, s] > 0.0:
                new[idle[s]] += rest * now[s]
                new[take[s]] += gain * factors[j, s] * now[s]
            else:
                new[idle[s]] += stay * now[s]
        for s in range(states):
            total += new[s]
        for s in range(states):
            now[s] = new[s] / total
        scale += shift + math.log(total)
    return scale


@compiled
def integrals(
    shadows: FloatArray,
    log_weights: FloatArray,
    overlaps: FloatArray,
    guess: float,
    epsilons: FloatArray,
    remove: bool,
    probability: float,
    factors: FloatArray,
    idle: IntArray,
    take: IntArray,
) -> FloatArray:
    """Remove: int phi (X_t - E)_+ dt.  Add: int phi (1 - E X_t)_+ dt.  Times the weight."""
    values = np.zeros((shadows.shape[0], epsilons.size))
    now, new = np.empty(idle.size), np.empty(idle.size)
    for i in range(shadows.shape[0]):
        shadow = shadows[i]
        t = guess
        for e in range(epsilons.size):
            level = epsilons[e] if remove else -epsilons[e]
            low, high = -38.0, 1e3
            t = min(max(t, -10.0), 100.0) if remove else min(max(t, low), 10.0)
            before_t, before_gap = math.nan, math.nan
            for _ in range(100):
                gap = (
                    chain_log_ratio(
                        t, shadow, overlaps, probability, factors, idle, take, now, new
                    )
                    - level
                )
                if abs(gap) <= CLOSE:
                    break
                if gap > 0.0:
                    high = t
                else:
                    low = t
                if high - low < 1e-12 * (1.0 + abs(t)) or high <= -10.0 or low >= 60.0:
                    break
                slope = (gap - before_gap) / (t - before_t)
                before_t, before_gap = t, gap
                step = t - gap / slope if slope > 0.0 else t + (1.0 if gap < 0.0 else -1.0)
                step = min(max(step, t - 8.0), t + 8.0)
                t = step if low < step < high else 0.5 * (max(low, -40.0) + min(high, 60.0))
            start = max(t, -10.0) if remove else min(t, 10.0)
            sign = 1.0 if remove else -1.0
            total = 0.0
            for panel in range(MAX_PANELS):
                part = 0.0
                middle = start + sign * (panel + 0.5) * PANEL
                for x in range(NODES.size):
                    point = middle + 0.5 * PANEL * NODES[x]
                    ratio = chain_log_ratio(
                        point, shadow, overlaps, probability, factors, idle, take, now, new
                    )
                    height = log_weights[i] - 0.5 * point * point
                    if remove:
                        gain = math.exp(height + ratio) - math.exp(height + level)
                    else:
                        gain = math.exp(height) - math.exp(height + ratio - level)
                    part += 0.5 * PANEL * WEIGHTS[x] * INV_SQRT_2PI * gain
                total += part
                if part <= NEGLIGIBLE * total and panel >= 3:
                    break
            values[i, e] = total
    return values
