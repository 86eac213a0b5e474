"""The cascade: the law of the likelihood ratio itself, for one of several bins.

Bins that form a tree: both ends.  Other bins: the upper end, for a chain that is above them.
Proofs: docs/theory-bins.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mmcc.accounting._bounds.base import NOTHING_KNOWN, Answer, Bound, Cost, LowerEnd, Problem
from mmcc.accounting._bounds.cascade.chain import ChainBracket
from mmcc.accounting._bounds.cascade.law import TreeBracket
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.errors import MethodError, PrecisionError, StrategyError
from mmcc.strategies._hierarchy import Node

MOST_BINS = 128
"""The linear programme that finds a chain has a row for every pair of bins."""


@dataclass(frozen=True)
class Cascade(Bound):
    """On trees both ends from one analysis, a tenth of a per cent apart; or an upper end."""

    name: ClassVar[str] = "cascade"

    def refusal(self, problem: Problem) -> str | None:
        if problem.positions is None:
            return (
                f"the cascade is for one position in every epoch, as in BallsInBins, not for "
                f"{problem.scheme!r}."
            )
        if problem.tree_of_positions is None and not 2 <= problem.positions <= MOST_BINS:
            return (
                "the cascade is for balls-in-bins on trees whose epochs are complete subtrees, on "
                f"independent noise, and on other matrices for 2 to {MOST_BINS} bins."
            )
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.FAST if problem.tree_of_positions is not None else Cost.SLOW

    def close(self, problem: Problem) -> bool:
        return problem.tree_of_positions is not None

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return _bracket(problem, delta).bound_epsilon(delta)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return _bracket(problem, _least_delta(problem, epsilon)).bound_delta(epsilon)

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        return self._lower(problem, delta, lambda tree: tree.lower_epsilon(delta))

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        least = _least_delta(problem, epsilon)
        return self._lower(problem, least, lambda tree: tree.lower_delta(epsilon))

    def _lower(
        self, problem: Problem, delta: float, ask: Callable[[TreeBracket], Answer]
    ) -> LowerEnd:
        tree = problem.tree_of_positions
        if tree is None:
            return NOTHING_KNOWN
        try:
            found = ask(_of_tree(problem, tree, delta)).value
        except (MethodError, PrecisionError, StrategyError):
            return NOTHING_KNOWN
        return LowerEnd(found, closed=found > 0)


def _bracket(problem: Problem, delta: float) -> TreeBracket | ChainBracket:
    """The law of the likelihood ratio, made for deltas down to this."""
    tree = problem.tree_of_positions
    if tree is not None:
        return _of_tree(problem, tree, delta)
    refusal = Cascade().refusal(problem)
    if refusal is not None or problem.positions is None:
        raise MethodError(str(refusal))
    gram = problem.strategy.bins_gram(problem.positions, problem.sigma)
    overlaps = gram.matrix * gram.scale * (1 + 2 * gram.error)
    return problem.kept((ChainBracket, delta), lambda: ChainBracket(overlaps, delta))


def _of_tree(problem: Problem, tree: Node, delta: float) -> TreeBracket:
    return problem.kept((TreeBracket, delta), lambda: TreeBracket(tree, problem.sigma, delta))


def _least_delta(problem: Problem, epsilon: float) -> float:
    return max(bound_gaussian_delta(problem.ratio, epsilon), 1e-290) * 1e-3
