r"""How to tilt: bounded weights that need few samples, chosen by a pilot.

In: a problem, its pair, an adjacency, epsilon and delta, randomness for the pilot.  Out: a `Plan`.
Rounding: none; every plan is valid, and `experiments` and `directions` bound what it leads to.

With v = <d, y> (see `directions`) and h = (1 - e^{eps - loss})_+,

    delta <= E[h (1 - e^{th (t - v)})_+] + e^{th t} D,    D >= what the weight e^{-th v} leaves.

The first mean is drawn under the law tilted by e^{kap v - Lam}, so that X has the weight
W(v) = e^{Lam - kap v} (1 - e^{th (t - v)})_+, which is largest where e^{th (t - v)} = r/(1 + r),
r = kap/th.  Nearly all of the second part is subtracted from the first, so it costs little even
where it is half of delta: what is lost is where v < t, and what D lies above the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation.directions import Direction, bound_weighed_delta, direction_of
from mmcc._simulation.pairs import Pair, Tilt
from mmcc.accounting._bounds.base import Problem

PILOT = 1024
"""Samples of a pilot with each tilt."""
STEP, STEPS = 0.6, 14
"""Of the tilts that are tried, in units of one over the deviation of v."""
SLOPES = (0.5, 1.0, 1.4, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0)
SHARES = (0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
"""Of delta, for the part that is bounded."""
LEVEL = 21.0
"""Log of one over the chance of a wrong verdict, about."""
CLOSE = 0.03
"""Part of delta by which the mean is taken to miss it, at least."""
LOOSE = 1.2
"""D over the truth for small slopes, as long as it is not known."""
TURNS = 4
WORTH = 0.5
"""Of the samples of a crude experiment: with more a tilt is not worth its bounds."""
COMMON, CHEAP = 0.02, 20_000.0
"""A delta so large, or so few samples without a tilt: not worth a bound."""
SMALLEST = 2.0
"""Of the largest X over delta: a bound below delta would leave nothing to bet on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """kap is `tilt`, th is `slope`, t is `place`."""

    tilt: float
    slope: float
    place: float

    def peak(self) -> float:
        """Log of the largest W but for Lam: -kap t + r log r - (1 + r) log(1 + r), r = kap/th."""
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


@dataclass(frozen=True, eq=False)
class Look:
    """Samples of a pilot above epsilon, and what they say about plans."""

    values: FloatArray
    """h."""
    places: FloatArray
    """v."""
    chances: FloatArray
    """Of each, if samples were those of the pair itself."""
    tilts: Sequence[float]
    weights: FloatArray
    """weights[k, i]: e^{Lam - kap v} of each tilt and sample."""
    log_means: Sequence[float]
    deviation: float
    """Of v."""
    delta: float

    @property
    def mean(self) -> float:
        """About delta of the pair."""
        return float(self.chances @ self.values)

    def left(self, slope: float) -> float:
        """About what the weight e^{-th v} leaves of it."""
        return float((self.chances * self.values) @ np.exp(-slope * self.places))

    def best(self, slope: float, log_left: float) -> tuple[float, Plan | None]:
        """The plan with this slope that needs fewest samples, and their number."""
        found: tuple[float, Plan | None] = math.inf, None
        for share in SHARES:
            place = (math.log(share * self.delta) - log_left) / slope
            cut = self.values * np.maximum(-np.expm1(slope * (place - self.places)), 0.0)
            mean, second = float(self.chances @ cut), self.weights @ (self.chances * cut * cut)
            plans = [Plan(tilt, slope, place) for tilt in self.tilts]
            logs = [plan.peak() + log for plan, log in zip(plans, self.log_means, strict=True)]
            largest = np.exp(np.minimum(logs, 700.0))
            counts = needed(mean, second, largest, self.delta * (1 - share))
            counts[largest < SMALLEST * self.delta] = math.inf
            least = int(np.argmin(counts))
            if counts[least] < found[0]:
                found = float(counts[least]), plans[least]
        return found


