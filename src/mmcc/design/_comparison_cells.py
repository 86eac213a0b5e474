"""One cell of a comparison: a strategy under a family of schemes at one target.

In: a `Cell`.  Out: a `Row`.  Cells are independent of each other, so they may go to an executor.
Rounding: a sigma comes from `mmcc.sigma` or is checked by `mmcc.epsilon`, so it suffices.  A scheme
is dropped from a family only after its own evaluation at the noise of the best so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from mmcc import utility
from mmcc._methods import TIGHT
from mmcc.accounting._best_bound import Budget, amplified
from mmcc.accounting._bounds import PLAIN, Problem
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._parallel import Progress
from mmcc.design._certified_noise import (
    Target,
    calibrate,
    estimate_sigma,
    lower_epsilon,
    may_need_less,
    prove,
)
from mmcc.design._comparison import (
    BASELINE,
    CANNOT,
    ESTIMATED,
    FIXED_INPUTS,
    LOSES,
    UNAMPLIFIED,
    UNKNOWN,
    WINS,
    ZERO_ONE,
    Row,
)
from mmcc.design._time_limit import TimeLimit, TimeUpError
from mmcc.design._tuned_blt import TunedBlt
from mmcc.errors import MmccError
from mmcc.sampling import Scheme
from mmcc.sampling._families_at_rate import Family
from mmcc.strategies._base import Strategy
from mmcc.strategies._workloads import Workload

TIE = 1e-9
"""Relative margin below DP-SGD's error for the noise at a tie; larger than any rounding."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings with which a cell is computed."""

    method: str = TIGHT
    only_wins: bool = False
    estimates: bool = False
    seconds: float = math.inf
    workload: Workload | None = None
    """The workload that errors refer to; None means prefix sums."""


@dataclass(frozen=True, slots=True)
class UnitErrors:
    """What a strategy's noise does to the workload at sigma = 1."""

    rmse: float
    max_error: float
    noise_memory: int


@dataclass(frozen=True, eq=False)
class Cell:
    """One strategy under one family of schemes at one target."""

    label: str
    strategy: Strategy | TunedBlt
    family: Family
    epsilon: float
    delta: float
    limits: Limits
    floor: float = math.nan
    """The least RMSE of DP-SGD, which a win must stay below; NaN for DP-SGD itself."""
    ceiling: float = math.nan
    """The RMSE at which DP-SGD is certified."""
    errors: UnitErrors | MmccError | None = None
    """The errors, if the strategy does not depend on the target."""


def errors_of(strategy: Strategy, workload: Workload | None = None) -> UnitErrors:
    """Errors of the workload at sigma = 1."""
    return UnitErrors(
        utility.rmse(strategy, 1.0, workload),
        utility.max_error(strategy, 1.0, workload),
        utility.noise_memory(strategy),
    )


def answer(cell: Cell, progress: Progress | None = None) -> tuple[Row, ...]:
    """The rows of a cell: one, followed by an estimated one if that was asked for."""
    limit = TimeLimit(cell.limits.seconds, progress)
    empty = Row(
        strategy=cell.label,
        detail=repr(cell.strategy),
        scheme=cell.family.name,
        sampling="",
        separation=None,
        epsilon=cell.epsilon,
        delta=cell.delta,
        method=cell.limits.method,
        verdict=UNKNOWN,
        correlated=cell.strategy.correlated,
    )
    try:
        rows = _rows(cell, empty, limit)
    except MmccError as refusal:
        rows = (replace(empty, reason=str(refusal)),)
    except MemoryError:
        rows = (replace(empty, reason="not enough memory for this mechanism."),)
    except TimeUpError:
        reason = f"not finished in {cell.limits.seconds:g} s; ask for it with mmcc.sigma."
        rows = (replace(empty, reason=reason),)
    return tuple(replace(row, seconds=round(limit.passed(), 3)) for row in rows)


