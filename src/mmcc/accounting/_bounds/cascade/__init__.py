"""The cascade: the law of the likelihood ratio itself, for one of several bins that form a tree.

Proofs: docs/theory-bins.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mmcc.accounting._bounds.base import NOTHING_KNOWN, Answer, Bound, Cost, LowerEnd, Problem
from mmcc.accounting._bounds.cascade.law import TreeBracket
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.errors import MethodError, PrecisionError, StrategyError


@dataclass(frozen=True)
class Cascade(Bound):
    """Both ends from one analysis, a tenth of a per cent apart."""

    name: ClassVar[str] = "cascade"

    def refusal(self, problem: Problem) -> str | None:
        if problem.positions is None:
            return (
                f"the cascade is for one position in every epoch, as in BallsInBins, not for "
                f"{problem.scheme!r}."
            )
        if problem.tree_of_positions is None:
            return (
                "the cascade is for balls-in-bins on trees whose epochs are complete subtrees, and "
                "on independent noise."
            )
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.FAST

    def close(self, problem: Problem) -> bool:
        return True

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return _bracket(problem, delta).bound_epsilon(delta)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return _bracket(problem, _least_delta(problem, epsilon)).bound_delta(epsilon)

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        return self._lower(problem, lambda: _bracket(problem, delta).lower_epsilon(delta))

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        least = _least_delta(problem, epsilon)
        return self._lower(problem, lambda: _bracket(problem, least).lower_delta(epsilon))

    def _lower(self, problem: Problem, ask: Callable[[], Answer]) -> LowerEnd:
        if self.refusal(problem) is not None:
            return NOTHING_KNOWN
        try:
            found = ask().value
        except (MethodError, PrecisionError, StrategyError):
            return NOTHING_KNOWN
        return LowerEnd(found, closed=found > 0)


def _bracket(problem: Problem, delta: float) -> TreeBracket:
    """The law of the likelihood ratio on the tree of bins, made for deltas down to this."""
    tree = problem.tree_of_positions
    if tree is None:
        raise MethodError(str(Cascade().refusal(problem)))
    return problem.kept((TreeBracket, delta), lambda: TreeBracket(tree, problem.sigma, delta))


def _least_delta(problem: Problem, epsilon: float) -> float:
    return max(bound_gaussian_delta(problem.ratio, epsilon), 1e-290) * 1e-3
