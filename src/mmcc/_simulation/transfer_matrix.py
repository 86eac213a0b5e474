r"""The exact likelihood ratio of banded encoders, by a transfer matrix.

In: a mechanism whose columns are orthogonal beyond a few neighbours.  Out: log X of outputs, or its
integral over t.  With G = A^T A and u_j = <y, A_j>,

    X = sum_S pi_S exp(sum_{j in S} u_j - 1/2 sum_{j, l in S} G_jl)

is a product over columns in which column j needs to know only which of the last bands - 1 columns
take part, and whether it is eligible: a state.

Remove: outputs are drawn with other probabilities of participation, under which the mechanism's
ratio to Q is a chain too; products of X_j^lambda = 1 + lambda (X_j - 1) + ... look like that.
Add: the integral over t of `batches` is a Gauss rule on panels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._compiled import compiled
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.set_mixtures import CLOSE
from mmcc.accounting._losses.row_loops import INV_SQRT_2PI
from mmcc.sampling import Renewal

MAX_STATES = 64
PANEL = 2.0
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
"""On a panel of length 2 the rule's error is below 1e-9 of the integrand."""
NEGLIGIBLE = 1e-9
MAX_PANELS = 40
LARGEST_COST = 600.0
"""A factor e^-cost must not be mistaken for a blocked state."""
LOWEST, FARTHEST = 10.0, 38.0
"""Beyond LOWEST t stands for every t; before -FARTHEST nothing is left."""


@dataclass(frozen=True, eq=False)
class Chain:
    """States 0 .. : what happens at each column in each state."""

    renewal: Renewal
    factors: FloatArray
    """exp(-G_jj/2 - sum of G_jl over the members l of the state), column by state; 0: blocked."""
    idle: IntArray
    """The next state if the column does not take part."""
    take: IntArray
    """The next state if it does."""
    blocked: IntArray
    """States in which a stationary process may start, each with chance p / (1 + (gap - 1) p)."""

    def log_ratios(self, shadows: FloatArray, probabilities: FloatArray) -> FloatArray:
        """Logarithm of X for each output u, each probability of participation (0: X is 1)."""
        chain = (self.factors, self.idle, self.take, self.blocked)
        return chain_log_ratios(shadows, probabilities, *chain)

    def integrals(
        self, shadows: FloatArray, overlaps: FloatArray, guess: float, epsilons: FloatArray
    ) -> FloatArray:
        """Add: for each z and epsilon the integral over t."""
        chain = (self.renewal.probability, self.factors, self.idle, self.take, self.blocked)
        return integrals(shadows, overlaps, guess, epsilons, *chain)


def chain_of(mechanism: Mechanism) -> Chain | None:
    """The chain of a mechanism, if it needs few states."""
    renewal, gram = mechanism.renewal, mechanism.gram
    if renewal is None or gram is None or renewal.probability == 1.0:
        return None
    far = np.flatnonzero([np.diagonal(gram, k).any() for k in range(len(gram))])
    gap = renewal.gap
    memory = max(int(far[-1]), gap - 1)
    states = _states(memory, gap)
    if states is None:
        return None
    index = {state: i for i, state in enumerate(states)}
    mask = (1 << memory) - 1
    recent = (1 << (gap - 1)) - 1
    factors = np.zeros((len(gram), len(states)))
    take = np.zeros(len(states), np.int64)
    idle = np.array([index[(state << 1) & mask] for state in states])
    for i, state in enumerate(states):
        if state & recent:
            continue
        take[i] = index[(state << 1 | 1) & mask]
        cost = np.diagonal(gram) / 2
        for k in range(1, min(memory, len(gram) - 1) + 1):
            if state >> (k - 1) & 1:
                cost = cost + np.concatenate([np.zeros(k), np.diagonal(gram, k)])
        if float(np.max(cost)) > LARGEST_COST:
            return None
        factors[:, i] = np.exp(-cost)
    blocked = [index[1 << k] for k in range(gap - 1)] if renewal.stationary else []
    return Chain(renewal, factors, idle, take, np.array(blocked, np.int64))


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
    blocked: IntArray,
) -> float:
    """Logarithm of X at z + t d."""
    states = idle.size
    now, new = np.zeros(states), np.empty(states)
    now[0] = 1.0 / (1.0 + blocked.size * probability)
    for k in range(blocked.size):
        now[blocked[k]] = probability * now[0]
    scale, total = 0.0, 1.0
    for j in range(shadow.size):
        exponent = shadow[j] + t * overlaps[j]
        if exponent > 200.0 or total > 1e100 or total < 1e-100:
            scale += math.log(total)
            for s in range(states):
                now[s] /= total
        shift = exponent - 200.0 if exponent > 200.0 else 0.0
        gain = probability * math.exp(exponent - shift)
        stay = math.exp(-shift) if shift > 0.0 else 1.0
        scale += shift
        new[:] = 0.0
        for s in range(states):
            if factors[j, s] > 0.0:
                new[idle[s]] += (1.0 - probability) * stay * now[s]
                new[take[s]] += gain * factors[j, s] * now[s]
            else:
                new[idle[s]] += stay * now[s]
        total = 0.0
        for s in range(states):
            now[s] = new[s]
            total += new[s]
    return scale + math.log(total)


