"""Strategies that know nothing of the guarantee: what an optimised one has to beat.

In: steps and a sampling scheme.  Out: a list of Toeplitz encoders, and those of them that can be
the best at a target, each at the noise that is certified for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mmcc.accounting._best import FEW_COLUMNS, Budget, bounds_for
from mmcc.accounting._bounds import PLAIN, Cost, Problem
from mmcc.accounting._calibrate import impossible_sigma
from mmcc.accounting._questions import TIGHT
from mmcc.accounting._questions import epsilon as certified_epsilon
from mmcc.accounting._questions import sigma as certified_sigma
from mmcc.design._optimise import Candidate, Progress, RuledOut
from mmcc.sampling import Scheme
from mmcc.strategies._banded_toeplitz import banded_toeplitz
from mmcc.strategies._base import Strategy
from mmcc.strategies._blt import blt
from mmcc.strategies._toeplitz import Toeplitz, continual_counting, identity, toeplitz

LEADING = (2, 4, 16, 64)
"""How many first coefficients of continual_counting are used as bands."""
WIDEST_OPTIMISED = 512
"""Bands that are optimised for one participation, at most: each step of a descent sums them all."""
MOST_COLUMNS = 4096
"""Beyond so many rounds of one example only bands and buffers have a bound that takes seconds."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be certified, and how: by `mmcc.sigma` with this method, or the usual one."""

    epsilon: float
    delta: float
    method: str | None = None


ErrorOf = Callable[[Strategy], float]
"""The error at sigma = 1."""


def fixed_strategies(steps: int, scheme: Scheme, bands: int | None) -> list[Toeplitz]:
    """Independent noise, counting, its leading bands, a BLT; bands that fit between two rounds."""
    apart = min(scheme.least_gap(steps), steps)
    most = steps if bands is None else min(bands, steps)
    if Problem(identity(steps), scheme, 1.0).columns > MOST_COLUMNS:
        most = min(most, max(LEADING))
    counting = continual_counting(steps)
    found: dict[int, Toeplitz] = {steps: counting} if steps <= most else {}
    found[1] = identity(steps)
    for count in sorted({*LEADING, apart, most}):
        if 1 < count <= most and count < steps:
            found[count] = toeplitz(counting.coefficients[:count], steps)
    strategies = list(found.values())
    if bands is None and steps > 1:
        strategies.append(blt(steps))
    if 1 < apart <= min(most, WIDEST_OPTIMISED):
        strategies.append(banded_toeplitz(steps, apart))
    return strategies


def calibrated(
    strategies: Sequence[Strategy],
    scheme: Scheme,
    target: Target,
    error_of: ErrorOf,
    progress: Progress | None,
) -> Iterator[Candidate | RuledOut]:
    """Each strategy at its certified noise, unless a lower bound rules out that it is the best.

    The lower bound is on the sigma that any proof can reach, so nothing is ruled out wrongly.
    Those with the smallest possible error come first: they rule out most.
    """
    floors: list[tuple[float, int, Strategy]] = []
    for place, strategy in enumerate(strategies):
        if progress is not None:
            progress("optimise: bounds on fixed strategies", place)
        alone = strategy.toeplitz is not None and not strategy.correlated  # exact, and fast
        least = (
            0.0
            if alone
            else impossible_sigma(Problem(strategy, scheme, 0.0), target.epsilon, target.delta)
        )
        floors.append((least * error_of(strategy), place, strategy))
    best = float("inf")
    for count, (least, _, strategy) in enumerate(sorted(floors, key=lambda floor: floor[:2])):
        if progress is not None:
            progress("optimise: fixed strategies", count)
        if least > best:
            yield RuledOut(strategy, least)
            continue
        found = candidate(strategy, scheme, target, error_of, usual_method(strategy, scheme))
        best = min(best, found.error)
        yield found


def settled(
    compared: Sequence[Candidate | RuledOut],
    scheme: Scheme,
    target: Target,
    error_of: ErrorOf,
    progress: Progress | None,
) -> list[Candidate | RuledOut]:
    """The same, so that no fixed strategy is better than the best by any bound that we have.

    One that was calibrated by a quick bound alone is asked for its epsilon by all bounds, at the
    noise with which it would be as good as the best.  If that is above the target it stays where it
    is; otherwise it is calibrated again, by all bounds.
    """
    if target.method is not None:
        return list(compared)
    found: list[Candidate | RuledOut] = [one for one in compared if isinstance(one, RuledOut)]
    best = float("inf")
    rivals = [one for one in compared if isinstance(one, Candidate)]
    for count, rival in enumerate(sorted(rivals, key=lambda one: one.error)):
        strategy = rival.strategy
        if usual_method(strategy, scheme) != TIGHT:
            if progress is not None:
                progress("optimise: fixed strategies, all bounds", count)
            if _may_reach(best, strategy, scheme, target, error_of):
                again = candidate(strategy, scheme, target, error_of)
                rival = min(rival, again, key=lambda one: one.error)
        best = min(best, rival.error)
        found.append(rival)
    return found


def _may_reach(
    error: float,
    strategy: Strategy,
    scheme: Scheme,
    target: Target,
    error_of: ErrorOf,
) -> bool:
    """Whether all bounds together certify the target where the strategy has this error."""
    if error == float("inf"):
        return True
    sigma = error / error_of(strategy)
    found = certified_epsilon(strategy, scheme, sigma=sigma, delta=target.delta, method=TIGHT)
    return found.epsilon <= target.epsilon


def candidate(
    strategy: Strategy,
    scheme: Scheme,
    target: Target,
    error_of: ErrorOf,
    method: str = TIGHT,
) -> Candidate:
    """The strategy at the smallest noise that we can certify for the target."""
    guarantee = certified_sigma(
        strategy,
        scheme,
        epsilon=target.epsilon,
        delta=target.delta,
        method=target.method or method,
    )
    return Candidate(strategy, guarantee, error_of(strategy) * guarantee.sigma)


def usual_method(strategy: Strategy, scheme: Scheme) -> str:
    """A bound of steady cost alone where columns are many; all bounds elsewhere.

    There "tight" takes minutes a strategy: `settled` asks for it where it can matter.
    """
    problem = Problem(strategy, scheme, 1.0)
    if problem.columns <= FEW_COLUMNS or problem.certain:
        return TIGHT
    quick = [bound for bound in bounds_for(problem, Budget.SECONDS) if bound is not PLAIN]
    steady = [bound for bound in quick if bound.cost(problem) is Cost.STEADY]
    return steady[0].name if steady else TIGHT
