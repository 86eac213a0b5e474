r"""Bounds for a scheme that equals a simpler one outside an event: `Scheme.relaxed`.

In: a bound that is proven for the simpler scheme.  Out: the same bound, with the chance of the
event added to delta.  Rounding: upwards.

Let E be the event and R what may be revealed together with it, both independent of the data.
Revealing R and E can only weaken privacy, and given R without E the example takes part as under the
simpler scheme, or less often, which cannot help an adversary who chooses its contributions.  So for
every set A of outputs, in both adjacencies,

    P(A) - e^eps Q(A) <= E[(P(A|R,E) - e^eps Q(A|R,E))_+] <= delta_other(eps) + chance(E).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from mmcc._methods import UNAMPLIFIED
from mmcc.accounting._bounds.base import (
    NOTHING_KNOWN,
    Answer,
    Bound,
    LowerEnd,
    Problem,
    too_likely,
)
from mmcc.accounting._bounds.indirect import IndirectBound
from mmcc.accounting._guarantee import Details
from mmcc.errors import MethodError, NothingCertifiedError
from mmcc.sampling import Relaxed


@dataclass(frozen=True)
class ByRelaxation(IndirectBound):
    """A bound for the simpler scheme, at a delta that leaves room for the event."""

    name: ClassVar[str] = "but-for"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "groups", self.once.groups)

    def __str__(self) -> str:
        return f"{self.once}, outside an event whose chance is part of delta"

    def other(self, problem: Problem) -> Problem:
        return problem.under(_relaxed(problem).scheme)

    def refusal(self, problem: Problem) -> str | None:
        return self.once.refusal(self.other(problem))

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return self.once.epsilon(self.other(problem), _left(problem, delta))

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        found, chance = self.once.delta(self.other(problem), epsilon), _relaxed(problem).chance
        return replace(
            found, remove=_add_chance(found.remove, chance), add=_add_chance(found.add, chance)
        )

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        """The simpler scheme's lower bound, if both schemes agree on its worst data set."""
        return (
            super().lower_epsilon(problem, delta) if _relaxed(problem).attained else NOTHING_KNOWN
        )

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        return (
            super().lower_delta(problem, epsilon) if _relaxed(problem).attained else NOTHING_KNOWN
        )

    def tune_for_epsilon(self, problem: Problem, delta: float) -> Bound:
        return super().tune_for_epsilon(problem, _left(problem, delta))

    def details(self, problem: Problem, answer: Answer, delta: float) -> Details:
        relaxed = _relaxed(problem)
        return (
            super()
            .details(problem, answer, delta)
            .extended({"certified_as": repr(relaxed.scheme), "added_to_delta": relaxed.chance})
        )


def _relaxed(problem: Problem) -> Relaxed:
    """The simpler scheme and the event; an error if there is none."""
    found = problem.relaxed
    if found is None:
        raise MethodError(f"no simpler scheme can replace {problem.scheme!r}.")
    return found


def _left(problem: Problem, delta: float) -> float:
    """Delta without the chance of the event, rounded down."""
    relaxed = _relaxed(problem)
    if relaxed.chance >= delta:
        raise NothingCertifiedError(
            f"{problem.scheme!r} equals {relaxed.scheme!r} outside {too_likely(relaxed, delta)}. "
            f"Use a larger delta, or method={UNAMPLIFIED!r}."
        )
    return (delta - relaxed.chance) * (1 - 2.0**-52)


def _add_chance(delta: float, chance: float) -> float:
    return min((delta + chance) * (1 + 2.0**-52), 1.0)
