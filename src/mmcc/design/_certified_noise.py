"""Certified noise for a cell at a cost that a table can bear.

In: a mechanism, a target, a method.  Out: `Guarantee`s, as from `mmcc.sigma` and `mmcc.epsilon`.
For bands and buffers under Poisson sampling "tight" may take minutes, where the projection does not
close the bracket.  Here the chain is asked first, and the projection only if it may be smaller: the
answer is as certified, and may be some per cent larger than that of `mmcc.sigma`, which also asks
the paper's bound: that is the best one for few steps at a large epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mmcc.accounting import _questions as solve
from mmcc.accounting._best import CLOSED, Budget, amplified, bounds_for
from mmcc.accounting._best import lower_epsilon as accounting_lower_epsilon
from mmcc.accounting._bounds import PLAIN, Problem
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._parallel import Progress
from mmcc.accounting._questions import TIGHT
from mmcc.design._time_limit import TimeUpError
from mmcc.errors import MmccError, NothingCertifiedError
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

GAIN = 1e-3
"""What the projection must promise before a second calibration is made."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be proven, by which method, reporting to whom."""

    epsilon: float
    delta: float
    method: str
    progress: Progress | None = None


def certified_sigma(strategy: Strategy, scheme: Scheme, target: Target) -> Guarantee:
    """Noise that is enough for the target, and nearly the least that the method can prove."""
    first, *others = methods(strategy, scheme, target.method)
    best = _sigma(strategy, scheme, target, first)
    for method in others:
        if best.details.get("slack", 1.0) <= CLOSED - 1:
            break
        try:
            there = certified_epsilon(strategy, scheme, best.sigma, target, method)
            if there.epsilon < target.epsilon * (1 - GAIN):
                other = _sigma(strategy, scheme, target, method)
                best = min(best, other, key=lambda found: found.sigma)
        except (MmccError, TimeUpError):  # what was found stands
            break
    return best


def proves(strategy: Strategy, scheme: Scheme, sigma: float, target: Target) -> Guarantee | None:
    """A certificate of the target at this noise, if one of the method's bounds gives it."""
    refusal: MmccError | None = None
    answers = 0
    for method in methods(strategy, scheme, target.method):
        try:
            found = certified_epsilon(strategy, scheme, sigma, target, method)
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
    """Whether the target can be had with less noise than this, by lower and cheap upper bounds.

    For looking through a family: a no by the cheap bound is not a proof that there is no other.
    """
    if lower_epsilon(strategy, scheme, sigma, target) > target.epsilon:
        return False
    first = methods(strategy, scheme, target.method)[0]
    problem = Problem(strategy, scheme, sigma)
    if first == TIGHT and problem.rounds is not None and not problem.certain:
        cheap = bounds_for(problem, Budget.SECONDS)[-1]
        first = first if cheap.exact(problem) else cheap.name
    return proves(strategy, scheme, sigma, replace(target, method=first)) is not None


def certified_epsilon(
    strategy: Strategy, scheme: Scheme, sigma: float, target: Target, method: str
) -> Guarantee:
    """The epsilon that one method proves at this noise."""
    return solve.epsilon(
        strategy,
        scheme,
        sigma=sigma,
        delta=target.delta,
        method=method,
        progress=target.progress,
    )


def lower_epsilon(strategy: Strategy, scheme: Scheme, sigma: float, target: Target) -> float:
    """No method can prove less than this at this noise; 0 where nothing is known."""
    problem = Problem(strategy, scheme, sigma, Effort(progress=target.progress))
    return accounting_lower_epsilon(problem, target.delta)


def methods(strategy: Strategy, scheme: Scheme, method: str) -> tuple[str, ...]:
    """The methods to ask in turn.

    Where no amplification is proven, "tight" means without it: the guarantee says so.
    """
    if method != TIGHT:
        return (method,)
    problem = Problem(strategy, scheme, 1.0)
    if not amplified(problem):
        return (PLAIN.name,)
    quick = bounds_for(problem, Budget.TABLE)
    return (TIGHT,) if quick == bounds_for(problem) else tuple(bound.name for bound in quick)


def _sigma(strategy: Strategy, scheme: Scheme, target: Target, method: str) -> Guarantee:
    return solve.sigma(
        strategy,
        scheme,
        epsilon=target.epsilon,
        delta=target.delta,
        method=method,
        progress=target.progress,
    )
