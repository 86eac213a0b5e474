"""The base class of bounds: proofs about a mechanism that can be asked for numbers.

In: a `Problem`, a mechanism with its noise level, and a delta or an epsilon.  Out: an `Answer`, the
certified numbers of both adjacencies.  Rounding: upwards; `lower_*` downwards.

A new bound is a subclass of `Bound` with a name, `refusal`, `cost`, `epsilon` and `delta`, and
lower ends if it has any.  It takes part once it is listed in `BOUNDS` or registered.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast

from mmcc.accounting._guarantee import Details
from mmcc.accounting._losses.engine import Effort
from mmcc.errors import SamplingError, real, whole
from mmcc.sampling import Allocation, Poisson, Relaxed, Renewal, Rounds, Scheme
from mmcc.strategies._base import Strategy
from mmcc.strategies._hierarchy import Node
from mmcc.strategies._repeated import Repeated

T = TypeVar("T")

DENSE = 0.05
"""If columns overlap with more than this fraction of all, one direction may be enough."""


class Cost(IntEnum):
    """Rough cost of one answer; bounds are asked in this order."""

    FREE = 0
    """A closed form."""
    FAST = 1
    """A fraction of a second."""
    STEADY = 2
    """About a second, however many steps there are."""
    SHORT = 3
    """Seconds, growing with the number of columns, which is small."""
    LONG = 4
    """As `SHORT`, with many columns."""
    SLOW = 5
    """Minutes."""


class Groups(Enum):
    """How a bound covers groups of `group_size` examples whose contributions become zero."""

    NOTHING = "it is proven for one example only"
    COUNTS = "it is asked about one example whose columns are repeated, see `Problem.counts`"
    OWN = "it reads `group_size` and answers for that many examples"


@dataclass(eq=False)
class Problem:
    """A mechanism with its noise level, and how to compute."""

    strategy: Strategy
    scheme: Scheme
    sigma: float
    effort: Effort = field(default_factory=Effort)
    _remembered: dict[Hashable, Any] = field(default_factory=dict)
    group_size: int = 1
    """The number of examples that are protected together."""

    def at(self, sigma: float) -> Problem:
        """The same mechanism with another noise level."""
        return replace(self, sigma=sigma, _remembered={})

    def scouting(self) -> Problem:
        """The same problem, to be solved roughly, for making choices."""
        return replace(self, effort=replace(self.effort, scouting=True), _remembered={})

    def of_one(self) -> Problem:
        """The same mechanism, protecting one example instead of a group."""
        if self.group_size == 1:
            return self
        return self.remember("one example", lambda: replace(self, group_size=1, _remembered={}))

    def under(self, scheme: Scheme) -> Problem:
        """The same mechanism, group and noise under another scheme."""
        return self.remember(scheme, lambda: replace(self, scheme=scheme, _remembered={}))

    def with_strategy(self, strategy: Strategy) -> Problem:
        """Another strategy under the same scheme, with the same noise."""
        return replace(self, strategy=strategy, _remembered={})

    def counts(self) -> Problem | None:
        """One example with the likelihood ratio of the whole group; None if none is proven.

        Under Poisson sampling the members' participations in a step add up to a count, which
        multiplies the column of C: it is as if one example used a matrix with every column
        `group_size` times (docs/theory-reveal-groups.md, Proposition 2.1).  Under cyclic Poisson
        sampling with independent noise the worst case has all members in the first group (section
        5).
        """
        if self.group_size == 1:
            return self
        return self.remember("counts", self._counts)

    def _counts(self) -> Problem | None:
        rounds, strategy = self.rounds, self.strategy
        if rounds is None or self.scheme.setting:
            return None
        if rounds.separation > 1:
            toeplitz = strategy.toeplitz
            if toeplitz is None or toeplitz.bands > 1:
                return None
            strategy = toeplitz.prefix(rounds.count(self.steps))
        repeated = Repeated(strategy, self.group_size)
        return Problem(repeated, Poisson(rounds.probability), self.sigma, effort=self.effort)

    def remember(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached result of `make`, for what several questions share."""
        if key not in self._remembered:
            self._remembered[key] = make()
        return cast(T, self._remembered[key])

    @property
    def steps(self) -> int:
        """The number of columns of C."""
        return self.strategy.steps

    @cached_property
    def dense(self) -> bool:
        """Whether each column overlaps with a good part of the others.

        Row sums of the Gram matrix over its diagonal tell with how many.
        """
        ratio = self.sensitivity / self.strategy.sensitivity(self.steps)
        return ratio**2 / self.columns > DENSE * self.columns

    @cached_property
    def rounds(self) -> Rounds | None:
        """The independent rounds of the scheme, if participation has that form."""
        found = self.scheme.rounds(self.steps)
        if found is not None and found.separation > self.steps:
            raise SamplingError(
                f"{self.scheme!r} has rounds {found.separation} steps apart, more than the "
                f"{self.steps} steps of the strategy. Correct its `rounds`."
            )
        return found

    @cached_property
    def renewal(self) -> Renewal | None:
        """The waits between participations, if they have a gap and are not independent rounds."""
        if self.rounds is not None or self.scheme.groups is not None:
            return None
        return self.scheme.renewal

    @cached_property
    def positions(self) -> int | None:
        """The number of positions of which an example has one, if participation has that form."""
        found = self.scheme.positions(self.steps)
        if found is not None and self.steps % whole("positions", found, 1, self.steps):
            raise SamplingError(
                f"{self.scheme!r} has one of {found} positions in every epoch, but {self.steps} "
                "steps are not whole epochs: nothing is proven. Correct its `positions`."
            )
        return found

    @cached_property
    def allocation(self) -> Allocation | None:
        """The steps drawn anew in every epoch, if participation has that form."""
        found = self.scheme.allocation(self.steps)
        if found is not None and self.steps % whole(
            "epoch_steps", found.epoch_steps, 1, self.steps
        ):
            raise SamplingError(
                f"{self.scheme!r} has epochs of {found.epoch_steps} steps, but {self.steps} steps "
                "are not whole epochs: nothing is proven. Correct its `allocation`."
            )
        return found

    @cached_property
    def relaxed(self) -> Relaxed | None:
        """The simpler scheme that amplified bounds analyse instead, if there is one."""
        found = self.scheme.relaxed(self.steps, self.group_size)
        if found is not None:
            real("chance", found.chance, 0, 1, closed="lh")
        return found

    @cached_property
    def tree_of_positions(self) -> Node | None:
        """The tree that the positions form, if they form one."""
        return None if self.positions is None else self.strategy.hierarchy(self.positions)

    @property
    def columns(self) -> int:
        """The number of columns that amplified bounds analyse: an example's rounds or positions."""
        if self.relaxed is not None:
            return self.under(self.relaxed.scheme).columns
        if self.rounds is not None:
            return self.rounds.count(self.steps)
        return self.positions or self.steps

    @property
    def certain(self) -> bool:
        """Whether nothing is left to chance: no draws, every round, or a single position."""
        if not self.scheme.random:
            return True
        if self.relaxed is not None:
            return self.under(self.relaxed.scheme).certain
        if self.allocation is not None:
            return self.allocation.participations == self.allocation.epoch_steps
        chances = self.rounds or self.renewal
        return self.positions == 1 or (chances is not None and chances.probability == 1.0)

    @cached_property
    def chance(self) -> float:
        """Upper bound on the chance that the example, or any of the group, takes part at all."""
        one = real("chance", self.scheme.chance(self.steps), 0, 1, closed="lh")
        if self.group_size == 1:
            return one
        return 1.0 if self.scheme.setting else min(self.group_size * one * (1 + 2.0**-51), 1.0)

    @cached_property
    def sensitivity(self) -> float:
        """|C 1_S| for the worst participation set that the scheme allows, rounded up.

        For a group it is multiplied by `group_size`, since the norm of a sum is at most the sum of
        norms.
        """
        one = real("sensitivity", self.scheme.sensitivity(self.strategy), 0, math.inf)
        return one if self.group_size == 1 else self.group_size * one * (1 + 2.0**-51)

    @cached_property
    def reached(self) -> float:
        """|C 1_S| of a set in which participation, of each of a group, can be certain."""
        one = real("reached", self.scheme.reached(self.strategy), 0, math.inf, closed="l")
        return self.group_size * one * (1 - 2.0**-50)

    @property
    def ratio(self) -> float:
        """The sensitivity in units of sigma, rounded up."""
        return self.sensitivity / self.sigma * (1 + 2.0**-50)


