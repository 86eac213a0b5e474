"""Privacy loss distributions: independent losses of both adjacencies, composed on demand.

In: parts with multiplicities: laws of sensitivities, or losses on a grid (`gridded`).
Out: epsilon(delta) and delta(epsilon).  Rounding: upper bounds.

A distribution keeps its parts, so nothing is lost by composing step by step.  If the parts are
laws, the question (epsilon at this delta, delta at that epsilon) decides the grid.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mmcc.accounting._adjacency import SIDES, Adjacency, Side
from mmcc.accounting._losses.composed import Question
from mmcc.accounting._losses.engine import Effort, bound, bound_at_least
from mmcc.accounting._losses.laws import WeightedLaws, merge_equal
from mmcc.errors import MethodError, ParameterError, PrecisionError, real, suggestion, whole

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_COUNT = 10**12
SMALLEST_DELTA = 1e-290
MARGIN = 1e-12
"""Larger than the rounding error of a sum or difference of two numbers."""


@dataclass(frozen=True, eq=False, slots=True)
class Distribution(ABC):
    """Parts of both adjacencies with their multiplicities; `slack` is added to every delta."""

    remove: tuple[tuple[Any, int], ...]
    add: tuple[tuple[Any, int], ...]
    slack: float = 0.0

    @abstractmethod
    def _answer(self, question: Question, side: Adjacency, floor: float | None = None) -> float:
        """Upper bound for one adjacency without the slack; may be rough if below `floor`."""

    @property
    def rows(self) -> int:
        """The number of mechanisms that are composed."""
        return sum(count for _, count in self.remove)

    def self_compose(self, count: int) -> Self:
        """The mechanism run `count` times."""
        count = whole("count", count, 1, MAX_COUNT)
        return replace(
            self,
            remove=tuple((part, n * count) for part, n in self.remove),
            add=tuple((part, n * count) for part, n in self.add),
            slack=add_slacks([self.slack], count),
        )

    def epsilon(self, delta: float, adjacency: Side = "both") -> float:
        """The smallest certified epsilon at this delta."""
        delta = real("delta", delta, 0, 1)
        left = (delta - self.slack) * (1 - MARGIN)
        if not left >= SMALLEST_DELTA:
            raise PrecisionError(
                f"bad events of probability {self.slack:g} leave too little of delta = {delta:g} "
                "to certify anything. Use a larger delta."
            )
        return self._largest(Question(delta=left), adjacency)

    def delta(self, epsilon: float, adjacency: Side = "both") -> float:
        """The smallest certified delta at this epsilon."""
        epsilon = real("epsilon", epsilon, 0, 1e6, closed="l")
        found = self._largest(Question(epsilon=epsilon), adjacency)
        return min((found + self.slack) * (1 + MARGIN), 1.0)

    def _largest(self, question: Question, adjacency: Side) -> float:
        if adjacency not in SIDES:
            known = suggestion(adjacency, SIDES)
            raise MethodError(f"unknown adjacency {adjacency!r}; {known}")
        if adjacency != "both":
            return self._answer(question, adjacency)
        remove = self._answer(question, "remove")
        return max(remove, self._answer(question, "add", remove))


@dataclass(frozen=True, eq=False, slots=True)
class PrivacyLossDistribution(Distribution):
    """Composed mixtures of Gaussians, both adjacencies, and the probability of bad events.

    `slack` is added to every delta.  All answers are upper bounds.
    """

    remove: WeightedLaws
    add: WeightedLaws
    spacing: float | None = None

    def __repr__(self) -> str:
        slack = f", slack={self.slack:g}" if self.slack else ""
        return (
            f"PrivacyLossDistribution({self.rows} mechanisms, {len(self.remove)} different{slack})"
        )

    def compose(self, other: PrivacyLossDistribution) -> PrivacyLossDistribution:
        """Compose with a second mechanism, which may be chosen after seeing the first's output."""
        if not isinstance(other, PrivacyLossDistribution):
            raise ParameterError(f"can only compose with another distribution, got {other!r}.")
        return compose_all((self, other))

    def _answer(self, question: Question, side: Adjacency, floor: float | None = None) -> float:
        effort = Effort(spacing=self.spacing)
        if floor is not None and side == "add":
            return bound_at_least(lambda: self.add, self.rows, question, effort, floor)
        laws = self.remove if side == "remove" else self.add
        return bound(lambda: laws, self.rows, side, question, effort)


def compose_all(
    distributions: Sequence[PrivacyLossDistribution], bad_event_probability: float = 0.0
) -> PrivacyLossDistribution:
    """Compose all distributions, counting equal laws, and add the probability of bad events."""
    spacings = [d.spacing for d in distributions if d.spacing is not None]
    return PrivacyLossDistribution(
        remove=merge_equal(pair for d in distributions for pair in d.remove),
        add=merge_equal(pair for d in distributions for pair in d.add),
        slack=add_slacks([*(d.slack for d in distributions), bad_event_probability]),
        spacing=min(spacings) if spacings else None,
    )


def add_slacks(slacks: Iterable[float], times: int = 1) -> float:
    """The exact sum of the slacks, `times` times, rounded up and capped at one.

    It is rounded up because delta may be barely larger, and then the last bit matters.
    """
    exact = times * sum(Fraction(slack) for slack in slacks)
    found = float(exact)
    return min(math.nextafter(found, 1.0) if found < exact else found, 1.0)
