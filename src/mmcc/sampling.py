"""Who takes part when: frozen descriptions of sampling schemes.

A scheme says in which steps one example may take part, and with which probability.  It holds
public facts only; the accounting and the training read the same object.  Examples are sampled
independently of each other under every scheme but `Shuffle`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import ParameterError, SamplingError, real, whole

MAX_STEPS = 10**12
LEAST = 1e-300
"""Of probabilities above 0."""


@dataclass(frozen=True, eq=False, slots=True)
class Participations:
    """Participation sets, one after another: set i holds steps[edges[i] : edges[i + 1]]."""

    steps: IntArray
    edges: IntArray

    def __len__(self) -> int:
        return len(self.edges) - 1

    def sizes(self) -> IntArray:
        """How many steps each set has."""
        return np.diff(self.edges)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Each example takes part in each step independently with the same probability."""

    probability: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", _probability(self.probability))

    @property
    def separation(self) -> int:
        """Steps between two rounds of one example's group: every step."""
        return 1

    def chance(self, steps: int) -> float:
        """The chance that an example takes part at all, rounded up."""
        return _chance(self.probability, steps)

    def draw(self, steps: int, count: int, generator: np.random.Generator) -> Participations:
        """Participation sets of `count` examples."""
        return _renewals(steps, count, self.probability, 1, generator)


@dataclass(frozen=True, slots=True)
class CyclicPoisson:
    """Examples are split into `separation` groups; group t mod separation is sampled at step t.

    `probability` is the chance in a round in which the example's group is up (the paper's bp).
    Probability 1 with separation = steps is one fixed pass; probability 1 with a smaller
    separation is a fixed order over many epochs.
    """

    probability: float
    separation: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", _probability(self.probability))
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))

    def chance(self, steps: int) -> float:
        """The chance that an example takes part at all, rounded up; in the largest group."""
        return _chance(self.probability, -(-steps // self.separation))

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        """Participation sets of `count` examples of one group."""
        rounds = -(-(steps - group) // self.separation)
        drawn = _renewals(rounds, count, self.probability, 1, generator)
        return Participations(drawn.steps * self.separation + group, drawn.edges)


@dataclass(frozen=True, slots=True)
class MinSeparation:
    """Poisson sampling in which a participation blocks the next `separation - 1` steps.

    `probability` is the chance to take part in a step in which the example is eligible; all are
    eligible at the first step.
    """

    probability: float
    separation: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", _probability(self.probability))
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))

    def chance(self, steps: int) -> float:
        """The chance that an example takes part at all, rounded up; it is eligible until then."""
        return _chance(self.probability, steps)

    def draw(self, steps: int, count: int, generator: np.random.Generator) -> Participations:
        """Participation sets of `count` examples."""
        return _renewals(steps, count, self.probability, self.separation, generator)


@dataclass(frozen=True, slots=True)
class BallsInBins:
    """Each example draws one of `bins` positions and takes part there in every epoch.

    An epoch has `bins` steps, so the number of steps must be a multiple of it.
    """

    bins: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", whole("bins", self.bins, 1, MAX_STEPS))

    def epochs(self, steps: int) -> int:
        """How many epochs the steps make."""
        return _epochs(steps, self.bins, "bins")

    def chance(self, steps: int) -> float:
        """The chance that an example takes part at all: every one does."""
        return 1.0

    def draw(self, steps: int, count: int, generator: np.random.Generator) -> Participations:
        """Participation sets of `count` examples."""
        epochs = self.epochs(steps)
        places = generator.integers(self.bins, size=(count, 1)) + self.bins * np.arange(epochs)
        return Participations(places.reshape(-1), epochs * np.arange(count + 1))


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Each epoch of `epoch_steps` steps is shuffled anew; None is one pass over all steps.

    Examples are not independent of each other: what one takes the others cannot have.  Amplified
    numbers are for the paper's 0-1 setting, in which the other examples contribute nothing.
    """

    epoch_steps: int | None = None

    def __post_init__(self) -> None:
        if self.epoch_steps is not None:
            steps = whole("epoch_steps", self.epoch_steps, 1, MAX_STEPS)
            object.__setattr__(self, "epoch_steps", steps)

    def epochs(self, steps: int) -> int:
        """How many epochs the steps make."""
        return 1 if self.epoch_steps is None else _epochs(steps, self.epoch_steps, "epoch_steps")

    def chance(self, steps: int) -> float:
        """The chance that an example takes part at all: every one does."""
        return 1.0

    def draw(self, steps: int, count: int, generator: np.random.Generator) -> Participations:
        """Participation sets of `count` examples, each drawn from a shuffle of its own."""
        epochs = self.epochs(steps)
        length = steps // epochs
        places = generator.integers(length, size=(count, epochs)) + length * np.arange(epochs)
        return Participations(places.reshape(-1), epochs * np.arange(count + 1))


PoissonScheme = Poisson | CyclicPoisson
"""Rounds in which an example takes part independently of all other rounds."""
Scheme = PoissonScheme | MinSeparation | BallsInBins | Shuffle
SCHEMES = (Poisson, CyclicPoisson, MinSeparation, BallsInBins, Shuffle)

ZERO_ONE = "the 0-1 setting of the paper: the other examples contribute nothing, inputs are fixed"
"""What amplified numbers for `Shuffle` assume."""


def _probability(value: Any) -> float:
    number = real("probability", value, 0, 1, closed="h")
    if number < LEAST:
        raise ParameterError(
            f"probability {number!r} is too small for floating point; use {LEAST:g}, with which "
            "nobody takes part either."
        )
    return number


def _chance(probability: float, rounds: int) -> float:
    """1 - (1 - probability)^rounds, rounded up: four operations, none of which cancels."""
    if probability == 1.0:
        return 1.0
    return min(-math.expm1(rounds * math.log1p(-probability)) * (1 + 2.0**-49), 1.0)


def _epochs(steps: int, length: int, name: str) -> int:
    if steps % length:
        raise SamplingError(
            f"{steps} steps are not a whole number of epochs of {length} steps; "
            f"choose {name} so that it divides the number of steps."
        )
    return steps // length


def _renewals(
    steps: int, count: int, probability: float, separation: int, generator: np.random.Generator
) -> Participations:
    """Waits between participations are separation - 1 plus a geometric number of steps."""
    places = generator.geometric(probability, count) - 1
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
        places = places + (separation - 1) + generator.geometric(probability, members.size)
    owner = np.concatenate(sets)
    order = np.argsort(owner, kind="stable")
    edges = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))])
    return Participations(np.concatenate(found)[order], edges)
