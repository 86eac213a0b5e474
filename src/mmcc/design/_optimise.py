"""Strategies optimised for an amplified guarantee: least error at an (epsilon, delta) and scheme.

In: steps, sampling scheme, target.  Out: `Optimised`: the strategy with its certified noise, and
the best strategy that was not optimised for the target, certified in the same way.
Rounding: sigma is the safe end of a certified calibration.  The search itself proves nothing:
stopping short of the optimum costs error, never privacy.

Fixed strategies, which do not depend on the guarantee, come first, as what an optimised one has to
beat. Then shapes with few parameters are searched (`_exploration`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from mmcc import utility
from mmcc._methods import TIGHT
from mmcc.accounting._best_bound import Budget, amplified
from mmcc.accounting._bounds import Problem
from mmcc.accounting._calibrate import impossible_sigma
from mmcc.accounting._parallel import Progress
from mmcc.accounting._questions import MAX_EPSILON, MIN_DELTA, check_method
from mmcc.design._certified_noise import Target, calibrate, prove
from mmcc.design._exploration import (
    WIDEST_OPTIMISED,
    Exploration,
    stand_in,
)
from mmcc.design._least_error import least_error
from mmcc.design._optimised_result import MEASURES, Candidate, LeftOut, Optimised, RuledOut
from mmcc.design._rough_noise import RoughNoise
from mmcc.design._search import ErrorOf, Search
from mmcc.errors import (
    MethodError,
    ParameterError,
    SamplingError,
    StrategyError,
    real,
    suggestion,
    whole,
)
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies._banded_toeplitz import banded_toeplitz
from mmcc.strategies._base import Strategy
from mmcc.strategies._blt import blt
from mmcc.strategies._descent import check_progress
from mmcc.strategies._toeplitz import Toeplitz, continual_counting, identity, toeplitz
from mmcc.strategies._workloads import Workload, workload_of

EVALUATIONS = 60
LARGEST = 10**6
"""Most steps, because every strategy tried has its error summed over all of them."""
LEADING = (2, 4, 16, 64)
"""Numbers of first coefficients of continual_counting that are tried as bands."""
MOST_COLUMNS = 4096
"""With more rounds of one example, only bands and buffers have a bound that takes seconds."""
FEW_LEADING = 16
"""Most leading bands that are compared if every answer takes many seconds."""
MOST_BUFFERS = 4


def optimise(
    steps: int,
    sampling: Scheme,
    epsilon: float,
    delta: float,
    *,
    objective: str = "mean",
    workload: ArrayLike | Workload | None = None,
    bands: int | None = None,
    buffers: int = 1,
    method: str | None = None,
    fixed: Sequence[Strategy] | None = None,
    evaluations: int = EVALUATIONS,
    progress: Progress | None = None,
) -> Optimised:
    """The Toeplitz strategy with the least error found at a certified target.

    `objective`: "mean" is the root mean squared error over the steps, "max" the largest error.
    `workload`: defines the error, as in `mmcc.utility.rmse`; by default prefix sums.
    `bands`: the most bands allowed; by default any number.  `buffers`: the most buffers of the BLTs
    searched; more than one takes minutes.  `method`: how all strategies are calibrated, as in
    `mmcc.sigma`; by default "tight".  Above 600 rounds of one example a fixed BLT or few bands keep
    the noise of a quick bound if "tight" cannot make them the best.
    `fixed`: strategies to compare with instead of the usual ones; those without a certificate under
    the scheme are left out.
    `evaluations`: how many strategies the search may try; it stops sooner once a step promises less
    than a hundredth of a per cent.

    It works for every scheme under which Toeplitz matrices have an amplified certificate, and is
    deterministic.
    """
    steps = whole("steps", steps, 1, LARGEST)
    scheme = _checked_scheme(sampling, steps)
    target = _checked_target(epsilon, delta, method, scheme.chance(steps))
    asked = workload_of(workload, steps)
    error_of = _error_of(objective, asked)
    bands = None if bands is None else whole("bands", bands, 1, LARGEST)
    buffers = whole("buffers", buffers, 1, MOST_BUFFERS)
    evaluations = whole("evaluations", evaluations, 0, 10**6)
    check_progress(progress)
    rivals = _checked_fixed(fixed, steps) or fixed_strategies(steps, scheme, bands, asked)
    question = _Question(scheme, target, error_of, progress, quick=method is None)
    compared = question.settle(list(question.calibrate(rivals)))
    best = _best(compared)
    search = _search(question, compared, evaluations)
    explored = Exploration(search, scheme, asked, bands, buffers, best)
    explored.run()
    tuned = None if search.best is None else question.certify(search.best[1])
    winner = tuned if tuned is not None and tuned.error < best.error else best
    return Optimised(
        strategy=winner.strategy,
        guarantee=winner.guarantee,
        error=winner.error,
        objective=objective,
        workload=asked.name or str(asked),
        fixed=best,
        tuned=tuned,
        others=tuple(one for one in compared if one is not best),
        evaluations=explored.tried,
        least=_least(scheme, asked, target, objective),
    )


def fixed_strategies(
    steps: int, scheme: Scheme, bands: int | None, workload: Workload | None = None
) -> list[Toeplitz]:
    """Independent noise, continual counting, its leading bands, a BLT, bands between two rounds."""
    apart = min(scheme.least_gap(steps), steps)
    most = steps if bands is None else min(bands, steps)
    made = None if workload is None or workload.is_prefix_sums else workload
    if stand_in(scheme, steps) is not scheme:
        few = toeplitz(continual_counting(steps).coefficients[: min(FEW_LEADING, most)], steps)
        return [identity(steps), few, *([] if bands else [blt(steps, workload=made)])]
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
        strategies.append(blt(steps, workload=made))
    if 1 < apart <= min(most, WIDEST_OPTIMISED):
        strategies.append(banded_toeplitz(steps, apart, workload=made))
    return strategies


def budget_for(strategy: Strategy) -> Budget:
    """The first budget: quick bounds suffice for few bands and BLTs, and show little for others."""
    toeplitz = strategy.toeplitz
    if toeplitz is not None and (toeplitz.geometric or toeplitz.bands <= max(LEADING)):
        return Budget.STEADY
    return Budget.MINUTES


Compared = Candidate | RuledOut | LeftOut


@dataclass(frozen=True, slots=True)
class _Question:
    """The question asked of all strategies: the error at the noise certified for the target."""

    scheme: Scheme
    target: Target
    error_of: ErrorOf
    progress: Progress | None
    quick: bool
    """Whether fixed strategies are first calibrated by quick bounds."""

    def certify(self, strategy: Strategy, budget: Budget = Budget.MINUTES) -> Candidate:
        """The strategy at the smallest noise that can be certified within the budget."""
        guarantee = calibrate(strategy, self.scheme, replace(self.target, budget=budget))
        return Candidate(strategy, guarantee, self.error_of(strategy) * guarantee.sigma)

    def calibrate(self, strategies: Sequence[Strategy]) -> Iterator[Compared]:
        """Each strategy at its certified noise, unless a lower bound rules out that it is the best.

        The lower bound is on the sigma that any proof can reach, so nothing is ruled out wrongly.
        Strategies with the smallest possible error come first, because they rule out the most.
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
            budget = budget_for(strategy) if self.quick else Budget.MINUTES
            try:
                found = self.certify(strategy, budget)
            except (MethodError, SamplingError, StrategyError) as refusal:  # no certificate
                yield LeftOut(strategy, refusal)
                continue
            best = min(best, found.error)
            yield found

    def settle(self, compared: Sequence[Compared]) -> list[Compared]:
        """Recalibrate where needed, so that by no bound a fixed strategy beats the best.

        A strategy that was calibrated by a quick bound only is asked for its epsilon by all bounds,
        at the noise with which it would be as good as the best.  If that is above the target, it is
        left as it is; otherwise it is calibrated again by all bounds.
        """
        found: list[Compared] = [one for one in compared if not isinstance(one, Candidate)]
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
        """Its error at a noise that is certainly too small; 0 if calibrating is exact and fast."""
        if strategy.toeplitz is not None and not strategy.correlated:
            return 0.0
        problem = Problem(strategy, self.scheme, 0.0)
        least = impossible_sigma(problem, self.target.epsilon, self.target.delta)
        return least * self.error_of(strategy)

    def _may_reach(self, error: float, strategy: Strategy) -> bool:
        """Whether all bounds together certify the target at the noise that gives this error."""
        if error == math.inf:
            return True
        sigma = error / self.error_of(strategy)
        return prove(strategy, self.scheme, sigma, self.target) is not None

    def _report(self, what: str, done: int) -> None:
        if self.progress is not None:
            self.progress(f"optimise: {what}", done)


