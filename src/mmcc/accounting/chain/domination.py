"""The Gaussian chain that stands in for a Toeplitz strategy.

In: strategy, scheme, sigma.  Out: a `Chain`, whose mechanism is at least as leaky.
Rounding: every number that enters the covariance is rounded up; exits cost at most what is said.

Noise is scaled to one.  With G = C^T C / sigma^2 restricted to the steps of one group, privacy
depends on G alone, and delta (both adjacencies) is non-decreasing in every entry of G as long as
the matrix stays positive semidefinite.  So G may be replaced by

    G^_jl = g ( s rho^|j-l| + (1 - s) 1{j = l} )  >=  G_jl,      0 <= s < 1, 0 <= rho < 1,

the covariance of u_j = sqrt(s g) v_j + w_j: v a stationary chain with unit variance and
correlation rho, w white noise of variance (1 - s) g.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from mmcc.strategies.blt import Blt
from scipy import optimize

from mmcc.arrays import FloatArray
from mmcc.sampling import Scheme
from mmcc.strategies.toeplitz import Toeplitz

ROUND = 2.0**-52
UP = 1 + 2.0**-40
"""Covers a few hundred rounded operations on positive numbers."""
SMALLEST_DIAGONAL = 1e-10
"""A smaller g is raised to this (a larger G^): cells in u must be wider than rounding."""
LARGEST_SHARE = 0.96
"""The white part must not vanish: it is what makes integrals over v exact on a grid."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Upper bounds on the Gram matrix of a group: `diagonal`, and `lags[k-1]` at distance k.

    Beyond the last lag the entries fall at least as fast as `floor`^k.
    """

    steps: int
    diagonal: float
    lags: FloatArray
    floor: float

    def share(self, decay: float) -> float:
        """The smallest s with g s decay^k >= G at every distance k >= 1; needs decay >= floor."""
        if not self.lags.size:
            return 0.0
        powers = decay ** np.arange(1.0, self.lags.size + 1)
        with np.errstate(divide="ignore", over="ignore"):
            return float(np.max(self.lags / powers)) / self.diagonal * UP


@dataclass(frozen=True, slots=True)
class Chain:
    """A group's steps and probability; g, s and rho of the dominating covariance."""

    steps: int
    probability: float
    diagonal: float
    share: float
    decay: float

    @property
    def common(self) -> float:
        """S g: the variance that neighbours share."""
        return self.share * self.diagonal

    @property
    def white(self) -> float:
        """(1 - s) g."""
        return (1 - self.share) * self.diagonal

    @property
    def reach(self) -> float:
        """sum_{k >= 1} G^_k = s g rho / (1 - rho), one side."""
        return self.common * self.decay / (1 - self.decay) * UP


