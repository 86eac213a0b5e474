"""The noise that a mechanism needs for a target, at a cost suited to many answers.

In: a mechanism, a target.  Out: `Guarantee`s, as from `mmcc.sigma` and `mmcc.epsilon`; and, where
no amplification is proven, a sigma by simulation, which is not a proof.

`mmcc.sigma` may take minutes.  With a smaller budget quick bounds are asked one by one, each only
if it may be better than the previous ones: the answer is still certified, but may be a few per cent
larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mmcc._methods import TIGHT
from mmcc._simulation.estimate import estimate
from mmcc.accounting import _questions as questions
from mmcc.accounting._best_bound import CLOSED, Budget, amplified, bounds_for
from mmcc.accounting._best_bound import lower_epsilon as best_lower_epsilon
from mmcc.accounting._bounds import PLAIN, Problem
from mmcc.accounting._calibrate import next_sigma
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._parallel import Progress
from mmcc.design._time_limit import TimeUpError
from mmcc.errors import MmccError, NothingCertifiedError, PrecisionError
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

GAIN = 1e-3
"""The gain that another bound must promise to justify a second calibration."""
TURNS = 10
NEAR = 0.02
"""How far an estimate's upper end may be below the target, relatively, as none is narrower."""
WIDTH = 0.02
SAMPLES = 2**15


@dataclass(frozen=True, slots=True)
class Target:
    """What to prove, by which method, with which time budget, and where to report progress."""

    epsilon: float
    delta: float
    method: str = TIGHT
    budget: Budget = Budget.MINUTES
    """The budget of "tight"; any other method is one bound, whatever it costs."""
    progress: Progress | None = None

    def methods(self, strategy: Strategy, scheme: Scheme) -> tuple[str, ...]:
        """The methods of `mmcc.sigma` and `mmcc.epsilon` to ask in turn.

        If no amplification is proven, "tight" means without it, and the guarantee says so.
        """
        if self.method != TIGHT:
            return (self.method,)
        problem = Problem(strategy, scheme, 1.0)
        if not amplified(problem):
            return (PLAIN.name,)
        quick = bounds_for(problem, self.budget)
        return (TIGHT,) if quick == bounds_for(problem) else tuple(bound.name for bound in quick)


def calibrate(strategy: Strategy, scheme: Scheme, target: Target) -> Guarantee:
    """Noise that suffices for the target, nearly the least that the method can prove."""
    first, *others = target.methods(strategy, scheme)
    best = _ask_sigma(strategy, scheme, target, first)
    for method in others:
        if best.details.get("slack", 1.0) <= CLOSED - 1:
            break
        try:
            there = _ask_epsilon(strategy, scheme, best.sigma, target, method)
            if there.epsilon < target.epsilon * (1 - GAIN):
                other = _ask_sigma(strategy, scheme, target, method)
                best = min(best, other, key=lambda found: found.sigma)
        except (MmccError, TimeUpError):  # keep what was found
            break
    return best


def prove(strategy: Strategy, scheme: Scheme, sigma: float, target: Target) -> Guarantee | None:
    """A certificate of the target at this noise, if one of the method's bounds gives one."""
    refusal: MmccError | None = None
    answers = 0
    for method in target.methods(strategy, scheme):
        try:
            found = _ask_epsilon(strategy, scheme, sigma, target, method)
        except MmccError as not_possible:
            refusal = refusal or not_possible
            continue
        answers += 1
        if found.epsilon <= target.epsilon:
            return found
    if not answers and refusal is not None and not isinstance(refusal, NothingCertifiedError):
        raise refusal
    return None


def may_need_less(strategy: Strategy, scheme: Scheme, sigma: float, target: Target) -> bool:
    """Whether the target may be reached with less noise, by lower bounds and cheap upper bounds.

    For scanning a family: a no from the cheap bound does not prove that no other bound says yes.
    """
    if lower_epsilon(strategy, scheme, sigma, target) > target.epsilon:
        return False
    first = target.methods(strategy, scheme)[0]
    problem = Problem(strategy, scheme, sigma)
    if first == TIGHT and problem.rounds is not None and not problem.certain:
        cheap = bounds_for(problem, Budget.SECONDS)[-1]
        first = first if cheap.exact(problem) else cheap.name
    return prove(strategy, scheme, sigma, replace(target, method=first)) is not None


def lower_epsilon(strategy: Strategy, scheme: Scheme, sigma: float, target: Target) -> float:
    """A lower bound: no method can prove less at this noise; 0 if nothing is known."""
    problem = Problem(strategy, scheme, sigma, Effort(progress=target.progress))
    return best_lower_epsilon(problem, target.delta)


def estimate_sigma(strategy: Strategy, scheme: Scheme, target: Target) -> tuple[float, str]:
    """Noise at which the upper end of a Monte Carlo interval is below the target, and how."""
    sigma = 0.3 * scheme.sensitivity(strategy)
    points: list[tuple[float, float]] = []
    safe: tuple[float, str] | None = None
    for _ in range(TURNS):
        found = estimate(
            strategy,
            scheme,
            sigma=sigma,
            delta=target.delta,
            samples=SAMPLES,
            width=WIDTH,
            progress=target.progress,
        )
        if found.high <= target.epsilon and (safe is None or sigma < safe[0]):
            safe = sigma, f"Monte Carlo ({found.method}), confidence {found.confidence:g}"
        if target.epsilon * (1 - NEAR) <= found.high <= target.epsilon:
            break
        points.append((math.log(sigma), math.log(max(found.high, 1e-12) / target.epsilon)))
        sigma = next_sigma(points, -0.5 * NEAR)
    if safe is None:
        raise PrecisionError(
            f"no noise level was found whose estimate is below epsilon = {target.epsilon:g}; "
            "look at mmcc.estimate at a few sigmas."
        )
    return safe


def _ask_epsilon(
    strategy: Strategy, scheme: Scheme, sigma: float, target: Target, method: str
) -> Guarantee:
    return questions.epsilon(
        strategy,
        scheme,
        sigma=sigma,
        delta=target.delta,
        method=method,
        progress=target.progress,
    )


def _ask_sigma(strategy: Strategy, scheme: Scheme, target: Target, method: str) -> Guarantee:
    return questions.sigma(
        strategy,
        scheme,
        epsilon=target.epsilon,
        delta=target.delta,
        method=method,
        progress=target.progress,
    )
