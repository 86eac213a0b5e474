"""The projection: certified bounds on both sides for any matrix, by one direction of the output.

Everything that the output shows is projected on the direction in which the mean of the
participation sets lies; the rest is bounded.  Proofs: docs/theory.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mmcc.accounting._bounds.base import (
    NOTHING_KNOWN,
    Answer,
    Bound,
    Cost,
    Groups,
    LowerEnd,
    Problem,
)
from mmcc.accounting._bounds.projection.bracket import ProjectionBracket
from mmcc.errors import MethodError, PrecisionError, StrategyError
from mmcc.sampling._scheme import unproven
from mmcc.strategies._gram import MAX_COLUMNS

LONG = 4096
"""From this many columns on bounds that do not grow with them are cheaper."""
FEW_COLUMNS = 600
"""Up to so many the answer takes a second or two."""
MUCH_NOISE, LARGE_EPSILON = 5.0, 1.2
"""Sigma over the column norm above which, and epsilon below which, it may be the best bound."""


@dataclass(frozen=True)
class Projection(Bound):
    """Tight for dense matrices with much noise; the lower end holds for any method."""

    name: ClassVar[str] = "projection"
    groups: ClassVar[Groups] = Groups.COUNTS

    def refusal(self, problem: Problem) -> str | None:
        known = (problem.allocation, problem.rounds, problem.positions)
        if all(law is None for law in known):
            return str(unproven(problem.scheme))
        return None

    def cost(self, problem: Problem) -> Cost:
        many = problem.positions is None and problem.columns > LONG
        return Cost.LONG if many else Cost.SHORT

    def worthwhile(self, problem: Problem, known: Sequence[Answer]) -> bool:
        """Not for more bins than fit in memory if they form a tree: its law is tighter anyway.

        Nor where a cheaper bound has answered and one direction cannot be enough: many columns, of
        which each overlaps with few, and little noise.  With so many steps of every epoch the sets
        differ less, and one direction is worth a try.
        """
        if problem.allocation is not None:
            return True
        positions = problem.positions
        if positions is not None:
            return positions <= MAX_COLUMNS or problem.tree_of_positions is None
        answered = [a.value for a in known if a.bound is not None and a.bound.amplified]
        if problem.columns <= FEW_COLUMNS or not answered or min(answered) < LARGE_EPSILON:
            return True
        column = problem.strategy.sensitivity(problem.steps)
        return problem.dense or problem.sigma > MUCH_NOISE * column

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return _bracket(problem).bound_epsilon(delta)

    def epsilon_beside(self, problem: Problem, delta: float, known: Answer) -> Answer:
        """Add takes most of the time, and is left out where another bound's is small enough."""
        return _bracket(problem).bound_epsilon(delta, known)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return _bracket(problem).bound_delta(epsilon)

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        return _known(lambda: _bracket(problem).lower_epsilon(delta))

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        return _known(lambda: _bracket(problem).lower_delta(epsilon))


def _bracket(problem: Problem) -> ProjectionBracket:
    """The bracket of this mechanism, which keeps what it finds."""

    def make() -> ProjectionBracket:
        sampled = problem.rounds or problem.positions or problem.allocation
        if sampled is None:
            raise unproven(problem.scheme)
        effort = problem.effort
        return ProjectionBracket(
            problem.strategy, sampled, problem.sigma, effort.progress, effort.executor
        )

    return problem.kept(ProjectionBracket, make)


def _known(ask: Callable[[], Answer]) -> LowerEnd:
    try:
        return LowerEnd(ask().value)
    except (MethodError, PrecisionError, StrategyError):
        return NOTHING_KNOWN
