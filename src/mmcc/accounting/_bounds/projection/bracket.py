"""The projection bracket of a mechanism, for both adjacencies and every public group.

In: strategy, scheme, sigma and a delta or an epsilon.  Out: certified upper bounds (`bound_*`) and
lower bounds (`lower_*`) on the other of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, Protocol

from mmcc._methods import TIGHT, UNAMPLIFIED
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._bounds.base import NOTHING_BESIDE, Answer
from mmcc.accounting._bounds.projection.line import Chance
from mmcc.accounting._bounds.projection.lower import Lower, lower_delta, lower_epsilon
from mmcc.accounting._bounds.projection.upper import Projected
from mmcc.accounting._bounds.projection.upper_add import ProjectedAdd
from mmcc.accounting._bounds.projection.upper_add_moments import (
    BinsNodesAround,
    Deficit,
    EpochNodesAround,
    NodesAround,
)
from mmcc.accounting._bounds.projection.upper_bins import ProjectedBins
from mmcc.accounting._bounds.projection.upper_epochs import ProjectedEpochs
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._parallel import Progress, one_thread, spread
from mmcc.errors import MethodError, PrecisionError
from mmcc.sampling import Allocation, Rounds
from mmcc.strategies._base import Strategy
from mmcc.strategies._gram import DenseGram, Gram

MAX_GROUPS = 10_000
MAX_EPSILON = 1e5
SMALL = 3000
"""Most classes of columns for which one thread is faster than several."""
HOPELESS = 500.0
"""If epsilon certainly exceeds this, no upper bound for remove is searched for."""
FARTHEST = 1000.0
"""Nor is one if the threshold is this many standard deviations away."""
TOLERANCE = 2e-5
"""The relative accuracy to which epsilon is found, on the safe side."""
REPLAN = 0.02
"""Recipes are recomputed if epsilon has moved by more than this fraction."""

Asked = Literal["lower_epsilon", "lower_delta", "bound_epsilon", "bound_delta"]


class Curve(Protocol):
    """Something that bounds delta at an epsilon."""

    def bound_delta(self, epsilon: float) -> float:
        """Upper bound on delta."""
        ...


@dataclass(eq=False)
class ProjectionBracket:
    """The bracket of one mechanism; lower bounds are cached, and upper bounds start from them."""

    strategy: Strategy
    sampled: Rounds | Allocation | int
    """Independent rounds, an allocation of steps in every epoch, or a number of positions."""
    sigma: float
    progress: Progress | None = None
    executor: Executor | None = None
    """The executor on which groups are analysed, if there are several."""
    _known: dict[tuple[str, float, int, Adjacency], Lower] = field(default_factory=dict)
    _proven: dict[tuple[float, int], float] = field(default_factory=dict)
    """Upper bounds on epsilon for remove, by delta and group, because a calibration asks twice."""

    def lower_epsilon(self, delta: float) -> Answer:
        """Certified lower bounds on epsilon at delta: no method can prove less."""
        return self._worst("lower_epsilon", delta)

    def lower_delta(self, epsilon: float) -> Answer:
        """Certified lower bounds on delta at epsilon."""
        return self._worst("lower_delta", epsilon)

    def bound_epsilon(self, delta: float, beside: Answer = NOTHING_BESIDE) -> Answer:
        """Certified epsilon at delta for the worst group, both adjacencies.

        `beside` holds epsilons that another bound has certified: an add side that cannot matter
        given these is skipped and stays infinite.
        """
        if self._chance == 1.0:
            return self._certain(lambda ratio: bound_gaussian_epsilon(ratio, delta))
        return self._worst("bound_epsilon", delta, beside)

    def bound_delta(self, epsilon: float) -> Answer:
        """Certified delta at epsilon for the worst group, both adjacencies."""
        if self._chance == 1.0:
            return self._certain(lambda ratio: bound_gaussian_delta(ratio, epsilon))
        return self._worst("bound_delta", epsilon)

    def of_group(
        self, asked: Asked, at: float, beside: Answer, group: int, gram: Gram | None = None
    ) -> Answer:
        """The answer for a single group."""
        if gram is None:
            gram = self.strategy.gram(self._separation, group, self.sigma)
        with one_thread() if gram.counts.size <= SMALL else nullcontext():
            remove = self._side(asked, at, group, gram, "remove", math.inf)
            # The promise is the larger side, so add is not refined below remove.
            known = asked == "bound_epsilon" and beside.add <= min(remove, beside.remove)
            add = math.inf if known else self._side(asked, at, group, gram, "add", remove)
        if math.isnan(remove) or math.isnan(add):
            raise PrecisionError(
                f"the projection bound is beyond floating point here; use method={TIGHT!r}."
            )
        return Answer(remove, add, group)

    def _side(
        self, asked: Asked, at: float, group: int, gram: Gram, side: Adjacency, enough: float
    ) -> float:
        chance = self._chance
        if asked == "lower_epsilon" or asked == "bound_epsilon":
            low = self._low("epsilon", at, group, gram, side)
            if asked == "lower_epsilon":
                return max(low.value, 0.0)
            if side == "add":
                return _bound_epsilon(gram, chance, at, side, low, enough)
            if (at, group) not in self._proven:
                self._proven[at, group] = _bound_epsilon(gram, chance, at, side, low)
            return self._proven[at, group]
        low = self._low("delta", at, group, gram, side)
        if asked == "lower_delta":
            return max(low.value, 0.0)
        return _bound_delta(gram, chance, at, side, low, enough)

    def _low(self, asked: str, at: float, group: int, gram: Gram, side: Adjacency) -> Lower:
        key = (asked, at, group, side)
        if key not in self._known:
            find = lower_epsilon if asked == "epsilon" else lower_delta
            self._known[key] = find(gram, self._chance, at, side)
        return self._known[key]

    def _certain(self, answer: Callable[[float], float]) -> Answer:
        """The answer if participation is certain: one Gaussian along the mean direction."""
        ratio = self.strategy.sensitivity(self._separation) / self.sigma * (1 + 2.0**-50)
        return Answer(answer(ratio), answer(ratio))

    def _worst(self, asked: Asked, at: float, beside: Answer = NOTHING_BESIDE) -> Answer:
        """The largest answer for each adjacency, and the group with the overall largest."""
        groups = self._groups()
        every: Iterator[Answer]
        if len(groups) == 1:
            every = iter([self.of_group(asked, at, beside, groups[0], self._only_gram)])
        else:
            alone = replace(self, progress=None, executor=None, _known=self._known)
            every = spread(
                partial(alone.of_group, asked, at, beside), groups, self.executor, chunk=1
            )
        remove, add, worst, group = 0.0, 0.0, -math.inf, 0
        for done, found in enumerate(every):
            remove, add = max(remove, found.remove), max(add, found.add)
            if found.value > worst:
                worst, group = found.value, found.group
            if self.progress is not None:
                self.progress("projection: groups of steps", done + 1)
        return Answer(remove, add, group)

    def _groups(self) -> Sequence[int]:
        """The groups that can be the worst case, counting equal Gram matrices once."""
        if not isinstance(self.sampled, Rounds):
            return (0,)
        groups = self.strategy.groups(self._separation)
        if len(groups) > MAX_GROUPS:
            raise MethodError(
                f"{self.strategy!r} has {len(groups)} groups of steps to analyse one by one, more "
                f"than {MAX_GROUPS}. Use a smaller separation, or method={UNAMPLIFIED!r}."
            )
        if len(groups) == 1:
            return groups
        different: dict[Hashable, int] = {}
        for group in groups:
            gram = self.strategy.gram(self._separation, group, self.sigma)
            key = gram.matrix.tobytes() if isinstance(gram, DenseGram) else group
            different.setdefault(key, group)
        return list(different.values())

    @cached_property
    def _only_gram(self) -> Gram:
        if not isinstance(self.sampled, Rounds):
            bins = self.sampled if isinstance(self.sampled, int) else self.strategy.steps
            return self.strategy.bins_gram(bins, self.sigma)
        groups = self.strategy.groups(self._separation)
        return self.strategy.gram(self._separation, groups[0], self.sigma)

    @property
    def _chance(self) -> Chance:
        """How likely each column of the Gram matrices is; a single bin is certain."""
        if isinstance(self.sampled, int):
            return 1.0 if self.sampled == 1 else None
        if isinstance(self.sampled, Allocation):
            return self._allocation_chance(self.sampled)
        return self.sampled.probability

    def _allocation_chance(self, allocation: Allocation) -> Chance:
        """An allocation's chance: all steps of an epoch are certain; one of one epoch is a bin."""
        if allocation.participations == allocation.epoch_steps:
            return 1.0
        single = allocation.participations == 1 and allocation.epoch_steps == self.strategy.steps
        return None if single else allocation

    @property
    def _separation(self) -> int:
        """Steps between two of the rounds in which one example may take part."""
        if isinstance(self.sampled, Allocation):
            return 1
        return self.sampled if isinstance(self.sampled, int) else self.sampled.separation


