r"""How far the chain goes: levels that are hardly ever passed, and what passing them costs.

In: a `Chain`.  Out: levels and upper bounds on probabilities.
Rounding: up, by Chernoff's bound with explicit cumulants.

`remove` counts exits under P~: there a state is N(kappa sum_{j>l} rho^{j-l} s_j, kappa) and an
output q + w + s g_0, participations independent.  `add` counts them under Q~, where the revealed
participations are drawn from outputs: q_l = V_l - kappa sum_{i<=l} rho^{l-i} s_i with V_l ~
N(0, kappa), so states lie below V and only their lower end needs a bound of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.inversion import UP

SMALL_PULL = 2.0**-20
MOST_TERMS = 10**6
OUT_OF_REACH = 1e100
TURNS = 500


def _future(chain: Chain, pull: float) -> float:
    """Upper bound on sum_{k=1}^{n-1} log E e^{pull rho^k s}, pull >= 0.

    Terms are summed until x = pull rho^k times the largest s is below 2^-20; from there on
    log E e^{x s} <= E[e^{x s} - 1] <= 1.01 x E[s].
    """
    if chain.shared == 0 or chain.steps == 1 or chain.decay == 0:
        return 0.0
    reach = pull * max(chain.most, 1)
    needed = math.ceil(max(math.log(SMALL_PULL / reach) / math.log(chain.decay), 1.0))
    count = min(chain.steps - 1, needed)
    if count > MOST_TERMS:
        return math.inf
    pulls = pull * chain.decay ** np.arange(1.0, count + 1)
    total = math.fsum(chain.log_prior_moment(pulls))
    if count < chain.steps - 1:
        total += 1.01 * chain.mean * float(pulls[-1]) * chain.decay / (1 - chain.decay)
    return total


def log_state_moment(chain: Chain, rate: float) -> float:
    """Upper bound on log E_P~ e^{rate q_l}."""
    return (0.5 * rate * rate * chain.shared + _future(chain, rate * chain.shared)) * UP


def log_output_moment(chain: Chain, rate: float) -> float:
    """Upper bound on log E_P~ e^{rate x}."""
    own = float(chain.log_prior_moment(np.array([rate * chain.diagonal]))[0])
    return (0.5 * rate * rate * chain.diagonal + own + _future(chain, rate * chain.shared)) * UP


def log_fallen_moment(chain: Chain, rate: float, lowest: FloatArray) -> float:
    r"""Upper bound on log E_Q~ e^{-rate q_l}, for every l; `lowest` are the smallest centres m_s.

    Forwards under Q~: x = r + w, s is drawn with chances at most
    (pi_s/pi_0) e^{s x - s^2 g_0/2 - m_s} (s >= 1), q = r - kappa s, and the next r is
    rho q + N(0, kappa (1 - rho^2)).  With R = E e^{-rate r}, A = E e^{-rate q} and
    E e^{-(rate-s) r} <= R^{1 - s/rate}:

        A <= R + sum_{s>=1} (e^{rate kappa s} - 1) (pi_s/pi_0) e^{-m_s - s^2 kappa/2} R^{1 - s/rate}
        R' <= A^rho e^{rate^2 kappa (1 - rho^2)/2},      first R = e^{rate^2 kappa/2}.

    The map is increasing: a level that it does not raise, at or above the first, bounds all.
    """
    if rate < chain.most:
        return math.inf
    counts = np.arange(1.0, chain.prior.size)
    pull = rate * chain.shared * counts
    with np.errstate(divide="ignore"):
        weights = np.log(chain.prior[1:]) - math.log(float(chain.prior[0]))
    weights = weights - lowest - 0.5 * counts**2 * chain.shared
    weights = weights + pull + np.log1p(-np.exp(-pull))
    fresh = 0.5 * rate * rate * chain.shared * (1 - chain.decay) * (1 + chain.decay)
    level = first = 0.5 * rate * rate * chain.shared * UP
    for _ in range(TURNS):
        fallen = float(np.logaddexp.reduce([level, *(weights + level * (1 - counts / rate))]))
        fallen *= UP
        raised = max(chain.decay * fallen * UP + fresh, first)
        if raised <= level:
            return fallen
        # A little above, so that the iteration ends.
        level = raised * (1 + 1e-6)
    return math.inf


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
