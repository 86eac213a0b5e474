"""Epsilon by simulation, for every scheme that can draw participation sets.

In: strategy, scheme, sigma, delta.  Out: an `Estimate` with a confidence interval.  Nothing is
rounded in a safe direction and nothing is proven: `mmcc.epsilon` gives proofs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation.batches import Batch, Plan
from mmcc._simulation.estimate_pilot import SMALLEST, Pilot, explore
from mmcc._simulation.intervals import Interval, Tally, interval
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.revealed import RevealPlan
from mmcc.accounting._bounds.projection.bracket import ProjectionBracket
from mmcc.accounting._guarantee import Estimate
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.errors import (
    MethodError,
    ParameterError,
    PrecisionError,
    StrategyError,
    real,
    whole,
)
from mmcc.sampling import Participations, Scheme
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies._base import Strategy, checked_strategy

MIN_DELTA = 1e-20
MIN_SIGMA, MAX_SIGMA = 1e-50, 1e12
MAX_SAMPLES = 10**9
ROUND = 16
"""Batches between two decisions; independent of the executor."""
LEAST_BATCHES = 48
TOGETHER = 4
"""Batches that are sent to a worker together."""
GRID = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
LEAST_EFFECTIVE = 300.0
FEW_GROUPS = 16
MOST_NUMBERS = 2**24
LOOKS = 4
"""A run checks its interval several times before it stops; each check gets a part of the error."""
BIAS_SHARE = 0.4
"""The part of the interval that drawn sets may cause before more of them are drawn."""
MOST_STARTS = 8
STANDING_OUT = 4.0
"""An adjacency smaller by this many standard errors after the pilot is left out."""


def estimate(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    samples: int = 2**16,
    width: float = 0.01,
    confidence: float = 0.99,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """The true epsilon at delta, estimated from simulated outputs: an interval, not a proof.

    It is the larger of remove and add; one that is clearly smaller after a pilot run is left out.
    The run stops when the interval is narrower than `width` times epsilon, or after `samples`
    outputs.  The same seed gives the same numbers with any executor.  Under `CyclicPoisson` one
    group is simulated: the one with the largest epsilon in pilot runs if there are few groups, or
    with the largest certified lower bound if there are many; under `Shuffle` the numbers are for
    the 0-1 setting.
    """
    sigma = real("sigma", sigma, MIN_SIGMA, MAX_SIGMA)
    delta = real("delta", delta, MIN_DELTA, 1)
    width = real("width", width, 0, 10)
    confidence = real("confidence", confidence, 0.5, 1)
    samples = whole("samples", samples, 1000, MAX_SAMPLES)
    seed = whole("seed", seed, 0, 2**63)
    if executor is not None and not hasattr(executor, "submit"):
        raise ParameterError(f"executor must have the interface of Executor, got {executor!r}.")
    if progress is not None and not callable(progress):
        raise ParameterError(f"progress must be a function of (what, done), got {progress!r}.")
    budget = Budget(samples, width, confidence, seed)
    with one_thread():
        mechanism = _mechanism(strategy, sampling, sigma, delta, seed)
        if mechanism.presence <= delta:  # an example that does not take part reveals nothing
            return _nothing(mechanism, delta, budget)
        return simulate(mechanism, delta, budget, executor, progress)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much to simulate."""

    samples: int
    width: float
    confidence: float
    seed: int
    exact: bool = True
    """Use the exact likelihood ratio if there is one."""
    reveal: bool = False
    """Reveal participations one by one even if there is one."""


