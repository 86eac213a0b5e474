"""What is sampled to verify an epsilon: bounded variables whose mean bounds delta.

In: a `Pair`, an adjacency, an epsilon.  Out: X with 0 <= X <= `largest` for certain and

    delta(epsilon) <= E[X] + dropped,    X = weight (1 - e^{epsilon - loss})_+.

Rounding: upwards.  A loss that floating point made too small would make X too small, so losses are
raised by the pair's `rounding`, and by `UNIT` times their size and epsilon's, for the difference; X
itself by `RISE`, for the few operations that compute it.

An experiment is frozen before anything is looked at: `facts` are all its numbers, for the record.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation.directions import Direction, bound_weighed_delta, direction_of
from mmcc._simulation.dominating import LARGEST_NORMAL, Pair, Tilt
from mmcc._simulation.tilts import Blend, Plan, plan_for, tilted
from mmcc.accounting._bounds import Problem

UNIT = 2.0**-50
"""More than the rounding errors of two sums of numbers of this size."""
RISE = 1 + 2.0**-49
"""More than the errors of expm1 (two units in the last place) and of two products."""
MOST = 1e6
"""Digits of the numbers of a plan."""


@dataclass(frozen=True, eq=False)
class Experiment(ABC):
    """A fully specified way of drawing X; subclasses add their numbers as fields."""

    pair: Pair
    remove: bool
    epsilon: float
    kind: ClassVar[str]
    """The name of the kind in a record."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """A certain upper bound on X."""

    @property
    @abstractmethod
    def dropped(self) -> float:
        """How much E[X] may fall short of delta, rounded up: certified, not estimated."""

    @cached_property
    def aimed(self) -> Pair:
        """The pair, which need not compute smaller losses exactly."""
        return self.pair.aimed(self.epsilon)

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Losses as the pair computes them, and weights in [0, largest]."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """All numbers but the pair, adjacency and epsilon, ready for JSON."""

    @classmethod
    @abstractmethod
    def from_facts(
        cls, problem: Problem, pair: Pair, remove: bool, epsilon: float, facts: Mapping[str, Any]
    ) -> Experiment:
        """The experiment that a record describes; `dropped` is computed anew, never read."""

    def draw(self, count: int, rng: np.random.Generator) -> FloatArray:
        """X, `count` times."""
        return self.values(*self.sample(count, rng), self.epsilon)

    def values(self, losses: FloatArray, weights: FloatArray, epsilon: float) -> FloatArray:
        """X at an epsilon, rounded up.  At other epsilons than its own it only serves as a hint."""
        shift = self.pair.rounding + UNIT * (abs(epsilon) + np.abs(losses))
        gaps = np.minimum(epsilon - (losses + shift), 0.0)
        return np.minimum(-np.expm1(gaps) * weights * RISE, self.largest)


@dataclass(frozen=True, eq=False)
class Crude(Experiment):
    """Unweighted losses: nothing is dropped except what the pair drops."""

    kind = "crude"

    @property
    def largest(self) -> float:
        """The largest value of a probability."""
        return 1.0

    @property
    def dropped(self) -> float:
        """What the pair drops: the last bits of its coins."""
        return self.pair.dropped

    def sample(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Samples from the pair itself."""
        losses = self.aimed.losses(self.remove, count, rng)
        return losses, np.ones_like(losses)

    def facts(self) -> dict[str, Any]:
        """None."""
        return {}

    @classmethod
    def from_facts(
        cls,
        problem: Problem,  # noqa: ARG003
        pair: Pair,
        remove: bool,
        epsilon: float,
        facts: Mapping[str, Any],  # noqa: ARG003
    ) -> Crude:
        """An experiment without numbers of its own."""
        return cls(pair, remove, epsilon)