@compiled
def chain_log_ratios(
    shadows: FloatArray,
    probabilities: FloatArray,
    factors: FloatArray,
    idle: IntArray,
    take: IntArray,
    blocked: IntArray,
) -> FloatArray:
    """Logarithm of X for each output, under each probability of participation."""
    logs = np.zeros((shadows.shape[0], probabilities.size))
    still = np.zeros(shadows.shape[1])
    for i in range(shadows.shape[0]):
        for k in range(probabilities.size):
            if probabilities[k] > 0.0:
                logs[i, k] = chain_log_ratio(
                    0.0, shadows[i], still, probabilities[k], factors, idle, take, blocked
                )
    return logs


@compiled
def integrals(
    shadows: FloatArray,
    overlaps: FloatArray,
    guess: float,
    epsilons: FloatArray,
    probability: float,
    factors: FloatArray,
    idle: IntArray,
    take: IntArray,
    blocked: IntArray,
) -> FloatArray:
    """The integral of phi(t) (1 - E X_t)_+ for each z and epsilon: X_t grows with t."""
    values = np.zeros((shadows.shape[0], epsilons.size))
    for i in range(shadows.shape[0]):
        t = guess
        for e in range(epsilons.size):
            low, high = -FARTHEST, LOWEST
            t = min(max(t, low), high)
            before_t, before_gap = math.nan, math.nan
            for _ in range(100):
                ratio = chain_log_ratio(
                    t, shadows[i], overlaps, probability, factors, idle, take, blocked
                )
                gap = ratio + epsilons[e]
                if abs(gap) <= CLOSE:
                    break
                if gap > 0.0:
                    high = t
                else:
                    low = t
                if high - low < 1e-10 or high <= -FARTHEST or low >= LOWEST:
                    break
                slope = (gap - before_gap) / (t - before_t)
                before_t, before_gap = t, gap
                step = t - gap / slope if slope > 0.0 else t + (1.0 if gap < 0.0 else -1.0)
                step = min(max(step, t - 8.0), t + 8.0)
                t = step if low < step < high else 0.5 * (low + high)
                if high - t < 1e-9 and high == LOWEST:
                    t = high
            for panel in range(MAX_PANELS):
                part = 0.0
                middle = t - (panel + 0.5) * PANEL
                for x in range(NODES.size):
                    point = middle + 0.5 * PANEL * NODES[x]
                    ratio = chain_log_ratio(
                        point, shadows[i], overlaps, probability, factors, idle, take, blocked
                    )
                    gain = -math.expm1(min(ratio + epsilons[e], 0.0))
                    part += WEIGHTS[x] * gain * math.exp(-0.5 * point * point)
                values[i, e] += 0.5 * PANEL * INV_SQRT_2PI * part
                if 0.5 * PANEL * INV_SQRT_2PI * part <= NEGLIGIBLE * values[i, e]:
                    break
    return values
