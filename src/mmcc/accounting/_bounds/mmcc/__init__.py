"""The paper's bound, MMCC, with the order of analysis and the share of delta as free settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from mmcc._methods import MMCC
from mmcc.accounting._bounds.base import (
    NOTHING_KNOWN,
    Answer,
    Bound,
    Cost,
    Groups,
    LowerEnd,
    Problem,
)
from mmcc.accounting._bounds.mmcc import independent
from mmcc.accounting._bounds.mmcc.algorithm import analyse, has_events, uncorrelated
from mmcc.accounting._bounds.mmcc.shares import best_share
from mmcc.accounting._guarantee import Details
from mmcc.accounting._losses.composed import Question
from mmcc.errors import MethodError, MmccError, StrategyError
from mmcc.sampling import Rounds
from mmcc.strategies._base import ORDERS, Order

EVEN = 0.5
"""The paper's split of delta between bad events and composition."""
FIRST_SHARE, LEAST_SHARE = 0.1, 0.02
"""The share at which orders are compared, and the least share tried besides the even split."""
CROWDED = 24
"""With more bad events per column than this, MMCC is far behind the projection, and slow."""
MANY, CROWDED_MANY = 600, 6
"""With this many columns, that is so from this many events on: 8 bands and 2000 steps take minutes
for twice the projection's epsilon at .5, and for twenty times at 2 (docs/tightness.md)."""
COMPOSED = 0.98
"""A composed lower bound above this fraction of the upper one makes others superfluous."""
MOST_KINDS = 200
"""Most kinds of independent steps that are composed for a lower bound."""


@dataclass(frozen=True)
class Mmcc(Bound):
    """MMCC with a given order of analysis and a given share of delta for bad events."""

    order: Order = "release"
    share: float = EVEN

    name: ClassVar[str] = MMCC
    groups: ClassVar[Groups] = Groups.COUNTS

    def __str__(self) -> str:
        return f"{self.name}, rows in {self.order} order"

    @property
    def label(self) -> str:
        return f"MMCC, rows in {self.order} order (the paper's)"

    def refusal(self, problem: Problem) -> str | None:
        if problem.rounds is None:
            return (
                f"method {self.name!r} needs independent rounds, as in Poisson and CyclicPoisson, "
                f"and proves nothing for {problem.scheme!r}."
            )
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.FAST if self.exact(problem) else Cost.SLOW

    def exact(self, problem: Problem) -> bool:
        """Whether no two rows share a column, so that no probability has to be bounded.

        The grid may still cost something, so the lower bound decides whether to ask other bounds.
        """
        if problem.rounds is None or problem.certain:
            return False
        try:
            return not self.has_events(problem)
        except (MethodError, StrategyError):
            return False

    def has_events(self, problem: Problem) -> bool:
        """Whether part of delta has to be spent on bad events."""
        return problem.remember(
            (has_events, self.order),
            lambda: has_events(problem.strategy, _rounds(problem), self.order),
        )

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        def answer() -> Answer:
            delta_1 = self.share * delta if self.has_events(problem) else 0.0
            return self._analyse(problem, delta_1, Question(delta=delta - delta_1))

        return problem.remember((self, "epsilon", delta), answer)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        """Certified delta at epsilon.

        delta = delta_1 + delta_2(epsilon, delta_1) is valid for every delta_1.  In the paper's even
        split both are equal; since delta_2 falls with delta_1, it is found by a search in log
        delta_1.
        """

        def answer() -> Answer:
            delta_1 = self._split(problem, epsilon) if self.has_events(problem) else 0.0
            found = self._analyse(problem, delta_1, Question(epsilon=epsilon))
            remove, add = (
                min((delta_1 + part) * (1 + 1e-15), 1.0) for part in (found.remove, found.add)
            )
            return replace(found, remove=remove, add=add)

        return problem.remember((self, "delta", epsilon), answer)

    def worthwhile(self, problem: Problem, known: Sequence[Answer]) -> bool:
        """False if another bound has answered and very many probabilities must be bounded."""
        others = (a for a in known if a.bound is not None and a.bound.amplified)
        if not any(math.isfinite(a.value) for a in others):
            return True
        geometry = problem.strategy.geometry(self.order, _rounds(problem).separation, 0)
        most = CROWDED_MANY if geometry.columns > MANY else CROWDED
        return not geometry.events > most * geometry.columns

    def tune_for_epsilon(self, problem: Problem, delta: float) -> Mmcc:
        """Choose the best order, then the best share: a rough search for one adjacency."""
        if self.exact(problem):
            return self
        scout = problem.scouting()

        def value(bound: Mmcc) -> float:
            return bound.epsilon(scout, delta).remove

        orders = [replace(self, order=order, share=FIRST_SHARE) for order in _orders(problem)]
        best = min(orders, key=value) if len(orders) > 1 else orders[0]
        return best_share(best, value) if best.has_events(problem) else best

    def tune_for_delta(self, problem: Problem, epsilon: float) -> Mmcc:
        if self.exact(problem):
            return self
        scout = problem.scouting()
        tried = [
            replace(self, order=order, share=share)
            for order in _orders(problem)
            for share in (EVEN, LEAST_SHARE)
        ]
        return min(tried, key=lambda bound: bound.delta(scout, epsilon).remove)

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        """A lower bound from composing independent steps, rounded down."""
        about = partial(self.epsilon, problem, delta)
        return _compose_lower_end(problem, about, independent.lower_epsilon, delta)

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        about = partial(self.delta, problem, epsilon)
        return _compose_lower_end(problem, about, independent.lower_delta, epsilon)

    def details(self, problem: Problem, answer: Answer, delta: float) -> Details:
        """The paper's measures of tightness, and both adjacencies."""
        delta_1 = answer.notes["delta_1"]
        known = {
            "order": self.order,
            "delta_1": delta_1,
            "events": answer.notes["events"],
            "worst_group": answer.group,
            "remove": answer.remove,
            "add": answer.add,
            "max_p_tilde_over_p": answer.notes["blow_up"],
        }
        if not delta_1:
            return Details(known)
        later = partial(
            uncorrelated,
            problem.strategy,
            _rounds(problem),
            problem.sigma,
            Question(delta=delta),
            order=self.order,
            group=answer.group,
            effort=replace(problem.effort, executor=None, progress=None),
        )
        return Details(known, {"epsilon_if_p_tilde_were_p (neither bound)": later})

    def _analyse(self, problem: Problem, delta_1: float, question: Question) -> Answer:
        found = analyse(
            problem.strategy,
            _rounds(problem),
            problem.sigma,
            question,
            order=self.order,
            delta_1=delta_1,
            effort=problem.effort,
        )
        return replace(found, notes={**found.notes, "delta_1": delta_1})

    def _split(self, problem: Problem, epsilon: float) -> float:
        """Roughly the delta_1 that makes up the bound's share of delta_1 + delta_2."""
        scout = problem.scouting()
        odds = self.share / (1 - self.share)
        low, high, guess = -280.0, 0.0, -6.0
        for _ in range(10):
            found = self._analyse(scout, 10.0**guess, Question(epsilon=epsilon)).remove
            excess = math.log10(max(found * odds, 1e-280)) - guess
            low, high = (guess, high) if excess > 0 else (low, guess)
            if abs(excess) < 1e-2 or high - low < 1e-2:
                break
            # delta_2 falls slowly as delta_1 grows: a damped step, kept inside the known interval.
            guess += 0.8 * excess
            if not low < guess < high:
                guess = 0.5 * (max(low, high - 40) + high)
        return min(float(10.0**guess), 0.5)


