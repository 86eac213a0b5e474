"""Bounds in closed form: without use of sampling, and by the chance of participation only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from mmcc._methods import UNAMPLIFIED
from mmcc.accounting._bounds.base import (
    Answer,
    Bound,
    Cost,
    Groups,
    LowerEnd,
    Problem,
    same,
    too_likely,
)
from mmcc.accounting._gaussian import (
    bound_gaussian_delta,
    bound_gaussian_epsilon,
    lower_gaussian_delta,
    lower_gaussian_epsilon,
)
from mmcc.accounting._guarantee import Details


@dataclass(frozen=True)
class Unamplified(Bound):
    """The Gaussian mechanism with the sensitivity of the worst participation set."""

    name: ClassVar[str] = UNAMPLIFIED
    amplified: ClassVar[bool] = False
    groups: ClassVar[Groups] = Groups.OWN

    def refusal(self, problem: Problem) -> None:
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.FREE

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return same(bound_gaussian_epsilon(problem.ratio, delta))

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return same(bound_gaussian_delta(problem.ratio, epsilon))

    def lower_cost(self, problem: Problem) -> Cost:
        return Cost.FREE

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        """Certain participation attains it: an example may take part in the worst set of steps."""
        return LowerEnd(lower_gaussian_epsilon(problem.reached / problem.sigma, delta))

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        return LowerEnd(lower_gaussian_delta(problem.reached / problem.sigma, epsilon))

    def details(self, problem: Problem, answer: Answer, delta: float) -> Details:
        found = Details({"sensitivity": problem.ratio * problem.sigma})
        relaxed = problem.relaxed
        if relaxed is None or relaxed.chance < delta:
            return found
        return found.extended({"not_amplified": too_likely(relaxed, delta)})


@dataclass(frozen=True)
class ChanceToTakePart(Bound):
    """Delta is at most the chance that the example takes part at all, at every epsilon and sigma.

    For a group it is the chance that any member does, at most the sum of their chances.

    Participation does not depend on what was released, so with the example the output has the law
    (1 - chance) Q + chance R, Q the law without it: P(A) - e^eps Q(A) <= chance, and
    Q(A) - e^eps P(A) <= 1 - (1 - chance) e^eps <= chance, for every A and eps >= 0.

    It is not a method of its own, because it protects nobody who takes part.
    """

    name: ClassVar[str] = "chance of participation, which protects nobody who takes part"
    groups: ClassVar[Groups] = Groups.OWN

    def refusal(self, problem: Problem) -> str | None:
        return None if problem.chance < 1.0 else "every example takes part."

    def cost(self, problem: Problem) -> Cost:
        return Cost.FREE

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return same(0.0 if problem.chance <= delta else math.inf)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return same(problem.chance)

    def details(self, problem: Problem, answer: Answer, delta: float) -> Details:
        return Details({"chance_to_take_part": problem.chance})
