"""The privacy curve of a mechanism, computed only at the points that are needed.

In: a mechanism, the bounds behind a guarantee.  Out: certified points, and what they imply in other
units.  Rounding: upwards.

Every point holds under the guarantee's assumptions.  A point is one question to the few bounds that
were best at the guarantee's delta and at a tiny one; a rough search chooses the points, and all of
them are valid.  The same question has the same answer, whatever was asked before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from scipy import optimize, special

from mmcc.accounting._best_bound import Best, ask_delta, ask_epsilon, best_epsilon
from mmcc.accounting._bounds import CHANCE, PLAIN, Answer, Bound, Cost, Problem
from mmcc.accounting._curve_points import (
    Point,
    bound_mu,
    hull,
    likely_delta,
    likely_mu,
    mu_between,
    touching,
)
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.errors import MmccError, real

FAR = 1e-12
"""The tiny delta at which the other bounds to ask are chosen."""
LEAST = 1e-100
"""The smallest rate, and floor other than 0: deltas of about that size must be certified."""
CLOSE = 2e-3
"""No more points are added once mu is this close to what single points imply."""
MANY, FEW = 96, 32
"""Most points used for mu, with bounds that answer instantly and with others."""
TINY = 1e-3
"""The epsilon used in place of 0 for bounds that have no answer there."""
WIDTH, STEP, TURNS = 4.0, 0.1, 9
"""Width, last step and turns of the search over log delta for the best point of a test."""


@dataclass(eq=False)
class PrivacyCurve:
    """Certified points of delta(epsilon), the larger of both adjacencies."""

    problem: Problem
    own: Point
    """The point that the guarantee promises."""
    winners: tuple[Bound, ...]
    """The bounds behind it, with all their settings chosen."""
    bounds: tuple[Bound, ...] = ()
    """All bounds that may be asked; empty if the user chose the method."""
    _points: dict[float, Point] = field(default_factory=dict)

    def __deepcopy__(self, memo: object) -> PrivacyCurve:
        return self  # it caches answers, which do not change

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Pickle as None: the mechanism may be large, or of a class that cannot be pickled."""
        return type(None), ()

    @property
    def plain(self) -> bool:
        """Whether no use is made of sampling, so that everything has a closed form."""
        return not any(bound.amplified for bound in (*self.winners, *self.bounds))

    def with_noise(self, sigma: float) -> PrivacyCurve:
        """The curve of the same mechanism at another noise level, by the same bounds."""
        return PrivacyCurve(self.problem.at(sigma), Point(math.inf, 1.0), self.winners)

    def epsilon(self, delta: float) -> float:
        """The certified epsilon at a delta, by all bounds that may be asked."""
        delta = real("delta", delta, LEAST, 1)
        if self.bounds and not self.plain:
            found = best_epsilon(self.problem, delta, self.bounds).value
        else:
            found = self.at(delta).epsilon
        return min(found, self.own.epsilon) if delta >= self.own.delta else found

    def advantage(self) -> float:
        """Upper bound on the true minus the false positive rate of any attack."""
        return min(point.advantage for point in self._first())

    def power(self, rate: float) -> float:
        """Upper bound on the true positive rate of any test with this false positive rate."""
        rate = real("false_positive_rate", rate, LEAST, 1)
        quantile = float(special.ndtri(rate))

        def tangent(mu: float) -> Point:
            """The point of the Gaussian's curve that bounds this rate best."""
            epsilon = abs(mu * quantile + 0.5 * mu * mu)
            return Point(epsilon, bound_gaussian_delta(mu, epsilon))

        points = [*self._first(), tangent(self.problem.ratio)]
        if not self.plain:
            best = min(points, key=lambda point: point.power(rate))
            start = math.log(max(tangent(likely_mu(best)).delta, LEAST))
            points += self._around(start, rate)
        return min(point.power(rate) for point in points)

    def _around(self, start: float, rate: float) -> list[Point]:
        """Points near a starting delta, including the one that bounds this rate best."""
        tried: list[Point] = []

        def value(log_delta: float) -> float:
            tried.append(self.at(math.exp(log_delta)))
            return math.log(tried[-1].power(rate))

        ends = max(start - WIDTH, math.log(LEAST)), min(start + WIDTH, math.log(0.5))
        optimize.minimize_scalar(
            value, bounds=ends, method="bounded", options={"xatol": STEP, "maxiter": TURNS}
        )
        return tried

    def gdp(self, floor: float) -> float:
        """A mu such that at every epsilon delta is at most that of its Gaussian plus `floor`.

        Without a floor it is the unamplified mu: however rarely an example takes part in every step
        that it may, that event determines delta at large epsilon.
        """
        floor = real("floor", floor, 0, 1, closed="l")
        most = self.problem.ratio
        if floor == 0 or self.plain:
            return most
        points = [*self._first(), self.at(real("floor, if it is not 0,", floor, LEAST, 1))]
        number = MANY if self._instant() else FEW
        found = bound_mu(points, floor)
        while len(points) < number:
            if found <= (1 + CLOSE) * max(likely_mu(point, floor) for point in points):
                break
            corners = hull(points)
            if corners[-1].delta > floor:
                break  # the curve is beyond floating point; only the unamplified mu remains
            points.append(self.at(self._most_useful(corners, floor)))
            if hull(points) == corners:
                break
            found = bound_mu(points, floor)
        return min(found, most)

    def zcdp(self) -> float:
        """Rho without amplification: a mixture's divergences are at most the worst set's."""
        return 0.5 * self.problem.ratio**2 * (1 + 2.0**-50)

    def _most_useful(self, corners: Sequence[Point], floor: float) -> float:
        """A delta between the two points whose chord requires the largest mu."""
        left, right = max(pairwise(corners), key=lambda both: mu_between(*both, floor))
        width = right.epsilon - left.epsilon
        mu = min(mu_between(left, right, floor), self.problem.ratio)
        near = touching(mu, left, right)
        inside = min(max(near, left.epsilon + 0.1 * width), right.epsilon - 0.1 * width)
        return likely_delta(left, right, inside)

    def at(self, delta: float) -> Point:
        """The point with the smallest epsilon that the chosen bounds certify at a delta."""
        if delta not in self._points:
            answers = self._answers(ask_epsilon, delta)
            epsilon = max(min(a.remove for a in answers), min(a.add for a in answers))
            self._points[delta] = Point(epsilon, delta)
            if self.problem.effort.progress is not None:
                self.problem.effort.progress("points of the privacy curve", len(self._points))
        return self._points[delta]

    def _first(self) -> list[Point]:
        """The points where every search starts: epsilon 0, the guarantee, and a tiny delta."""
        return [self._start, self.own, self.at(FAR)]

    @cached_property
    def _start(self) -> Point:
        """The point at epsilon 0, where delta is the total variation, equal for both adjacencies.

        Long grids may not reach that far; a tiny epsilon gives nearly the same.
        """
        answers = self._answers(ask_delta, 0.0)
        found = min(min(answer.remove, answer.add) for answer in answers)
        if len(answers) <= len(self._few):
            answers = self._answers(ask_delta, TINY)
            found = min(found, *(Point(TINY, answer.value).advantage for answer in answers))
        return Point(0.0, found)

    def _answers(self, ask: Callable[[Bound, Problem, float], Answer], at: float) -> list[Answer]:
        """The answers of all bounds that have one; the unamplified bound always does."""
        tried = (_try(ask, bound, self.problem, at) for bound in self._few)
        return [ask(PLAIN, self.problem, at), *(answer for answer in tried if answer is not None)]

    @cached_property
    def _few(self) -> tuple[Bound, ...]:
        """The bounds asked about points: the best at the guarantee's delta and at a tiny one."""
        if self.plain:
            return ()
        more: list[Bound] = []
        if self.bounds and not any(bound.exact(self.problem) for bound in self.winners):
            more = best_epsilon(self.problem, FAR, self.bounds).needed
        if self.bounds and CHANCE.refusal(self.problem) is None:
            more.append(CHANCE)
        return tuple(bound for bound in dict.fromkeys((*self.winners, *more)) if bound != PLAIN)

    def _instant(self) -> bool:
        return all(bound.cost(self.problem) <= Cost.FAST for bound in self._few)


def _try(
    ask: Callable[[Bound, Problem, float], Answer], bound: Bound, problem: Problem, at: float
) -> Answer | None:
    try:
        return ask(bound, problem, at)
    except MmccError:  # this bound has no answer here; another one does
        return None


def curve_of(
    problem: Problem, own: Point, best: Best, bounds: Sequence[Bound], setting: str
) -> PrivacyCurve:
    """The curve behind an answer; `bounds` are all that may be asked, `setting` what it assumes.

    It drops what was cached while computing the answer, and the executor, which may be gone later.
    """
    if problem.scheme.setting and not setting:
        winners: tuple[Bound, ...] = (PLAIN,)  # others would assume more than the guarantee
        bounds = ()
    else:
        winners = tuple(best.needed)
    effort = replace(problem.effort, executor=None)
    return PrivacyCurve(
        replace(problem, effort=effort, _remembered={}), own, winners, tuple(bounds)
    )
