"""The projection: certified bounds on both sides for any matrix, from one output direction.

The output is projected on the direction of the mean over participation sets, where the law is
exact; the rest is bounded.  Proofs: docs/theory.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mmcc._methods import PROJECTION
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
"""From this many columns on, bounds whose cost does not grow with them are cheaper."""
FEW_COLUMNS = 600
"""Most columns for which an answer takes a second or two."""
MUCH_NOISE, LARGE_EPSILON = 5.0, 1.2
"""It may be the best bound if sigma over the column norm is above, or epsilon below, these."""


@dataclass(frozen=True)
class Projection(Bound):
    """Tight for dense matrices with much noise; the lower end holds for any method."""

    name: ClassVar[str] = PROJECTION
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
        """False for more bins than fit in memory if they form a tree, whose law is tighter anyway.

        Also false if a cheaper bound has answered and one direction cannot be enough: many columns
        that each overlap with few others, and little noise.  With a fixed number of steps in every
        epoch the sets differ less, and one direction is worth a try.
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
        """Skips add, which takes most of the time, if another bound's answer is small enough."""
        return _bracket(problem).bound_epsilon(delta, known)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return _bracket(problem).bound_delta(epsilon)

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        return _known(lambda: _bracket(problem).lower_epsilon(delta))

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        return _known(lambda: _bracket(problem).lower_delta(epsilon))


def _bracket(problem: Problem) -> ProjectionBracket:
    """The bracket of this mechanism, which caches its results."""

    def make() -> ProjectionBracket:
        sampled = problem.rounds or problem.positions or problem.allocation
        if sampled is None:
            raise unproven(problem.scheme)
        effort = problem.effort
        return ProjectionBracket(
            problem.strategy, sampled, problem.sigma, effort.progress, effort.executor
        )

    return problem.remember(ProjectionBracket, make)


def _known(ask: Callable[[], Answer]) -> LowerEnd:
    try:
        return LowerEnd(ask().value)
    except (MethodError, PrecisionError, StrategyError):
        return NOTHING_KNOWN
