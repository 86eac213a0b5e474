"""Bounds for groups: several examples whose contributions become zero at once.

In: a problem with a `group_size`, and bounds that are proven for one example.  Out: answers for the
group.  Rounding: upwards, as in the bounds that are asked.

`ByCounts` asks a bound about a mechanism in which one example has the law of the whole group.
`GroupLemma` asks for one example's epsilon at several deltas and uses nothing else.  Proofs:
docs/theory-reveal-groups.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from mmcc._methods import GROUP_LEMMA
from mmcc.accounting._bounds.base import Answer, Bound, Cost, Groups, LowerEnd, Problem, same
from mmcc.accounting._bounds.indirect import IndirectBound
from mmcc.accounting._group_lemma import bound_group_delta, bound_group_epsilon
from mmcc.accounting._guarantee import Details
from mmcc.errors import MethodError, MmccError

CLOSE = 1.02
"""If one example's epsilon is within this factor of its lower bound, no other bound is asked."""


@dataclass(frozen=True)
class ByCounts(IndirectBound):
    """A bound for one example, applied to C with each column repeated `group_size` times."""

    name: ClassVar[str] = "counts"
    groups: ClassVar[Groups] = Groups.OWN

    def __str__(self) -> str:
        return f"{self.once}, by the number of group members that take part"

    def other(self, problem: Problem) -> Problem:
        counts = problem.counts()
        if counts is None:
            raise MethodError(
                f"counting the members of a group is not proven under {problem.scheme!r}."
            )
        return counts

    def refusal(self, problem: Problem) -> str | None:
        counts = problem.counts()
        if counts is None:
            return (
                f"method {self.once.name!r} counts how many of a group take part; which members "
                f"are the worst under {problem.scheme!r} is not proven for {problem.strategy!r}."
            )
        return self.once.refusal(counts)


@dataclass(frozen=True)
class GroupLemma(Bound):
    """The standard lemma: remove the members of the group one at a time."""

    bounds: tuple[Bound, ...] = ()
    """The bounds asked about one example; any choice is valid."""

    name: ClassVar[str] = GROUP_LEMMA
    groups: ClassVar[Groups] = Groups.OWN

    def __str__(self) -> str:
        asked = ", ".join(map(str, self.bounds))
        by = f", by {'the best of ' * (len(self.bounds) > 1)}{asked}" if self.bounds else ""
        return f"{self.name}: from one example's guarantee alone{by}"

    def refusal(self, problem: Problem) -> str | None:
        if problem.group_size == 1:
            return f"method {self.name!r} is for groups; one example needs no lemma."
        if problem.scheme.setting:
            return (
                "the group lemma needs data sets in which other members of the group contribute, "
                f"but amplified numbers for {problem.scheme!r} assume {problem.scheme.setting}."
            )
        if not self.bounds:
            return (
                f"the group lemma needs a certificate for one example, and no amplification is "
                f"proven for {problem.scheme!r}."
            )
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.SLOW

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        if len(self.bounds) > 1:
            return self.tune_for_epsilon(problem, delta).epsilon(problem, delta)
        one = problem.of_one()

        def epsilon_at(share: float) -> float:
            return _value(lambda: self.bounds[0].epsilon(one, share))

        return self._answer(bound_group_epsilon(epsilon_at, problem.group_size, delta))

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        if len(self.bounds) > 1:
            return self.tune_for_delta(problem, epsilon).delta(problem, epsilon)
        one = problem.of_one()

        def delta_at(share: float) -> float:
            return min(_value(lambda: self.bounds[0].delta(one, share)), 1.0)

        return self._answer(bound_group_delta(delta_at, problem.group_size, epsilon))

    def _answer(self, value: float) -> Answer:
        return replace(same(value), notes={"by": str(self.bounds[0])})

    def tune_for_epsilon(self, problem: Problem, delta: float) -> GroupLemma:
        """The lemma with the best bound for one example at about the largest delta asked."""
        one, share = problem.of_one(), delta / problem.group_size

        def ask(bound: Bound) -> Answer:
            settled = bound.tune_for_epsilon(one, share)
            return replace(settled.epsilon(one, share), bound=settled)

        return self._tune(one, ask, [b.lower_epsilon(one, share) for b in self.bounds])

    def tune_for_delta(self, problem: Problem, epsilon: float) -> GroupLemma:
        one, share = problem.of_one(), epsilon / problem.group_size

        def ask(bound: Bound) -> Answer:
            settled = bound.tune_for_delta(one, share)
            return replace(settled.delta(one, share), bound=settled)

        return self._tune(one, ask, [b.lower_delta(one, share) for b in self.bounds])

    def _tune(
        self, one: Problem, ask: Callable[[Bound], Answer], ends: Sequence[LowerEnd]
    ) -> GroupLemma:
        """The lemma with the best bound only, trying cheap ones first until one is nearly exact."""
        truth = max((end.value for end in ends), default=0.0)
        known: list[Answer] = []
        for bound in sorted(self.bounds, key=lambda bound: bound.cost(one)):
            if not bound.worthwhile(one, known):
                continue
            try:
                known.append(ask(bound))
            except MmccError:
                continue
            if known[-1].value <= CLOSE * truth:
                break
        best = min(known, key=lambda answer: answer.value, default=None)
        if best is None or best.bound is None:
            return replace(self, bounds=self.bounds[:1])
        return replace(self, bounds=(best.bound,))

    def details(self, problem: Problem, answer: Answer, delta: float) -> Details:
        return Details({"links": problem.group_size, "links_by": answer.notes["by"]})


def _value(ask: Callable[[], Answer]) -> float:
    """The number; infinite if it cannot be certified or is not a number."""
    try:
        answer = ask()
    except MmccError:
        return math.inf
    return answer.value if answer.remove >= 0 and answer.add >= 0 else math.inf
