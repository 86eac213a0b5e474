r"""All runs on a data set as one guarantee.

In: the history of a ledger, the name of a data set.  Out: `Total`.
Rounding: upwards; the order of the runs changes no bit.

Pairs (epsilon_i, delta_i) of runs add up, even if each run and its pair were chosen after seeing
what earlier runs released.  Privacy losses compose to less than that, but only for mechanisms fixed
in advance: those of a plan, which counts in full from its declaration on.  The proofs are in
docs/ledger.md.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmcc.accounting._guarantee import CERTIFIED, VERIFIED, rounded_up
from mmcc.errors import PrecisionError, real, suggestion
from mmcc.ledger._entries import DeclaredPlan, DeltaDot, Fingerprint, LedgerError, plain
from mmcc.ledger._history import History, Run

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.accounting._losses.gridded import GridDistribution
    from mmcc.accounting._parallel import Progress

PAIRS = "sum of pairs"
LOSSES = "composed losses"
LEAST_TRIED = 1e-25
"""Round-off is larger than this part of a total mass of one."""


@dataclass(frozen=True, slots=True)
class PlanPart:
    """What a plan costs: the smaller of its composed losses and the sum of its pairs."""

    epsilon: float
    delta: float
    method: str
    """`PAIRS` or `LOSSES`."""
    runs: int
    begun: int

    def __str__(self) -> str:
        how = "privacy losses composed" if self.method == LOSSES else "pairs added"
        return (
            f"plan of {_count(self.runs, 'run')} ({self.begun} begun), counted in full, {how}: "
            f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})"
        )


@dataclass(frozen=True, slots=True)
class Total:
    """(epsilon, delta)-differential privacy of everything released on a data set.

    It holds for runs with independent noise and sampling, under the assumptions of their
    guarantees.  It is certified, unless some of these were verified by simulation; then the chance
    that one of their verdicts is wrong, `failure`, is part of delta.
    """

    data: str
    epsilon: float
    delta: float
    adjacency: str
    adaptive: bool
    settings: tuple[str, ...]
    """What some run assumes about the other examples; empty if none does."""
    runs: tuple[Run, ...]
    outside: int
    """Runs outside the plan, whose pairs are added."""
    plan: PlanPart | None = None
    verified: int = 0
    """Guarantees that were verified by simulation, not certified, including those of a plan."""
    failure: float = 0.0
    """The chance of a wrong verdict among them: part of delta."""

    @property
    def kind(self) -> str:
        """Certified, if everything in it is."""
        return VERIFIED if self.verified else CERTIFIED

    @property
    def basis(self) -> str:
        """What the number rests on, in words."""
        if not self.verified:
            return CERTIFIED
        return (
            f"{VERIFIED} in part: {_count(self.verified, 'guarantee')} by simulation; the chance "
            f"of a wrong verdict among them, {rounded_up(self.failure)}, is part of delta"
        )

    @property
    def method(self) -> str:
        """How the number was obtained, in words."""
        parts = [str(self.plan)] if self.plan else []
        if self.outside or not parts:
            beyond = " outside it" if self.plan else ""
            parts.append(f"sum of the pairs of {_count(self.outside, 'run')}{beyond}")
        return ", plus ".join(parts)

    @property
    def states(self) -> dict[str, int]:
        """How many runs ended, were stopped early, and have no end."""
        ends = [run.position for run in self.runs]
        stopped = sum(
            run.position is not None and run.position < run.begin.steps for run in self.runs
        )
        missing = ends.count(None)
        return {"ended": len(ends) - stopped - missing, "stopped": stopped, "no_end": missing}

    @property
    def resumed(self) -> int:
        """How many runs continued from a checkpoint, whatever became of them."""
        return sum(run.resumed > 0 for run in self.runs)

    def __str__(self) -> str:
        inputs = "adaptive inputs" if self.adaptive else "non-adaptive inputs only"
        states = self.states
        settings = "".join(f", in {setting}" for setting in self.settings)
        return (
            f"{self.data}: ({rounded_up(self.epsilon)}, {rounded_up(self.delta)})-DP, "
            f"{self.basis}; {self.method}; "
            f"{_count(len(self.runs), 'run')}, {states['ended']} ended, "
            f"{states['stopped']} stopped early, {states['no_end']} without an end (killed, or "
            f"still running), {self.resumed} resumed, each counted in full; {inputs}, "
            f"{self.adjacency}{settings}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        plan = self.plan
        return {
            "data": self.data,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "method": self.method,
            "adjacency": self.adjacency,
            "adaptive": self.adaptive,
            "settings": list(self.settings),
            "kind": self.kind,
            "failure": self.failure,
            "verified": self.verified,
            "certified": self.kind == CERTIFIED,
            "states": self.states,
            "resumed": self.resumed,
            "outside": self.outside,
            "plan": plan and {name: getattr(plan, name) for name in plan.__slots__},
            "runs": [_run_dict(run) for run in self.runs],
        }


def total(
    history: History,
    data: str,
    *,
    delta: float | None = None,
    progress: Progress | None = None,
) -> Total:
    """Everything that was ever released on a data set; `delta` is the share of the plan."""
    known = history.data_sets()
    if data not in known:
        there = suggestion(data, known) if known else "the ledger has no run at all."
        raise LedgerError(f"no run on a data set {data!r} is known; {there}")
    runs, plan = history.runs_on(data), history.plans.get(data)
    if plan is None and delta is not None:
        raise LedgerError(
            f"a delta can be chosen for a plan only, but none was declared for {data!r} before its "
            "first run: the pairs of its runs have their own. Leave it out."
        )
    begun, outside = _places(plan, runs)
    part = plan and plan_part(plan, begun, delta, progress)
    guarantees = [run.begin.guarantee for run in runs]
    guarantees += [run.guarantee for run in plan.runs] if plan else []
    counted = [*outside, *((run.guarantee for run in plan.runs) if plan else ())]
    verified = [found for found in counted if found.kind == VERIFIED]
    pairs = [(found.epsilon, found.delta) for found in outside]
    pairs += [(part.epsilon, part.delta)] if part else []
    return Total(
        data=data,
        epsilon=sum_up(epsilon for epsilon, _ in pairs),
        delta=min(sum_up(delta for _, delta in pairs), 1.0),
        adjacency=guarantees[0].adjacency,
        adaptive=all(found.adaptive for found in guarantees),
        settings=tuple(sorted({found.setting for found in guarantees} - {""})),
        runs=tuple(runs),
        outside=len(outside),
        plan=part or None,
        verified=len(verified),
        failure=min(sum_up(found.failure for found in verified), 1.0),
    )


def totals(
    history: History,
    data: str | None = None,
    *,
    delta: float | None = None,
    progress: Progress | None = None,
) -> list[Total]:
    """The total of one data set, or of every one; then `delta` is for those that have a plan."""
    if data is not None:
        return [total(history, data, delta=delta, progress=progress)]
    if delta is not None and not history.plans:
        raise LedgerError(
            "a delta (--delta) is for a plan declared before the first run, but there is none: the "
            "pairs of the runs have their own deltas. Leave it out."
        )
    return [
        total(history, name, delta=delta if name in history.plans else None, progress=progress)
        for name in history.data_sets()
    ]


def sum_up(values: Iterable[float]) -> float:
    """The smallest float that is not below the exact sum; the same in every order."""
    listed = list(values)
    found = math.fsum(listed)
    # fsum rounds the exact sum once, so this has the sign of what it left out.
    return math.nextafter(found, math.inf) if math.fsum([*listed, -found]) > 0 else found


def plan_part(
    plan: DeclaredPlan, begun: int, delta: float | None, progress: Progress | None = None
) -> PlanPart:
    """The whole plan at a delta; without one, at the sum of its deltas.

    It depends on the plan and the delta alone, never on what was run: a pair fixed in advance.
    """
    added = sum_up(run.guarantee.epsilon for run in plan.runs)
    needed = min(sum_up(run.guarantee.delta for run in plan.runs), 1.0)
    at = needed if delta is None else real("delta", delta, 0, 1)
    by_sum = PlanPart(added, needed, PAIRS, len(plan.runs), begun)
    verified = any(run.guarantee.kind == VERIFIED for run in plan.runs)
    if (added == 0 or verified) and needed <= at:
        return by_sum
    if verified:  # a wrong verdict is in the pairs' deltas, and in no composed loss
        problem = PrecisionError("guarantees verified by simulation are pairs, which add up")
        raise _too_small(plan, at, needed, problem)
    try:
        composed = composed_epsilon(plan, at, progress)
    except PrecisionError as problem:
        if needed <= at:
            return by_sum
        raise _too_small(plan, at, needed, problem) from None
    if needed <= at and added <= composed:
        return by_sum
    return PlanPart(composed, at, LOSSES, len(plan.runs), begun)


def composed_epsilon(plan: DeclaredPlan, delta: float, progress: Progress | None = None) -> float:
    """Certified epsilon at delta of the plan's runs: the losses of dominating pairs composed."""
    if not 0 < delta < 1:
        raise PrecisionError(f"losses cannot be composed at a delta of {delta:g}.")
    return _losses(plan, progress).epsilon(delta)