@dataclass(frozen=True, eq=False)
class Leaning(Experiment):
    """Losses drawn where they are large, along a direction: v is the position of the output."""

    plan: Plan | Blend
    direction: Direction

    @cached_property
    def _tilted(self) -> tuple[float, Tilt, float]:
        """Lam, how to draw, and the largest logarithm in the probabilities of this law."""
        log_mean, drawn = tilted(self.pair, self.direction, self.remove, self.plan.tilt)
        size = 8 + abs(self.plan.tilt * self.direction.pull) + 2 * abs(log_mean)
        if drawn.law is not None:
            chances = drawn.law.probability
            size -= math.log(chances[chances > 0].min(initial=1.0))
        return log_mean, drawn, size

    @cached_property
    def _drawn(self) -> tuple[float, Tilt]:
        """Lam, rounded up, and how to draw.

        The probabilities of a tilted law are quotients, and its logarithm is a sum over columns.
        """
        (log_mean, drawn, size), least = self._tilted, 1.0
        if drawn.law is not None:
            chances = drawn.law.probability
            least = 1 - float(chances[chances < 1].max(initial=0.0))
        slack = self.pair.columns * UNIT * size / least + 2.0**-39 * (1 + abs(log_mean))
        return log_mean + slack, drawn

    @cached_property
    def _never(self) -> float:
        """The probability of what the tilted law draws, but not when its chances round to 1."""
        _, drawn, size = self._tilted
        if drawn.law is None or (drawn.law.probability < 1).all():
            return 0.0
        return self.pair.columns * UNIT * size

    @property
    def error(self) -> float:
        """An upper bound on the error of v, besides `UNIT` of its size."""
        return self._misplaced

    @cached_property
    def _misplaced(self) -> float:
        """An upper bound on the error of the sums that give an output's position.

        No A_l^T z is off by more than rounding / (2 columns), and the sum over the columns loses at
        most that again; every participation is assumed to have the same position.
        """
        pair, direction = self.pair, self.direction
        noise = float(np.abs(direction.weights).sum()) / pair.columns * pair.rounding
        lying = pair.columns * direction.spread + 2.0**-38 * (self.plan.tilt + direction.pull)
        return 2 * (noise + lying)

    def _leaning(
        self, count: int, rng: np.random.Generator, drawn: Tilt
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Losses, positions, and bounds on the errors of the latter.

        Outputs are shifted by kap besides noise of up to 14: the error of a loss grows accordingly.
        """
        losses, places = self.aimed.tilted_losses(self.remove, count, rng, drawn)
        losses += self.pair.rounding * (self.plan.tilt / LARGEST_NORMAL)
        return losses, places, self.error + UNIT * np.abs(places)


@dataclass(frozen=True, eq=False)
class Tilted(Leaning):
    r"""Tilted samples, whose weights W are bounded by a certified remainder.

    W(v) = e^{Lam - kap v} (1 - e^{th (t - v)})_+ where v is the output's position in a direction
    (see `tilts`); the rest e^{th t} D, e^{log D} from `directions`.  Let e bound the error of v:
    e^{Lam - kap (v - e)} (1 - e^{th (t - v - e)})_+ is at least W wherever v is.
    """

    plan: Plan
    log_rest: float
    """Log D, certified."""
    kind = "tilted"

    def __post_init__(self) -> None:
        plan = self.plan
        if not (0 < plan.tilt < MOST and 0 < plan.slope < MOST and abs(plan.place) < MOST):
            raise ValueError(f"this is no plan: {plan}")

    @property
    def error(self) -> float:
        """The error of v, with that of its difference from `place`."""
        return self._misplaced + UNIT * abs(self.plan.place)

    @cached_property
    def largest(self) -> float:
        """The largest W, where e^{th (t - v)} = r / (1 + r), r = kap / th."""
        log_mean, plan = self._drawn[0], self.plan
        slack = 2 * plan.tilt * self.error + 2.0**-40 * (1 + abs(log_mean) + abs(plan.peak()))
        return _rounded_up(math.exp(min(log_mean + plan.peak() + slack, 700.0)))

    @cached_property
    def dropped(self) -> float:
        """e^{th t} D, and the effect of coins of 53 bits on draws of at most `largest`."""
        parts = (self.plan.slope * self.plan.place, self.log_rest)
        exponent = math.fsum(parts) + 2.0**-40 * (1 + math.fsum(map(abs, parts)))
        coins = self.pair.dropped * (max(self.largest, 1.0) if self.pair.extra else self.largest)
        coins += self._never * self.largest
        return _rounded_up(math.exp(min(exponent, 700.0)) + coins)

    def sample(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Samples from the tilted law."""
        log_mean, drawn = self._drawn
        plan = self.plan
        losses, places, error = self._leaning(count, rng, drawn)
        below = plan.slope * (plan.place - places - error)
        kept = below < 0
        weights = np.zeros(count)
        logs = log_mean - plan.tilt * (places[kept] - error[kept])
        weights[kept] = np.exp(np.minimum(logs, 700.0)) * -np.expm1(below[kept]) * (1 + 2.0**-40)
        return losses, np.minimum(weights, self.largest)

    def facts(self) -> dict[str, Any]:
        """The plan."""
        return asdict(self.plan)

    @classmethod
    def from_facts(
        cls, problem: Problem, pair: Pair, remove: bool, epsilon: float, facts: Mapping[str, Any]
    ) -> Tilted:
        """With the plan of the record; direction and rest anew."""
        plan = Plan(float(facts["tilt"]), float(facts["slope"]), float(facts["place"]))
        direction = direction_of(pair.mechanism)
        if direction is None:
            raise ValueError("no direction meets all columns")
        log_rest = bound_weighed_delta(
            problem, direction, pair.columns, remove, epsilon, plan.slope
        )
        return cls(pair, remove, epsilon, plan, direction, log_rest)


@dataclass(frozen=True, eq=False)
class Blended(Leaning):
    r"""Some samples plain, some tilted: weights are bounded, and nothing is left out.

    X = W(v) h with W(v) = 1 / (share + (1 - share) e^{kap v - Lam}), the pair's own law over that
    of the samples.  W falls with v and grows with Lam.
    """

    plan: Blend
    kind = "blended"

    def __post_init__(self) -> None:
        plan = self.plan
        coin = plan.share * 2.0**32  # comparing it with a number of 53 bits is exact
        if not (0 < plan.tilt < MOST and 0 < plan.share < 1 and coin == round(coin)):
            raise ValueError(f"this is no blend: {plan}")

    @property
    def largest(self) -> float:
        """The weight of samples that the tilt never draws."""
        return RISE / self.plan.share

    @property
    def dropped(self) -> float:
        """The effect of coins of 53 bits and of what is never drawn, relative to the largest X."""
        return (self.pair.dropped + self._never) * self.largest * RISE

    def sample(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Plain samples first: a product over all samples does not depend on their order."""
        share, (log_mean, drawn) = self.plan.share, self._drawn
        plain = int(np.count_nonzero(rng.random(count) < share))
        as_they_come = Tilt(drawn.weights, np.zeros_like(drawn.shift), 0.0, drawn.pull)
        parts = [
            self._leaning(number, rng, tilt)
            for number, tilt in ((plain, as_they_come), (count - plain, drawn))
        ]
        losses, places, error = (np.concatenate(part) for part in zip(*parts, strict=True))
        logs = self.plan.tilt * (places - error) - log_mean
        size = 1 + abs(log_mean) + self.plan.tilt * np.abs(places)
        odds = np.exp(np.minimum(logs - 2.0**-45 * size, 700.0)) * (1 - 2.0**-45)
        return losses, np.minimum(RISE / (share + (1 - share) * odds), self.largest)

    def facts(self) -> dict[str, Any]:
        """The blend."""
        return asdict(self.plan)

    @classmethod
    def from_facts(
        cls,
        problem: Problem,  # noqa: ARG003
        pair: Pair,
        remove: bool,
        epsilon: float,
        facts: Mapping[str, Any],
    ) -> Blended:
        """With the numbers of the record; the direction anew."""
        direction = direction_of(pair.mechanism)
        if direction is None:
            raise ValueError("no direction meets all columns")
        blend = Blend(float(facts["tilt"]), float(facts["share"]))
        return cls(pair, remove, epsilon, blend, direction)


def _rounded_up(value: float) -> float:
    """Rounded up to six digits: another machine may find another last bit."""
    if not 0 < value < math.inf:
        return value
    digits = 10.0 ** (6 - math.ceil(math.log10(value)))
    return math.ceil(value * digits * (1 + 2.0**-50)) / digits * (1 + 2.0**-50)


KINDS: Mapping[str, type[Experiment]] = {made.kind: made for made in (Crude, Tilted, Blended)}


def experiment_for(
    problem: Problem,
    pair: Pair,
    remove: bool,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> Experiment:
    """The experiment that needs the fewest samples to show E[X] + dropped < delta.

    It may use draws of `rng`, which are used for nothing else.
    """
    found = plan_for(problem, pair, remove, epsilon, delta, rng)
    if found is None:
        return Crude(pair, remove, epsilon)
    if isinstance(found[0], Blend):
        return Blended(pair, remove, epsilon, found[0], found[1])
    return Tilted(pair, remove, epsilon, *found)
