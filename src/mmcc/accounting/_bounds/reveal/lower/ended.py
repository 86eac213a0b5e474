r"""The Gram matrix of a one-buffer BLT, including its end, as that of a Markov chain.

In: strategy, rounds, sigma.  Out: an `Ended` chain, which leaks no more than the real mechanism.
Rounding: every entry of the chain's Gram matrix is at most the real one.

Column j of C is 1, w, w r, w r^2, ... from row j to the last row N - 1.  For columns j <= l

    sigma^2 G_jl = r^{l-j} kappa_l  (+ omega if j = l),   omega = 1 - w/r,
    kappa_l = w/r + w^2 (1 - r^{2(N-1-l)}) / (1 - r^2).

Backwards in time this is a chain: from v ~ N(0, kappa_end) at the last column,
v' = rho v + N(0, kappa (1 - rho^2)) for the column before, rho = r^separation; the variance m
columns before the last is kappa - (kappa - kappa_end) rho^{2m} = kappa_l.  The real end costs
nothing: it is where the chain starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

LESS = 1 - 2.0**-34
"""Covers the rounding of kappa, omega and rho, and that 1 - rho^{2m} grows when rho is lowered:
by a factor of at most 1 + e/(1 - rho) if rho is lowered by a factor 1 - e, e <= 2^-48."""
LARGEST_DECAY = 0.999
END = 1e-4
"""Columns whose kappa_l is this close to kappa, relatively, are treated as far from the end."""


@dataclass(frozen=True, slots=True)
class Ended:
    """u_l = v_l + w_l under Q, sigma scaled to one: v the chain, w white of variance omega."""

    steps: int
    probability: float
    kappa: float
    rho: float
    omega: float
    kappa_end: float

    @property
    def diagonal(self) -> float:
        """The largest entry of the Gram matrix."""
        return self.kappa + self.omega

    @property
    def innovation(self) -> float:
        """The variance of v given the previous v."""
        return self.kappa * (1 - self.rho) * (1 + self.rho)

    @property
    def growth(self) -> float:
        """B: on the line Im v_l = a the density of v and u given the rest grows by e^{a^2 B/2}."""
        into = max(1 / self.innovation, 1 / self.kappa_end)
        return (into + self.rho**2 / self.innovation + 1 / self.omega) * (1 + 2.0**-40)

    @property
    def end(self) -> int:
        """The number of columns before the end of the run that differ from those far from it."""
        short = self.shortfall(0)
        if short <= END * self.kappa:
            return 0
        places = math.log(END * self.kappa / short) / (2 * math.log(self.rho))
        return min(math.ceil(places), self.steps)

    def shortfall(self, place: int) -> float:
        """Return kappa - kappa_l, `place` columns before the last."""
        return (self.kappa - self.kappa_end) * self.rho ** (2 * place)


def ended_chain(strategy: Toeplitz, rounds: Rounds, sigma: float) -> Ended | None:
    """The chain of the first group's columns; None if there is none within floating point.

    Later groups see a leading part of the same matrix, which leaks less.
    """
    if not strategy.geometric or strategy.buffer_numbers is None or rounds.probability == 1:
        return None
    decay, scale = (float(numbers[0]) for numbers in strategy.buffer_numbers)
    steps = rounds.count(strategy.steps)
    if steps < 2 or not (0 < scale < decay):
        return None
    rho = decay**rounds.separation * (1 - 2.0**-49)
    last = strategy.steps - 1 - (steps - 1) * rounds.separation
    tail = scale * scale / ((1 - decay) * (1 + decay))
    seen = -math.expm1(2 * last * math.log(decay))
    least = LESS / sigma / sigma
    kappa, kappa_end = (scale / decay + tail) * least, (scale / decay + tail * seen) * least
    omega = (1 - scale / decay * (1 + 2.0**-50)) * least
    if not (1e-9 < rho <= LARGEST_DECAY and omega > 1e-3 * kappa and kappa_end > 0):
        return None
    return Ended(steps, rounds.probability, kappa, rho, omega, kappa_end)