def _rows(cell: Cell, empty: Row, limit: TimeLimit) -> tuple[Row, ...]:
    strategy, errors, limits = cell.strategy, cell.errors, cell.limits
    if isinstance(strategy, TunedBlt):
        scheme = cell.family.schemes[len(cell.family.schemes) // 2]
        strategy = strategy.tune(
            scheme, cell.epsilon, cell.delta, limits.method, limit, workload=limits.workload
        )
        empty = replace(empty, detail=repr(strategy))
    if isinstance(errors, MmccError):
        raise errors
    one = _Mechanism(cell, strategy, errors or errors_of(strategy, limits.workload), empty, limit)
    row = one.tie() if limits.only_wins and not math.isnan(cell.floor) else one.calibrate()
    unproven = not amplified(Problem(strategy, cell.family.schemes[0], 1.0))
    return (row, one.estimate()) if limits.estimates and unproven else (row,)


@dataclass(frozen=True, eq=False)
class _Mechanism:
    """A strategy with its errors, about to be calibrated."""

    cell: Cell
    strategy: Strategy
    errors: UnitErrors
    empty: Row
    limit: TimeLimit

    @property
    def target(self) -> Target:
        cell = self.cell
        return Target(cell.epsilon, cell.delta, cell.limits.method, Budget.TABLE, self.limit)

    def calibrate(self) -> Row:
        """The smallest certified noise over the family."""
        best: tuple[Scheme, Guarantee] | None = None
        refusal: MmccError | None = None
        skipped = 0
        empty = self.empty
        for scheme in in_turn(self.cell.family, self.strategy):
            try:
                known = math.inf if best is None else best[1].sigma
                if best and not may_need_less(self.strategy, scheme, known, self.target):
                    skipped += 1
                    continue
                found = calibrate(self.strategy, scheme, self.target)
            except MmccError as not_possible:
                refusal = refusal or not_possible
                continue
            except TimeUpError:
                if best is None:
                    raise
                empty = replace(self.empty, reason="time was up before all schemes were tried.")
                break  # keep what was found; the row says that there may be better
            if best is None or found.sigma < best[1].sigma:
                best = scheme, found
        if best is None:
            raise refusal or MmccError("no scheme was given.")
        return self._judge(replace(self._row(*best, skipped), reason=empty.reason))

    def tie(self) -> Row:
        """Decide who wins, by one evaluation per scheme at the noise that makes both errors equal.

        Epsilon falls with sigma: a bound above the target there is above it for all smaller noise.
        """
        sigma = self.cell.floor / self.errors.rmse * (1 - TIE)
        certified = max(self.cell.ceiling / self.errors.rmse, sigma)
        schemes = in_turn(self.cell.family, self.strategy)
        impossible = 0
        refusal: MmccError | None = None
        for scheme in schemes:
            try:
                lower = lower_epsilon(self.strategy, scheme, certified, self.target)
                if lower > self.cell.epsilon:
                    impossible += 1
                    continue
                found = prove(self.strategy, scheme, sigma, self.target)
            except MmccError as not_possible:
                refusal = refusal or not_possible
                continue
            if found is not None:
                row = replace(self._row(scheme, found, impossible), at_tie=True)
                return self._judge(row)
        if refusal is not None:
            raise refusal
        verdict = CANNOT if impossible == len(schemes) else LOSES
        memory = self.errors.noise_memory
        empty = replace(self.empty, at_tie=True, skipped=impossible, noise_memory=memory)
        return replace(empty, verdict=verdict, sampling=_several(self.cell.family))

    def estimate(self) -> Row:
        """A row by simulation, marked as such."""
        scheme = self.cell.family.schemes[0]
        empty = replace(self.empty, sampling=repr(scheme))
        try:
            sigma, how = estimate_sigma(self.strategy, scheme, self.target)
        except MmccError as refusal:
            return replace(empty, reason=str(refusal))
        except TimeUpError:
            return replace(empty, reason="the simulation did not finish in time.")
        told = (ESTIMATED, *([ZERO_ONE] if scheme.setting else []))
        row = replace(empty, sigma=sigma, bound=how, reservations=told, **self._scale(sigma))
        return self._judge(row)

    def _row(self, scheme: Scheme, found: Guarantee, skipped: int) -> Row:
        return replace(
            self.empty,
            sampling=repr(scheme),
            separation=scheme.groups,
            sigma=float(found.sigma),
            sigma_lower=found.details.get("sigma_lower"),
            bound=found.bound,
            certified=True,
            reservations=_reservations(found, scheme.rate(self.strategy.steps) == 1),
            skipped=skipped,
            **self._scale(found.sigma),
        )

    def _scale(self, sigma: float) -> dict[str, Any]:
        return {
            "rmse": float(self.errors.rmse * sigma),
            "max_error": float(self.errors.max_error * sigma),
            "noise_memory": self.errors.noise_memory,
        }

    def _judge(self, row: Row) -> Row:
        """The row with its verdict against DP-SGD; DP-SGD itself has none."""
        floor = self.cell.floor
        if math.isnan(floor):
            return replace(row, verdict=BASELINE)
        assert row.rmse is not None
        saving = 1 - row.rmse / floor
        verdict = WINS if saving > 0.5 * TIE else LOSES
        least = (row.sigma_lower or 0.0) * self.errors.rmse
        alone = len(self.cell.family.schemes) == 1
        if least > self.cell.ceiling * (1 + TIE) and alone:
            verdict = CANNOT
        return replace(row, saving=saving, verdict=verdict)


def _reservations(found: Guarantee, everyone: bool) -> tuple[str, ...]:
    """What a certificate assumes or lacks that DP-SGD's does not.

    If everyone is in every batch, there is nothing to amplify for either.
    """
    told = {
        UNAMPLIFIED: found.bound == PLAIN.name and not everyone,
        ZERO_ONE: bool(found.setting),
        FIXED_INPUTS: not found.adaptive and not found.setting,
    }
    return tuple(text for text, holds in told.items() if holds)


def in_turn(family: Family, strategy: Strategy) -> list[Scheme]:
    """The schemes of a family, starting with separations near the number of bands."""
    bands = getattr(strategy, "bands", strategy.steps)

    def distance(scheme: Scheme) -> float:
        return abs(math.log(scheme.least_gap(strategy.steps) / bands))

    return sorted(family.schemes, key=distance)


def _several(family: Family) -> str:
    first, *others = family.schemes
    return f"{first!r} and {len(others)} more" if others else repr(first)
