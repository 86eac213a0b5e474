"""Certified lower bounds: what a single direction of the output reveals.

Keeping only t = <d, y> is post-processing, so for every threshold delta_remove >= P(t > t*) - e^eps
Q(t > t*) and delta_add >= Q(t <= t*) - e^eps P(t <= t*).  Any direction d = A w / |A w|, w >= 0, is
valid; w_j = sum_(S with j) omega_S at the best threshold is stationary, so a few rounds find the
best.

Rounding: down.  Overlaps a_j are rounded down, which lowers both bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._bounds.projection.laws import line_of
from mmcc.accounting._bounds.projection.line import AnyLine, Chance
from mmcc.errors import PrecisionError
from mmcc.strategies._gram import Gram

ROUNDS = 3
SCAN = np.linspace(-1.5, 2.0, 15)
BELOW = np.linspace(2.0, 0.25, 8)
LOWEST = -3.0
"""The scan is not extended below this, where both laws have nearly all their mass beyond."""
GOLDEN = 0.5 * (math.sqrt(5) - 1)
FARTHEST, FARTHEST_BELOW = 1e5, 38.0
"""Thresholds beyond these are useless: below minus the second, Q has no mass within floats."""
NORMAL_ERROR = 1e-13
"""A generous bound on the relative error of scipy's normal distribution function."""


@dataclass(frozen=True, eq=False, slots=True)
class Lower:
    """A lower bound with the direction and the threshold that gave it."""

    value: float
    threshold: float
    direction: FloatArray
    """The direction's weights w, by class."""


def overlaps(gram: Gram, direction: FloatArray) -> FloatArray:
    """The overlaps a_j = <A w / |A w|, A_j>, rounded to nearest."""
    image = gram.product(direction)
    return np.asarray(image / math.sqrt(float((gram.counts * direction) @ image)))


def lower_epsilon(gram: Gram, p: Chance, delta: float, adjacency: Adjacency) -> Lower:
    """A lower bound on epsilon at delta."""

    def value(line: AnyLine, t: float) -> float:
        released, log_idle = _masses(line, t, adjacency)
        if not released > delta:
            return -math.inf
        return (math.log(released - delta) - log_idle) - 1e-12 * (1 + abs(log_idle))

    sign = 1.0 if adjacency == "remove" else -1.0

    def threshold(line: AnyLine, centre: float | None) -> float:
        return _scan(partial(value, line), sign, delta, centre)

    return _best(gram, p, value, threshold)


def lower_delta(gram: Gram, p: Chance, epsilon: float, adjacency: Adjacency) -> Lower:
    """A lower bound on delta at epsilon."""

    def value(line: AnyLine, t: float) -> float:
        return _excess(line, t, epsilon, adjacency)

    def threshold(line: AnyLine, _: float | None) -> float:
        return _crossing(line, epsilon if adjacency == "remove" else -epsilon)

    found = _best(gram, p, value, threshold)
    return replace(found, value=max(found.value, 0.0))


def delta_along(positions: FloatArray, p: Chance, epsilon: float) -> float:
    """A lower bound on delta for remove, from the positions a_j of columns along a direction."""
    line = line_of(positions, np.ones(positions.size), p)
    return _excess(line, _crossing(line, epsilon), epsilon, "remove")


def _excess(line: AnyLine, t: float, epsilon: float, adjacency: Adjacency) -> float:
    """The first law's mass beyond t less e^epsilon times the second's, rounded down."""
    released, log_idle = _masses(line, t, adjacency)
    return released - math.exp(min(epsilon + log_idle + 1e-13 * (1 + epsilon), 700.0))


def _masses(line: AnyLine, t: float, adjacency: Adjacency) -> tuple[float, float]:
    """The first law's mass beyond t, rounded down; log of the second law's, rounded up."""
    if adjacency == "remove":
        value, error = line.tail(t, "above")
        log_idle = float(special.log_ndtr(-t))
        return value - error, log_idle + NORMAL_ERROR * (1 + abs(log_idle))
    value, error = line.tail(t, "below")
    most = max(value + error, 1e-300)
    return float(special.ndtr(t)) * (1 - NORMAL_ERROR), math.log(most) + 1e-15 * abs(math.log(most))


def _best(
    gram: Gram,
    p: Chance,
    value: Callable[[AnyLine, float], float],
    find: Callable[[AnyLine, float | None], float],
) -> Lower:
    """Alternate a few times between the best threshold and the best direction for it."""
    direction = np.ones(gram.counts.size)
    best = Lower(-math.inf, 0.0, direction)
    centre: float | None = None
    for _ in range(ROUNDS):
        a = overlaps(gram, direction) * (1 - 8 * gram.error - 1e-15 * gram.counts.size)
        line = line_of(a, gram.counts, p)
        threshold = find(line, centre)
        found = value(line, threshold)
        if found > best.value:
            best = Lower(float(found), float(threshold), direction)
        if not math.isfinite(found) or gram.counts.size == 1:
            break
        centre = threshold
        try:
            better = line.weights(np.array([threshold])).single[0]
        except PrecisionError:
            break
        if not (np.isfinite(better).all() and better.max() > 0):  # beyond the range of floats
            break
        direction = np.maximum(better, 0.0) / better.max()
    return best


def _crossing(line: AnyLine, level: float) -> float:
    """Roughly the t with log m(t) = level, the best threshold for telling the two laws apart."""

    def height(t: float) -> float:
        weights = line.weights(np.array([t]))
        return math.log(max(float(weights.mass[0]), 1e-300)) + float(weights.log_scale[0])

    low, high = -1.0, 1.0
    while height(high) < level and high < FARTHEST:
        low, high = high, 2 * high
    while height(low) > level and low > -FARTHEST_BELOW:
        low, high = 2 * low, low
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if height(middle) < level else (low, middle)
        if high - low <= 1e-5 * (1 + abs(high)):
            break
    return 0.5 * (low + high)


def _scan(
    value: Callable[[float], float], sign: float, delta: float, centre: float | None
) -> float:
    """The best threshold by a scan and golden section; any threshold is valid."""
    if centre is None:
        # The best threshold lies above the delta-quantile of Q, with strong signals far above;
        # with rare participation below it, where enough mass of P is beyond.
        start = sign * -float(special.ndtri(min(delta, 0.4)))
        scan = [start + sign * x for x in SCAN]
        while True:
            values = [value(t) for t in scan]
            place = int(np.argmax(values))
            if place == 0 and sign * scan[0] > LOWEST:
                scan = [scan[0] - sign * x for x in BELOW] + scan
                continue
            if place < len(scan) - 1 or len(scan) > 400:
                break
            gap = scan[-1] - scan[-2]
            scan += [scan[-1] + gap * 1.25**k * k for k in range(1, 8)]
        low, high = scan[max(place - 1, 0)], scan[min(place + 1, len(scan) - 1)]
    else:
        low, high = centre - 0.3, centre + 0.3
    return _golden(value, low, high, 22 if centre is None else 14)


def _golden(value: Callable[[float], float], low: float, high: float, turns: int) -> float:
    """Roughly the maximum of a function by golden section, with one new value per turn."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    for turn in range(turns):
        last = turn == turns - 1
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = at_right if last else value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = at_left if last else value(right)
    return float(0.5 * (low + high))
