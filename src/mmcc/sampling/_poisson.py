"""Poisson sampling: a coin for each example in each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc.sampling._chances import Chances
from mmcc.sampling._coins import Coins
from mmcc.sampling._participations import (
    Participations,
    Renewal,
    Rounds,
    chance_in_rounds,
    checked_probability,
)
from mmcc.sampling._scheme import Bits, Drawing, Law, Scheme

if TYPE_CHECKING:
    from mmcc.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Poisson(Scheme):
    """Each example takes part in each step independently with the same probability."""

    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_probability(self.probability))

    @property
    def separation(self) -> int:
        """Steps between two rounds of one example: always 1."""
        return 1

    @property
    def renewal(self) -> Renewal:
        return Renewal(self.probability)

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        return self.renewal.draw(steps, count, generator)

    def expected_batch(self, steps: int, examples: int) -> float:
        return examples * self.probability

    def rounds(self, steps: int) -> Rounds:
        return Rounds(self.probability, 1)

    def chances(self, steps: int) -> Chances:
        return Chances.constant(self.probability)

    def chance(self, steps: int) -> float:
        return chance_in_rounds(self.probability, steps)

    def sensitivity(self, strategy: Strategy) -> float:
        return strategy.sensitivity(1)

    def law(self, steps: int) -> Law:
        from scipy.stats import binom  # takes a while to import, and only audits need it

        p = self.probability
        return Law(
            share=1,
            rates=np.full(steps, p),
            pairs=np.full((steps, steps), p * p),
            numbers=np.asarray(binom.pmf(np.arange(steps + 1), steps, p)),
            independent=True,
            steps_independent=True,
            surprise=-math.log(max(p, 1 - p)),
        )

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        return Coins(bits, examples, self.probability)

    def words(self, steps: int) -> str:
        return (
            "Poisson sampling: each example takes part in each step independently with probability "
            f"{self.probability!r}."
        )

    @property
    def caution(self) -> str:
        return "Shuffled data and batches of a fixed size are not Poisson samples."
