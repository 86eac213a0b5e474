"""Certified lower bounds: what one direction alone gives away.

Looking at t = <d, y> only is post-processing, so for every threshold
delta_remove >= P(t > t*) - e^eps Q(t > t*) and delta_add >= Q(t <= t*) - e^eps P(t <= t*).
Any direction d = A w / |A w|, w >= 0, is valid; w_j = sum_(S with j) omega_S at the best
threshold is stationary, so a few rounds find the best.

Rounding: down.  Overlaps a_j are rounded down, which lowers both bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special

from mmcc.accounting.participation import Adjacency
from mmcc.accounting.projection.line import Line
from mmcc.arrays import FloatArray
from mmcc.strategies.gram import Gram

ROUNDS = 3
SCAN = np.linspace(-1.5, 2.0, 15)
GOLDEN = 0.5 * (math.sqrt(5) - 1)
NORMAL_ERROR = 1e-13
"""Relative error of scipy's normal distribution function, generously."""


@dataclass(frozen=True, eq=False, slots=True)
class Lower:
    """A lower bound with the direction and the threshold that gave it."""

    value: float
    threshold: float
    direction: FloatArray
    """w, by class."""


def overlaps(gram: Gram, direction: FloatArray) -> FloatArray:
    """a_j = <A w / |A w|, A_j>, rounded to nearest."""
    image = gram.product(direction)
    return np.asarray(image / math.sqrt(float((gram.counts * direction) @ image)))


def lower_epsilon(gram: Gram, p: float, delta: float, adjacency: Adjacency) -> Lower:
    """A lower bound on epsilon at delta."""

    def value(line: Line, t: float) -> float:
        released, idle = _masses(line, t, adjacency)
        return math.log((released - delta) / idle) - 1e-12 if released > delta else -math.inf

    return _best(gram, p, adjacency, delta, value)


def lower_delta(gram: Gram, p: float, epsilon: float, adjacency: Adjacency) -> Lower:
    """A lower bound on delta at epsilon."""

    def value(line: Line, t: float) -> float:
        released, idle = _masses(line, t, adjacency)
        if not idle > 0.0:
            return 0.0
        other = math.exp(min(epsilon + math.log(idle), 700.0)) * (1 + 1e-13 * (1 + epsilon))
        return released - other

    return _best(gram, p, adjacency, 1e-6, value)


def _masses(line: Line, t: float, adjacency: Adjacency) -> tuple[float, float]:
    """The mass of the first distribution beyond t, rounded down, and of the second, rounded up."""
    if adjacency == "remove":
        value, error = line.tail(t, "above")
        return value - error, float(special.ndtr(-t)) * (1 + NORMAL_ERROR)
    value, error = line.tail(t, "below")
    return float(special.ndtr(t)) * (1 - NORMAL_ERROR), value + error


def _best(
    gram: Gram,
    p: float,
    adjacency: Adjacency,
    delta: float,
    value: Callable[[Line, float], float],
) -> Lower:
    """The best threshold, then the best direction for it, a few times over."""
    direction = np.ones(gram.counts.size)
    best = Lower(-math.inf, 0.0, direction)
    sign = 1.0 if adjacency == "remove" else -1.0
    centre: float | None = None
    for _ in range(ROUNDS):
        a = overlaps(gram, direction) * (1 - 8 * gram.error - 1e-15 * gram.counts.size)
        line = Line(a, gram.counts, p)
        threshold = _threshold(partial(value, line), sign, delta, centre)
        found = value(line, threshold)
        if found > best.value:
            best = Lower(found, threshold, direction)
        if not math.isfinite(found) or gram.counts.size == 1:
            break
        centre = threshold
        direction = np.maximum(line.weights(np.array([threshold])).single[0], 0.0)
        direction /= direction.max()
    return best


def _threshold(
    value: Callable[[float], float], sign: float, delta: float, centre: float | None
) -> float:
    """Scan, then golden section: any threshold is valid, so no care is needed."""
    if centre is None:
        # The best threshold lies above the delta-quantile of Q; with strong signals far above.
        start = sign * -float(special.ndtri(min(delta, 0.4)))
        scan = [start + sign * x for x in SCAN]
        while True:
            values = [value(t) for t in scan]
            place = int(np.argmax(values))
            if place < len(scan) - 1 or len(scan) > 400:
                break
            gap = scan[-1] - scan[-2]
            scan += [scan[-1] + gap * 1.25**k * k for k in range(1, 8)]
        low, high = scan[max(place - 1, 0)], scan[min(place + 1, len(scan) - 1)]
    else:
        low, high = centre - 0.3, centre + 0.3
    for _ in range(22 if centre is None else 14):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if value(left) > value(right) else (left, high)
    return float(0.5 * (low + high))
