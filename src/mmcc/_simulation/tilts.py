r"""How to tilt: bounded weights that need few samples, chosen by a pilot.

In: a problem, its pair, an adjacency, epsilon and delta, randomness for the pilot.  Out: a `Plan`.
Rounding: none; every plan is valid, and `experiments` and `directions` bound its consequences.

With v = <d, y> (see `directions`) and h = (1 - e^{eps - loss})_+,

    delta <= E[h (1 - e^{th (t - v)})_+] + e^{th t} D,    D >= what the weight e^{-th v} leaves.

The first mean is drawn under the law tilted by e^{kap v - Lam}, so that X has the weight
W(v) = e^{Lam - kap v} (1 - e^{th (t - v)})_+, which is largest where e^{th (t - v)} = r/(1 + r),
r = kap/th.  Nearly all of the second part is subtracted from the first, so it costs little even
where it is half of delta: what is lost is where v < t, and the excess of D over the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation.directions import Direction, bound_weighed_delta, direction_of
from mmcc._simulation.dominating import Pair, Tilt
from mmcc.accounting._bounds.base import Problem

PILOTS = (1024, 8192)
"""Samples of a pilot for each tilt; the larger number if the plan itself needs many."""
STEP, STEPS = 0.6, 14
"""Tilts that are tried, in units of the inverse standard deviation of v."""
SLOPES = (0.5, 1.0, 1.4, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0)
BLENDS = tuple(k / 64 for k in (24, 32, 40, 44, 48, 52, 56, 60))
"""Shares of a blend's samples that are plain; a coin of 53 bits represents them exactly."""
SHARES = (0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
"""Fractions of delta for the part that is bounded."""
LEVEL = 21.0
"""Approximate log of one over the chance of a wrong verdict."""
PASSING = 0.85
"""Delta of the pair over a delta that would pass."""
CLOSE = 0.03
"""The least relative gap assumed between the mean and delta."""
LOOSE = 1.2
"""The assumed ratio of D to the truth for small slopes, as long as it is unknown."""
TURNS = 4
WORTH = 0.5
"""A tilt that needs more than this part of a crude experiment's samples is not worth its bounds."""
COMMON, CHEAP = 0.02, 20_000.0
"""A delta so large, or so few samples without a tilt, that a bound is not worth it."""
FAINT = 1e-3
"""The mean that is assumed, relative to delta, if nothing was seen."""
SMALLEST = 2.1
"""The least ratio of the largest X to delta: a bound near delta would leave nothing to bet on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """kap is `tilt`, th is `slope`, t is `place`."""

    tilt: float
    slope: float
    place: float

    def peak(self) -> float:
        """Log of the largest W without Lam: -kap t + r log r - (1 + r) log(1 + r), r = kap/th."""
        r = self.tilt / self.slope
        return -self.tilt * self.place + r * math.log(r) - (1 + r) * math.log1p(r)


def tilted(pair: Pair, direction: Direction, remove: bool, tilt: float) -> tuple[float, Tilt]:
    """Lam = log E e^{kap v}, and how to draw under the tilted law."""
    side = 1.0 if remove else -1.0
    log_mean, law = 0.5 * tilt * tilt * direction.square, None
    if remove:
        log_law, law = pair.tilted_law(tilt * direction.pull)
        log_mean += log_law
    drawn = Tilt(
        side * direction.weights,
        side * tilt * direction.pulls,
        tilt * direction.square,
        direction.pull,
        law,
    )
    return log_mean, drawn


@dataclass(frozen=True, slots=True)
class Blend:
    """A fraction `share` of the samples plain, the others tilted by `tilt`."""

    tilt: float
    share: float


@dataclass(frozen=True, eq=False)
class Look:
    """Samples of a pilot above epsilon, and what they imply for plans."""

    values: FloatArray
    """h."""
    places: FloatArray
    """v."""
    chances: FloatArray
    """The weight of each, if samples were those of the pair itself."""
    tilts: Sequence[float]
    weights: FloatArray
    """weights[k, i]: e^{Lam - kap v} of each tilt and sample."""
    log_means: Sequence[float]
    deviation: float
    """The standard deviation of v."""
    delta: float
    aim: float
    """Delta, or if that cannot be shown about the smallest that can: good for hints."""

    @property
    def mean(self) -> float:
        """Approximately delta of the pair."""
        return float(self.chances @ self.values)

    def log_left(self, slope: float) -> float:
        """Approximate logarithm of the delta weighted by e^{-th v}.

        If there is nothing above epsilon: as if there were FAINT of delta, at the largest v.
        """
        if not self.values.size:
            return math.log(FAINT * self.delta) - slope * self.tilts[-1] * self.deviation**2
        return float(np.logaddexp.reduce(np.log(self.chances * self.values) - slope * self.places))

    def best(self, slope: float, log_left: float) -> tuple[float, Plan | None]:
        """The plan with this slope that needs the fewest samples, and their number."""
        found: tuple[float, Plan | None] = math.inf, None
        if not math.isfinite(log_left):
            return found
        places = [(math.log(share * self.delta) - log_left) / slope for share in SHARES]
        lowest = math.log(SMALLEST * self.delta)
        for tilt, log_mean in zip(self.tilts, self.log_means, strict=True):
            # Higher places would leave nothing to bet on.
            highest = (log_mean + Plan(tilt, slope, 0.0).peak() - lowest) / tilt
            if highest < places[-1]:
                places.append(highest)
        for place in places:
            counts = self._counts(slope, place, math.exp(log_left + slope * place))
            least = int(np.argmin(counts))
            if counts[least] < found[0]:
                found = float(counts[least]), Plan(self.tilts[least], slope, place)
        return found

    def blended(self) -> tuple[float, Blend]:
        """The blend that needs the fewest samples, and their number."""
        mean = float(self.chances @ self.values)
        found = math.inf, Blend(self.tilts[0], BLENDS[-1])
        for tilt, weights in zip(self.tilts, self.weights, strict=True):
            with np.errstate(divide="ignore"):
                odds = 1 / weights
            for share in BLENDS:
                kept = self.chances * self.values**2 / (share + (1 - share) * odds)
                count = needed(mean, kept.sum(), np.array(1 / share), self.aim)
                if count < found[0]:
                    found = float(count), Blend(tilt, share)
        return found

    def _counts(self, slope: float, place: float, rest: float) -> FloatArray:
        """The approximate number of samples with each tilt."""
        cut = self.values * np.maximum(-np.expm1(slope * (place - self.places)), 0.0)
        mean, second = float(self.chances @ cut), self.weights @ (self.chances * cut * cut)
        logs = [
            Plan(tilt, slope, place).peak() + log_mean
            for tilt, log_mean in zip(self.tilts, self.log_means, strict=True)
        ]
        largest = np.exp(np.minimum(logs, 700.0))
        counts = needed(mean, second, largest, self.aim - rest)
        fine = (largest > 0.99 * SMALLEST * self.delta) & (largest <= 1)
        return np.where(fine, counts, math.inf)


def needed(
    mean: float, second: FloatArray | float, largest: FloatArray, below: float
) -> FloatArray:
    """Approximately how many X with these moments show that their mean is below."""
    gap = max(below - mean, CLOSE * below)
    variance = second - 2 * mean * (mean + gap) + (mean + gap) ** 2
    with np.errstate(over="ignore"):
        return np.asarray(2 * LEVEL * (variance + largest * gap / 3) / gap**2)


def look(
    pair: Pair,
    direction: Direction,
    remove: bool,
    epsilon: float,
    delta: float,
    size: int,
    rng: np.random.Generator,
) -> Look:
    """Samples with several tilts, weighted as one mixture."""
    lean = 0.01 / direction.pull
    bend = 2 * tilted(pair, direction, remove, 0.0)[0]
    bend -= tilted(pair, direction, remove, lean)[0] + tilted(pair, direction, remove, -lean)[0]
    deviation = math.sqrt(max(-bend / lean**2, direction.square))
    tilts = [STEP * step / deviation for step in range(1, STEPS + 1)]
    log_means, losses, places = [], [], []
    for tilt in tilts:
        log_mean, drawn = tilted(pair, direction, remove, tilt)
        log_means.append(log_mean)
        found = pair.tilted_losses(remove, size, rng, drawn)
        losses.append(found[0])
        places.append(found[1])
    values = np.maximum(-np.expm1(np.minimum(epsilon - np.concatenate(losses), 0.0)), 0.0)
    above = values > 0
    values, where = values[above], np.concatenate(places)[above]
    logs = np.array(log_means)[:, None] - np.multiply.outer(tilts, where)
    with np.errstate(under="ignore", over="ignore"):
        chances = np.exp(-np.logaddexp.reduce(-logs, axis=0)) / size
        weights = np.exp(np.minimum(logs, 700.0))
    aim = max(delta, float(chances @ values) / PASSING)
    return Look(values, where, chances, tilts, weights, log_means, deviation, delta, aim)


def plan_for(
    problem: Problem,
    pair: Pair,
    remove: bool,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> tuple[Plan, Direction, float] | tuple[Blend, Direction] | None:
    """A plan with its direction and log D, or a blend; None if no tilt is much better."""
    direction = direction_of(pair.mechanism) if delta < COMMON else None
    if direction is None:
        return None
    pair = pair.aimed(epsilon)
    bound = partial(bound_weighed_delta, problem, direction, pair.columns, remove, epsilon)
    known: dict[float, float] = {}
    best: tuple[float, Plan] | None = None
    for size in PILOTS:
        seen = look(pair, direction, remove, epsilon, delta, size, rng)
        crude = float(needed(seen.mean, np.array([seen.mean]), np.ones(1), seen.aim)[0])
        if crude < CHEAP:
            return None
        best = _best_plan(seen, known, bound)
        if best is None or best[0] < PILOTS[-1] * STEPS:
            break
    blended, blend = seen.blended()
    if not min(blended, math.inf if best is None else best[0]) < WORTH * crude:
        return None
    if best is None or blended < best[0]:
        return blend, direction
    return best[1], direction, known[best[1].slope]


def _best_plan(
    seen: Look, known: dict[float, float], bound: Callable[[float], float]
) -> tuple[float, Plan] | None:
    """The plan that seems to need the fewest samples, and how many; new bounds go to `known`."""
    for _ in range(TURNS):
        slope = _best_slope(seen, known)
        if slope is None or slope in known:
            break
        known[slope] = bound(slope)
    found: tuple[float, Plan] | None = None
    for slope, log_left in known.items():
        count, plan = seen.best(slope, log_left)
        if plan is not None and (found is None or count < found[0]):
            found = count, plan
    return found


def _best_slope(seen: Look, known: dict[float, float]) -> float | None:
    """The slope of the plan that seems to need the fewest samples, given the known bounds."""
    counts = {}
    for step in SLOPES:
        slope = step / seen.deviation
        log_left = known.get(slope, seen.log_left(slope) + _log_loose(seen, known, slope))
        counts[slope] = seen.best(slope, log_left)[0]
    found = min(counts, key=lambda slope: counts[slope], default=None)
    return found if found is not None and counts[found] < math.inf else None


def _log_loose(seen: Look, known: dict[float, float], slope: float) -> float:
    """Approximate logarithm of D over the truth: linear between the slopes that were evaluated.

    Below them it falls as the cube of the slope.  At slope 0 a bound is as good as it is for the
    mechanism itself; what it loses by its own slack does not fall with delta, and soon dominates.
    """
    if not known:
        return math.log(LOOSE)
    asked = sorted(known)
    logs = [max(known[other] - seen.log_left(other), 0.0) for other in asked]
    first, last = asked[0], asked[-1]
    if slope < first:
        least = min(math.log(LOOSE), logs[0])
        return least + (logs[0] - least) * (slope / first) ** 3
    if slope > last:
        return logs[-1] * slope / last
    return float(np.interp(slope, asked, logs))
