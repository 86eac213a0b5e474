r"""The range of the chain: levels that are hardly ever passed, and what passing them costs.

In: a `Chain`.  Out: levels and upper bounds on probabilities.
Rounding: up, by Chernoff's bound with explicit cumulants.

`remove` counts exits under P~: there the state of a block J is N(kappa sum_{K>J} rho^{K-J} s_K,
kappa), s_K the participations in block K, and an output is q + w + s g_0 plus kappa for each later
participation in its block; participations are independent, or a gap apart (`_open_futures`).
`add` counts them under Q~, where the revealed participations are drawn from outputs:
q_J = V_J - kappa sum_{K<=J} rho^{J-K} s_K with V_J ~ N(0, kappa), so states lie below V and only
their lower end needs a separate bound; drawing nobody in blocked steps lowers it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled
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
    pulls, slowest = _pulls(chains, rate)
    if not pulls.size:
        return 0.0 if slowest < 1 else math.inf
    total = math.fsum(first.log_prior_moment(pulls))
    if pulls.size < first.blocks - 1:
        total += 1.01 * first.mean * float(pulls[-1]) * slowest / (1 - slowest)
    return first.block * total


def _pulls(chains: Sequence[Chain], rate: float) -> tuple[FloatArray, float]:
    """pull_1, pull_2, ... until they are small, and a factor by which later ones fall at least.

    The list is empty if nothing pulls; empty with the factor 1 if there are too many.
    """
    first = chains[0]
    chains = [chain for chain in chains if chain.shared * chain.decay > 0]
    if first.blocks == 1 or not chains:
        return np.empty(0), 0.0
    slowest = max(chain.decay for chain in chains)
    reach = math.fsum(rate * chain.shared for chain in chains) * max(first.most, 1)
    needed = math.ceil(max(math.log(SMALL_PULL / reach) / math.log(slowest), 1.0))
    count = min(first.blocks - 1, needed)
    if count > MOST_TERMS:
        return np.empty(0), 1.0
    powers = np.arange(1.0, count + 1)
    pulls = np.sum([rate * chain.shared * chain.decay**powers for chain in chains], axis=0)
    return np.asarray(pulls), slowest


def _open_futures(chain: Chain, rate: float) -> tuple[float, float]:
    """Upper bounds on log W_1 and log W_b, b the gap, if participations are a gap apart.

    W_k is the mean of e^{sum of pull_j s_j, j >= k} if a step at distance k is open:

        W_k = (1 - p) W_{k+1} + p e^{pull_k} W_{k+b}.

    It falls with k because pulls do, so no past has a larger future than an open next step.  Beyond
    the last pull W_{k+b} <= W_{k+1} gives W_k <= prod_{j>=k} (1 - p + p e^{pull_j}).
    """
    pulls, slowest = _pulls((chain,), rate)
    if not pulls.size:
        return (0.0, 0.0) if slowest < 1 else (math.inf, math.inf)
    idle, taking = (float(chance) for chance in chain.prior)
    rest = 0.0
    if pulls.size < chain.blocks - 1:
        rest = 1.01 * taking * float(pulls[-1]) * slowest / (1 - slowest)
    logs = log_open_futures(pulls, math.log(idle), math.log(taking), chain.gap, rest)
    # Each turn rounds numbers of about this size a few times.
    size = 1 - math.log(idle) - math.log(taking) + float(pulls[0]) + float(logs[0])
    error = pulls.size * 2.0**-48 * size
    return float(logs[0]) + error, float(logs[min(chain.gap - 1, pulls.size)]) + error


@compiled
def log_open_futures(
    pulls: FloatArray, log_idle: float, log_taking: float, gap: int, rest: float
) -> FloatArray:
    """Logarithms of W_1, W_2, ... by the recursion of `_open_futures`, the last one first."""
    logs = np.full(pulls.size + 1, rest)
    for k in range(pulls.size - 1, -1, -1):
        stay = log_idle + logs[k + 1]
        take = log_taking + pulls[k] + logs[min(k + gap, pulls.size)]
        top = max(stay, take)
        logs[k] = top + math.log1p(math.exp(min(stay, take) - top))
    return logs


def log_state_moment(chains: Sequence[Chain], rate: float) -> float:
    """Upper bound on log E_P~ e^{rate q}, q the sum of the chains' states."""
    shared = math.fsum(chain.shared for chain in chains)
    gapped = chains[0].gap > 1
    future = _open_futures(chains[0], rate)[0] if gapped else _future(chains, rate)
    return (0.5 * rate * rate * shared + future) * UP


def log_output_moment(chains: Sequence[Chain], rate: float) -> float:
    """Upper bound on log E_P~ e^{rate x}; the white part is that of the first chain."""
    first, shared = chains[0], math.fsum(chain.shared for chain in chains)
    diagonal = shared + first.white
    if first.gap > 1:
        return (0.5 * rate * rate * diagonal + _log_open_step(first, rate)) * UP
    own, other = first.log_prior_moment(rate * np.array([diagonal, shared]))
    block = float(own) + (first.block - 1) * float(other)
    return (0.5 * rate * rate * diagonal + block + _future(chains, rate)) * UP


def _log_open_step(chain: Chain, rate: float) -> float:
    """Upper bound on log E e^{rate (s g_0 + later kicks)} at an open step; others add nothing."""
    own, after = _open_futures(chain, rate)
    idle, taking = (math.log(float(chance)) for chance in chain.prior)
    return float(np.logaddexp(idle + own, taking + rate * chain.diagonal + after))


def log_fallen_moment(chain: Chain, rate: float, lowest: FloatArray, beside: float = 0.0) -> float:
    r"""Upper bound on log E_Q~ e^{-rate q}, for every block; `lowest` are the smallest centres m_s.

    Forwards under Q~, step by step in a block: x = r + w, s is drawn with chances at most
    (pi_s/pi_0) e^{s x - s^2 g_0/2 - m_s} (s >= 1), and r falls by kappa s.  With R = E e^{-rate r}
    and E e^{-(rate-s) r} <= R^{1 - s/rate} the step multiplies R by at most 1 + f(R),

        f = sum_{s>=1} (e^{rate kappa s} - 1) (pi_s/pi_0) e^{-m_s - s^2 kappa/2} R^{-s/rate},

    which falls in R, so a block by at most (1 + f(R))^L with R at its start.  The next block starts
    with R' <= (what the last one left)^rho e^{rate^2 kappa (1 - rho^2)/2}, the first with e^{rate^2
    kappa/2}.  A level at or above the first that this increasing map does not raise bounds them
    all.

    If outputs have one more part of variance `beside`, a separate chain, x <= r + V + w with V
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

    It is at most t^-(most+1) (sum_s weights_s t^s)^block for any t >= 1; the best of several t is
    used.
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
    """A level, and the rate at which Chernoff's bound shows that it is rarely passed."""

    level: float
    rate: float


Moment = Callable[[float], float]
"""An upper bound on the logarithm of an exponential moment, as a function of its rate."""


def ceiling(moment: Moment, deviation: float, chance: float) -> Ceiling:
    """The lowest level that one place passes with at most this chance, at the best rate found.

    The level solves exp(-rate level + log moment) = chance.
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
