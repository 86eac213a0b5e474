"""The cascade: the law of the likelihood ratio itself, for an example in one of several bins.

Bins that form a tree have both ends.  Other bins have an upper end, through a chain that dominates
them.  Bins drawn anew in epochs that share nothing have both ends, by composing laws.  Proofs:
docs/theory-bins.md, docs/theory-allocation.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mmcc._methods import CASCADE
from mmcc.accounting._bounds.base import NOTHING_KNOWN, Answer, Bound, Cost, LowerEnd, Problem
from mmcc.accounting._bounds.cascade.allocation import AllocationBracket
from mmcc.accounting._bounds.cascade.chain import ChainBracket
from mmcc.accounting._bounds.cascade.law import TreeBracket
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.errors import MethodError, PrecisionError, StrategyError
from mmcc.strategies._hierarchy import Epochs

MOST_BINS = 128
"""Most bins for which a chain is searched; its linear programme has a row per pair of bins."""
ORDINARY = 1e-12
"""Laws that reach far enough for this delta also serve all larger deltas."""

Bracket = TreeBracket | AllocationBracket


@dataclass(frozen=True)
class Cascade(Bound):
    """On trees, both ends from one analysis, a tenth of a per cent apart; else an upper end."""

    name: ClassVar[str] = CASCADE

    def refusal(self, problem: Problem) -> str | None:
        if problem.positions is not None:
            if problem.tree_of_positions is not None or 2 <= problem.positions <= MOST_BINS:
                return None
            return (
                "the cascade is for balls-in-bins on trees whose epochs are complete subtrees, on "
                f"independent noise, and on other matrices for 2 to {MOST_BINS} bins."
            )
        if problem.allocation is None:
            return (
                "the cascade is for one position in every epoch, as in BallsInBins and "
                f"RandomAllocation, not for {problem.scheme!r}."
            )
        if _epochs(problem) is None:
            return (
                "the cascade covers steps drawn anew only if epochs share no row: for independent "
                "noise, and for one participation per epoch in trees restarted with every epoch."
            )
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.FAST if self.close(problem) else Cost.SLOW

    def close(self, problem: Problem) -> bool:
        return problem.tree_of_positions is not None or _epochs(problem) is not None

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return _bracket(problem, delta).bound_epsilon(delta)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return _bracket(problem, _least_delta(problem, epsilon)).bound_delta(epsilon)

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        return self._lower(problem, delta, lambda bracket: bracket.lower_epsilon(delta))

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        least = _least_delta(problem, epsilon)
        return self._lower(problem, least, lambda bracket: bracket.lower_delta(epsilon))

    def _lower(self, problem: Problem, delta: float, ask: Callable[[Bracket], Answer]) -> LowerEnd:
        if not self.close(problem):
            return NOTHING_KNOWN
        bracket = _bracket(problem, delta)
        assert not isinstance(bracket, ChainBracket)
        try:
            found = ask(bracket).value
        except (MethodError, PrecisionError, StrategyError):
            return NOTHING_KNOWN
        return LowerEnd(found, closed=found > 0)


def _bracket(problem: Problem, delta: float) -> Bracket | ChainBracket:
    """The law of the likelihood ratio, made for deltas down to this one."""
    tree, epochs, sigma = problem.tree_of_positions, _epochs(problem), problem.sigma
    if tree is not None:
        return problem.remember((TreeBracket, delta), lambda: TreeBracket(tree, sigma, delta))
    if epochs is not None and problem.allocation is not None:
        times, least = problem.allocation.participations, min(delta, ORDINARY)
        return problem.remember(
            (AllocationBracket, least), lambda: AllocationBracket(epochs, times, sigma, least)
        )
    refusal = Cascade().refusal(problem)
    if refusal is not None or problem.positions is None:
        raise MethodError(str(refusal))
    gram = problem.strategy.bins_gram(problem.positions, sigma)
    overlaps = gram.matrix * gram.scale * (1 + 2 * gram.error)
    return problem.remember((ChainBracket, delta), lambda: ChainBracket(overlaps, delta))


def _epochs(problem: Problem) -> Epochs | None:
    """Epochs that share nothing, with steps drawn anew in each; several only if all are alike.

    A single epoch in which one step is drawn is balls-in-bins.
    """
    allocation = problem.allocation
    if allocation is None or problem.positions is not None:
        return None
    found = problem.remember(
        Epochs, lambda: problem.strategy.separate_epochs(allocation.epoch_steps)
    )
    if found is None or allocation.participations == 1 or all(tree.flat for _, tree in found):
        return found
    return None


def _least_delta(problem: Problem, epsilon: float) -> float:
    return max(bound_gaussian_delta(problem.ratio, epsilon), 1e-290) * 1e-3
