"""The Gaussian chain that dominates a Toeplitz strategy, and how it is sampled.

Noise is scaled to one.  The steps of one group are cut into blocks of L consecutive ones, and their
columns have the Gram matrix

    G_jl = kappa rho^|J(j)-J(l)| + omega 1{j = l},      step j in block J(j),

that of a stationary chain with variance kappa and correlation rho from block to block plus white
noise.  Blocks usually have one step; longer ones are for slow decays.  In each step the number of
participations has the law `prior`, independently from step to step; with a `gap`, only in steps
that are not blocked by a participation in the last gap - 1 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mmcc._arrays import FloatArray, own_arrays
from mmcc.accounting._bounds.reveal.inversion import UP


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """kappa is `shared`, rho `decay`, omega `white`; `prior[m]` is the chance of m at a step."""

    blocks: int
    block: int
    shared: float
    decay: float
    white: float
    prior: FloatArray
    gap: int = 1
    """The fewest steps from a participation to the next; above 1 only with blocks of one step."""
    stationary: bool = False
    """Whether steps may be blocked by participations before the first step."""

    def __post_init__(self) -> None:
        own_arrays(self, "prior")

    @property
    def steps(self) -> int:
        """The number of steps; if the last block is not full, more than the group has (safe)."""
        return self.blocks * self.block

    @property
    def diagonal(self) -> float:
        """The squared norm of a column."""
        return self.shared + self.white

    @property
    def most(self) -> int:
        """The largest number of participations at a step."""
        return self.prior.size - 1

    @property
    def mean(self) -> float:
        """The expected number of participations per step, in the long run."""
        open_steps = float(np.arange(self.prior.size) @ self.prior)
        return open_steps / (1 + (self.gap - 1) * open_steps)

    @property
    def later(self) -> float:
        """Roughly what later participations add to an output on average."""
        return self.mean * self.shared * (self.block * self.decay / (1 - self.decay))

    def row_sums(self) -> FloatArray:
        """The sums of the rows of the Gram matrix, one for each step."""
        before = (1 - self.decay ** np.arange(1.0, self.blocks + 1)) / (1 - self.decay)
        sums = self.block * self.shared * (before + before[::-1] - 1) + self.white
        return np.repeat(sums, self.block)

    @property
    def growth(self) -> float:
        """B: on the line Im q = sqrt(kappa) a the density given the rest grows by e^{a^2 B/2}.

        Given participations and outputs, one state q has the curvature
        B / kappa = (1 + rho^2) / (kappa (1 - rho^2)) + L / omega; less at the ends.
        """
        turn = (1 + self.decay * self.decay) / ((1 - self.decay) * (1 + self.decay))
        return (turn + self.block * self.shared / self.white) * UP

    def log_prior_moment(self, pulls: FloatArray) -> FloatArray:
        """The logarithm of E e^{pull s} for a number s of participations at one step."""
        with np.errstate(divide="ignore"):
            weights = np.log(self.prior)
        exponents = np.multiply.outer(pulls, np.arange(self.prior.size)) + weights
        return np.asarray(np.logaddexp.reduce(exponents, axis=-1))


def binomial_prior(members: int, probability: float) -> FloatArray:
    """The chances of 0, 1, ..., members participations at a step, each rounded once."""
    chance = Fraction(probability)
    return np.array(
        [
            float(math.comb(members, m) * chance**m * (1 - chance) ** (members - m))
            for m in range(members + 1)
        ]
    )