@dataclass(frozen=True, eq=False)
class Run:
    """The result for one adjacency."""

    plan: Plan | RevealPlan
    tally: Tally
    found: Interval
    spent: int
    """All outputs, including those of abandoned starts."""

    @property
    def effective(self) -> float:
        """How many outputs of equal weight the sample is worth near epsilon."""
        middle = float(self.plan.epsilons[GRID.size // 2])
        near = middle if self.found.epsilon is None else self.found.epsilon
        return self.tally.effective(int(np.argmin(np.abs(self.plan.epsilons - near))))

    def check(self) -> None:
        """Refuse an interval that would mislead."""
        effective = self.effective
        if effective < LEAST_EFFECTIVE:
            raise PrecisionError(
                f"{self.tally.samples} simulated outputs are worth only {effective:.0f} of equal "
                "weight: their weights have collapsed onto a few, and an interval from them would "
                "mislead. Use more samples, a larger sigma, or mmcc.epsilon."
            )
        if self.found.high is None:
            raise PrecisionError(
                f"{self.spent} simulated outputs do not bound epsilon from above; use more samples."
            )
        if 0 < self.found.high < SMALLEST:
            raise PrecisionError(
                f"epsilon is smaller than {SMALLEST:g}, where rounding hides differences of "
                "probabilities; use mmcc.epsilon, or a smaller delta."
            )


def simulate(
    mechanism: Mechanism,
    delta: float,
    budget: Budget,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Estimate:
    """Pilot runs, then the adjacencies that matter, then the larger of them."""
    pilots = []
    for done, remove in enumerate((True, False)):
        pilots.append(explore(mechanism, remove, delta, budget.seed, budget.exact, budget.reveal))
        if progress is not None:
            progress("estimate: pilot runs", done + 1)
    pilots = _relevant(pilots)
    level = (1 - budget.confidence) / 2 / len(pilots) / LOOKS
    runs = [_run(pilot, delta, budget, level, executor, progress) for pilot in pilots]
    for run in runs:
        run.check()
    ends = [(_end(run.found.low), _end(run.found.epsilon), run.found.high) for run in runs]
    highs = [high for _, _, high in ends if high is not None]
    return Estimate(
        epsilon=max(middle for _, middle, _ in ends),
        low=max(low for low, _, _ in ends),
        high=max(highs),
        confidence=budget.confidence,
        samples=sum(run.spent for run in runs),
        effective=min(run.effective for run in runs),
        delta=delta,
        sigma=mechanism.sigma,
        method=_method(runs[0].plan, [run.plan.remove for run in runs]),
        strategy=repr(mechanism.strategy),
        sampling=repr(mechanism.scheme),
        seed=budget.seed,
        setting=mechanism.scheme.setting,
    )


def _nothing(mechanism: Mechanism, delta: float, budget: Budget) -> Estimate:
    """Epsilon is 0: the probability of taking part at all is at most delta."""
    return Estimate(
        epsilon=0.0,
        low=0.0,
        high=0.0,
        confidence=budget.confidence,
        samples=0,
        effective=math.inf,
        delta=delta,
        sigma=mechanism.sigma,
        method="the chance to take part at all is at most delta",
        strategy=repr(mechanism.strategy),
        sampling=repr(mechanism.scheme),
        seed=budget.seed,
    )


def _mechanism(
    strategy: Strategy, scheme: Scheme, sigma: float, delta: float, seed: int
) -> Mechanism:
    """The mechanism as seen by the worst-placed example."""
    checked_strategy(strategy)
    checked_scheme(scheme).check_drawn()
    scheme.check(strategy.steps)
    scheme.check_alone(strategy.steps)
    if strategy.rows + strategy.steps > MOST_NUMBERS:
        raise StrategyError(
            f"{strategy!r} is too large to simulate: one output and its columns are "
            f"{strategy.rows + strategy.steps:.2g} numbers, more than {MOST_NUMBERS:.2g}. "
            "Use fewer steps, or mmcc.epsilon."
        )
    group = 0 if scheme.groups is None else _worst_group(strategy, scheme, sigma, delta, seed)
    return Mechanism(strategy, scheme, sigma, group)


def _worst_group(strategy: Strategy, scheme: Scheme, sigma: float, delta: float, seed: int) -> int:
    """The worst group, by pilot runs, certified lower bounds, or the longest sum of columns."""
    separation = scheme.stride(strategy.steps)
    groups = strategy.groups(separation)
    if len(groups) == 1:
        return groups[0]
    rounds = scheme.rounds(strategy.steps)
    certain = rounds is not None and rounds.probability == 1.0
    if not certain and len(groups) <= FEW_GROUPS:

        def rough(group: int) -> float:
            mechanism = Mechanism(strategy, scheme, sigma, group)
            if mechanism.presence <= delta:
                return 0.0
            sides = (explore(mechanism, remove, delta, seed, True) for remove in (True, False))
            return max(pilot.epsilon for pilot in sides)

        return max(groups, key=rough)
    if rounds is not None and not certain:
        with suppress(MethodError, PrecisionError, StrategyError):  # too many columns for it
            return ProjectionBracket(strategy, rounds, sigma).lower_epsilon(delta).group
    columns = [np.arange(group, strategy.steps, separation) for group in groups]
    edges = np.concatenate([[0], np.cumsum([part.size for part in columns])])
    norms = strategy.squared_norms(Participations(np.concatenate(columns), edges))
    return groups[int(np.argmax(norms))]


def _relevant(pilots: Sequence[Pilot]) -> list[Pilot]:
    """The pilots without an adjacency that is clearly the smaller one."""
    first, second = sorted(pilots, key=lambda pilot: -pilot.epsilon)
    least = 0.99 * first.epsilon - STANDING_OUT * first.error - first.gap
    most = second.epsilon + STANDING_OUT * second.error + second.gap
    return [first] if most < least or first.epsilon == second.epsilon == 0.0 else list(pilots)


def _run(
    pilot: Pilot,
    delta: float,
    budget: Budget,
    level: float,
    executor: Executor | None,
    progress: Progress | None,
) -> Run:
    """Batches until the interval is narrow; restarted if the grid or the sets prove too small."""
    plan = replace(pilot.plan, count=_enough_sets(pilot, budget))
    centre = pilot.epsilon
    step = max(budget.width * centre, 2 * pilot.error, pilot.gap, 1e-4 * (centre + 1e-2))
    spent = 0
    for start in range(MOST_STARTS):
        plan = replace(plan, epsilons=_grid(centre, step), stage=plan.stage + 2)
        last = start == MOST_STARTS - 1
        run = _accumulate(plan, delta, budget, level, spent, last, executor, progress)
        spent = run.spent
        found = run.found
        if spent >= budget.samples:
            return run
        outside = found.low is None or found.high is None
        if not outside and found.coarse is None and not _biased(run, budget):
            return run
        if found.coarse is not None:
            left, right = found.coarse
            centre, step = 0.5 * (left + right), 0.25 * (right - left)
            continue
        if outside:
            step *= 2
        else:
            more = found.bias / max(BIAS_SHARE * budget.width * _end(found.epsilon), 1e-9)
            plan = replace(plan, count=plan.at_most(math.ceil(plan.count * min(2 * more, 8))))
        if found.epsilon is not None:
            centre = found.epsilon
        elif run.tally.means[2, 0] > delta:
            centre = float(plan.epsilons[-1]) + step
        else:
            centre = max(float(plan.epsilons[0]) - step, 0.0)
    return run


def _accumulate(
    plan: Plan | RevealPlan,
    delta: float,
    budget: Budget,
    level: float,
    spent: int,
    last: bool,
    executor: Executor | None,
    progress: Progress | None,
) -> Run:
    """Rounds of batches; decisions are made between rounds only."""
    tally = Tally()
    first = 0
    while True:
        count = LEAST_BATCHES if not tally.batches else max(ROUND, tally.batches // 4)
        for batch in _batches(plan, range(first, first + count), executor):
            tally.add(batch)
            if progress is not None:
                progress("estimate: simulated outputs", spent + tally.samples)
        first += count
        found = interval(tally, plan.epsilons, delta, level)
        run = Run(plan, tally, found, spent + tally.samples)
        if run.spent >= budget.samples:
            return run
        if found.low is None or found.high is None or found.epsilon is None:
            if not last:
                return run
            continue
        if found.coarse is not None and not last:
            return run
        narrow = found.high - found.low <= budget.width * found.epsilon or found.high == 0.0
        if narrow and run.effective >= LEAST_EFFECTIVE:
            return run
        if _biased(run, budget) and not last:
            return run


def _batches(plan: Plan | RevealPlan, indices: range, executor: Executor | None) -> Iterator[Batch]:
    """The batches in order."""
    if executor is None:
        for index in indices:
            yield plan.run(index)
        return
    parts = [indices[i : i + TOGETHER] for i in range(0, len(indices), TOGETHER)]
    futures = [executor.submit(_some, plan, part) for part in parts]
    try:
        for future in futures:
            yield from future.result()
    finally:
        for future in futures:
            future.cancel()


def _some(plan: Plan | RevealPlan, indices: range) -> list[Batch]:
    with one_thread():
        return [plan.run(index) for index in indices]


def _biased(run: Run, budget: Budget) -> bool:
    """Whether drawing more sets would help more than drawing more outputs."""
    if run.plan.unbiased or run.found.epsilon is None:
        return False
    if run.plan.at_most(2 * run.plan.count) < 2 * run.plan.count:
        return False
    return run.found.bias > BIAS_SHARE * max(budget.width * run.found.epsilon, 0.0)


def _enough_sets(pilot: Pilot, budget: Budget) -> int:
    """Sets, or fakes: the bias falls like one over their number."""
    plan = pilot.plan
    if plan.unbiased:
        return plan.count
    goal = 0.5 * BIAS_SHARE * budget.width * max(pilot.epsilon, 1e-3)
    return plan.at_most(math.ceil(plan.count * max(pilot.gap / goal, 0.25)))


def _grid(centre: float, step: float) -> FloatArray:
    if centre > 2.5 * step:
        return centre + step * GRID
    return np.linspace(0.0, centre + 2 * step, GRID.size)


def _end(value: float | None) -> float:
    return 0.0 if value is None else value


def _method(plan: Plan | RevealPlan, removes: Sequence[bool]) -> str:
    sides = " and ".join("remove" if remove else "add" for remove in removes)
    group = plan.mechanism.group
    where = f", group {group}" if plan.mechanism.scheme.groups is not None else ""
    return f"{plan.words}; {sides}{where}"
