"""Poisson sampling with a pause after each participation."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import whole
from mmcc.sampling._coins import Coins
from mmcc.sampling._scheme import (
    MAX_STEPS,
    Bits,
    Drawing,
    Law,
    Participations,
    Renewal,
    Scheme,
    chance_in_rounds,
    checked_probability,
)

if TYPE_CHECKING:
    from mmcc.strategies import Strategy

REMEMBERED = 128
"""Past steps that can be answered without a replay: more than any loader prefetches."""


@dataclass(frozen=True, slots=True)
class MinSeparation(Scheme):
    """Poisson sampling in which a participation blocks the next `separation - 1` steps.

    `probability` is the chance to take part in a step in which the example is eligible; all are
    eligible at the first step.
    """

    probability: float
    separation: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_probability(self.probability))
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))

    @property
    def renewal(self) -> Renewal:
        return Renewal(self.probability, self.separation)

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        return self.renewal.draw(steps, count, generator)

    def expected_batch(self, steps: int, examples: int) -> float:
        """In the long run: an example waits b - 1 steps and then 1/p on average.

        All are eligible at first, so that the first batches are larger, up to p of the examples.
        """
        return examples * self.probability / (1 + (self.separation - 1) * self.probability)

    def chance(self, steps: int) -> float:
        """Until it takes part an example is eligible."""
        return chance_in_rounds(self.probability, steps)

    def least_gap(self, steps: int) -> int:
        return self.separation

    def sensitivity(self, strategy: Strategy) -> float:
        return strategy.sensitivity_apart(min(self.separation, strategy.steps))

    def law(self, steps: int) -> Law:
        """By recursion over the steps.

        With b the separation and p the probability,

            r_t = p (1 - r_(t-1) - ... - r_(t-b+1)),    r_st = r_s r_(t-s-b) for t >= s + b,

        for an example is eligible unless it took part in the last b - 1 steps, and after a
        participation at s all starts anew at s + b.
        """
        p, b = self.probability, self.separation
        rates = np.zeros(steps)
        for step in range(steps):
            rates[step] = p * (1 - rates[max(0, step - b + 1) : step].sum())
        pairs = np.zeros((steps, steps))
        for step in range(steps):
            pairs[step, step + b :] = rates[step] * rates[: max(0, steps - step - b)]
        numbers = np.zeros((steps + b + 1, steps + 1))  # from a step on which it is eligible
        numbers[steps:, 0] = 1
        for step in reversed(range(steps)):
            numbers[step] = (1 - p) * numbers[step + 1]
            numbers[step, 1:] += p * numbers[step + b, :-1]
        return Law(
            share=1,
            rates=rates,
            pairs=pairs + pairs.T,
            numbers=numbers[0],
            independent=True,
            steps_independent=False,
            surprise=-math.log(max(p, 1 - p)),
        )

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        return _Separated(Coins(bits, examples, self.probability), self.separation)

    def words(self, steps: int) -> str:
        return (
            f"Each example takes part with probability {self.probability!r} in a step in which "
            f"it is eligible; a participation blocks the next {self.separation - 1} steps."
        )

    @property
    def caution(self) -> str:
        return "Batches vary in size, and every example is eligible at the first step."


class _Separated:
    """A coin for each example in each step, which counts only if the example is eligible.

    Coins of blocked examples are tossed and not looked at: those that count are as independent as
    before, and a step costs no more than under Poisson sampling.  Who is eligible depends on all
    steps before, so that a jump back further than is remembered replays the run from its start.
    """

    def __init__(self, coins: Coins, separation: int) -> None:
        self.coins, self.separation = coins, separation
        self._restart()

    def at(self, step: int) -> IntArray:
        if step < self.next - len(self.recent):
            self._restart()
        while self.next <= step:
            self._advance()
        return self.recent[step - self.next]  # counted from the end

    def _restart(self) -> None:
        self.next = 0
        self.recent: deque[IntArray] = deque(maxlen=REMEMBERED)
        self.eligible_from = np.zeros(self.coins.examples, np.int64)

    def _advance(self) -> None:
        heads = self.coins.at(self.next)
        members = heads[self.eligible_from[heads] <= self.next]
        self.eligible_from[members] = self.next + self.separation
        self.recent.append(members)
        self.next += 1
