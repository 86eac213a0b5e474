"""Every certified bound by its name, asked in the same way.

In: a mechanism with its noise level, a plan (which bound, how).  Out: an `Answer` with the numbers
of both adjacencies.  Rounding: upwards; `lower_*` downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from mmcc.accounting._bounds import chain, lower_composition
from mmcc.accounting._bounds.cascade import Cascade
from mmcc.accounting._bounds.mmcc import Outcome, analyse, has_events, uncorrelated
from mmcc.accounting._bounds.projection.bracket import Projection
from mmcc.accounting._bounds.sides import Sides
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._guarantee import Details
from mmcc.accounting._losses.composed import Question
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._parallel import one_thread
from mmcc.errors import MethodError, MmccError, PrecisionError, StrategyError
from mmcc.sampling import Rounds, Scheme
from mmcc.sampling._scheme import unproven
from mmcc.strategies._base import Order, Strategy
from mmcc.strategies._hierarchy import Node

EVEN = 0.5
"""The paper's split of delta between bad events and composition."""
COMPOSED = 0.98
"""A composed lower bound of more than this part of the upper one needs no other."""
MOST_KINDS = 200
"""Independent steps of more kinds than this are not composed for a lower bound."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One certified bound: which, in which order of analysis, with which share for bad events."""

    bound: str
    order: Order = "release"
    share: float = EVEN

    def __str__(self) -> str:
        return f"mmcc, rows in {self.order} order" if self.bound == "mmcc" else self.bound


RARELY = Plan("chance of participation, which protects nobody who takes part")
"""delta is at most the chance that the example takes part at all, at every epsilon and sigma."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The numbers asked for and how they came about."""

    sides: Sides
    plan: Plan
    delta_1: float = 0.0
    outcome: Outcome | None = None

    @property
    def value(self) -> float:
        """What is promised: the larger adjacency."""
        return self.sides.value


