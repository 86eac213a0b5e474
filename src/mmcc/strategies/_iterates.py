"""Which models count: the last one, an average, or all of them with weights.

In: a workload whose rows are models, and weights.  Out: a workload.
Rounding: plain floating point.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, own_arrays, real_array
from mmcc.errors import ParameterError, StrategyError, real, whole
from mmcc.strategies._base import Strategy
from mmcc.strategies._workloads import (
    SeriesForm,
    Workload,
    digits_of,
    given_workload,
)


@dataclass(frozen=True, eq=False)
class OutputWorkload(Workload):
    """The workload that wants one vector after the last step: row @ x."""

    row: FloatArray
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        own_arrays(self, "row")

    @property
    def steps(self) -> int:
        return self.row.size

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        return strategy.output_variance(self, decoder)

    def to_dense(self) -> FloatArray:
        return self.row[None, :]

    def series_form(self, weights: FloatArray | None = None) -> SeriesForm:
        """The error as a form in a quotient of series: the entries of row C^-1, last first."""
        return SeriesForm(self.row[::-1], np.full(self.steps, float(self.steps)))

    def _digest(self) -> str:
        return digits_of(self.row)


@dataclass(frozen=True, eq=False)
class WeightedWorkload(Workload):
    """The rows of another workload, each with a weight in the mean squared error."""

    inner: Workload
    shares: FloatArray
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        own_arrays(self, "shares")

    @property
    def steps(self) -> int:
        return self.inner.steps

    @property
    def weights(self) -> FloatArray:
        return self.shares

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        return self.inner.variances(strategy, decoder)

    def to_dense(self) -> FloatArray:
        return self.inner.to_dense()

    def weighted_row(self, weights: FloatArray) -> FloatArray:
        return self.inner.weighted_row(weights)

    def products(self, weights: FloatArray | None = None) -> FloatArray:
        return self.inner.products(self.shares if weights is None else weights)

    def series_form(self, weights: FloatArray | None = None) -> SeriesForm:
        return self.inner.series_form(self.shares if weights is None else weights)

    def differences(self) -> FloatArray | None:
        """Row j of A is scaled by sqrt(n w_j), so column j of A^-1 is divided by it."""
        found = self.inner.differences()
        if found is None or not (self.shares > 0).all():
            return None
        return np.asarray(found / np.sqrt(self.steps * self.shares)[:, None])

    def _digest(self) -> str:
        return digits_of(self.shares)


def last_iterate(workload: ArrayLike | Workload) -> Workload:
    """Only the model after the last step."""
    models = _models(workload)
    weights = np.zeros(models.steps)
    weights[-1] = 1.0
    return OutputWorkload(models.weighted_row(weights), name=f"last of {models}")


def average_iterate(workload: ArrayLike | Workload, last: int | None = None) -> Workload:
    """The average of the models after the last `last` steps (by default all), as one vector."""
    models = _models(workload)
    count = models.steps if last is None else whole("last", last, 1, models.steps)
    weights = np.zeros(models.steps)
    weights[-count:] = 1 / count
    return OutputWorkload(
        models.weighted_row(weights), name=f"mean of the last {count} of {models}"
    )


def weighted_iterates(workload: ArrayLike | Workload, weights: ArrayLike) -> Workload:
    """All models, each with a weight in the mean squared error; weights are scaled to sum to 1."""
    models = _models(workload)
    shares = real_array("weights", weights)
    total = float(shares.sum()) if shares.shape == (models.steps,) else 0.0
    if not (np.isfinite(total) and total > 0 and (shares >= 0).all()):
        raise ParameterError(
            f"weights must be {models.steps} non-negative numbers, one per step, and not all zero."
        )
    shares = shares / total
    return WeightedWorkload(models, shares, name=f"weights {digits_of(shares)} of {models}")


def final_mix(workload: ArrayLike | Workload, final: float = 0.5) -> Workload:
    """All models with extra weight on the last: squared error (1 - final) mean + final last."""
    models = _models(workload)
    final = real("final", final, 0, 1, closed="l")
    shares = np.full(models.steps, (1 - final) / models.steps)
    shares[-1] += final
    return WeightedWorkload(models, shares, name=f"final {final:g} of {models}")


def _models(workload: ArrayLike | Workload) -> Workload:
    """The workload, if its rows are the models after every step."""
    models = given_workload(workload)
    if not models.steps:
        raise StrategyError("the workload has no steps: give one coefficient or row for each.")
    if isinstance(models, OutputWorkload):
        raise StrategyError(f"{models} is a single vector, not a model for every step.")
    return models
