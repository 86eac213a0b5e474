"""The whole privacy curve of a mechanism, asked for where it is needed.

In: a mechanism, the bounds behind a guarantee.  Out: certified points, and what they say in other
units.  Rounding: upwards.

Every point holds under what the guarantee assumes.  A point is one question to the few bounds that
were the best at the guarantee's delta and at a tiny one; which points are asked for is a rough
search, and all are valid.  The same question has the same answer, whatever was asked before.
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
"""Bounds that are the best at this delta are asked everywhere."""
LEAST = 1e-100
"""No floor but 0 and no rate is smaller: deltas about as small have to be certified."""
CLOSE = 2e-3
"""Mu this close above what single points need is not worth more of them."""
MANY, FEW = 96, 32
"""Points for mu, of bounds that answer at once and of others."""
TINY = 1e-3
"""An epsilon for bounds that have no answer at 0."""
WIDTH, STEP, TURNS = 4.0, 0.1, 9
"""Of the search for the best point of a test, in log delta."""


@dataclass(eq=False)
class PrivacyCurve:
    """Certified points of delta(epsilon), the larger of both adjacencies."""

    problem: Problem
    own: Point
    """What the guarantee promises."""
    winners: tuple[Bound, ...]
    """The bounds behind it, with every choice made."""
    bounds: tuple[Bound, ...] = ()
    """All that may be asked; empty if these were chosen by the user."""
    _points: dict[float, Point] = field(default_factory=dict)

    def __deepcopy__(self, memo: object) -> PrivacyCurve:
        return self  # what it keeps are answers, which do not change

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A guarantee travels without the mechanism, which may be large, or of a local class."""
        return type(None), ()

    @property
    def plain(self) -> bool:
        """Whether no use is made of sampling: then all is known in closed form."""
        return not any(bound.amplified for bound in (*self.winners, *self.bounds))

    def with_noise(self, sigma: float) -> PrivacyCurve:
        """The curve of the same mechanism with another noise, by the bounds behind this one."""
        return PrivacyCurve(self.problem.at(sigma), Point(math.inf, 1.0), self.winners)

    def epsilon(self, delta: float) -> float:
        """Certified epsilon at a delta; where every bound may be asked, all are."""
        delta = real("delta", delta, LEAST, 1)
        if self.bounds and not self.plain:
            found = best_epsilon(self.problem, delta, self.bounds).value
        else:
            found = self.at(delta).epsilon
        return min(found, self.own.epsilon) if delta >= self.own.delta else found

    def advantage(self) -> float:
        """No attack has more than this between its true and its false positives."""
        return min(point.advantage for point in self._first())

    def power(self, rate: float) -> float:
        """No test with this rate of false positives has more true positives."""
        rate = real("false_positive_rate", rate, LEAST, 1)
        quantile = float(special.ndtri(rate))

        def tangent(mu: float) -> Point:
            """Of the Gaussian's curve, where it says the most about this rate."""
            epsilon = abs(mu * quantile + 0.5 * mu * mu)
            return Point(epsilon, bound_gaussian_delta(mu, epsilon))

        points = [*self._first(), tangent(self.problem.ratio)]
        if not self.plain:
            best = min(points, key=lambda point: point.power(rate))
            start = math.log(max(tangent(likely_mu(best)).delta, LEAST))
            points += self._around(start, rate)
        return min(point.power(rate) for point in points)

    def _around(self, start: float, rate: float) -> list[Point]:
        """Points near a delta, the one that says the most about a rate among them."""
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
        """Delta is at most that of a Gaussian with this mu plus `floor`, at every epsilon.

        With no floor: unamplified, for however rare it is that an example takes part in every step
        that it may, this decides about delta where epsilon is large.
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
                break  # the curve is too long for floats; unamplified is all there is
            points.append(self.at(self._most_useful(corners, floor)))
            if hull(points) == corners:
                break
            found = bound_mu(points, floor)
        return min(found, most)

    def zcdp(self) -> float:
        """Rho without amplification: divergences of mixtures are at most those of the worst set."""
        return 0.5 * self.problem.ratio**2 * (1 + 2.0**-50)

    def _most_useful(self, corners: Sequence[Point], floor: float) -> float:
        """A delta between the two points whose chord asks for the largest mu."""
        left, right = max(pairwise(corners), key=lambda both: mu_between(*both, floor))
        width = right.epsilon - left.epsilon
        mu = min(mu_between(left, right, floor), self.problem.ratio)
        near = touching(mu, left, right)
        inside = min(max(near, left.epsilon + 0.1 * width), right.epsilon - 0.1 * width)
        return likely_delta(left, right, inside)

    def at(self, delta: float) -> Point:
        """The smallest epsilon that the few bounds certify at a delta."""
        if delta not in self._points:
            answers = self._answers(ask_epsilon, delta)
            epsilon = max(min(a.remove for a in answers), min(a.add for a in answers))
            self._points[delta] = Point(epsilon, delta)
            if self.problem.effort.progress is not None:
                self.problem.effort.progress("points of the privacy curve", len(self._points))
        return self._points[delta]

    def _first(self) -> list[Point]:
        """Where every search starts: at epsilon 0, where the guarantee is, and far out."""
        return [self._start, self.own, self.at(FAR)]

    @cached_property
    def _start(self) -> Point:
        """At epsilon 0 delta is the total variation, which both adjacencies share.

        Long grids may not reach so far; a tiny epsilon says nearly the same.
        """
        answers = self._answers(ask_delta, 0.0)
        found = min(min(answer.remove, answer.add) for answer in answers)
        if len(answers) <= len(self._few):
            answers = self._answers(ask_delta, TINY)
            found = min(found, *(Point(TINY, answer.value).advantage for answer in answers))
        return Point(0.0, found)

    def _answers(self, ask: Callable[[Bound, Problem, float], Answer], at: float) -> list[Answer]:
        """Of all that can answer: without sampling there is always one."""
        tried = (_tried(ask, bound, self.problem, at) for bound in self._few)
        return [ask(PLAIN, self.problem, at), *(answer for answer in tried if answer is not None)]

    @cached_property
    def _few(self) -> tuple[Bound, ...]:
        """The bounds that are asked about points: those that were the best twice."""
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


def _tried(
    ask: Callable[[Bound, Problem, float], Answer], bound: Bound, problem: Problem, at: float
) -> Answer | None:
    try:
        return ask(bound, problem, at)
    except MmccError:  # this is beyond the bound; another one has an answer
        return None


def curve_of(
    problem: Problem, own: Point, best: Best, bounds: Sequence[Bound], setting: str
) -> PrivacyCurve:
    """The curve behind an answer; `bounds` are all that may be asked, `setting` what it assumes.

    It keeps nothing that computing the answer has kept, and no executor, which may be gone later.
    """
    if problem.scheme.setting and not setting:
        winners: tuple[Bound, ...] = (PLAIN,)  # others would assume more than the guarantee does
        bounds = ()
    else:
        winners = tuple(best.needed)
    effort = replace(problem.effort, executor=None)
    return PrivacyCurve(replace(problem, effort=effort, _kept={}), own, winners, tuple(bounds))