def _bound_epsilon(
    gram: Gram,
    p: Chance,
    delta: float,
    adjacency: Adjacency,
    low: Lower | None = None,
    enough: float = math.inf,
) -> float:
    """The smallest epsilon found at which delta is certified; anything below `enough` will do."""
    low = low or lower_epsilon(gram, p, delta, adjacency)
    if not low.value > 0:
        low = lower_delta(gram, p, 0.0, adjacency)
        if _curve(gram, p, low, adjacency, delta, 0.0).bound_delta(0.0) <= delta:
            return 0.0
        low = replace(low, value=1e-6)
    if adjacency == "add":
        return _bound_add(gram, p, delta, low, enough)
    if low.value > HOPELESS or low.threshold > FARTHEST:
        return math.inf
    projected = _project(gram, p, low, delta)
    guess = best = min(low.value, MAX_EPSILON)
    for _ in range(3):
        best = _solve(projected.recipe(guess), delta, guess)
        if not math.isfinite(best) or best <= guess * (1 + REPLAN):
            break
        guess = best
    return best


def _bound_delta(
    gram: Gram, p: Chance, epsilon: float, adjacency: Adjacency, low: Lower, enough: float
) -> float:
    """The smallest delta found at epsilon; for add, any delta below `enough` will do."""
    if adjacency == "remove" and (epsilon > HOPELESS or low.threshold > FARTHEST):
        return 1.0
    near = max(low.value, 1e-30)
    found = _curve(gram, p, low, adjacency, near, epsilon).bound_delta(epsilon)
    if adjacency == "add" and found > max(enough, low.value * (1 + TOLERANCE)):
        found = min(found, _deficit(gram, p, low, near, epsilon).bound_delta(epsilon))
    return float(min(found, 1.0))


