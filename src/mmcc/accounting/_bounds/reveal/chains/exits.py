r"""How far the chain goes: levels that are hardly ever passed, and what passing them costs.

In: a `Chain`.  Out: levels and upper bounds on probabilities.
Rounding: up, by Chernoff's bound with explicit cumulants.

`remove` counts exits under P~: there the state of a block J is N(kappa sum_{K>J} rho^{K-J} s_K,
kappa), s_K the participations in block K, and an output is q + w + s g_0 plus kappa for each later
participation in its block; participations are independent.  `add` counts them under Q~, where the
revealed participations are drawn from outputs: q_J = V_J - kappa sum_{K<=J} rho^{J-K} s_K with V_J
~ N(0, kappa), so states lie below V and only their lower end needs a bound of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.inversion import UP

SMALL_PULL = 2.0**-20
MOST_TERMS = 10**6
OUT_OF_REACH = 1e100
TURNS = 20


def _future(chains: Sequence[Chain], rate: float) -> float:
    """Upper bound on L sum_{k=1}^{m-1} log E e^{pull_k s} for m blocks, rate >= 0.

    pull_k is the sum of rate kappa rho^k over the chains, which are driven by the same
    participations.  Terms are summed until x = pull_k times the largest s is below 2^-20; from
    there on log E e^{x s} <= E[e^{x s} - 1] <= 1.01 x E[s], and x falls at least like the slowest.
    """
    first = chains[0]
    chains = [chain for chain in chains if chain.shared * chain.decay > 0]
    if first.blocks == 1 or not chains:
        return 0.0
    slowest = max(chain.decay for chain in chains)
    reach = math.fsum(rate * chain.shared for chain in chains) * max(first.most, 1)
    needed = math.ceil(max(math.log(SMALL_PULL / reach) / math.log(slowest), 1.0))
    count = min(first.blocks - 1, needed)
    if count > MOST_TERMS:
        return math.inf
    powers = np.arange(1.0, count + 1)
    pulls = np.sum([rate * chain.shared * chain.decay**powers for chain in chains], axis=0)
    total = math.fsum(first.log_prior_moment(pulls))
    if count < first.blocks - 1:
        total += 1.01 * first.mean * float(pulls[-1]) * slowest / (1 - slowest)
    return first.block * total


def log_state_moment(chains: Sequence[Chain], rate: float) -> float:
    """Upper bound on log E_P~ e^{rate q}, q the sum of the chains' states."""
    shared = math.fsum(chain.shared for chain in chains)
    return (0.5 * rate * rate * shared + _future(chains, rate)) * UP


def log_output_moment(chains: Sequence[Chain], rate: float) -> float:
    """Upper bound on log E_P~ e^{rate x}; the white part is that of the first chain."""
    first, shared = chains[0], math.fsum(chain.shared for chain in chains)
    diagonal = shared + first.white
    own, other = first.log_prior_moment(rate * np.array([diagonal, shared]))
    block = float(own) + (first.block - 1) * float(other)
    return (0.5 * rate * rate * diagonal + block + _future(chains, rate)) * UP


def log_fallen_moment(chain: Chain, rate: float, lowest: FloatArray, beside: float = 0.0) -> float:
    r"""Upper bound on log E_Q~ e^{-rate q}, for every block; `lowest` are the smallest centres m_s.

    Forwards under Q~, step by step in a block: x = r + w, s is drawn with chances at most
    (pi_s/pi_0) e^{s x - s^2 g_0/2 - m_s} (s >= 1), and r falls by kappa s.  With R = E e^{-rate r}
    and E e^{-(rate-s) r} <= R^{1 - s/rate} the step multiplies R by at most 1 + f(R),

        f = sum_{s>=1} (e^{rate kappa s} - 1) (pi_s/pi_0) e^{-m_s - s^2 kappa/2} R^{-s/rate},

    which falls in R, so a block by at most (1 + f(R))^L with R at its start.  The next block starts
    with R' <= (what the last one left)^rho e^{rate^2 kappa (1 - rho^2)/2}, the first with
    e^{rate^2 kappa/2}.  A level that this increasing map does not raise, at or above the first,
    bounds all.

    If outputs have one more part of variance `beside`, a chain of its own, x <= r + V + w with V
    the Gaussian part of that chain, which r depends on through what was drawn before.  By Hoelder
    E e^{-(rate-s) r + s V} <= R^{1 - s/rate} e^{s rate beside/2}, and s^2 kappa/2 becomes
    s^2 (kappa + beside)/2.
    """
    if rate < chain.most:
        return math.inf
    counts = np.arange(1.0, chain.prior.size)
    pull = rate * chain.shared * counts
    weights = log_fake_odds(chain, lowest) - 0.5 * counts**2 * (chain.shared + beside)
    weights = weights + 0.5 * counts * rate * beside + pull + np.log(-np.expm1(-pull))
    fresh = 0.5 * rate * rate * chain.shared * (1 - chain.decay) * (1 + chain.decay)

    def fallen(level: float) -> float:
        grown = np.logaddexp.reduce([0.0, *(weights - level * counts / rate)])
        return (level + chain.block * float(grown)) * UP

    # What a block and a decay leave of a level grows more slowly than the level itself.
    low = high = 0.5 * rate * rate * chain.shared * UP
    while not (chain.decay * fallen(high) + fresh) * UP <= high:
        low, high = high, 2 * high
        if high > OUT_OF_REACH:
            return math.inf
    for _ in range(TURNS):
        middle = 0.5 * (low + high)
        kept = (chain.decay * fallen(middle) + fresh) * UP <= middle
        low, high = (low, middle) if kept else (middle, high)
    return fallen(high)


def log_fake_odds(chain: Chain, lowest: FloatArray) -> FloatArray:
    """Log (pi_s/pi_0) e^{-m_s} for s >= 1, m_s the smallest centres."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(chain.prior[1:]) - math.log(float(chain.prior[0])) - lowest)


def crowded(weights: FloatArray, block: int, most: int) -> float:
    """Upper bound on the sum of the coefficients above t^most of (sum_s weights_s t^s)^block.

    At most t^-(most+1) (sum_s weights_s t^s)^block for any t >= 1; the best of some.
    """
    counts = np.arange(float(weights.size))
    rates = np.linspace(0.0, 12.0, 121)
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    sums = np.logaddexp.reduce(logs + np.multiply.outer(rates, counts), axis=1)
    exponents = block * sums - (most + 1) * rates
    return math.exp(min(float(exponents.min()), 0.0)) * UP


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A level and the rate at which Chernoff's bound shows that it is hardly ever passed."""

    level: float
    rate: float


Moment = Callable[[float], float]
"""Upper bound on the logarithm of an exponential moment, by its rate."""


def ceiling(moment: Moment, deviation: float, chance: float) -> Ceiling:
    """The lowest level that one place passes with at most this chance: best rate, by a search.

    exp(-rate level + log moment) = chance, solved for the level.
    """

    def level(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return min((moment(rate) - math.log(chance)) / rate, OUT_OF_REACH)

    # Without participation the rate would be sqrt(2 log(1/chance)) over the deviation.
    guess = 0.5 * math.log(-2 * math.log(chance)) - math.log(deviation)
    found = optimize.minimize_scalar(level, bounds=(guess - 6, guess + 2), method="bounded")
    return Ceiling(level(float(found.x)), math.exp(float(found.x)))


def passing(moment: Moment, level: float, rate: float) -> float:
    """Upper bound on the chance that one place passes the level."""
    return math.exp(min(moment(rate) - rate * level + 2.0**-40 * rate * abs(level), 0.0))