def needed(mean: float, second: FloatArray, largest: FloatArray, below: float) -> FloatArray:
    """About how many X with these moments show that their mean is below."""
    gap = max(below - mean, CLOSE * below)
    variance = second - 2 * mean * (mean + gap) + (mean + gap) ** 2
    return np.asarray(2 * LEVEL * (variance + largest * gap / 3) / gap**2)


def look(
    pair: Pair,
    direction: Direction,
    remove: bool,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> Look:
    """Samples with some tilts each, weighed as one mixture."""
    lean = 0.01 / direction.pull
    bend = 2 * tilted(pair, direction, remove, 0.0)[0]
    bend -= tilted(pair, direction, remove, lean)[0] + tilted(pair, direction, remove, -lean)[0]
    deviation = math.sqrt(max(-bend / lean**2, direction.square))
    tilts = [STEP * step / deviation for step in range(1, STEPS + 1)]
    log_means, losses, places = [], [], []
    for tilt in tilts:
        log_mean, drawn = tilted(pair, direction, remove, tilt)
        log_means.append(log_mean)
        found = pair.tilted_losses(remove, PILOT, rng, drawn)
        losses.append(found[0])
        places.append(found[1])
    values = np.maximum(-np.expm1(np.minimum(epsilon - np.concatenate(losses), 0.0)), 0.0)
    above = values > 0
    values, where = values[above], np.concatenate(places)[above]
    logs = np.array(log_means)[:, None] - np.multiply.outer(tilts, where)
    with np.errstate(under="ignore", over="ignore"):
        chances = np.exp(-np.logaddexp.reduce(-logs, axis=0)) / PILOT
        weights = np.exp(np.minimum(logs, 700.0))
    return Look(values, where, chances, tilts, weights, log_means, deviation, delta)


def plan_for(
    problem: Problem,
    pair: Pair,
    remove: bool,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> tuple[Plan, Direction, float] | None:
    """A plan with its direction and log D; None where none is much better than no tilt."""
    direction = direction_of(pair.mechanism) if delta < COMMON else None
    if direction is None:
        return None
    seen = look(pair, direction, remove, epsilon, delta, rng)
    if not seen.values.size:
        return None
    crude = float(needed(seen.mean, np.array([seen.mean]), np.ones(1), delta)[0])
    if crude < CHEAP:
        return None
    bound = partial(bound_weighed_delta, problem, direction, pair.columns, remove, epsilon)
    known: dict[float, float] = {}
    best: tuple[float, Plan, float] | None = None
    for _ in range(TURNS):
        slope = _best_slope(seen, known)
        if slope is None or slope in known:
            break
        known[slope] = bound(slope)
        count, plan = seen.best(slope, known[slope])
        if plan is not None and (best is None or count < best[0]):
            best = count, plan, known[slope]
    if best is None or not best[0] < WORTH * crude:
        return None
    return best[1], direction, best[2]


def _best_slope(seen: Look, known: dict[float, float]) -> float | None:
    """The slope of the plan that seems to need fewest samples, from the bounds that are known."""
    counts = {}
    for step in SLOPES:
        slope = step / seen.deviation
        left = seen.left(slope)
        if left > 0:
            log_left = known.get(slope, math.log(left) + _log_loose(seen, known, slope))
            counts[slope] = seen.best(slope, log_left)[0]
    found = min(counts, key=lambda slope: counts[slope], default=None)
    return found if found is not None and counts[found] < math.inf else None


def _log_loose(seen: Look, known: dict[float, float], slope: float) -> float:
    """About the logarithm of D over the truth: between slopes that were asked linear."""
    slopes, logs = [0.0], [math.log(LOOSE)]
    for other in sorted(known):
        slopes.append(other)
        logs.append(max(known[other] - math.log(seen.left(other)), 0.0))
    if slope > slopes[-1] > 0:
        return logs[-1] * slope / slopes[-1]
    return float(np.interp(slope, slopes, logs))
