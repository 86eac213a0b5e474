"""The smallest noise level that certifies a target, found by a search over sigma.

In: a mechanism without its sigma, a target (epsilon, delta).  Out: the safe end of the search, with
the guarantee computed there; and the sigma below which the target is impossible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from mmcc._methods import TIGHT
from mmcc._progress import so_far
from mmcc.accounting._best_bound import (
    Best,
    ask_epsilon,
    best_epsilon,
    best_of,
    lower_epsilon,
)
from mmcc.accounting._bounds import PLAIN, Answer, Bound, Cost, Problem
from mmcc.accounting._gaussian import bound_gaussian_delta
from mmcc.accounting._in_words import rounded_down, rounded_up
from mmcc.errors import MethodError, MmccError

TOLERANCE = 1e-4
"""How far epsilon may be below the target, relative to it."""
NARROW = 1e-5
"""How far sigma may be above one that certifies too little, relatively, if epsilon jumps."""
AIM = -0.5 * TOLERANCE
"""The value of log(epsilon / target) that the search aims at."""
ALIKE = 0.01
"""If the logarithms of two sigmas differ by no more than this, the same bounds lose at both."""
MAX_TURNS, USUAL_TURNS = 24, 8
FLOOR_TURNS = 12
SLOPE = -1.2
"""The slope of log epsilon against log sigma that is assumed before anything is known."""

NO_ADD = Answer(math.inf, 0.0)
"""Assumed during the search if `remove` sets the promise, since `add` costs as much to compute."""

Points = list[tuple[float, float]]
"""Pairs of log sigma and log(epsilon / target)."""


def smallest_sigma(
    problem: Problem, bounds: Sequence[Bound], epsilon: float, delta: float
) -> tuple[Problem, Best, float]:
    """The problem at the sigma found, its best answers, and a sigma too small for any proof.

    `problem.sigma` is the largest sigma that the search may return (0: unknown).
    """
    below, ends = _floor(problem, epsilon, delta)
    floor = 0.0 if below is None else below.sigma
    # What is certified for `add` at the floor holds at every larger sigma that is tried.
    start = below or problem.at(_first_guess(problem))
    if 0 < problem.sigma < start.sigma:
        start = problem
    # Upper bounds fall about as fast as lower bounds.
    slope = _slope(ends, 0.0, SLOPE) if floor > 0 else SLOPE
    found, best = _search(start, bounds, epsilon, delta, slope, floor)
    if len(bounds) > 1 and best.lower == 0:
        best = replace(best, lower=lower_epsilon(found, delta))
    return found, best, floor


def impossible_sigma(problem: Problem, epsilon: float, delta: float) -> float:
    """A sigma at which epsilon is certainly above the target; 0 if none is known."""
    below, _ = _floor(problem, epsilon, delta)
    return 0.0 if below is None else below.sigma


def _floor(problem: Problem, epsilon: float, delta: float) -> tuple[Problem | None, Points]:
    """The problem at that sigma, if there is one, and the lower ends found at and around it."""
    found_below: Problem | None = None
    largest = 0.0

    def excess(sigma: float) -> float:
        nonlocal found_below, largest
        there = problem.at(sigma)
        value = lower_epsilon(there, delta)
        if value >= epsilon and sigma > largest:
            found_below, largest = there, sigma
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
    return found_below, points


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
    floor: float = 0.0,
) -> tuple[Problem, Best]:
    """Approach epsilon(sigma) = epsilon from both sides and return the safe side.

    A single bound is asked as it is.  Of several bounds, all that do not take minutes are tried at
    the first guess, and roughly only the winners on the way.  Once these meet the target, the quick
    bounds choose their settings again, and then all bounds are asked that have not just lost, so
    that asking for epsilon at this sigma gives the same number.  If another bound wins there, the
    search continues with it.
    """
    costs = {bound: bound.cost(problem) for bound in bounds}
    least = min((costs[bound] for bound in bounds if bound.amplified), default=Cost.SLOW)
    groups = {Level.QUICK: least, Level.BRISK: max(least, Cost.LONG), Level.ALL: Cost.SLOW}
    asked = {level: [b for b in bounds if costs[b] <= most] for level, most in groups.items()}
    search = _Search(asked, epsilon, slope, floor)
    for turn in range(1, MAX_TURNS + 1):
        search.tell(problem, turn)
        level = search.level
        known = search.known(problem.sigma)
        try:
            best = _ask(problem, search.bounds(problem.sigma), delta, level=level, known=known)
        except MmccError:
            if level is Level.ALL:
                raise
            search.level = Level.ALL  # another bound may certify more
            continue
        verdict = search.learn(problem, best)
        if verdict is Verdict.DONE:
            break
        if verdict is Verdict.MOVE:
            problem = problem.at(search.step(problem.sigma, turn))
    if search.safe is None:
        raise MethodError(
            f"no sigma up to {problem.sigma:g} reaches epsilon = {epsilon:g} by "
            f"{', '.join(map(str, bounds))}. Use method={TIGHT!r}, or a larger epsilon or delta."
        )
    return search.safe


class Level(Enum):
    """Which bounds are asked at a sigma."""

    CHOSEN = "those that were best when more of them were asked"
    QUICK = "the cheapest that make use of sampling, with their settings chosen again"
    BRISK = "all that do not take minutes"
    ALL = "all of them"


EXPLORED = {6: Level.QUICK, 11: Level.BRISK, 16: Level.BRISK, 21: Level.ALL}
"""Turns after which other bounds are tried again, since a winner elsewhere may fail here."""


class Verdict(Enum):
    """What an answer means for the search."""

    DONE = "it meets the target, and can be promised"
    AGAIN = "more bounds are asked at the same sigma"
    MOVE = "another sigma is tried"


@dataclass
class _Search:
    """What is known about epsilon(sigma) = epsilon, and what is asked next."""

    groups: Mapping[Level, Sequence[Bound]]
    epsilon: float
    slope: float
    floor: float = 0.0
    """A sigma known to be too small, whatever bound is asked."""
    safe: tuple[Problem, Best] | None = None
    """The best result that can be promised, with nothing assumed."""
    _chosen: list[Bound] = field(default_factory=list)
    _remove_first: bool = False
    """Whether `remove` sets the promise."""
    _add: tuple[float, Answer] | None = None
    """A sigma and what was certified for `add` there, which also holds with more noise."""
    _lost: dict[str, float] = field(default_factory=dict)
    """For each bound, by name, the last sigma at which another bound was better."""
    _low: float = 0.0
    _high: float = math.inf
    _points: Points = field(default_factory=list)
    _refused: dict[Level, float] = field(default_factory=lambda: dict.fromkeys(Level, 0.0))
    """For each level, the largest sigma at which its bounds were tried without success."""

    def __post_init__(self) -> None:
        several = len(self.groups[Level.ALL]) > 1
        self.level = Level.BRISK if several else Level.ALL

    def tell(self, problem: Problem, turn: int) -> None:
        """Report what is known about sigma before a trial, and how many trials it may take."""
        progress = problem.effort.progress
        if progress is None:
            return
        low, high = max(self._low, self.floor), self._high
        if high < math.inf:
            known = f"sigma between {rounded_down(low)} and {rounded_up(high)}"
        else:
            known = f"sigma above {rounded_down(low)}" if low > 0 else "sigma"
        progress(so_far(known, "trial", max(USUAL_TURNS, turn + 1), about=True), turn)

    def bounds(self, sigma: float) -> Sequence[Bound]:
        """The bounds to ask now."""
        if self.level is Level.CHOSEN:
            return self._chosen
        every = self.groups[self.level]
        if self.level is not Level.ALL or not self.known(sigma):
            return every
        return [b for b in every if abs(math.log(sigma / self._lost.get(b.name, 1e-300))) > ALIKE]

    def known(self, sigma: float) -> Sequence[Answer]:
        """Answers not to ask for: `add`, assumed during the search and proven at its end."""
        if not self._remove_first or len(self.groups[Level.ALL]) == 1:
            return ()
        if self.level in (Level.CHOSEN, Level.QUICK):
            return (NO_ADD,)
        if self._add is None or sigma < self._add[0] or self._add[1].add > self.epsilon:
            return ()
        return (self._add[1],)

    def learn(self, problem: Problem, best: Best) -> Verdict:
        """Record an answer and decide what to do next."""
        now = problem.sigma
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
            again = self.level is Level.CHOSEN and self._among(Level.QUICK)
            self.level = Level.QUICK if again else Level.ALL
            return Verdict.AGAIN
        if self.level is not Level.ALL and not any(bound.amplified for bound in self._chosen):
            self.level = Level.ALL
            return Verdict.AGAIN
        self._points.append((math.log(now), away))
        return Verdict.MOVE

    def step(self, now: float, turn: int) -> float:
        """The next sigma to try, between those known to be too small and large enough."""
        if len(self.groups[Level.ALL]) > 1:
            self.level = EXPLORED.get(turn, Level.CHOSEN)
        self.slope = _slope(self._points, AIM, self.slope)
        guess = next_sigma(self._points, AIM, self.slope)
        if self._low < guess < self._high:
            return guess
        if self._low == 0:
            return now / 4
        return math.sqrt(self._low * self._high) if self._high < math.inf else 2 * now

    def _choose(self, problem: Problem, best: Best) -> None:
        """Keep the winners; a bound that certified nothing here is not counted as a loser."""
        now = problem.sigma
        if self.level is not Level.QUICK:
            self._remove_first = best.remove.remove >= best.add.add
            if self._add is None or best.add is not self._add[1]:
                self._add = (now, Answer(math.inf, best.add.add, bound=best.add.bound))
        chosen = [best.remove.bound or PLAIN] if self._remove_first else best.needed
        changed, self._chosen = chosen != self._chosen, chosen
        if self.level is not Level.QUICK:
            winners = {bound.name for bound in chosen}
            self._lost |= {b.name: now for b in self.bounds(now) if b.name not in winners}
            self._lost = {name: at for name, at in self._lost.items() if name not in winners}
        if best.value > self.epsilon:
            self._refused[self.level] = max(self._refused[self.level], now)
        elif self.level is not Level.QUICK:
            self.safe = (problem, best)
        if changed:
            count = [level for level in self.groups if self._among(level)]
            self._low, self._points = max(self._refused[level] for level in count), []

    def _among(self, level: Level) -> bool:
        """Whether all winners are bounds of this level."""
        names = {bound.name for bound in self.groups[level]}
        return all(bound.name in names for bound in self._chosen)


def _ask(
    problem: Problem,
    bounds: Sequence[Bound],
    delta: float,
    *,
    level: Level,
    known: Sequence[Answer] = (),
) -> Best:
    """Ask several bounds in full, or each of the chosen ones once, given what is known.

    Whether the bracket is closed matters only if that could save asking slow bounds.
    """
    if level is Level.CHOSEN or (len(bounds) == 1 and not known):
        answers = list(known)
        for bound in sorted(bounds, key=lambda bound: bound.cost(problem)):
            answers.append(ask_epsilon(bound, problem, delta, answers))
        return best_of(answers)
    lower = 0.0 if level is Level.QUICK else None
    return best_epsilon(problem, delta, bounds, known=known, lower=lower)


def next_sigma(points: Points, goal: float, usual: float = SLOPE) -> float:
    """Secant through the two points nearest to the goal; with one point, the usual slope."""
    x, y = min(points, key=lambda point: abs(point[1] - goal))
    step = min(max((goal - y) / _slope(points, goal, usual), -3.0), 3.0)
    return math.exp(x + step)


def _slope(points: Points, goal: float, usual: float) -> float:
    """The slope of log epsilon in log sigma near the goal; the usual one if two points fail."""
    nearest = sorted(points, key=lambda point: abs(point[1] - goal))[:2]
    if len(nearest) < 2 or nearest[0][0] == nearest[1][0]:
        return usual
    (x, y), (other, height) = nearest
    return min(max((height - y) / (other - x), -20.0), -0.3)


def gaussian_problem(problem: Problem, epsilon: float, delta: float) -> Problem:
    """The mechanism with the noise that suffices without amplification, rounded up."""
    problem = problem.at(_gaussian_sigma(problem.sensitivity, epsilon, delta))
    for step in (10.0**k for k in range(-12, 0)):  # beyond the tolerance of both searches
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
