"""Strategies for one amplified guarantee: the least error at an (epsilon, delta) and a scheme.

In: steps, sampling scheme, target.  Out: `Optimised`, the strategy with its certified noise, and
the best strategy that was not made for the target, certified in the same way.
Rounding: sigma is the safe end of a certified calibration.  The search itself proves nothing: that
it stops short of the optimum costs error, never privacy.

Fixed strategies come first, those that know nothing of the guarantee: what a made one has to beat.
Then shapes of few parameters: bands optimised for one participation, one buffer, its powers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmcc import utility
from mmcc.accounting._best_bound import FEW_COLUMNS, Budget, amplified
from mmcc.accounting._bounds import TIGHT, Problem
from mmcc.accounting._calibrate import impossible_sigma
from mmcc.accounting._parallel import Progress
from mmcc.accounting._questions import MAX_EPSILON, MIN_DELTA, check_method
from mmcc.design._noise import Target, calibrate, prove
from mmcc.design._optimised_result import MEASURES, Candidate, Optimised, RuledOut
from mmcc.design._rough_noise import RoughNoise
from mmcc.design._search import LIMITS, STARTS, ErrorOf, Search, Shapes
from mmcc.errors import ParameterError, SamplingError, StrategyError, real, suggestion, whole
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies._banded_toeplitz import banded_toeplitz
from mmcc.strategies._base import Strategy
from mmcc.strategies._blt import blt
from mmcc.strategies._descent import check_progress
from mmcc.strategies._toeplitz import Toeplitz, continual_counting, identity, toeplitz

EVALUATIONS = 60
LARGEST = 10**6
"""Steps, at most: every strategy tried has its error summed over all of them."""
LEADING = (2, 4, 16, 64)
"""How many first coefficients of continual_counting are used as bands."""
WIDEST_OPTIMISED = 512
"""Bands that are optimised for one participation, at most: each step of a descent sums them all."""
MOST_COLUMNS = 4096
"""Beyond so many rounds of one example only bands and buffers have a bound that takes seconds."""
SHARE = 0.5
"""Part of the evaluations that one buffer may use; its powers have the rest."""
DOUBLINGS = 3
"""How many widths of optimised bands are tried, from one that fits between two rounds."""
POWERS = 1024
"""Up to so many steps powers of one buffer are tried: they have a coefficient for each step."""


def optimise(
    steps: int,
    sampling: Scheme,
    epsilon: float,
    delta: float,
    *,
    objective: str = "mean",
    bands: int | None = None,
    method: str | None = None,
    fixed: Sequence[Strategy] | None = None,
    evaluations: int = EVALUATIONS,
    progress: Progress | None = None,
) -> Optimised:
    """The Toeplitz strategy with the least prefix-sum error found at a certified target.

    `objective`: "mean" is the root mean squared error over the steps, "max" the largest error.
    `bands`: at most so many bands; any number unless given.  `method`: how all are calibrated, as
    for `mmcc.sigma`; unless given "tight".  Above 600 rounds of one example a fixed BLT or few
    bands have the noise of a quick bound where "tight" cannot make them the best.
    `fixed`: strategies to be compared with, instead of the usual ones.
    `evaluations`: strategies that the search may try.
    For `Poisson`, `CyclicPoisson` and `BallsInBins`.  Deterministic.
    """
    steps = whole("steps", steps, 1, LARGEST)
    scheme = _checked_scheme(sampling, steps)
    target = _checked_target(epsilon, delta, method, scheme.chance(steps))
    error_of = _error_of(objective)
    bands = None if bands is None else whole("bands", bands, 1, LARGEST)
    evaluations = whole("evaluations", evaluations, 0, 10**6)
    check_progress(progress)
    rivals = _checked_fixed(fixed, steps) or fixed_strategies(steps, scheme, bands)
    question = _Question(scheme, target, error_of, progress, quick=method is None)
    compared = question.settle(list(question.calibrate(rivals)))
    best = min((one for one in compared if isinstance(one, Candidate)), key=lambda one: one.error)
    search = _search(question, compared, best, bands, evaluations)
    tuned = None if search.best is None else question.certify(search.best[1])
    winner = tuned if tuned is not None and tuned.error < best.error else best
    return Optimised(
        strategy=winner.strategy,
        guarantee=winner.guarantee,
        error=winner.error,
        objective=objective,
        fixed=best,
        tuned=tuned,
        others=tuple(one for one in compared if one is not best),
        evaluations=search.tried,
    )


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


def budget_for(strategy: Strategy) -> Budget:
    """A quick bound will do at first for few bands and BLTs; it tells little about others."""
    toeplitz = strategy.toeplitz
    if toeplitz is not None and (toeplitz.geometric or toeplitz.bands <= max(LEADING)):
        return Budget.STEADY
    return Budget.MINUTES


@dataclass(frozen=True, slots=True)
class _Question:
    """What all strategies are asked: their error at the noise that is certified for the target."""

    scheme: Scheme
    target: Target
    error_of: ErrorOf
    progress: Progress | None
    quick: bool
    """Whether fixed strategies are calibrated by quick bounds to begin with."""

    def certify(self, strategy: Strategy, budget: Budget = Budget.MINUTES) -> Candidate:
        """The strategy at the smallest noise that we can certify within the budget."""
        guarantee = calibrate(strategy, self.scheme, replace(self.target, budget=budget))
        return Candidate(strategy, guarantee, self.error_of(strategy) * guarantee.sigma)

    def calibrate(self, strategies: Sequence[Strategy]) -> Iterator[Candidate | RuledOut]:
        """Each strategy at its certified noise, unless a lower bound rules out that it is the best.

        The lower bound is on the sigma that any proof can reach, so nothing is ruled out wrongly.
        Those with the smallest possible error come first: they rule out most.
        """
        floors: list[tuple[float, int, Strategy]] = []
        for place, strategy in enumerate(strategies):
            self._report("bounds on fixed strategies", place)
            floors.append((self._least_error(strategy), place, strategy))
        best = math.inf
        for count, (least, _, strategy) in enumerate(sorted(floors, key=lambda floor: floor[:2])):
            self._report("fixed strategies", count)
            if least > best:
                yield RuledOut(strategy, least)
                continue
            found = self.certify(strategy, budget_for(strategy) if self.quick else Budget.MINUTES)
            best = min(best, found.error)
            yield found

    def settle(self, compared: Sequence[Candidate | RuledOut]) -> list[Candidate | RuledOut]:
        """The same, so that no fixed strategy is better than the best by any bound that we have.

        One that was calibrated by a quick bound alone is asked for its epsilon by all bounds, at
        the noise with which it would be as good as the best.  If that is above the target it stays
        where it is; otherwise it is calibrated again, by all bounds.
        """
        found: list[Candidate | RuledOut] = [one for one in compared if isinstance(one, RuledOut)]
        best = math.inf
        rivals = [one for one in compared if isinstance(one, Candidate)]
        for count, rival in enumerate(sorted(rivals, key=lambda one: one.error)):
            if rival.guarantee.method != self.target.method:
                self._report("fixed strategies, all bounds", count)
                if self._may_reach(best, rival.strategy):
                    again = self.certify(rival.strategy)
                    rival = min(rival, again, key=lambda one: one.error)
            best = min(best, rival.error)
            found.append(rival)
        return found

    def _least_error(self, strategy: Strategy) -> float:
        """Certainly too little for the target; 0 where calibrating is exact and fast."""
        if strategy.toeplitz is not None and not strategy.correlated:
            return 0.0
        problem = Problem(strategy, self.scheme, 0.0)
        least = impossible_sigma(problem, self.target.epsilon, self.target.delta)
        return least * self.error_of(strategy)

    def _may_reach(self, error: float, strategy: Strategy) -> bool:
        """Whether all bounds together certify the target where the strategy has this error."""
        if error == math.inf:
            return True
        sigma = error / self.error_of(strategy)
        return prove(strategy, self.scheme, sigma, self.target) is not None

    def _report(self, what: str, done: int) -> None:
        if self.progress is not None:
            self.progress(f"optimise: {what}", done)


def _search(
    question: _Question,
    compared: Sequence[Candidate | RuledOut],
    best: Candidate,
    bands: int | None,
    evaluations: int,
) -> Search:
    """What was found for the target, starting from the noise of the fixed strategies."""
    steps = best.strategy.steps
    target = Target(question.target.epsilon, question.target.delta, budget=Budget.SECONDS)
    noise = RoughNoise(question.scheme, target)
    for one in compared:
        if isinstance(one, Candidate) and one.strategy.toeplitz is not None:
            noise.remember(one.strategy.toeplitz, one.sigma)
    search = Search(noise, question.error_of, evaluations, question.progress)
    if steps > 1 and bands != 1:
        _explore(search, steps, bands, best)
    return search


def _explore(search: Search, steps: int, bands: int | None, best: Candidate) -> None:
    """Bands; one buffer; powers of it, from there unless a fixed strategy is still better.

    That is often the first few coefficients of continual_counting: the powers then start near it,
    and are cut off where it is.
    """
    scheme = search.noise.scheme
    most = min(bands or steps, steps)
    apart = min(scheme.least_gap(steps), steps)
    for width in (apart << doubling for doubling in range(DOUBLINGS if apart > 1 else 0)):
        if width <= min(most, WIDEST_OPTIMISED) and search.left > 0:
            search.value(banded_toeplitz(steps, width))
    shapes = Shapes(steps, bands)
    if search.left < len(STARTS):
        return
    found, point = search.one_buffer(shapes, int(SHARE * search.left))
    columns = Problem(identity(steps), scheme, 1.0).columns
    if search.left < 1 or not (columns <= FEW_COLUMNS or most <= POWERS):
        return
    if found <= math.log(best.error):
        search.around(shapes, (found, np.append(point, 0.0)), search.left)
        return
    fixed = best.strategy.toeplitz
    reach = fixed.bands if fixed is not None else steps
    whole_blt = fixed is not None and fixed.geometric
    cut = Shapes(steps, reach) if 1 < reach < steps and not whole_blt else shapes
    start = search.corner(cut, (min(math.log(8.0 * reach), LIMITS[0][1]), 3.0, math.log(0.5)))
    search.around(cut, start, search.left)


def _error_of(objective: str) -> ErrorOf:
    """The error of prefix sums at sigma = 1."""
    if objective not in MEASURES:
        names = tuple(MEASURES)
        raise ParameterError(f"unknown objective {objective!r}; {suggestion(objective, names)}")
    error = utility.rmse if objective == "mean" else utility.max_error
    return lambda strategy: error(strategy, 1.0)


def _checked_target(epsilon: float, delta: float, method: str | None, chance: float) -> Target:
    if method is not None:
        check_method(method)
    epsilon = real("epsilon", epsilon, 0, MAX_EPSILON)
    delta = real("delta", delta, MIN_DELTA, 1)
    if chance <= delta:
        raise ParameterError(
            f"the chance to take part at all, {chance:.3g}, is no larger than delta, so that no "
            "noise is needed and there is nothing to optimise. Use a smaller delta."
        )
    return Target(epsilon, delta, TIGHT if method is None else method)


def _checked_scheme(sampling: Scheme, steps: int) -> Scheme:
    checked_scheme(sampling).check(steps)
    problem = Problem(identity(steps), sampling, 1.0)
    # With a gap between participations nothing is proven for dense matrices, which it tries.
    if sampling.setting or problem.renewal is not None or not amplified(problem):
        raise SamplingError(
            f"optimise is for Poisson, CyclicPoisson and BallsInBins, got {sampling!r}: other "
            "schemes have no certificate for every matrix and adaptive inputs. Use one of these."
        )
    return sampling


def _checked_fixed(fixed: Sequence[Strategy] | None, steps: int) -> list[Strategy]:
    if fixed is None:
        return []
    if not isinstance(fixed, Sequence):
        raise StrategyError(f"fixed must be a list of strategies, got {fixed!r}; put it in a list.")
    for strategy in fixed:
        if not isinstance(strategy, Strategy) or strategy.steps != steps:
            raise StrategyError(
                f"fixed must be strategies of {steps} steps, as optimise is asked for; "
                f"got {strategy!r}."
            )
    if not fixed:
        raise StrategyError("fixed is empty: leave it out, or give a strategy to compare with.")
    return list(fixed)