@dataclass(eq=False)
class Problem:
    """A mechanism with its noise level, and how to compute."""

    strategy: Strategy
    scheme: Scheme
    sigma: float
    effort: Effort = field(default_factory=Effort)
    _cascades: dict[float, Cascade] = field(default_factory=dict)
    _composed: dict[tuple[Plan, Question], Answer] = field(default_factory=dict)

    def at(self, sigma: float) -> Problem:
        """The same mechanism with another noise level."""
        return Problem(self.strategy, self.scheme, sigma, self.effort)

    @cached_property
    def sensitivity(self) -> float:
        """|C 1_S| for the worst participation set that the scheme allows, rounded up."""
        return self.scheme.sensitivity(self.strategy)

    @cached_property
    def chance(self) -> float:
        """How likely it is, at most, that the example takes part at all."""
        return self.scheme.chance(self.strategy.steps)

    def rarely(self, delta: float | None = None) -> Answer | None:
        """By the chance to take part alone: delta, or epsilon 0 at a delta; None if that is no use.

        Participation does not depend on what was released, so with the example the output has the
        law (1 - chance) Q + chance R, Q the law without it: P(A) - e^eps Q(A) <= chance, and
        Q(A) - e^eps P(A) <= 1 - (1 - chance) e^eps <= chance, for every A and eps >= 0.
        """
        if delta is None:
            return _both(self.chance, RARELY) if self.chance < 1.0 else None
        return _both(0.0, RARELY) if self.chance <= delta else None

    def epsilon(self, plan: Plan, delta: float) -> Answer:
        """Certified epsilon at delta by one plan."""
        if plan.bound == "unamplified":
            return _both(bound_gaussian_epsilon(self._ratio(), delta), plan)
        if plan.bound == "cascade":
            return Answer(self.cascade(delta).bound_epsilon(delta), plan)
        if plan.bound == "projection":
            return Answer(self.projection.bound_epsilon(delta), plan)
        if plan.bound == "chain":
            return Answer(self._chain(chain.bound_epsilon, delta), plan)
        asked = plan, Question(delta=delta)
        if asked not in self._composed:
            delta_1 = plan.share * delta if self.has_events(plan) else 0.0
            outcome = self._analyse(plan, delta_1, Question(delta=delta - delta_1))
            self._composed[asked] = Answer(_sides(outcome), plan, delta_1, outcome)
        return self._composed[asked]

    def delta(self, plan: Plan, epsilon: float) -> Answer:
        """Certified delta at epsilon by one plan.

        For MMCC delta = delta_1 + delta_2(epsilon, delta_1) is valid for every delta_1.  The
        paper's even split is where both are equal, and delta_2 falls with delta_1: a search in
        log delta_1.
        """
        if plan.bound == "unamplified":
            return _both(bound_gaussian_delta(self._ratio(), epsilon), plan)
        if plan.bound == "cascade":
            return Answer(self.cascade(self._least_delta(epsilon)).bound_delta(epsilon), plan)
        if plan.bound == "projection":
            return Answer(self.projection.bound_delta(epsilon), plan)
        if plan.bound == "chain":
            return Answer(self._chain(chain.bound_delta, epsilon), plan)
        asked = plan, Question(epsilon=epsilon)
        if asked not in self._composed:
            delta_1 = self._split(plan, epsilon) if self.has_events(plan) else 0.0
            outcome = self._analyse(plan, delta_1, Question(epsilon=epsilon))
            self._composed[asked] = Answer(_sides(outcome, delta_1), plan, delta_1, outcome)
        return self._composed[asked]

    def lower_epsilon(self, delta: float) -> float:
        """No method can prove less than this; 0 where nothing is known."""
        if self.hierarchy is not None:
            found = self._lower(self.cascade(delta).lower_epsilon, delta)
            return found or self._lower(lambda at: self.projection.lower_epsilon(at), delta)
        composed, about = self._lower_composed(delta)
        if composed > COMPOSED * about:
            return composed
        return max(composed, self._lower(lambda at: self.projection.lower_epsilon(at), delta))

    def _lower_composed(self, delta: float) -> tuple[float, float]:
        """Independent steps composed, rounded down, and the upper bound; 0 where they are not."""
        steps = self.independent_steps()
        if not steps:
            return 0.0, 0.0
        p = self.rounds.probability
        try:
            about = self.epsilon(Plan("mmcc"), delta).sides
        except MmccError:
            return 0.0, 0.0
        lower = lower_composition.lower_epsilon(steps, p, delta, "remove", about.remove)
        if lower < about.add:
            other = lower_composition.lower_epsilon(steps, p, delta, "add", about.add)
            lower = max(lower, other)
        return lower, about.value

    def independent_steps(self) -> list[lower_composition.Step]:
        """The steps of the first group, if each row has one column and each column one row."""
        rounds = self.scheme.rounds(self.strategy.steps)
        if rounds is None or rounds.probability == 1.0:
            return []
        try:
            geometry = self.strategy.geometry("release", rounds.separation, 0)
        except MmccError:
            return []
        if geometry.events or geometry.distinct > MOST_KINDS:
            return []
        blocks = list(geometry.blocks())
        if any(block.values.size * block.repeats != 1 for block in blocks):
            return []
        down = (1 - geometry.error) / self.sigma
        return [(float(block.values[0]) * down, block.count) for block in blocks]

    def lower_delta(self, epsilon: float) -> float:
        """No method can prove less than this; 0 where nothing is known."""
        if self.hierarchy is not None:
            found = self._lower(self.cascade(self._least_delta(epsilon)).lower_delta, epsilon)
            return found or self._lower(lambda at: self.projection.lower_delta(at), epsilon)
        composed, about = self._lower_composed_delta(epsilon)
        if composed > COMPOSED * about:
            return composed
        return max(composed, self._lower(lambda at: self.projection.lower_delta(at), epsilon))

    def _lower_composed_delta(self, epsilon: float) -> tuple[float, float]:
        """The same for delta at epsilon."""
        steps = self.independent_steps()
        if not steps:
            return 0.0, 0.0
        p = self.rounds.probability
        try:
            about = self.delta(Plan("mmcc"), epsilon).sides
        except MmccError:
            return 0.0, 0.0
        lower = lower_composition.lower_delta(steps, p, epsilon, "remove", about.remove)
        if lower < about.add:
            other = lower_composition.lower_delta(steps, p, epsilon, "add", about.add)
            lower = max(lower, other)
        return lower, about.value

    @cached_property
    def sampled(self) -> Rounds | int:
        """The scheme as certificates see it: independent rounds, or so many positions."""
        found = sampled(self.scheme, self.strategy.steps)
        if found is None:
            raise unproven(self.scheme)
        return found

    @property
    def rounds(self) -> Rounds:
        """The scheme, where a bound is for independent rounds only."""
        found = self.scheme.rounds(self.strategy.steps)
        if found is None:
            raise MethodError(f"this bound is for Poisson sampling, not for {self.scheme!r}.")
        return found

    @cached_property
    def hierarchy(self) -> Node | None:
        """The tree of bins, if the scheme puts examples into bins that form one."""
        positions = self.scheme.positions(self.strategy.steps)
        return None if positions is None else self.strategy.hierarchy(positions)

    def cascade(self, delta: float) -> Cascade:
        """The law of the likelihood ratio on the tree of bins, made for deltas down to this."""
        if self.hierarchy is None:
            raise MethodError(
                "the cascade is for balls-in-bins on trees whose epochs are complete subtrees, and "
                "on independent noise. Use method='tight'."
            )
        known = self._cascades.get(delta)
        if known is None:
            known = self._cascades[delta] = Cascade(self.hierarchy, self.sigma, delta)
        return known

    def _least_delta(self, epsilon: float) -> float:
        return max(bound_gaussian_delta(self._ratio(), epsilon), 1e-290) * 1e-3

    @cached_property
    def projection(self) -> Projection:
        """The projection bracket of this mechanism."""
        effort = self.effort
        return Projection(self.strategy, self.sampled, self.sigma, effort.progress, effort.executor)

    def scouting(self) -> Problem:
        """The same problem, solved roughly: for comparing plans."""
        effort = replace(self.effort, scouting=True)
        return Problem(self.strategy, self.scheme, self.sigma, effort)

    def has_events(self, plan: Plan) -> bool:
        """Whether this plan has to spend part of delta on bad events."""
        return has_events(self.strategy, self.rounds, plan.order)

    def diagnostics(self, answer: Answer, delta: float) -> Details:
        """The paper's measures of tightness, and both adjacencies."""
        outcome = answer.outcome
        sides = {"remove": answer.sides.remove, "add": answer.sides.add}
        if outcome is None:
            if answer.plan == RARELY:
                return Details({"chance_to_take_part": self.chance})
            if answer.plan.bound == "unamplified":
                return Details({"sensitivity": self._ratio() * self.sigma})
            notes = {"setting": dict(answer.sides.notes)} if answer.sides.notes else {}
            return Details({"worst_group": answer.sides.group, **sides, **notes})
        known: dict[str, Any] = {
            "order": answer.plan.order,
            "delta_1": answer.delta_1,
            "events": outcome.events,
            "worst_group": outcome.group,
            **sides,
            "max_p_tilde_over_p": outcome.blow_up,
        }
        if not answer.delta_1:
            return Details(known)
        later = partial(
            uncorrelated,
            self.strategy,
            self.rounds,
            self.sigma,
            Question(delta=delta),
            order=answer.plan.order,
            group=outcome.group,
            effort=replace(self.effort, executor=None, progress=None),
        )
        return Details(known, {"epsilon_if_p_tilde_were_p (neither bound)": later})

    def _lower(self, question: Callable[[float], Sides], at: float) -> float:
        try:
            return question(at).value
        except (MethodError, PrecisionError, StrategyError):
            return 0.0

    def _chain(self, question: Callable[..., Sides], at: float) -> Sides:
        with one_thread():
            return question(self.strategy, self.rounds, self.sigma, at, self.effort.progress)

    def _split(self, plan: Plan, epsilon: float) -> float:
        """Roughly the delta_1 that is the plan's share of delta_1 + delta_2."""
        scout = self.scouting()
        odds = plan.share / (1 - plan.share)
        low, high, guess = -280.0, 0.0, -6.0
        for _ in range(10):
            found = scout._analyse(plan, 10.0**guess, Question(epsilon=epsilon)).remove
            excess = math.log10(max(found * odds, 1e-280)) - guess
            low, high = (guess, high) if excess > 0 else (low, guess)
            if abs(excess) < 1e-2 or high - low < 1e-2:
                break
            # delta_2 falls slowly as delta_1 grows: a damped step, kept inside what is known.
            guess += 0.8 * excess
            if not low < guess < high:
                guess = 0.5 * (max(low, high - 40) + high)
        return min(float(10.0**guess), 0.5)

    def _ratio(self) -> float:
        return self.sensitivity / self.sigma * (1 + 2.0**-50)

    def _analyse(self, plan: Plan, delta_1: float, question: Question) -> Outcome:
        return analyse(
            self.strategy,
            self.rounds,
            self.sigma,
            question,
            order=plan.order,
            delta_1=delta_1,
            effort=self.effort,
        )


def sampled(scheme: Scheme, steps: int) -> Rounds | int | None:
    """What amplified certificates are proven for: rounds, or positions; None if it is neither."""
    return scheme.rounds(steps) or scheme.positions(steps)


def _both(value: float, plan: Plan) -> Answer:
    return Answer(Sides(value, value), plan)


def _sides(outcome: Outcome, delta_1: float | None = None) -> Sides:
    """Both adjacencies of MMCC; a delta has the bad events' share added."""
    remove, add = outcome.remove, outcome.add
    if delta_1 is not None:
        remove, add = (min((delta_1 + part) * (1 + 1e-15), 1.0) for part in (remove, add))
    return Sides(remove, add, outcome.group)
