"""The Gaussian chain that stands in for a Toeplitz strategy.

In: strategy, scheme, sigma.  Out: a `Chain`, whose mechanism is at least as leaky.
Rounding: every number that enters the covariance is rounded up.

Noise is scaled to one.  With G = C^T C / sigma^2 restricted to the steps of one group, privacy
depends on G alone, and delta (both adjacencies) is non-decreasing in every entry of G as long as
the matrix stays positive semidefinite.  So G may be replaced by the covariance of

    u_j = sqrt(s g) v_J + w_j,      step j in block J of L consecutive steps,

v a stationary chain with unit variance and correlation rho from block to block, w white noise of
variance (1 - s) g.  With L = 1: G^_jl = g (s rho^|j-l| + (1 - s) 1{j = l}) >= G_jl.  Blocks are
for slow decays: a decay r a step has r^|j-l| <= r^{1-L} (r^L)^|J-K|, so s grows by r^{1-L} only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

ROUND = 2.0**-52
UP = 1 + 2.0**-40
"""Covers a few hundred rounded operations on positive numbers."""
SMALLEST_DIAGONAL = 1e-10
"""A smaller g is raised to this (a larger G^): cells in u must be wider than rounding."""
LARGEST_SHARE = 0.96
"""The white part must not vanish: it is what makes integrals over v exact on a grid."""
EASY_GROWTH = 40.0
"""Blocks of one step are used up to this growth (see `Chain.growth`)."""
LONGEST_BLOCK = 4096


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
        powers = decay ** np.arange(1.0, self.lags.size + 1)
        with np.errstate(divide="ignore", over="ignore"):
            return float(np.max(self.lags / powers)) / self.diagonal * UP


@dataclass(frozen=True, slots=True)
class Chain:
    """Blocks of `block` steps each; g, s and rho of the dominating covariance."""

    blocks: int
    block: int
    probability: float
    diagonal: float
    share: float
    decay: float

    @property
    def steps(self) -> int:
        """Steps in all; more than the group has if the last block is not full, which is safe."""
        return self.blocks * self.block

    @property
    def common(self) -> float:
        """Variance s g that the steps of a block share."""
        return self.share * self.diagonal

    @property
    def white(self) -> float:
        """Variance (1 - s) g of each step's own."""
        return (1 - self.share) * self.diagonal

    @property
    def nearest(self) -> float:
        """The largest entry of G^ off the diagonal."""
        return self.common * (self.decay if self.block == 1 else 1.0) * UP

    @property
    def row_sum(self) -> float:
        """Upper bound on the sum of a row of G^ off the diagonal."""
        others = 2 * self.block * self.decay / (1 - self.decay)
        return self.common * (self.block - 1 + others) * UP

    @property
    def growth(self) -> float:
        """B: on the line Im v_J = a, the density of v and u given the rest grows by e^{a^2 B/2}."""
        turn = (1 + self.decay * self.decay) / ((1 - self.decay) * (1 + self.decay))
        return (turn + self.block * self.share / (1 - self.share)) * UP


def profile_of(strategy: Toeplitz, rounds: Rounds, sigma: float) -> Profile:
    """The Gram matrix of the first group of steps, the worst.

    G_jl = sum_i c_i c_{i+|j-l|} over the rows that are left: the most for the first column.
    """
    separation = rounds.separation
    steps = -(-strategy.steps // separation)
    if strategy.geometric and strategy.buffer_numbers is not None:
        decay, scale = (float(numbers[0]) for numbers in strategy.buffer_numbers)
        diagonal, lags, floor = _blt_gram(strategy.steps, decay, scale, separation)
    else:
        c = strategy.coefficients
        diagonal = float(c @ c)
        places = range(separation, strategy.bands, separation)
        lags = np.array([float(c[: c.size - k] @ c[k:]) for k in places])
        floor = 0.0
    scale = UP * (1 + 2 * strategy.coefficients.size * ROUND) / sigma / sigma
    lags = lags * scale if steps > 1 else np.zeros(0)
    lags = lags[: int(np.flatnonzero(lags)[-1]) + 1] if lags.any() else np.zeros(0)
    return Profile(steps, max(diagonal * scale, SMALLEST_DIAGONAL), lags, floor)


def _blt_gram(
    steps: int, decay: float, scale: float, separation: int
) -> tuple[float, FloatArray, float]:
    """Closed form of the first column's products, which are the largest, for one buffer.

    With t_m = w^2 (1 - rho^{2m})/(1 - rho^2): g_0 = 1 + t_{n-1} and
    g_k = rho^k (w/rho + t_{n-1-k}), which falls at least as fast as rho^k.
    """

    def tail(terms: int) -> float:
        gone = math.expm1(2 * max(terms, 0) * math.log(decay))
        return scale * scale * -gone / ((1 - decay) * (1 + decay))

    floor = decay**separation * UP
    lag = (scale / decay + tail(steps - 1 - separation)) * floor
    return 1 + tail(steps - 1), np.array([lag]), floor


def chain_at(profile: Profile, probability: float, decay: float) -> Chain | None:
    """The dominating chain with this decay a step; None if there is none.

    The block is the shortest that keeps the growth, and with it the number of states, low.
    """
    if not profile.lags.size:
        return Chain(profile.steps, 1, probability, profile.diagonal, 0.0, 0.0)
    if not profile.floor <= decay < 1:
        return None
    share = profile.share(decay)
    chains = []
    block = 1
    while block <= min(LONGEST_BLOCK, profile.steps):
        lifted, slow = share * decay ** (1 - block) * UP, decay**block * UP
        if not (lifted <= LARGEST_SHARE and slow < 1):
            break
        blocks = -(-profile.steps // block)
        chains.append(Chain(blocks, block, probability, profile.diagonal, lifted, slow))
        block *= 2
    if not chains:
        return None
    enough = max(EASY_GROWTH, 1.5 * min(chain.growth for chain in chains))
    return next(chain for chain in chains if chain.growth <= enough)


def lightest_decay(profile: Profile) -> float:
    """The decay whose chain has the smallest row sum, s rho / (1 - rho), by a scan."""
    if not profile.lags.size or profile.floor > 1 - 1e-9:  # too slow for a chain
        return 0.0
    gaps = np.geomspace(1 - profile.floor, 1e-9, 2000)
    best, lightest = 0.0, math.inf
    for decay in np.concatenate([[profile.floor], 1 - gaps[1:]]):
        share = profile.share(float(decay)) if 0 < decay < 1 else math.inf
        if share <= LARGEST_SHARE and share * decay < lightest * (1 - decay):
            best, lightest = float(decay), share * decay / (1 - decay)
    return best