def _losses(plan: DeclaredPlan, progress: Progress | None = None) -> GridDistribution:
    from mmcc.accounting._losses.gridded import GridDistribution  # scipy and numba take a second
    from mmcc.ledger._delta_curves import common_spacing, dots_of, losses_above

    # Equal curves once, in canonical order: the order of the runs changes no bit.
    counts: Counter[tuple[DeltaDot, ...]] = Counter(dots_of(run) for run in plan.runs)
    curves = sorted(counts, key=lambda dots: [(d.epsilon, d.remove, d.add) for d in dots])
    spacing = common_spacing(curves)
    if progress is not None:
        progress("losses of the plan", len(curves))
    remove, add = (
        tuple((losses_above(dots, spacing, side), counts[dots]) for dots in curves)
        for side in (True, False)
    )
    return GridDistribution(remove, add)


def _too_small(
    plan: DeclaredPlan, at: float, needed: float, problem: PrecisionError
) -> PrecisionError:
    """The error for a delta of a plan that cannot be certified."""
    try:
        if any(run.guarantee.kind == VERIFIED for run in plan.runs):
            raise problem
        least, why = _least_delta(_losses(plan), needed), "the curves of its runs end there"
    except PrecisionError:  # nothing can be composed, whatever the delta
        least, why = needed, str(problem).rstrip(".")
    return PrecisionError(
        f"delta = {at:g} was given for the plan, but the least that can be certified is "
        f"{rounded_up(least)}: {why}. Give a larger delta, or leave it out for the sum of the "
        f"plan's deltas, {rounded_up(needed)}."
    )


