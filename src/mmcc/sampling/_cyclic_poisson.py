"""Cyclic Poisson sampling: groups take turns, with a coin for each example of the current group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import whole
from mmcc.sampling._chances import Chances
from mmcc.sampling._coins import Deal, heads
from mmcc.sampling._participations import (
    MAX_STEPS,
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
class CyclicPoisson(Scheme):
    """Examples are split into `separation` groups; group t mod separation is sampled at step t.

    `probability` is the chance in a round in which it is the example's group's turn (the paper's
    bp). Probability 1 with separation = steps is one fixed pass; probability 1 with a smaller
    separation is a fixed order over many epochs.
    """

    probability: float
    separation: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_probability(self.probability))
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))

    @property
    def groups(self) -> int:
        return self.separation

    @property
    def renewal(self) -> Renewal:
        return Renewal(self.probability)

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        rounds = -(-(steps - group) // self.separation)
        drawn = self.renewal.draw(rounds, count, generator)
        return Participations(drawn.steps * self.separation + group, drawn.edges)

    def expected_batch(self, steps: int, examples: int) -> float:
        return examples * self.probability / self.separation

    def rounds(self, steps: int) -> Rounds:
        return Rounds(self.probability, min(self.separation, steps))

    def chances(self, steps: int) -> Chances:
        return Chances.constant(self.probability)

    def chance(self, steps: int) -> float:
        """The chance that an example of the largest group takes part at all, rounded up."""
        return chance_in_rounds(self.probability, -(-steps // self.separation))

    def least_gap(self, steps: int) -> int:
        return self.separation

    def sensitivity(self, strategy: Strategy) -> float:
        return strategy.sensitivity(min(self.separation, strategy.steps))

    def law(self, steps: int) -> Law:
        """The law when the groups are of equal size and dealt at random."""
        from scipy.stats import binom  # takes a while to import, and only audits need it

        p, places = self.probability, np.arange(steps)
        same = (places[:, None] - places) % self.separation == 0
        short, over = divmod(steps, self.separation)
        counts = np.arange(steps + 1)
        longer, shorter = binom.pmf(counts, short + 1, p), binom.pmf(counts, short, p)
        part = over / self.separation
        surprise = (
            -math.log(max(p, 1 - p)) / self.separation if p < 1 else deal_surprise(self.separation)
        )
        return Law(
            share=self.separation,
            rates=np.full(steps, p),
            pairs=np.where(same, p * p, 0.0),
            numbers=np.asarray(part * longer + (1 - part) * shorter),
            independent=self.separation == 1,
            steps_independent=True,
            surprise=surprise,
        )

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        return _Groups(bits, examples, self)

    def words(self, steps: int) -> str:
        return (
            f"Cyclic Poisson sampling: examples are split into {self.separation} groups without "
            "looking at the data; the groups take turns, one group per step, and each of "
            f"the group's examples takes part with probability {self.probability!r}."
        )

    @property
    def caution(self) -> str:
        return "The groups stay the same during the run, and batches vary in size."


class _Groups:
    """A fixed deal into groups, and a coin for each example of the group whose turn it is."""

    def __init__(self, bits: Bits, examples: int, scheme: CyclicPoisson) -> None:
        self.bits, self.scheme = bits, scheme
        self.deal = Deal(bits.of_arrangement(0), examples, scheme.separation)

    def at(self, step: int) -> IntArray:
        group = self.deal.part(step % self.scheme.separation)
        return np.sort(group[heads(self.bits.of_step(step), group.size, self.scheme.probability)])


def deal_surprise(parts: int) -> float:
    """Surprise per example of a uniformly random subset that holds one in `parts` examples.

    log C(N, N / k) / N grows with N; N = k is the smallest population there is.
    """
    return math.log(parts) / parts
