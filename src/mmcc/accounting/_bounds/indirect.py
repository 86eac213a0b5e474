"""A bound that is asked about another mechanism in place of the one in question.

In: a problem and a bound.  Out: the bound's answers for a problem that replaces it, under the
bound's own name.  Rounding: as in the bound that is asked.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mmcc.accounting._bounds.base import Answer, Bound, Cost, LowerEnd, Problem
from mmcc.accounting._guarantee import Details


@dataclass(frozen=True)
class IndirectBound(Bound):
    """A bound applied to another problem; subclasses define which, and why its answers hold."""

    once: Bound

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.once.name)  # the method keeps the bound's own name

    @abstractmethod
    def other(self, problem: Problem) -> Problem:
        """The problem that the bound is asked about instead."""

    def cost(self, problem: Problem) -> Cost:
        return self.once.cost(self.other(problem))

    def exact(self, problem: Problem) -> bool:
        return self.once.exact(self.other(problem))

    def close(self, problem: Problem) -> bool:
        return self.once.close(self.other(problem))

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return self.once.epsilon(self.other(problem), delta)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return self.once.delta(self.other(problem), epsilon)

    def lower_cost(self, problem: Problem) -> Cost:
        return self.once.lower_cost(self.other(problem))

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        return self.once.lower_epsilon(self.other(problem), delta)

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        return self.once.lower_delta(self.other(problem), epsilon)

    def worthwhile(self, problem: Problem, known: Sequence[Answer]) -> bool:
        same_kind = [
            replace(answer, bound=answer.bound.once)
            for answer in known
            if isinstance(answer.bound, type(self))
        ]
        return self.once.worthwhile(self.other(problem), same_kind)

    def outlook(self, problem: Problem, delta: float) -> float:
        return self.once.outlook(self.other(problem), delta)

    def tune_for_epsilon(self, problem: Problem, delta: float) -> Bound:
        return replace(self, once=self.once.tune_for_epsilon(self.other(problem), delta))

    def tune_for_delta(self, problem: Problem, epsilon: float) -> Bound:
        return replace(self, once=self.once.tune_for_delta(self.other(problem), epsilon))

    def details(self, problem: Problem, answer: Answer, delta: float) -> Details:
        return self.once.details(self.other(problem), answer, delta)
