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
from mmcc.accounting._best import CLOSED
from mmcc.accounting._bounds import chain
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._methods import Plan, Problem, sampled
from mmcc.accounting._parallel import Progress
from mmcc.design._time_limit import TimeUpError
from mmcc.errors import MethodError, MmccError, StrategyError
from mmcc.sampling import Scheme
from mmcc.strategies import Blt
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
    if not answers and refusal is not None and not _no_finite_epsilon(refusal):
        raise refusal
    return None


def may_need_less(strategy: Strategy, scheme: Scheme, sigma: float, target: Target) -> bool:
    """Whether the target can be had with less noise than this, by lower and cheap upper bounds.

    For looking through a family: a no by the cheap bound is not a proof that there is no other.
    """
    if lower_epsilon(strategy, scheme, sigma, target) > target.epsilon:
        return False
    first = methods(strategy, scheme, target.method)[0]
    if first == "tight" and _uncertain(strategy, scheme) and not _exact(strategy, scheme):
        first = "projection"
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
    if sampled(scheme, strategy.steps) is None:
        return 0.0
    problem = Problem(strategy, scheme, sigma, Effort(progress=target.progress))
    return problem.lower_epsilon(target.delta)


def methods(strategy: Strategy, scheme: Scheme, method: str) -> tuple[str, ...]:
    """The methods to ask in turn.

    Where no amplification is proven, "tight" means without it: the guarantee says so.
    """
    if method != "tight":
        return (method,)
    if sampled(scheme, strategy.steps) is None:
        return ("unamplified",)
    slow = _uncertain(strategy, scheme) and chain.applies(strategy) and not _exact(strategy, scheme)
    if not slow:
        return ("tight",)
    # The chain's Gram matrix is that of a one-buffer BLT itself, so it loses little there.
    return ("chain",) if isinstance(strategy, Blt) else ("chain", "projection")


def _uncertain(strategy: Strategy, scheme: Scheme) -> bool:
    """Whether participation is in rounds that are not certain."""
    rounds = scheme.rounds(strategy.steps)
    return rounds is not None and rounds.probability < 1


def _exact(strategy: Strategy, scheme: Scheme) -> bool:
    """Whether the paper's algorithm loses nothing, so that "tight" takes it at once."""
    try:
        return not Problem(strategy, scheme, 1.0).has_events(Plan("mmcc"))
    except (MethodError, StrategyError):
        return False


def _sigma(strategy: Strategy, scheme: Scheme, target: Target, method: str) -> Guarantee:
    return solve.sigma(
        strategy,
        scheme,
        epsilon=target.epsilon,
        delta=target.delta,
        method=method,
        progress=target.progress,
    )


def _no_finite_epsilon(refusal: MmccError) -> bool:
    """Whether a method answered that it can prove nothing at this noise."""
    return "certifies no finite epsilon" in str(refusal)