def _least(scheme: Scheme, workload: Workload, target: Target, objective: str) -> float | None:
    """An error that no matrix can go below; None where that is not known."""
    if not workload.is_prefix_sums:
        return None
    return least_error(scheme, workload.steps, target.epsilon, target.delta, objective)


def _best(compared: Sequence[Compared]) -> Candidate:
    """The candidate with the least error; an error that says why if none has a certificate."""
    found = [one for one in compared if isinstance(one, Candidate)]
    if not found:
        raise next(one.refusal for one in compared if isinstance(one, LeftOut))
    return min(found, key=lambda one: one.error)


def _search(question: _Question, compared: Sequence[Compared], evaluations: int) -> Search:
    """A fresh search that starts from the noise of the fixed strategies."""
    target = Target(question.target.epsilon, question.target.delta, budget=Budget.SECONDS)
    noise = RoughNoise(question.scheme, target)
    for one in compared:
        if isinstance(one, Candidate) and one.strategy.toeplitz is not None:
            noise.remember(one.strategy.toeplitz, one.sigma)
    return Search(noise, question.error_of, evaluations, question.progress)


def _error_of(objective: str, workload: Workload) -> ErrorOf:
    """The function that gives a strategy's error at sigma = 1."""
    if objective not in MEASURES:
        names = tuple(MEASURES)
        raise ParameterError(f"unknown objective {objective!r}; {suggestion(objective, names)}")
    error = utility.rmse if objective == "mean" else utility.max_error
    return lambda strategy: error(strategy, 1.0, workload)


def _checked_target(epsilon: float, delta: float, method: str | None, chance: float) -> Target:
    if method is not None:
        check_method(method)
    epsilon = real("epsilon", epsilon, 0, MAX_EPSILON)
    delta = real("delta", delta, MIN_DELTA, 1)
    if chance <= delta:
        raise ParameterError(
            f"the chance to take part at all, {chance:.3g}, is no larger than delta, so no "
            "noise is needed and there is nothing to optimise. Use a smaller delta."
        )
    return Target(epsilon, delta, TIGHT if method is None else method)


def _checked_scheme(sampling: Scheme, steps: int) -> Scheme:
    checked_scheme(sampling).check(steps)
    if sampling.setting or not amplified(Problem(identity(steps), sampling, 1.0)):
        raise SamplingError(
            f"no amplification is proven under {sampling!r} for adaptive inputs, so there is "
            "nothing to optimise for. Use a scheme that amplifies, such as Poisson or "
            "RandomAllocation."
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
                f"fixed must hold strategies of {steps} steps, as many as optimise is asked for; "
                f"got {strategy!r}."
            )
    if not fixed:
        raise StrategyError("fixed is empty: leave it out, or give a strategy to compare with.")
    return list(fixed)
