r"""What certified points of a privacy curve imply in other units.

In: points (epsilon, delta), each certified for both adjacencies.  Out: upper bounds on mu of
Gaussian differential privacy, on the power of tests and on the advantage.  Rounding: upwards.

The curve h(x) = sup_A P(A) - x Q(A), x = e^epsilon, is convex and never rises; the larger of both
adjacencies is too, as a maximum of two such curves.  So between two points it lies below their
chord in x, and beyond the last point below that point.  Any subset of the points may be used.
Proofs: docs/units.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from scipy import special

from mmcc.accounting._gaussian import EPS, SMALLEST, bound_gaussian_delta

FARTHEST = 600.0
"""Points with a larger epsilon are left out: e^epsilon must fit into a float."""
ACCURACY = 1e-11
"""Relative accuracy of mu, on the safe side."""
LARGEST_MU = 1e6
UP = 1 + 2.0**-48
"""Covers the rounding of a few operations on positive numbers."""
MARGIN = 64 * EPS


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A certified pair: the mechanism is (epsilon, delta)-differentially private."""

    epsilon: float
    delta: float

    def power(self, rate: float) -> float:
        r"""Upper bound on the true positive rate at a given false positive rate.

        P(A) <= e^eps Q(A) + delta.  The other adjacency, of the complement: 1 - Q(A) <=
        e^eps (1 - P(A)) + delta, so P(A) <= 1 - e^-eps (1 - delta - Q(A)).
        """
        if self.epsilon > FARTHEST:
            return 1.0
        first = math.exp(self.epsilon) * rate + self.delta
        small = math.exp(-self.epsilon)
        second = -math.expm1(-self.epsilon) + small * (self.delta + rate)
        return min(first * UP, second * UP, 1.0)

    @property
    def advantage(self) -> float:
        r"""Upper bound on the true minus the false positive rate.

        It is the value at x = 1 of the chord from the point to its mirror image
        (e^-eps, 1 - e^-eps + e^-eps delta).
        """
        small = math.exp(-self.epsilon)
        return min((-math.expm1(-self.epsilon) + 2 * small * self.delta) / (1 + small) * UP, 1.0)


def hull(points: Sequence[Point]) -> list[Point]:
    """The corners of the lower convex hull of the points, from epsilon 0 to the smallest delta.

    At epsilon 0 delta is the advantage, which every point bounds.
    """
    falling: list[Point] = []
    for point in sorted([Point(0.0, min(point.advantage for point in points)), *points]):
        if point.epsilon <= FARTHEST and not (falling and point.delta >= falling[-1].delta):
            falling.append(point)
    corners: list[Point] = []
    for point in falling:
        while len(corners) > 1 and _above(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return corners


def _above(left: Point, middle: Point, right: Point) -> bool:
    """Whether the middle point lies above the chord of its neighbours."""
    share = math.exp(middle.epsilon - right.epsilon) - math.exp(left.epsilon - right.epsilon)
    share /= -math.expm1(left.epsilon - right.epsilon)
    return middle.delta >= left.delta + share * (right.delta - left.delta)


def bound_mu(points: Sequence[Point], floor: float) -> float:
    """A mu such that, at every epsilon, delta is at most that of mu-Gaussian DP plus `floor`.

    It is infinite if the last point lies above the floor: beyond it the curve may stay constant,
    whereas every Gaussian's curve falls to zero.
    """
    corners = hull(points)
    if corners[-1].delta > floor:
        return math.inf
    return max((mu_between(*both, floor) for both in pairwise(corners)), default=0.0)


@lru_cache(maxsize=4096)
def mu_between(left: Point, right: Point, floor: float) -> float:
    """The smallest mu found whose curve, with the floor, is above the chord of two points."""
    if left.delta <= floor:
        return 0.0
    low, high = 0.0, 1.0
    while not _reaches(high, left, right, floor):
        low, high = high, 2 * high
        if high > LARGEST_MU:
            return math.inf
    while high - low > ACCURACY * high and high > SMALLEST:
        middle = 0.5 * (low + high)
        reached = _reaches(middle, left, right, floor)
        low, high = (low, middle) if reached else (middle, high)
    return high


def touching(mu: float, left: Point, right: Point) -> float:
    """The epsilon where the curve of mu is nearest to the chord: their slopes in x are equal."""
    fall = (left.delta - right.delta) / -math.expm1(left.epsilon - right.epsilon)
    slope = max(fall * math.exp(-right.epsilon), SMALLEST)
    if slope >= 1:
        return left.epsilon
    found = -mu * float(special.ndtri(slope)) - 0.5 * mu * mu
    return min(max(found, left.epsilon), right.epsilon)


def _reaches(mu: float, left: Point, right: Point, floor: float) -> bool:
    r"""Whether it is certain that delta of mu plus the floor is above the chord.

    The test "loss above t" has the rates T = Phi(mu/2 - t/mu) and S = Phi(-mu/2 - t/mu), so the
    curve of mu lies above the line T - x S for every t; a line is above the chord if it is so at
    both ends.  The best t is where the curve is nearest to the chord.
    """
    t = touching(mu, left, right)
    size = t / mu + mu
    error = MARGIN * (1 + size * size)
    hits = float(special.ndtr(0.5 * mu - t / mu)) * (1 - error)
    misses = float(special.ndtr(-0.5 * mu - t / mu)) * (1 + error) + SMALLEST
    paid = floor * (1 - 4 * EPS)
    return all(
        hits - misses * math.exp(end.epsilon) * UP + paid >= end.delta for end in (left, right)
    )


def likely_mu(point: Point, floor: float = 0.0) -> float:
    """Roughly the mu whose curve goes through a point: for choosing, not certified."""
    if point.delta <= floor:
        return 0.0
    low, high = 0.0, 1.0
    while bound_gaussian_delta(high, point.epsilon) + floor < point.delta and high < LARGEST_MU:
        low, high = high, 2 * high
    while high - low > 1e-9 * high and high > SMALLEST:
        middle = 0.5 * (low + high)
        reached = bound_gaussian_delta(middle, point.epsilon) + floor >= point.delta
        low, high = (low, middle) if reached else (middle, high)
    return high


def likely_delta(left: Point, right: Point, epsilon: float) -> float:
    """Roughly the delta between two points, by interpolating their mu."""
    share = (epsilon - left.epsilon) / (right.epsilon - left.epsilon)
    mu = (1 - share) * likely_mu(left) + share * likely_mu(right)
    part = right.delta / left.delta
    found = bound_gaussian_delta(mu, epsilon)
    least, most = left.delta * math.pow(part, 0.95), left.delta * math.pow(part, 0.05)
    return min(max(found, least), most)
