"""What Toeplitz encoders are optimised for: a workload, and the participations allowed.

In: a workload and participations.  Out: the error at sigma equal to the sensitivity, and its
gradients.
Rounding: plain floating point; a strategy that is not quite optimal costs error, never privacy.

If coefficients fall from the separation b on, the longest |C 1_S| over k steps at least b apart is
that of S = 0, b, ..., (k - 1) b (docs/theory-unsampled.md), the same as in a fixed order of b
steps: |u|^2 with u = c + x^b c + ... + x^((k-1) b) c, cut off at n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, IntArray
from mmcc.errors import StrategyError
from mmcc.sampling._unsampled import Limits, Unsampled, limits_of
from mmcc.strategies._iterates import OutputWorkload
from mmcc.strategies._provenance import Argument
from mmcc.strategies._toeplitz import Toeplitz
from mmcc.strategies._workloads import SeriesForm, ToeplitzWorkload, Workload, workload_of


@dataclass(frozen=True, eq=False)
class Objective:
    """The root mean squared error of a workload at sigma = sensitivity."""

    workload: Workload
    participations: Unsampled | None
    extra: Mapping[str, Argument]
    """Arguments that provenance records beyond the numbers; empty for the defaults."""

    @property
    def steps(self) -> int:
        """The number of steps of the workload."""
        return self.workload.steps

    @cached_property
    def form(self) -> SeriesForm:
        """The squared error as a form in numerator / c."""
        return self.workload.series_form()

    @property
    def separation(self) -> int:
        """The fewest steps between two participations."""
        return self.steps if self.participations is None else self.participations.separation

    @property
    def times(self) -> int:
        """The number of times one example may take part."""
        if self.participations is None:
            return 1
        return min(self.participations.at_most, -(-self.steps // self.separation))

    @property
    def longest(self) -> int:
        """Coefficients up to this index are free; later ones must not increase."""
        return self.steps if self.times == 1 else self.separation

    def sensitivity(self, c: FloatArray) -> tuple[float, FloatArray]:
        """|u|^2 and half its gradient, for coefficients raised where needed to be decreasing."""
        if self.times == 1:
            return float(c @ c), c
        if (np.diff(c[self.separation :]) > 0).any():
            largest = _largest_later(c, self.separation)
            square, of_raised = self.sensitivity(c[largest])
            slope = np.zeros(c.size)
            np.add.at(slope, largest, of_raised)
            return square, slope
        total = np.zeros(min((self.times - 1) * self.separation + c.size, self.steps))
        starts = range(0, self.times * self.separation, self.separation)
        for start in starts:
            total[start : start + c.size] += c[: total.size - start]
        slope = np.zeros(c.size)
        for start in starts:
            part = total[start : start + c.size]
            slope[: part.size] += part
        return float(total @ total), slope

    def error(self, square: float, norm: float) -> float:
        """The error, from n * (mean squared error at sigma = 1) and the squared sensitivity."""
        return math.exp(0.5 * math.log(norm * square / self.steps))

    def largest(self, encoder: Toeplitz) -> float:
        """The sensitivity of an encoder, whether or not its coefficients decrease."""
        if self.times == 1:
            return float(np.linalg.norm(encoder.coefficients))
        return encoder.sensitivity_apart(self.separation, self.times)


def objective_of(
    steps: int,
    workload: ArrayLike | Workload | None,
    participations: Limits | None,
    objective: str = "mean",
) -> Objective:
    """The objective that a constructor's arguments ask for."""
    found = workload_of(workload, steps)
    limits = limits_of(participations)
    extra: dict[str, Argument] = {}
    if workload is not None:
        extra["workload"] = str(found)
    if limits is not None:
        extra["participations"] = f"{limits.at_most} times, {limits.separation} apart"
    return Objective(_largest(found) if objective == "max" else found, limits, extra)


def _largest_later(c: FloatArray, first: int) -> IntArray:
    """For every index from `first` on, the index of the largest coefficient there or later."""
    places = np.arange(c.size)
    tail = c[first:][::-1]
    highest = np.maximum.accumulate(tail)
    raised = np.maximum.accumulate(np.where(tail == highest, places[: tail.size], 0))
    places[first:] = c.size - 1 - raised[::-1]
    return places


def _largest(workload: Workload) -> Workload:
    """The workload of the step with the largest error: the last step, if A C^-1 is Toeplitz."""
    if isinstance(workload, OutputWorkload):
        return workload
    if not isinstance(workload, ToeplitzWorkload):
        raise StrategyError(
            f"objective='max' is for Toeplitz workloads, whose last step has the largest error; "
            f"{workload} is not one. Use objective='mean', or utility.last_iterate of it."
        )
    return OutputWorkload(workload.coefficients[::-1], name=str(workload))