def _bound_add(gram: Gram, p: Chance, delta: float, low: Lower, enough: float) -> float:
    """An epsilon for add: by the put first, which is cheap, then by moments if necessary."""
    first = _solve(ProjectedAdd(gram, p, low.direction, low.threshold), delta, low.value)
    if first <= max(enough, low.value * (1 + TOLERANCE)):
        return first
    guess = min(low.value, MAX_EPSILON)
    return min(first, _solve(_deficit(gram, p, low, delta, guess), delta, guess))


def _deficit(gram: Gram, p: Chance, low: Lower, delta: float, epsilon: float) -> Deficit:
    epochs = EpochNodesAround if isinstance(p, Allocation) else NodesAround
    kind = BinsNodesAround if p is None else epochs
    return Deficit(kind(gram, p, low.direction, low.threshold, delta), epsilon)


def _curve(
    gram: Gram, p: Chance, low: Lower, adjacency: Adjacency, delta: float, epsilon: float
) -> Curve:
    if adjacency == "add":
        return ProjectedAdd(gram, p, low.direction, low.threshold)
    return _project(gram, p, low, delta).recipe(epsilon)


def _project(gram: Gram, p: Chance, low: Lower, delta: float) -> Projected:
    epochs = ProjectedEpochs if isinstance(p, Allocation) else Projected
    kind = ProjectedBins if p is None else epochs
    return kind(gram, p, low.direction, low.threshold, delta)


def _solve(curve: Curve, delta: float, guess: float) -> float:
    """The smallest epsilon found with bound_delta(epsilon) <= delta; infinite if there is none.

    The result was computed at that epsilon, so its validity does not depend on the search.
    """
    goal = math.log(delta)

    def excess(epsilon: float) -> float:
        found = curve.bound_delta(epsilon)
        return math.log(max(found, 1e-300)) - goal if found >= 0 else math.inf  # also for NaN

    low, high = guess, guess
    above = below = excess(guess)
    step = 0.01
    while below > 0:
        low, above = high, below
        high = high * (1 + step) + 1e-9
        step = min(2 * step, 1.0)
        if high > MAX_EPSILON:
            return math.inf
        below = excess(high)
    while above <= 0:
        high, below = low, above
        low = low * (1 - step)
        step = min(2 * step, 0.5)
        if low < 1e-9:
            return high
        above = excess(low)
    for turn in range(40):
        if high - low <= TOLERANCE * high:
            break
        share = above / (above - below) if turn % 3 else 0.5
        middle = low + min(max(share, 0.02), 0.98) * (high - low) + 0.2 * TOLERANCE * high
        middle = min(middle, high)
        value = excess(middle)
        if value <= 0:
            high, below = middle, value
        else:
            low, above = middle, value
    return high
