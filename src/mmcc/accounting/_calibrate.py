"""The smallest noise level that certifies a target, and what a proof costs there.

In: a mechanism without its sigma, a target (epsilon, delta).  Out: the safe end of a search, with
the guarantee computed there; and the sigma below which the target is impossible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from mmcc.accounting._best_bound import (
    Best,
    ask_epsilon,
    best_epsilon,
    best_of,
    lower_epsilon,
)
from mmcc.accounting._bounds import PLAIN, Answer, Bound, Cost, Problem
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.errors import MethodError, MmccError

TOLERANCE = 1e-4
"""Epsilon may be this much (relative) below the target."""
NARROW = 1e-5
"""Sigma may be this much (relative) above one that certifies less, where epsilon jumps."""
AIM = -0.5 * TOLERANCE
"""Log epsilon against the target that the search aims at."""
FAR = 0.02
"""Slow bounds are tried at the first guess where quick ones lie so far above the target."""
MAX_TURNS = 24
EXPLORED = (6, 11, 16, 21)
"""Turns after which bounds are tried again: one that was good elsewhere may have failed here."""
FLOOR_TURNS = 12
SLOPE = -1.2
"""Of log epsilon against log sigma, before anything is known."""

NO_ADD = Answer(math.inf, 0.0)
"""Taken for granted on the way to a sigma where remove sets the promise: add costs as much."""

Points = list[tuple[float, float]]
"""Log sigma, log epsilon against the target."""


def smallest_sigma(
    problem: Problem, bounds: Sequence[Bound], epsilon: float, delta: float
) -> tuple[Problem, Best, float]:
    """The problem at the sigma found, its bounds, and a sigma that is too small for any proof.

    `problem.sigma` is where the search may end at the latest (0: unknown).
    """
    floor, ends = _floor(problem, epsilon, delta)
    start = floor * 1.002 if floor > 0 else _first_guess(problem)
    if problem.sigma > 0:
        start = min(start, problem.sigma)
    # Upper bounds fall about as fast as lower ones.
    slope = _slope(ends, 0.0, SLOPE) if floor > 0 else SLOPE
    found, best = _search(problem.at(start), bounds, epsilon, delta, slope)
    if len(bounds) > 1 and best.lower == 0:
        best = replace(best, lower=lower_epsilon(found, delta))
    return found, best, floor


def impossible_sigma(problem: Problem, epsilon: float, delta: float) -> float:
    """A sigma at which epsilon is certainly above the target; 0 where nothing is known."""
    return _floor(problem, epsilon, delta)[0]


def _floor(problem: Problem, epsilon: float, delta: float) -> tuple[float, Points]:
    """That sigma, and lower ends at it and around it."""
    largest = 0.0

    def excess(sigma: float) -> float:
        nonlocal largest
        value = lower_epsilon(problem.at(sigma), delta)
        if value >= epsilon:
            largest = max(largest, sigma)
        return math.log(max(value, 1e-12) / epsilon)

    guess = _first_guess(problem)
    points: Points = []
    above = math.inf
    for _ in range(FLOOR_TURNS):
        found = excess(guess)
        points.append((math.log(guess), found))
        if 0 <= found <= TOLERANCE or (found <= -20 and len(points) > 2 and not largest):
            break
        above = min(above, guess) if found < 0 else above
        guess = next_sigma(points, 0.3 * TOLERANCE)
        if largest > 0 and not largest < guess < above and above < math.inf:
            guess = math.sqrt(largest * above)
    return largest, points


def _first_guess(problem: Problem) -> float:
    column = problem.strategy.sensitivity(problem.strategy.steps)
    ceiling = problem.sigma if problem.sigma > 0 else 10 * column
    rounds = problem.rounds
    chance = problem.scheme.rate(problem.steps) if rounds is None else rounds.probability
    return min(1.5 * chance * ceiling + 0.3 * column, ceiling)


def _search(
    problem: Problem,
    bounds: Sequence[Bound],
    epsilon: float,
    delta: float,
    slope: float = SLOPE,
) -> tuple[Problem, Best]:
    """Close in on epsilon(sigma) = epsilon from both sides; return the safe side.

    A single bound is asked as it is.  Of several the quick ones are tried at the first guess, and
    the winner alone, roughly, on the way; then the quick ones again where it meets the target, and
    all of them there, so that asking for epsilon at this sigma gives the same number.  If a slow
    one wins there, the search goes on with it.
    """
    costs = {bound: bound.cost(problem) for bound in bounds}
    least = min((costs[bound] for bound in bounds if bound.amplified), default=Cost.SLOW)
    quick, brisk = ([b for b in bounds if costs[b] <= most] for most in (least, Cost.LONG))
    search = _Search(bounds, quick, brisk, epsilon, slope)
    for turn in range(1, MAX_TURNS + 1):
        level = search.level
        known = search.granted if level is Level.CHOSEN else ()
        try:
            best = _ask(problem, search.asked, delta, level=level, known=known)
        except MmccError:
            if level is Level.ALL:
                raise
            search.level = Level.ALL  # another may know more
            continue
        verdict = search.learn(problem, best)
        if verdict is Verdict.DONE:
            break
        if verdict is Verdict.MOVE:
            problem = problem.at(search.step(problem.sigma, turn))
    if search.safe is None:
        raise MethodError(
            f"no sigma up to {problem.sigma:g} reaches epsilon = {epsilon:g} by "
            f"{', '.join(map(str, bounds))}. Use method='tight', or a larger epsilon or delta."
        )
    return search.safe


class Level(Enum):
    """Which bounds are asked at a sigma."""

    CHOSEN = "those that were best where more of them were asked"
    QUICK = "the cheapest ones, with their choices made anew"
    BRISK = "the same with all that take no minutes"
    ALL = "all of them, until the bracket is closed"


class Verdict(Enum):
    """What an answer means for the search."""

    DONE = "it meets the target, and can be promised"
    AGAIN = "more bounds are asked at the same sigma"
    MOVE = "another sigma is tried"


@dataclass
class _Search:
    """What is known about epsilon(sigma) = epsilon, and what is asked next."""

    bounds: Sequence[Bound]
    quick: Sequence[Bound]
    """The cheapest that make use of sampling, and what costs less still."""
    brisk: Sequence[Bound]
    epsilon: float
    slope: float
    safe: tuple[Problem, Best] | None = None
    """What can be promised: nothing is taken for granted there."""
    granted: tuple[Answer, ...] = ()
    _chosen: list[Bound] = field(default_factory=list)
    _low: float = 0.0
    _high: float = math.inf
    _points: Points = field(default_factory=list)
    _refused: dict[Level, float] = field(default_factory=lambda: dict.fromkeys(Level, 0.0))
    """The largest sigmas at which the quick ones, and all, were tried in vain."""

    def __post_init__(self) -> None:
        self.level = Level.QUICK if len(self.quick) < len(self.bounds) else Level.ALL

    @property
    def asked(self) -> Sequence[Bound]:
        """The bounds of this level."""
        return {
            Level.CHOSEN: self._chosen,
            Level.QUICK: self.quick,
            Level.BRISK: self.brisk,
            Level.ALL: self.bounds,
        }[self.level]

    def learn(self, problem: Problem, best: Best) -> Verdict:
        """Take note of an answer, and say what to do."""
        now, first = problem.sigma, not self._chosen
        away = math.log(max(best.value, 1e-12) / self.epsilon)
        enough = best.value <= self.epsilon
        if self.level is not Level.CHOSEN:
            self._choose(problem, best)
        if enough:
            self._high = now
        else:
            self._low, self._high = now, self._high if self._high > now else math.inf
        near = best.value >= self.epsilon * (1 - TOLERANCE)
        near = near or self._high - self._low <= NARROW * self._high
        if near and enough and self.level is Level.ALL:
            return Verdict.DONE
        if near and enough:
            chosen = self.level is Level.CHOSEN and not self._slow
            self.level = Level.QUICK if chosen else Level.ALL
            return Verdict.AGAIN
        lost = not any(bound.amplified for bound in self._chosen)
        if self.level is Level.QUICK and (lost or (first and away > FAR)):
            self.level = Level.ALL if lost else Level.BRISK
            return Verdict.AGAIN
        self._points.append((math.log(now), away))
        return Verdict.MOVE

    def step(self, now: float, turn: int) -> float:
        """The next sigma, between those that are too small and large enough."""
        if len(self.bounds) > 1:
            self.level = Level.CHOSEN
        if turn in EXPLORED:
            self.level = Level.ALL if self._slow or turn == EXPLORED[-1] else Level.QUICK
        self.slope = _slope(self._points, AIM, self.slope)
        guess = next_sigma(self._points, AIM, self.slope)
        if self._low < guess < self._high:
            return guess
        if self._low == 0:
            return now / 4
        return math.sqrt(self._low * self._high) if self._high < math.inf else 2 * now

    @property
    def _slow(self) -> bool:
        """Whether one of the winners is not quick."""
        names = {bound.name for bound in self.quick}
        return any(bound.name not in names for bound in self._chosen)

    def _choose(self, problem: Problem, best: Best) -> None:
        """Keep the winners; what others could not certify says nothing about them."""
        changed, self._chosen = best.needed != self._chosen, best.needed
        self.granted = (NO_ADD,) if best.remove.remove >= best.add.add else ()
        if best.value <= self.epsilon:
            self.safe = (problem, best)
        else:
            self._refused[self.level] = max(self._refused[self.level], problem.sigma)
        if changed:
            count = (Level.ALL,) if self._slow else (Level.ALL, Level.QUICK)
            self._low, self._points = max(self._refused[level] for level in count), []


def _ask(
    problem: Problem,
    bounds: Sequence[Bound],
    delta: float,
    *,
    level: Level,
    known: Sequence[Answer] = (),
) -> Best:
    """Several bounds in earnest, or each of some as it is; `known` is taken for granted.

    Whether the bracket is closed matters only where slow ones could be spared.
    """
    if level is not Level.CHOSEN and len(bounds) > 1:
        return best_epsilon(problem, delta, bounds, 0.0 if level is Level.QUICK else None)
    answers = list(known)
    for bound in sorted(bounds, key=lambda bound: bound.cost(problem)):
        answers.append(ask_epsilon(bound, problem, delta, answers))
    return best_of(answers)


def next_sigma(points: Points, goal: float, usual: float = SLOPE) -> float:
    """Secant through the two points nearest to the goal; the usual slope from one point."""
    x, y = min(points, key=lambda point: abs(point[1] - goal))
    step = min(max((goal - y) / _slope(points, goal, usual), -3.0), 3.0)
    return math.exp(x + step)


def _slope(points: Points, goal: float, usual: float) -> float:
    """Of log epsilon against log sigma near the goal; the usual one if two points do not tell."""
    nearest = sorted(points, key=lambda point: abs(point[1] - goal))[:2]
    if len(nearest) < 2 or nearest[0][0] == nearest[1][0]:
        return usual
    (x, y), (other, height) = nearest
    return min(max((height - y) / (other - x), -20.0), -0.3)


def gaussian_problem(problem: Problem, epsilon: float, delta: float) -> Problem:
    """The mechanism with the noise that needs no amplification: enough, rounded up."""
    problem = problem.at(_gaussian_sigma(problem.sensitivity, epsilon, delta))
    for step in (10.0**k for k in range(-12, 0)):  # the last digits of both searches
        if PLAIN.epsilon(problem, delta).value <= epsilon:
            break
        problem = problem.at(problem.sigma * (1 + step))
    return problem


def _gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise of the Gaussian mechanism, rounded up."""
    low, high = 1e-12, 1e12
    for _ in range(100):
        middle = math.sqrt(low * high)
        enough = bound_gaussian_delta(1 / middle, epsilon) <= delta
        low, high = (low, middle) if enough else (middle, high)
        if high - low <= 1e-12 * high:
            break
    return sensitivity * high * (1 + 2.0**-50)