def _orders(problem: Problem) -> Iterator[Order]:
    """The orders of analysis that differ."""
    separation = _rounds(problem).separation
    yield from dict.fromkeys(problem.strategy.same_order(o, separation) for o in ORDERS)


def independent_steps(problem: Problem) -> list[independent.Step]:
    """The steps of the first group, if each row has one column and each column one row."""
    rounds = problem.rounds
    if rounds is None or rounds.probability == 1.0:
        return []
    try:
        geometry = problem.strategy.geometry("release", rounds.separation, 0)
    except MmccError:
        return []
    if geometry.events or geometry.distinct > MOST_KINDS:
        return []
    blocks = list(geometry.blocks())
    if any(block.values.size * block.repeats != 1 for block in blocks):
        return []
    down = (1 - geometry.error) / problem.sigma
    return [(float(block.values[0]) * down, block.count) for block in blocks]


def _compose_lower_end(
    problem: Problem, about: Callable[[], Answer], lower: Callable[..., float], at: float
) -> LowerEnd:
    """The larger lower bound of both adjacencies; add is asked only if it can be the larger."""
    steps = independent_steps(problem)
    if not steps:
        return NOTHING_KNOWN
    try:
        upper = about()
    except MmccError:
        return NOTHING_KNOWN
    ask = partial(lower, steps, _rounds(problem).probability, at)
    found = ask("remove", upper.remove)
    if found < upper.add:
        found = max(found, ask("add", upper.add))
    return LowerEnd(found, closed=found > COMPOSED * upper.value)


def _rounds(problem: Problem) -> Rounds:
    """The rounds of a scheme that has them, as `refusal` has checked."""
    if problem.rounds is None:
        raise MethodError(f"this bound is for Poisson sampling, not for {problem.scheme!r}.")
    return problem.rounds
