"""The reveal bounds: the adversary is told who took part, after the evidence was used.

For Toeplitz strategies and trees under independent rounds.  Proofs: docs/theory-reveal.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from mmcc.accounting._bounds.reveal import lower, trees
from mmcc.accounting._bounds.reveal.chains.chain import binomial_prior
from mmcc.accounting._bounds.reveal.chains.domination import Shape
from mmcc.accounting._bounds.reveal.chains.upper import ChainProblem
from mmcc.accounting._bounds.reveal.planes.upper import problem_for
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._parallel import one_thread
from mmcc.errors import MethodError
from mmcc.sampling import Rounds
from mmcc.strategies._tree import Tree

MOST_MEMBERS = 32
"""Of a group: each number of them that may take part has a transfer matrix of its own."""
LEAST_CHANCE = 1e-280
"""That all members take part in a step, or none: a smaller one might be lost in floating point."""


@dataclass(frozen=True)
class Reveal(Bound):
    """The cost grows with the logarithm of the number of steps."""

    name: ClassVar[str] = "reveal"
    groups: ClassVar[Groups] = Groups.OWN

    shape: Shape | None = None
    """Of the dominating chain; None if it is yet to be chosen."""

    def refusal(self, problem: Problem) -> str | None:
        if problem.rounds is None:
            return (
                f"the reveal bounds are for independent rounds, as in Poisson and CyclicPoisson, "
                f"and prove nothing for {problem.scheme!r}."
            )
        size, tree = problem.group_size, _tree(problem)
        if tree is not None:
            return trees.refusal(tree, problem.rounds)
        if problem.strategy.toeplitz is None:
            return (
                f"the reveal bounds need a Toeplitz strategy or a tree, not {problem.strategy!r}."
            )
        rare = min(problem.rounds.probability, 1 - problem.rounds.probability)
        if size > MOST_MEMBERS or (size > 1 and rare > 0 and rare**size < LEAST_CHANCE):
            return (
                f"the reveal bounds count up to {MOST_MEMBERS} members of a group, all or none of "
                f"which take part at once with a chance above {LEAST_CHANCE:g}."
            )
        if problem.counts() is None:
            return (
                "the reveal bounds count how many of a group take part; which members are the "
                f"worst under {problem.scheme!r} is not proven for {problem.strategy!r}."
            )
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.STEADY

    def close(self, problem: Problem) -> bool:
        """The chain's Gram matrix is that of a one-buffer BLT itself, so it loses little there."""
        return problem.strategy.toeplitz is not None and problem.strategy.toeplitz.geometric

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return self.epsilon_beside(problem, delta, Answer(math.inf, math.inf))

    def epsilon_beside(self, problem: Problem, delta: float, known: Answer) -> Answer:
        if problem.certain:
            exact = bound_gaussian_epsilon(problem.ratio, delta)
            return Answer(exact, exact)
        if _tree(problem) is not None:
            return trees.bound_epsilon(*_tree_problem(problem), delta, problem.effort.progress)
        shape = _shape(self.settled_for_epsilon(problem, delta))
        remove = _side(problem, shape, "remove", delta)
        if known.add <= min(remove.remove, known.remove):
            return remove
        add = _side(problem, shape, "add", delta)
        return Answer(remove.remove, add.add, notes={**remove.notes, **add.notes})

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        if problem.certain:
            exact = bound_gaussian_delta(problem.ratio, epsilon)
            return Answer(exact, exact)
        if _tree(problem) is not None:
            return trees.bound_delta(*_tree_problem(problem), epsilon, problem.effort.progress)
        chosen = self.settled_for_delta(problem, epsilon)
        with one_thread():
            return _chain_problem(problem).delta(_shape(chosen), epsilon)

    def settled_for_epsilon(self, problem: Problem, delta: float) -> Reveal:
        if self._settled(problem):
            return self
        with one_thread():
            return replace(self, shape=_chain_problem(problem).best_shape(delta))

    def settled_for_delta(self, problem: Problem, epsilon: float) -> Reveal:
        if self._settled(problem):
            return self
        with one_thread():
            return replace(self, shape=_chain_problem(problem).best_shape_for_delta(epsilon))

    def lower_cost(self, problem: Problem) -> Cost:
        return Cost.SHORT

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        return _known(lower.lower_epsilon, problem, delta)

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        return _known(lower.lower_delta, problem, epsilon)

    def _settled(self, problem: Problem) -> bool:
        return self.shape is not None or problem.certain or _tree(problem) is not None


def _tree(problem: Problem) -> Tree | None:
    """The strategy as a tree, for one example: counts of a group are not proven there."""
    return problem.strategy.tree if problem.group_size == 1 else None


def _known(ask: Callable[..., float], problem: Problem, at: float) -> LowerEnd:
    """A lower end for one example, where the strategy is one that the test is made for."""
    toeplitz, rounds = problem.strategy.toeplitz, problem.rounds
    if toeplitz is None or rounds is None or problem.group_size > 1:
        return NOTHING_KNOWN
    return LowerEnd(ask(toeplitz, rounds, problem.sigma, at))


def _tree_problem(problem: Problem) -> tuple[Tree, Rounds, float]:
    tree, rounds = _tree(problem), problem.rounds
    refused = Reveal().refusal(problem)
    if tree is None or rounds is None or refused is not None:
        raise MethodError(str(refused))
    return tree, rounds, problem.sigma


def _chain_problem(problem: Problem) -> ChainProblem:
    """The mechanism as the chain's side sees it."""

    def make() -> ChainProblem:
        toeplitz, rounds = problem.strategy.toeplitz, problem.rounds
        refused = Reveal().refusal(problem)
        if toeplitz is None or rounds is None or refused is not None:
            raise MethodError(str(refused))
        prior = binomial_prior(problem.group_size, rounds.probability)
        return problem_for(toeplitz, rounds, prior, problem.sigma, problem.effort.progress)

    return problem.kept(ChainProblem, make)


def _side(problem: Problem, shape: Shape, adjacency: str, delta: float) -> Answer:
    """Epsilon of one adjacency, computed once: a calibration asks for `add` later."""

    def make() -> Answer:
        with one_thread():
            return _chain_problem(problem).epsilon(shape, delta, (adjacency,))

    return problem.kept((shape, adjacency, delta), make)


def _shape(chosen: Reveal) -> Shape:
    if chosen.shape is None:
        raise MethodError("the reveal bound has no shape for this mechanism.")
    return chosen.shape
