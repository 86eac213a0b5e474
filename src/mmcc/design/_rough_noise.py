"""The noise that a strategy needs, roughly, for use inside a search.

In: a strategy, and results for similar ones.  Out: log sigma, to about 0.1 %.
Rounding: none.  Every epsilon asked for on the way is a certified bound, but the last step to sigma
is extrapolated: nothing here is a guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mmcc.accounting._best_bound import ask_epsilon, best_of
from mmcc.accounting._bounds import PLAIN, Answer, Bound, Problem
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._questions import bounds_by
from mmcc.design._certified_noise import Target
from mmcc.errors import MmccError
from mmcc.sampling import Scheme
from mmcc.strategies._toeplitz import Toeplitz

CLOSE = 0.015
"""A step this small in log sigma is taken without another evaluation."""
TURNS = 10
LONGEST = 0.7
"""The longest step in log sigma."""
STEEPEST, FLATTEST, USUAL = -12.0, -0.5, -1.5
"""Slopes of log epsilon in log sigma."""
BEHIND = 1.05
"""A bound that exceeds another by this factor is not asked for similar strategies."""
ALIKE = 0.25
"""Strategies are similar if their (logarithmic) widths differ by no more than this."""


@dataclass(frozen=True, slots=True)
class Known:
    """A result for one strategy: its width, log(sigma / column norm), the slope there."""

    width: float
    level: float
    slope: float


@dataclass(frozen=True, slots=True)
class Placement:
    """The noise that one strategy needs, and the last evaluation on the way."""

    log_sigma: float
    asked: float
    """Log sigma of the last evaluation."""
    excess: float
    """Log of epsilon over the target at that evaluation."""
    bounds: tuple[Bound, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of the bounds that gave it."""
        return frozenset(bound.name for bound in self.bounds)


@dataclass(eq=False)
class RoughNoise:
    """Rough calibration of one strategy after another to the same target."""

    scheme: Scheme
    target: Target
    """The target; its budget is that of one evaluation."""
    asked: int = 0
    """The number of evaluations of a bound."""
    _known: list[Known] = field(default_factory=list)
    _behind: list[tuple[float, frozenset[Bound | None]]] = field(default_factory=list)
    """Widths at which all bounds were asked, and the bounds that were far behind there."""

    def remember(self, strategy: Toeplitz, sigma: float) -> None:
        """Record a strategy whose noise is known, as a starting point."""
        self._known.append(Known(width(strategy), math.log(sigma / norm(strategy)), USUAL))

    def log_sigma(self, strategy: Toeplitz) -> float:
        """The log sigma at which log epsilon crosses the target; infinite if it does not."""
        placed = self.place(strategy)
        return math.inf if placed is None else placed.log_sigma

    def excess_near(self, strategy: Toeplitz, placed: Placement, move: float = 0.0) -> float:
        """Log of epsilon over the target at another strategy's last evaluation, by its bounds."""
        return self._excess(strategy, math.exp(placed.asked + move), list(placed.bounds))[0]

    def place(self, strategy: Toeplitz) -> Placement | None:
        """The point at which log epsilon crosses the target, by secants from known results."""
        near = self._nearest(strategy)
        scale = math.log(norm(strategy))
        place, slope = scale + near.level, near.slope
        low, high = -math.inf, math.inf
        last: tuple[float, float] | None = None
        bounds: list[Bound] = []
        for _ in range(TURNS):
            excess, bounds = self._excess(strategy, math.exp(place), bounds)
            low, high = (place, high) if excess > 0 else (low, place)
            if excess == math.inf:
                step = LONGEST if high == math.inf else 0.5 * (high - place)
            else:
                if last is not None and last[0] != place:
                    slope = (excess - last[1]) / (place - last[0])
                    slope = min(max(slope, STEEPEST), FLATTEST)
                last = (place, excess)
                step = min(max(-excess / slope, -LONGEST), LONGEST)
            if abs(step) <= CLOSE:
                place += step
                break
            place = place + step if low < place + step < high else 0.5 * (low + high)
        if last is None:
            return None
        self._known.append(Known(width(strategy), place - scale, slope))
        return Placement(place, *last, tuple(bounds))

    def _nearest(self, strategy: Toeplitz) -> Known:
        if not self._known:
            return Known(0.0, 0.0, USUAL)
        wide = width(strategy)
        return min(reversed(self._known), key=lambda known: abs(known.width - wide))

    def _excess(
        self, strategy: Toeplitz, sigma: float, known: list[Bound]
    ) -> tuple[float, list[Bound]]:
        """Log of the certified epsilon over the target, and the bounds that gave it.

        Without known bounds, all bounds that are useful for similar strategies are tried.  For one
        strategy they then stay the same, so that epsilon has no jumps.  The result is (infinity,
        []) if nothing is certified.
        """
        target = self.target
        problem = Problem(strategy, self.scheme, sigma, Effort(progress=target.progress))
        answers: list[Answer] = []
        every = bounds_by(problem, target.method, budget=target.budget)
        asked = known or self._promising(every, width(strategy))
        for bound in asked:
            self.asked += 1
            try:
                answers.append(ask_epsilon(bound, problem, target.delta))
            except MmccError:
                continue
        finite = [answer for answer in answers if math.isfinite(answer.value)]
        if not finite:
            self._behind.clear()
            return math.inf, []
        best = best_of(finite)
        if asked == every:
            slow = {answer.bound for answer in answers if answer.value > BEHIND * best.value}
            self._behind.append((width(strategy), frozenset(slow - {PLAIN})))
        return math.log(max(best.value, 1e-12) / target.epsilon), best.bounds

    def _promising(self, bounds: list[Bound], wide: float) -> list[Bound]:
        """All bounds except those that were far behind for a similar strategy."""
        near = min(self._behind, key=lambda look: abs(look[0] - wide), default=(math.inf, ()))
        behind = near[1] if abs(near[0] - wide) <= ALIKE else ()
        return [bound for bound in bounds if bound not in behind]


def norm(strategy: Toeplitz) -> float:
    """The largest column norm."""
    return math.sqrt(float(strategy.coefficients @ strategy.coefficients))


def width(strategy: Toeplitz) -> float:
    """Log of the number of equal bands with the same sum and norm."""
    return 2 * math.log(float(strategy.coefficients.sum()) / norm(strategy))
