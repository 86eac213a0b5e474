"""The Gaussian chain of a two-buffer BLT: two coordinates, driven by the same participations.

In: buffers, rounds, sigma.  Out: a `Plane`.
Rounding: its Gram matrix is entrywise at least the strategy's, so delta can only grow.

Noise is scaled to one.  The columns of one group of steps have the Gram matrix

    G_jl = kappa_1 rho_1^|j-l| + kappa_2 rho_2^|j-l| + omega 1{j = l}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.chains.domination import LEAST_WHITE, buffered_gram
from mmcc.accounting._bounds.reveal.inversion import UP
from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

MOST_COUNTED = 8
"""Most participations at a step, because each number of them has its own moves."""
MAX_GROWTH = 700.0
"""The largest growth (see `Chain.growth`); slower decays need too many states."""


@dataclass(frozen=True, eq=False, slots=True)
class Plane:
    """Each coordinate as a separate chain; both have the same steps, white part and prior."""

    first: Chain
    second: Chain

    @property
    def coordinates(self) -> tuple[Chain, Chain]:
        """The chains of both coordinates."""
        return self.first, self.second

    @property
    def steps(self) -> int:
        """The number of steps of the group."""
        return self.first.steps

    @property
    def prior(self) -> FloatArray:
        """The chances of 0, 1, ... participations at a step."""
        return self.first.prior

    @property
    def white(self) -> float:
        """Omega, the variance of the white part."""
        return self.first.white

    @property
    def shared(self) -> float:
        """kappa_1 + kappa_2: the variance of q_1 + q_2 without participation."""
        return self.first.shared + self.second.shared

    @property
    def diagonal(self) -> float:
        """The squared norm of a column."""
        return self.shared + self.white


def plane_of(strategy: Toeplitz, rounds: Rounds, sigma: float, prior: FloatArray) -> Plane | None:
    """The plane of a BLT with two buffers; None for others, or if it needs too many states."""
    buffers, columns = strategy.buffer_numbers, rounds.count(strategy.steps)
    if buffers is None or buffers[0].size != 2 or columns < 2 or prior.size > MOST_COUNTED + 1:
        return None
    diagonal, shares, decays = buffered_gram(rounds.separation, strategy.steps, *buffers)
    scale = UP / sigma / sigma
    white = (diagonal * UP - math.fsum(shares)) * scale
    if not (white > LEAST_WHITE * diagonal * scale and decays.max() < 1 and shares.min() > 0):
        return None
    chains = [
        Chain(columns, 1, float(share) * scale, float(decay), white, prior)
        for share, decay in zip(shares, decays, strict=True)
    ]
    if max(chain.growth for chain in chains) > MAX_GROWTH:
        return None
    return Plane(*chains)
