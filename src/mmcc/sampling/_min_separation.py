"""Poisson sampling with a pause after each participation."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.errors import ParameterError, whole
from mmcc.sampling._chances import Chances
from mmcc.sampling._coins import Coins
from mmcc.sampling._participations import MAX_STEPS, Participations, Renewal, checked_probability
from mmcc.sampling._scheme import Bits, Drawing, Law, Scheme

if TYPE_CHECKING:
    from mmcc.strategies import Strategy

REMEMBERED = 128
"""How many past steps are kept to avoid a replay: more than any loader prefetches."""


@dataclass(frozen=True, slots=True)
class MinSeparation(Scheme):
    """Poisson sampling in which a participation blocks the next `separation - 1` steps.

    `probability` is the chance to take part in a step in which the example is eligible.  All
    examples are eligible at the first step; with `warm_start`, only as many as after many steps, so
    that every batch has the same expected size.
    """

    probability: float
    separation: int
    warm_start: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_probability(self.probability))
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))
        if not isinstance(self.warm_start, bool):
            raise ParameterError(f"warm_start must be True or False, got {self.warm_start!r}.")

    def __repr__(self) -> str:
        """A cold start is left out, so the text is the same as before `warm_start` existed."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())
        return f"MinSeparation({given})"

    @property
    def renewal(self) -> Renewal:
        return Renewal(self.probability, self.separation, self.warm_start)

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        return self.renewal.draw(steps, count, generator)

    def expected_batch(self, steps: int, examples: int) -> float:
        """The expected size in the long run: an example waits b - 1 steps and then 1/p on average.

        Without a warm start all examples are eligible at first, so the first batches are larger, up
        to p of the examples.
        """
        return examples * self.renewal.rate

    def chances(self, steps: int) -> Chances | None:
        return self.renewal.chances(steps)

    def chance(self, steps: int) -> float:
        return self.renewal.chance(steps)

    def least_gap(self, steps: int) -> int:
        return self.separation

    def sensitivity(self, strategy: Strategy) -> float:
        return strategy.sensitivity_apart(min(self.separation, strategy.steps))

    def law(self, steps: int) -> Law:
        """The law of participation, by recursion over the steps.

        With b the separation and p the probability,

            r_t = p (1 - r_(t-1) - ... - r_(t-b+1)),    r_st = r_s r_(t-s-b) for t >= s + b,

        because an example is eligible unless it took part in the last b - 1 steps, and after a
        participation at s the process restarts at s + b.  After a warm start every r_t is the rate,
        and the number of participations is that of a cold start at step r, where r is the number of
        steps blocked at first.
        """
        p, b = self.probability, self.separation
        fresh = np.zeros(steps)
        for step in range(steps):
            fresh[step] = p * (1 - fresh[max(0, step - b + 1) : step].sum())
        rates = np.full(steps, self.renewal.rate) if self.warm_start else fresh
        pairs = np.zeros((steps, steps))
        for step in range(steps):
            pairs[step, step + b :] = rates[step] * fresh[: max(0, steps - step - b)]
        return Law(
            share=1,
            rates=rates,
            pairs=pairs + pairs.T,
            numbers=self._numbers(steps),
            independent=True,
            steps_independent=False,
            surprise=-math.log(max(rates[0], 1 - rates[0])),
        )

    def _numbers(self, steps: int) -> FloatArray:
        """The law of the number of participations."""
        p, b = self.probability, self.separation
        after = np.zeros((steps + 1, steps + 1))  # row s: the example is eligible at step s
        after[steps, 0] = 1
        for step in reversed(range(steps)):
            after[step] = (1 - p) * after[step + 1]
            after[step, 1:] += p * after[min(step + b, steps), :-1]
        if not self.warm_start:
            return np.asarray(after[0])
        blocked = after[1:b].sum(axis=0)
        blocked[0] += max(b - 1 - steps, 0)
        return np.asarray((after[0] + p * blocked) / (1 + (b - 1) * p))

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        blocked = self.renewal.draw_blocked(examples, bits.of_arrangement(0))
        return _Separated(Coins(bits, examples, self.probability), self.separation, blocked)

    def arguments(self) -> Mapping[str, Any]:
        numbers = {"probability": self.probability, "separation": self.separation}
        return {**numbers, "warm_start": True} if self.warm_start else numbers

    def words(self, steps: int) -> str:
        start = " As many examples are blocked at the first step as at any other." * self.warm_start
        return (
            f"Each example takes part with probability {self.probability!r} in a step in which "
            f"it is eligible; a participation blocks the next {self.separation - 1} steps.{start}"
        )

    @property
    def caution(self) -> str:
        if self.warm_start:
            return "Batches vary in size, and some examples are already blocked at the first step."
        return "Batches vary in size, and every example is eligible at the first step."


class _Separated:
    """A coin for each example in each step, which counts only if the example is eligible.

    Coins of blocked examples are tossed but ignored: the coins that count stay independent, and a
    step costs no more than under Poisson sampling.  Eligibility depends on all earlier steps, so a
    jump back beyond the remembered steps replays the run from its start.
    """

    def __init__(self, coins: Coins, separation: int, blocked: IntArray) -> None:
        self.coins, self.separation, self.blocked = coins, separation, blocked
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
        self.eligible_from = self.blocked.copy()

    def _advance(self) -> None:
        heads = self.coins.at(self.next)
        members = heads[self.eligible_from[heads] <= self.next]
        self.eligible_from[members] = self.next + self.separation
        self.recent.append(members)
        self.next += 1
