"""The reveal bounds: participation is revealed to the adversary once the evidence has been used.

They cover Toeplitz strategies and trees under independent rounds, and Toeplitz strategies with a
gap between participations or random allocation.  Proofs: docs/theory-reveal.md,
docs/theory-reveal-separation.md, docs/theory-allocation-chains.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from mmcc._methods import REVEAL
from mmcc.accounting._bounds.base import (
    NOTHING_BESIDE,
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
from mmcc.accounting._bounds.reveal.chains.upper import ADJACENCIES, ChainProblem, problem_apart
from mmcc.accounting._bounds.reveal.epochs.upper import allocation_problem
from mmcc.accounting._bounds.reveal.lower import apart
from mmcc.accounting._bounds.reveal.planes.upper import problem_for
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._parallel import one_thread
from mmcc.errors import MethodError
from mmcc.sampling import Allocation, Rounds
from mmcc.strategies._tree import Tree

MOST_MEMBERS = 32
"""Largest group, since each number of participating members has its own transfer matrix."""
LEAST_CHANCE = 1e-280
"""Least chance that all members of a group, or none, take part in a step, for floating point."""


@dataclass(frozen=True)
class Reveal(Bound):
    """The reveal bound; its cost grows with the logarithm of the number of steps."""

    name: ClassVar[str] = REVEAL
    groups: ClassVar[Groups] = Groups.OWN

    shape: Shape | None = None
    """The shape of the dominating chain; None if it has not been chosen yet."""

    def refusal(self, problem: Problem) -> str | None:
        if problem.allocation is not None:
            return _refused_allocation(problem, problem.allocation)
        if problem.rounds is None:
            return _refusal_apart(problem)
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
        return Cost.STEADY if problem.allocation is None else Cost.SHORT

    def close(self, problem: Problem) -> bool:
        """True for one-buffer BLTs: the chain has the same Gram matrix, so little is lost."""
        return problem.strategy.toeplitz is not None and problem.strategy.toeplitz.geometric

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return self.epsilon_beside(problem, delta, NOTHING_BESIDE)

    def epsilon_beside(self, problem: Problem, delta: float, known: Answer) -> Answer:
        if problem.certain:
            exact = bound_gaussian_epsilon(problem.ratio, delta)
            return Answer(exact, exact)
        if _tree(problem) is not None:
            progress = problem.effort.progress
            return trees.bound_epsilon(*_tree_problem(problem), delta, progress, known)
        shape = _shape(self.tune_for_epsilon(problem, delta))
        if known.remove >= known.add and self._is_larger(problem, shape, delta, known.remove):
            return NOTHING_BESIDE
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
        return self._chain_delta(problem, epsilon, ADJACENCIES)

    def delta_of(self, problem: Problem, epsilon: float, adjacency: str) -> Answer:
        if problem.certain or _tree(problem) is not None:
            return self.delta(problem, epsilon)
        return self._chain_delta(problem, epsilon, (adjacency,))

    def outlook(self, problem: Problem, delta: float) -> float:
        """Also 0 if columns overlap with few others: then no other bound is worth waiting for."""
        if problem.rounds is None or _has_no_shape(problem) or not problem.dense:
            return 0.0
        shape = _shape(self.tune_for_epsilon(problem, delta))
        with one_thread():
            return _chain_problem(problem).outlook(shape, delta)

    def _is_larger(self, problem: Problem, shape: Shape, delta: float, epsilon: float) -> bool:
        """Whether the chain itself is certain to have a larger epsilon than this at delta.

        Tested only if its moments suggest it.
        """
        return (
            self.outlook(problem, delta) > epsilon
            and _chain_problem(problem).shown_delta(shape, epsilon) > delta
        )

    def tune_for_epsilon(self, problem: Problem, delta: float) -> Reveal:
        if self._shape_is_decided(problem):
            return self
        return problem.remember(
            (Reveal, "tuned", delta), lambda: self._best_for_epsilon(problem, delta)
        )

    def tune_for_delta(self, problem: Problem, epsilon: float) -> Reveal:
        if self._shape_is_decided(problem):
            return self
        with one_thread():
            return replace(self, shape=_chain_problem(problem).best_shape_for_delta(epsilon))

    def lower_cost(self, problem: Problem) -> Cost:
        return Cost.SHORT

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        sums = _sums(problem)
        if sums is not None:
            return LowerEnd(apart.lower_epsilon(sums, delta))
        return _known(lower.lower_epsilon, problem, delta)

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        sums = _sums(problem)
        if sums is not None:
            return LowerEnd(apart.lower_delta(sums, epsilon))
        return _known(lower.lower_delta, problem, epsilon)

    def _best_for_epsilon(self, problem: Problem, delta: float) -> Reveal:
        with one_thread():
            return replace(self, shape=_chain_problem(problem).best_shape(delta))

    def _chain_delta(self, problem: Problem, epsilon: float, adjacencies: Sequence[str]) -> Answer:
        chosen = self.tune_for_delta(problem, epsilon)
        with one_thread():
            return _chain_problem(problem).delta(_shape(chosen), epsilon, adjacencies)

    def _shape_is_decided(self, problem: Problem) -> bool:
        return self.shape is not None or _has_no_shape(problem)


def _has_no_shape(problem: Problem) -> bool:
    """Whether no chain is asked: all take part in every round, or the strategy is a tree."""
    return problem.certain or _tree(problem) is not None


def _refusal_apart(problem: Problem) -> str | None:
    """Why the bound does not apply without independent rounds; None if it does."""
    if problem.renewal is None:
        return (
            "the reveal bounds need independent rounds, a gap between participations or random "
            f"allocation, and prove nothing for {problem.scheme!r}."
        )
    if problem.strategy.toeplitz is None:
        return (
            f"with a gap between participations the reveal bounds need a Toeplitz strategy, not "
            f"{problem.strategy!r}."
        )
    if problem.group_size > 1:
        return "with a gap between participations the reveal bounds are proven for one example."
    return None


def _refused_allocation(problem: Problem, allocation: Allocation) -> str | None:
    if problem.strategy.toeplitz is None:
        return (
            "under random allocation the reveal bounds need a Toeplitz strategy, not "
            f"{problem.strategy!r}."
        )
    if problem.group_size > 1:
        return "under random allocation the reveal bounds are proven for one example."
    if allocation.participations > 1:
        return (
            "under random allocation the reveal bounds are proven for one participation per "
            f"epoch, not for {allocation.participations}."
        )
    return None


def _tree(problem: Problem) -> Tree | None:
    """The strategy as a tree, if one example takes part in rounds, as the proof needs."""
    known = problem.group_size == 1 and problem.rounds is not None
    return problem.strategy.tree if known else None


def _known(ask: Callable[..., float], problem: Problem, at: float) -> LowerEnd:
    """A lower end for one example, if the test was made for this kind of strategy."""
    toeplitz, rounds = problem.strategy.toeplitz, problem.rounds
    if toeplitz is None or rounds is None or problem.group_size > 1:
        return NOTHING_KNOWN
    return LowerEnd(ask(toeplitz, rounds, problem.sigma, at))


def _sums(problem: Problem) -> apart.Sums | None:
    """What one direction of the output reveals about participations that are a gap apart."""
    renewal = problem.renewal
    if renewal is None or problem.steps > apart.MOST_COLUMNS:
        return None

    def make() -> apart.Sums | None:
        return apart.sums_along(problem.strategy.gram(1, 0, problem.sigma), renewal)

    return problem.remember(apart.Sums, make)


def _tree_problem(problem: Problem) -> tuple[Tree, Rounds, float]:
    tree, rounds = _tree(problem), problem.rounds
    refused = Reveal().refusal(problem)
    if tree is None or rounds is None or refused is not None:
        raise MethodError(str(refused))
    return tree, rounds, problem.sigma


def _chain_problem(problem: Problem) -> ChainProblem:
    """The mechanism as a problem about chains."""

    def make() -> ChainProblem:
        toeplitz, rounds, renewal = problem.strategy.toeplitz, problem.rounds, problem.renewal
        refused = Reveal().refusal(problem)
        if toeplitz is None or refused is not None:
            raise MethodError(str(refused))
        if problem.allocation is not None:
            length = problem.allocation.epoch_steps
            return allocation_problem(toeplitz, length, problem.sigma, problem.effort.progress)
        if renewal is not None:
            return problem_apart(toeplitz, renewal, problem.sigma, problem.effort.progress)
        assert rounds is not None
        prior = binomial_prior(problem.group_size, rounds.probability)
        return problem_for(toeplitz, rounds, prior, problem.sigma, problem.effort.progress)

    return problem.remember(ChainProblem, make)


def _side(problem: Problem, shape: Shape, adjacency: str, delta: float) -> Answer:
    """Epsilon of one adjacency, cached because a calibration asks for `add` later."""

    def make() -> Answer:
        with one_thread():
            return _chain_problem(problem).epsilon(shape, delta, (adjacency,))

    return problem.remember((shape, adjacency, delta), make)


def _shape(chosen: Reveal) -> Shape:
    if chosen.shape is None:
        raise MethodError("the reveal bound has no shape for this mechanism.")
    return chosen.shape
