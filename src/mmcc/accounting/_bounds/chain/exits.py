"""How far the chain goes: levels that are hardly ever passed, and what passing them costs.

In: a `Chain`.  Out: levels and upper bounds on probabilities.
Rounding: up, by Chernoff's bound with explicit cumulants.

Under the mixture P with participation set S, v_J is N(sqrt(s g) sum_{l in S} rho^|J-K(l)|, 1) and
u_j is N(sum_{l in S} G^_jl, g), and the participations are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mmcc.accounting._bounds.chain.domination import UP, Chain

SMALL_PULL = 2.0**-20
MOST_TERMS = 10**6


def _one(chain: Chain, pull: float) -> float:
    """log(1 + p (e^pull - 1))."""
    p = chain.probability
    return float(np.logaddexp(math.log1p(-p), math.log(p) + pull))


def _other_blocks(chain: Chain, pull: float) -> float:
    """Upper bound on 2 L sum_{k=1}^{blocks-1} log(1 + p (e^{pull rho^k} - 1)), pull >= 0.

    Terms are summed until x = pull rho^k is below 2^-20; then log(1 + p(e^x - 1)) <= 1.01 p x.
    """
    if chain.share == 0 or chain.blocks == 1:
        return 0.0
    p = chain.probability
    needed = math.ceil(max(math.log(SMALL_PULL / pull) / math.log(chain.decay), 1.0))
    count = min(chain.blocks - 1, needed)
    if count > MOST_TERMS:
        return math.inf
    pulls = pull * chain.decay ** np.arange(1.0, count + 1)
    total = math.fsum(np.logaddexp(math.log1p(-p), math.log(p) + pulls))
    if count < chain.blocks - 1:
        total += 1.01 * p * float(pulls[-1]) * chain.decay / (1 - chain.decay)
    return 2 * chain.block * total


def log_state_moment(chain: Chain, rate: float) -> float:
    """Upper bound on log E_P[e^{rate v_J}]."""
    pull = rate * math.sqrt(chain.common)
    own = chain.block * _one(chain, pull)
    return (0.5 * rate * rate + own + _other_blocks(chain, pull)) * UP


def log_output_moment(chain: Chain, rate: float) -> float:
    """Upper bound on log E_P[e^{rate u_j}]."""
    pull = rate * chain.common
    own = _one(chain, rate * chain.diagonal) + (chain.block - 1) * _one(chain, pull)
    return (0.5 * rate * rate * chain.diagonal + own + _other_blocks(chain, pull)) * UP


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A level and the rate at which Chernoff's bound shows that it is hardly ever passed."""

    level: float
    rate: float


def ceiling(moment: Callable[[Chain, float], float], chain: Chain, chance: float) -> Ceiling:
    """The lowest level that one place passes with at most this chance: best rate, by a search.

    exp(-rate level + log E e^{rate v}) = chance, solved for the level.
    """

    def level(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return (moment(chain, rate) - math.log(chance)) / rate

    # Without participation the rate would be sqrt(2 log(1/chance)) over the deviation.
    deviation = 1.0 if moment is log_state_moment else math.sqrt(chain.diagonal)
    guess = 0.5 * math.log(-2 * math.log(chance)) - math.log(deviation)
    found = optimize.minimize_scalar(level, bounds=(guess - 6, guess + 2), method="bounded")
    return Ceiling(level(float(found.x)), math.exp(float(found.x)))


def passing(
    moment: Callable[[Chain, float], float], chain: Chain, level: float, rate: float
) -> float:
    """Upper bound on the chance that one place passes the level."""
    return math.exp(min(moment(chain, rate) - rate * level + 2.0**-40 * rate * abs(level), 0.0))
