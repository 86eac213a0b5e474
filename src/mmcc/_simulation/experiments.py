"""What is drawn to verify an epsilon: bounded variables whose mean lies above delta.

In: a pair (see `pairs`), an adjacency, an epsilon.  Out: X with 0 <= X <= `largest` for certain and

    delta(epsilon) <= E[X] + dropped,    X = weight (1 - e^{epsilon - loss})_+.

Rounding: upwards.  A loss that floating point has made too small would make X too small, so losses
move up by the pair's `rounding`, and by `UNIT` of themselves and epsilon, for the difference; X
itself by `RISE`, for the few operations that make it.

An experiment is frozen before anything is looked at: `facts` are all its numbers, for the record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mmcc._arrays import FloatArray

if TYPE_CHECKING:
    from mmcc._simulation.pairs import Pair
    from mmcc.accounting._bounds import Problem

UNIT = 2.0**-50
"""More than what two sums of numbers of this size lose."""
RISE = 1 + 2.0**-49
"""More than what expm1 (to two last digits) and two products lose."""


@dataclass(frozen=True, eq=False)
class Experiment(ABC):
    """Draws of X, everything about them fixed; subclasses add their numbers as fields."""

    pair: Pair
    remove: bool
    epsilon: float
    kind: ClassVar[str]
    """As in a record."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """X is at most this, for certain."""

    @property
    @abstractmethod
    def dropped(self) -> float:
        """What E[X] may lack of delta, rounded up: certified, not estimated."""

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Losses as the pair computes them, and weights in [0, largest]."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """All numbers but the pair, adjacency and epsilon: plain, for JSON."""

    @classmethod
    @abstractmethod
    def from_facts(
        cls, problem: Problem, pair: Pair, remove: bool, epsilon: float, facts: Mapping[str, Any]
    ) -> Experiment:
        """The experiment that a record describes; `dropped` is computed anew, never read."""

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """X, `count` times."""
        return self.values(*self.sample(count, rng), self.epsilon)

    def values(self, losses: FloatArray, weights: FloatArray, epsilon: float) -> FloatArray:
        """X at an epsilon, rounded up.  Away from the experiment's own only hints come of it."""
        shift = self.pair.rounding + UNIT * (abs(epsilon) + np.abs(losses))
        gaps = np.minimum(epsilon - (losses + shift), 0.0)
        return np.minimum(-np.expm1(gaps) * weights * RISE, self.largest)


@dataclass(frozen=True, eq=False)
class Crude(Experiment):
    """Losses as they come: no weights, and nothing is dropped but what the pair drops."""

    kind = "crude"

    @property
    def largest(self) -> float:
        """The chance of an event."""
        return 1.0

    @property
    def dropped(self) -> float:
        """By the pair: the last bits of its coins."""
        return self.pair.dropped

    def sample(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """From the pair itself."""
        losses = self.pair.losses(self.remove, count, rng)
        return losses, np.ones_like(losses)

    def facts(self) -> dict[str, Any]:
        """None."""
        return {}

    @classmethod
    def from_facts(
        cls,
        problem: Problem,  # noqa: ARG003
        pair: Pair,
        remove: bool,
        epsilon: float,
        facts: Mapping[str, Any],  # noqa: ARG003
    ) -> Crude:
        """As made."""
        return cls(pair, remove, epsilon)


KINDS: Mapping[str, type[Experiment]] = {made.kind: made for made in (Crude,)}


def experiment_for(
    problem: Problem,  # noqa: ARG001
    pair: Pair,
    remove: bool,
    epsilon: float,
    delta: float,  # noqa: ARG001
    rng: np.random.Generator,  # noqa: ARG001
) -> Experiment:
    """The experiment that needs the fewest samples to show E[X] + dropped < delta.

    It may look at draws of `rng`, which are used for nothing else.
    """
    return Crude(pair, remove, epsilon)
