r"""Which noise levels the guesses refute, if the privacy curve is of the accounted family.

In: the certified curve of the mechanism, how many guesses were right.  Out: a sigma: with it, or
with more noise, this many correct guesses would have been unlikely.
Rounding: the sigma upwards, by at most 1 %.

The family has one member for each noise level s: all mechanisms, whatever they do, whose privacy
curve is nowhere above that of the accounted mechanism with s in place of sigma.  That curve is at
most the certified curve, with which s is refuted; and more noise has a smaller curve, so refuting
s refutes everything above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mmcc.accounting._curve_points import Point, likely_mu
from mmcc.accounting._gaussian import bound_gaussian_epsilon
from mmcc.accounting._parallel import Progress
from mmcc.accounting._privacy_curve import PrivacyCurve
from mmcc.audit._guesses import Guesses
from mmcc.audit._one_run import chance_under_curve

DELTAS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0001)
"""Where the curve is evaluated; more points change the refuted noise by a percent."""
CLOSE = 1.01
TURNS = 8
"""The most noise levels that are tried; usually three."""
MOST = 1e4
"""The search ends at this multiple of the accounted noise, or its inverse."""


@dataclass(frozen=True, slots=True)
class Refuted:
    """What the guesses refute of the mechanism's own family."""

    sigma: float
    """This noise or more is refuted; infinite if none is."""
    epsilon: float
    """The certificate of the mechanism with that noise, at the audit's delta."""
    chance: float
    """An upper bound on the probability of this many correct guesses under the certified curve."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        sigma = self.sigma if math.isfinite(self.sigma) else None
        return {"sigma": sigma, "epsilon": self.epsilon, "chance": self.chance}


def refuted_noise(
    curve: PrivacyCurve,
    own: Point,
    correct: int,
    guesses: Guesses,
    canaries: int,
    error: float,
    progress: Progress | None = None,
) -> Refuted:
    """The least noise found that is refuted.

    `own` is the certified point; `error` bounds the chance of refuting what is true.  Gaussians
    fitted to the points of the last curve suggest what to try next; a noise level is refuted by
    the curve of exactly that noise.
    """

    def chance(points: Sequence[Point]) -> float:
        return chance_under_curve(correct, guesses.count, guesses.stakes(canaries), points)

    sigma, found, at_own = curve.problem.sigma, math.inf, 1.0
    for turn in range(TURNS):
        at = curve.with_noise(sigma)
        points = [at.at(delta) for delta in DELTAS]
        seen = chance([own, *points] if turn == 0 else points)
        at_own = seen if turn == 0 else at_own
        found = min(found, sigma) if seen <= error else found
        if progress is not None:
            progress("noise levels tried", turn + 1)
        factor = _crossing(points, chance, error)
        if not 1 / MOST < factor < MOST or (seen <= error and factor * CLOSE >= 1):
            break
        sigma *= factor * (1 + (CLOSE - 1) / 3) if seen <= error or factor > 1 else CLOSE
    if math.isinf(found):
        return Refuted(found, 0.0, at_own)
    return Refuted(found, curve.with_noise(found).at(own.delta).epsilon, at_own)


def _crossing(
    points: Sequence[Point], chance: Callable[[Sequence[Point]], float], error: float
) -> float:
    """About the factor of the noise with which the curve is just refuted."""
    mus = [likely_mu(point) for point in points]

    def refuted(factor: float) -> bool:
        return error >= chance(
            [
                Point(bound_gaussian_epsilon(mu / factor, point.delta), point.delta)
                for mu, point in zip(mus, points, strict=True)
            ]
        )

    low = high = 1.0
    if refuted(1.0):
        while low > 1 / MOST and refuted(low):
            low, high = low / 2, low
    else:
        while high < MOST and not refuted(high):
            low, high = high, 2 * high
    while high > low * (1 + (CLOSE - 1) / 5):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high