def _least_delta(losses: GridDistribution, needed: float) -> float:
    """About the least delta at which these losses have a certified epsilon; at most `needed`.

    It is just above their mass at infinity; if round-off is more than that, within a factor of two.
    """
    infinite = max(
        -math.expm1(math.fsum(count * math.log1p(-loss.infinite) for loss, count in side))
        for side in (losses.remove, losses.add)
    )
    tried = float(rounded_up(1.01 * max(infinite, LEAST_TRIED)))
    while tried < needed:
        with suppress(PrecisionError):
            losses.epsilon(tried)
            return tried
        tried = float(rounded_up(2 * tried))
    return needed


def _places(plan: DeclaredPlan | None, runs: list[Run]) -> tuple[int, list[Guarantee]]:
    """How many of the plan's places are taken, and the guarantees of runs outside it.

    Runs with equal keys have equal pairs, so it does not matter which of them takes a place.
    """
    free = Counter(_key(run.fingerprint, run.guarantee) for run in plan.runs) if plan else Counter()
    places = free.total()
    outside = []
    for run in runs:
        key = _key(run.begin.fingerprint, run.begin.guarantee)
        if free[key]:
            free[key] -= 1
        else:
            outside.append(run.begin.guarantee)
    return places - free.total(), outside


def _key(fingerprint: Fingerprint, guarantee: Guarantee) -> tuple[str, float, float]:
    printed = json.dumps(fingerprint, sort_keys=True)
    return printed, guarantee.epsilon, guarantee.delta


def _run_dict(run: Run) -> dict[str, Any]:
    return {
        **plain(run.begin),
        "position": run.position,
        "resumed": run.resumed,
        "state": run.state,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