@dataclass(frozen=True, slots=True)
class Answer:
    """Certified numbers for both adjacencies, each valid on its own for every public group.

    They are epsilons at one delta or deltas at one epsilon; the two sides may come from different
    groups, and either may be combined with another bound's other side.
    """

    remove: float
    add: float
    group: int = 0
    """The group that gives the larger of the two."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """How the numbers were obtained: shown to users, never computed with."""
    bound: Bound | None = None
    """The bound that gives the same answer again, with all its settings chosen."""

    @property
    def value(self) -> float:
        """The larger of the two, which is what is promised."""
        return max(self.remove, self.add)


NOTHING_BESIDE = Answer(math.inf, math.inf)
"""For when no other bound has certified anything yet."""


@dataclass(frozen=True, slots=True)
class LowerEnd:
    """No method can prove less than `value`; `closed` if searching on is not worth the time."""

    value: float
    closed: bool = False


NOTHING_KNOWN = LowerEnd(0.0)


class Bound(ABC):
    """A certified bound.  Instances are values: equal bounds give equal answers."""

    name: ClassVar[str]
    """The name used in `method=`."""
    amplified: ClassVar[bool] = True
    """Whether the bound makes use of sampling."""
    groups: ClassVar[Groups] = Groups.NOTHING
    """How the bound covers groups; by default not at all."""

    def __str__(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        """The name in the legend of a picture."""
        return self.name

    @abstractmethod
    def refusal(self, problem: Problem) -> str | None:
        """Why the bound does not apply to a mechanism, in a sentence; None if it applies."""

    @abstractmethod
    def cost(self, problem: Problem) -> Cost:
        """The cost of an answer; cheap bounds are asked first."""

    @abstractmethod
    def epsilon(self, problem: Problem, delta: float) -> Answer:
        """Certified epsilon at delta; infinite if nothing is certified."""

    def epsilon_beside(self, problem: Problem, delta: float, known: Answer) -> Answer:
        """Certified epsilon at delta, given that other bounds have certified `known`.

        A side that cannot change the promise may stay infinite; the promise is the larger of the
        two minima.
        """
        return self.epsilon(problem, delta)

    @abstractmethod
    def delta(self, problem: Problem, epsilon: float) -> Answer:
        """Certified delta at epsilon."""

    def delta_of(self, problem: Problem, epsilon: float, adjacency: str) -> Answer:
        """Certified delta at epsilon for one adjacency; the other side may stay 1."""
        return self.delta(problem, epsilon)

    def lower_cost(self, problem: Problem) -> Cost:
        """The cost of a lower end; expensive ones are asked only for brackets."""
        return Cost.FAST

    def lower_epsilon(self, problem: Problem, delta: float) -> LowerEnd:
        """A lower bound: no method can prove a smaller epsilon at delta."""
        return NOTHING_KNOWN

    def lower_delta(self, problem: Problem, epsilon: float) -> LowerEnd:
        """A lower bound: no method can prove a smaller delta at epsilon."""
        return NOTHING_KNOWN

    def exact(self, problem: Problem) -> bool:
        """Whether only rounding is lost, whatever the noise, so other bounds are hardly needed."""
        return False

    def close(self, problem: Problem) -> bool:
        """Whether so little is lost that a quick question need not ask other bounds."""
        return self.exact(problem)

    def worthwhile(self, problem: Problem, known: Sequence[Answer]) -> bool:
        """Whether this bound may give a smaller number than those already known."""
        return True

    def outlook(self, problem: Problem, delta: float) -> float:
        """A cheap, rough estimate of the epsilon this bound would give; 0 where there is none."""
        return 0.0

    def tune_for_epsilon(self, problem: Problem, delta: float) -> Bound:
        """The same bound with its free settings chosen well for this question."""
        return self

    def tune_for_delta(self, problem: Problem, epsilon: float) -> Bound:
        """The same bound with its free settings chosen well for delta at epsilon."""
        return self

    def details(self, problem: Problem, answer: Answer, delta: float) -> Details:
        """The details shown with an answer of this bound."""
        notes = {"setting": dict(answer.notes)} if answer.notes else {}
        sides = {"remove": answer.remove, "add": answer.add}
        return Details({"worst_group": answer.group, **sides, **notes})


def too_likely(relaxed: Relaxed, delta: float) -> str:
    """Why a simpler scheme certifies nothing: the chance of the event uses up delta."""
    chance = f"{relaxed.chance:.3g}, no less than delta = {delta:g}"
    return f"an event whose chance is up to {chance}: {relaxed.event}"


def same(value: float) -> Answer:
    """The answer with the same number for both adjacencies."""
    return Answer(value, value)
