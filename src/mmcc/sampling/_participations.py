"""The laws of one example's participations for which bounds are proven, and sets drawn from them.

In: public facts of a scheme.  Out: participation sets; chances, column by column or over all steps.
Rounding: chances are upper bounds; rates are plain floating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import ParameterError, SamplingError, real, whole
from mmcc.sampling._chances import MOST_ENTRIES, Chances

MAX_STEPS = 10**12
LEAST = 1e-300
"""The smallest positive probability that is accepted."""


@dataclass(frozen=True, eq=False, slots=True)
class Participations:
    """Participation sets, one after another: set i holds steps[edges[i] : edges[i + 1]]."""

    steps: IntArray
    edges: IntArray

    @classmethod
    def from_rows(cls, rows: IntArray) -> Participations:
        """Sets of equal size, one per row."""
        return cls(rows.reshape(-1), rows.shape[1] * np.arange(len(rows) + 1))

    def __len__(self) -> int:
        return len(self.edges) - 1

    def sizes(self) -> IntArray:
        """The number of steps in each set."""
        return np.diff(self.edges)

    def owners(self) -> IntArray:
        """The index of the set that each entry of `steps` belongs to."""
        return np.repeat(np.arange(len(self)), self.sizes())


@dataclass(frozen=True, slots=True)
class Rounds:
    """Participation in rounds g, g + separation, ..., each independent with this probability."""

    probability: float
    separation: int
    """At most the number of steps."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_probability(self.probability))
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))

    def count(self, steps: int) -> int:
        """The number of rounds of the largest group."""
        return -(-steps // self.separation)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A fresh, uniformly random set of `participations` steps in every epoch."""

    epoch_steps: int
    """Divides the number of steps."""
    participations: int = 1

    def __post_init__(self) -> None:
        steps = whole("epoch_steps", self.epoch_steps, 1, MAX_STEPS)
        times = whole("participations", self.participations, 1, MAX_STEPS)
        if times > steps:
            raise SamplingError(
                f"an epoch of {steps} steps cannot hold {times} participations; use at most "
                f"{steps} participations."
            )
        object.__setattr__(self, "epoch_steps", steps)
        object.__setattr__(self, "participations", times)


@dataclass(frozen=True, slots=True)
class Renewal:
    """Waits between participations are gap - 1 plus a geometric number of steps.

    Every example may take part in the first step; or, if `stationary`, the process starts in its
    long-run state: then the number of steps blocked at first is k with chance
    p / (1 + (gap - 1) p) for each k = 1, ..., gap - 1, where p is the probability.
    """

    probability: float
    gap: int = 1
    stationary: bool = False

    @property
    def rate(self) -> float:
        """Long-run participations per step: one in gap - 1 + 1/p."""
        return self.probability / (1 + (self.gap - 1) * self.probability)

    def chance(self, steps: int) -> float:
        """The chance to take part at all, rounded up.

        Until its first participation an example is eligible, unless it is blocked at first.  With b
        the gap, a stationary process has its first participation in step t with chance
        rate * min(1, (1-p)^(t-b+1)).
        """
        p, b = self.probability, self.gap
        if not self.stationary:
            return chance_in_rounds(p, steps)
        late = (1 - p) * chance_in_rounds(p, steps - b) if steps > b else 0.0
        return min((p * min(steps, b) + late) / (1 + (b - 1) * p) * (1 + 2.0**-49), 1.0)

    def chances(self, columns: int) -> Chances | None:
        """The chances column by column; None if the gap is too long for an automaton.

        A state is the number of columns still blocked.  A stationary process has two more: an
        example that has not taken part before column t was blocked at first for exactly k steps
        with chance p / (1 + (gap - 1) p), for each k = t + 1, ..., gap - 1, and is eligible
        otherwise; by Bayes' rule it is eligible with chance 1 / (1 + (gap - 1 - t) p).
        """
        p, longest = self.probability, min(self.gap - 1, columns)
        first = int(self.stationary)
        rows = longest + 1 if self.stationary else 1
        states = first + 1 + longest
        if rows * states > MOST_ENTRIES:
            return None
        probability = np.zeros((rows, states))
        probability[:, first] = p
        after = np.maximum(np.arange(states) - 1, first)[:, None].repeat(2, axis=1)
        after[: first + 1, 1] = states - 1
        if self.stationary:
            blocked = np.maximum(self.gap - 1 - np.arange(rows), 0)
            probability[:, 0] = p / (1 + blocked * p)
            after[0, 0] = 0
        return Chances(probability, after)

    def log_idle(self, steps: int) -> float:
        """The logarithm of the chance of never taking part."""
        if self.probability == 1.0:
            never = max(1 - steps / self.gap, 0.0) if self.stationary else 0.0
            return math.log(never) if never else -math.inf
        idle = math.log1p(-self.probability)
        if not self.stationary:
            return steps * idle
        late = math.exp(idle * (max(steps - self.gap, 0) + 1)) / self.probability
        return math.log(self.rate) + math.log(max(self.gap - steps, 0) + late)

    def draw_blocked(self, count: int, generator: np.random.Generator) -> IntArray:
        """The number of steps blocked at the start, for each example."""
        if not self.stationary or self.gap == 1:
            return np.zeros(count, np.int64)
        some = generator.random(count) < (self.gap - 1) * self.rate
        return np.where(some, generator.integers(1, self.gap, count), 0)

    def draw(self, steps: int, count: int, generator: np.random.Generator) -> Participations:
        """Draw the participation sets of `count` examples."""
        places = self.draw_blocked(count, generator)
        places = places + generator.geometric(self.probability, count) - 1
        sets: list[IntArray] = [np.empty(0, np.int64)]
        found: list[IntArray] = [np.empty(0, np.int64)]
        members = np.arange(count)
        while True:
            inside = places < steps
            members, places = members[inside], places[inside]
            if not members.size:
                break
            sets.append(members)
            found.append(places)
            waits = generator.geometric(self.probability, members.size)
            places = places + (self.gap - 1) + waits
        owner = np.concatenate(sets)
        order = np.argsort(owner, kind="stable")
        edges = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
        return Participations(np.concatenate(found)[order], edges)


def checked_probability(value: Any) -> float:
    """The value as a probability in (0, 1], large enough for floating point."""
    number = real("probability", value, 0, 1, closed="h")
    if number < LEAST:
        raise ParameterError(
            f"probability {number!r} is too small for floating point; use {LEAST:g}, at which "
            "nobody ever takes part either."
        )
    return number


def chance_in_rounds(probability: float, rounds: int) -> float:
    """1 - (1 - probability)^rounds, rounded up: four operations, none of which cancels."""
    if probability == 1.0:
        return 1.0
    return min(-math.expm1(rounds * math.log1p(-probability)) * (1 + 2.0**-49), 1.0)