def profile_of(strategy: Toeplitz, scheme: Scheme, sigma: float) -> Profile:
    """The Gram matrix of the first group of steps, the worst, with rows that never end.

    G_jl = sum_i c_i c_{i+|j-l|} over the rows that are left; all of them give an upper bound.
    """
    separation = min(scheme.separation, strategy.steps)
    steps = -(-strategy.steps // separation)
    if isinstance(strategy, Blt):
        diagonal, lags, floor = _blt_gram(strategy, separation)
    else:
        c = strategy.coefficients
        places = range(separation, min(strategy.bands, steps * separation), separation)
        diagonal = float(c @ c)
        lags = np.array([float(c[: c.size - k] @ c[k:]) for k in places])
        floor = 0.0
    grow = UP * (1 + 2 * strategy.coefficients.size * ROUND)
    scale = grow / sigma / sigma
    lags = lags * scale if steps > 1 else np.zeros(0)
    lags = lags[: int(np.flatnonzero(lags)[-1]) + 1] if lags.any() else np.zeros(0)
    return Profile(steps, max(diagonal * scale, SMALLEST_DIAGONAL), lags, floor)


def _blt_gram(strategy: Blt, separation: int) -> tuple[float, FloatArray, float]:
    """Closed form of the first column's products, which are the largest, for one buffer.

    With t_m = w^2 (1 - rho^{2m})/(1 - rho^2): g_0 = 1 + t_{n-1} and
    g_k = rho^k (w/rho + t_{n-1-k}), which falls at least as fast as rho^k.
    """
    decay, scale = float(strategy.decay[0]), float(strategy.scale[0])

    def tail(terms: int) -> float:
        gone = math.expm1(2 * max(terms, 0) * math.log(decay))
        return scale * scale * -gone / ((1 - decay) * (1 + decay))

    floor = decay**separation * UP
    lag = (scale / decay + tail(strategy.steps - 1 - separation)) * floor
    return 1 + tail(strategy.steps - 1), np.array([lag]), floor


def chain_at(profile: Profile, probability: float, decay: float) -> Chain | None:
    """The dominating chain with this decay; None if it has none."""
    if not profile.lags.size:
        return Chain(profile.steps, probability, profile.diagonal, 0.0, 0.0)
    if not profile.floor <= decay < 1:
        return None
    share = profile.share(decay)
    if not share <= LARGEST_SHARE:
        return None
    return Chain(profile.steps, probability, profile.diagonal, share, decay)


def lightest_decay(profile: Profile) -> float:
    """The decay whose chain has the smallest row sum, s rho / (1 - rho), by a scan."""
    if not profile.lags.size:
        return 0.0
    gaps = np.geomspace(1 - profile.floor, 1e-9, 2000)
    best, lightest = 0.0, math.inf
    for decay in np.concatenate([[profile.floor], 1 - gaps[1:]]):
        share = profile.share(float(decay)) if 0 < decay < 1 else math.inf
        if share <= LARGEST_SHARE and share * decay < lightest * (1 - decay):
            best, lightest = float(decay), share * decay / (1 - decay)
    return best


def _log_mean(probability: float, pulls: FloatArray) -> float:
    """Sum log(1 + p (e^a - 1)): the cumulant of independent participations with pulls a."""
    off = math.log1p(-probability)
    return math.fsum(np.logaddexp(off, math.log(probability) + pulls))


def _neighbours(chain: Chain, pull: float) -> float:
    """Upper bound on 2 sum_{l=1}^{n-1} log(1 + p (e^{pull rho^l} - 1)), pull >= 0.

    Past the first terms x = pull rho^l is below 2^-20, and log(1 + p(e^x - 1)) <= 1.01 p x.
    """
    if chain.share == 0 or pull == 0:
        return 0.0
    needed = math.ceil(max(math.log(2.0**-20 / pull) / math.log(chain.decay), 1.0))
    count = min(chain.steps - 1, needed, 10**6)
    pulls = pull * chain.decay ** np.arange(1.0, count + 1)
    total = _log_mean(chain.probability, pulls)
    if count < chain.steps - 1:
        if count < needed:
            return math.inf
        total += 1.01 * chain.probability * float(pulls[-1]) * chain.decay / (1 - chain.decay)
    return 2 * total


def log_state_moment(chain: Chain, rate: float) -> float:
    """Upper bound on log E_P[e^{rate v_j}], P the mixture: v_j is N(sqrt(sg) sum_S rho^|j-l|, 1)."""
    pull = rate * math.sqrt(chain.common)
    own = _log_mean(chain.probability, np.array([pull]))
    return (0.5 * rate * rate + own + _neighbours(chain, pull)) * UP


def log_output_moment(chain: Chain, rate: float) -> float:
    """Upper bound on log E_P[e^{rate u_j}]: under P, u_j is N(sum_S G^_jl, g)."""
    own = _log_mean(chain.probability, np.array([rate * chain.diagonal]))
    spread = 0.5 * rate * rate * chain.diagonal
    return (spread + own + _neighbours(chain, rate * chain.common)) * UP


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A level and the rate at which Chernoff's bound shows that it is hardly ever passed."""

    level: float
    rate: float


def ceiling_for(moment: object, chain: Chain, cost: float, guess: float) -> Ceiling:
    """The lowest level that P passes at some step with chance at most `cost`, by Chernoff.

    n exp(-rate level + log E e^{rate v}) = cost, solved for the level, best rate.
    """
    assert callable(moment)
    start = math.log(chain.steps / cost)

    def level(log_rate: float) -> float:
        rate = math.exp(log_rate)
        return float((start + moment(chain, rate)) / rate)

    found = optimize.minimize_scalar(
        level, bounds=(math.log(guess) - 6, math.log(guess) + 6), method="bounded"
    )
    return Ceiling(level(float(found.x)), math.exp(float(found.x)))
