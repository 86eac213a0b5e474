"""Workloads: the lower-triangular A whose product A x is wanted, prefix sums unless said.

In: coefficients, learning rates or an array.  Out: checked, read-only objects.
Rounding: plain floating point.

With learning rates eta and momentum beta, SGD moves by sum_r<=t eta_r v_r with
v_r = beta v_(r-1) + x_r, so A[t, s] = sum over r = s .. t of eta_r beta^(r-s):
Toeplitz as long as the rates do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, own_arrays, real_array
from mmcc.errors import ParameterError, StrategyError, real, whole
from mmcc.strategies._base import CHUNK, Strategy

MAX_LENGTH = 10**7
"""Steps up to which every step's error is held in memory."""
FADED = 1e-290
"""Weights below this are zero: denormal numbers are slow."""


@dataclass(frozen=True, eq=False)
class ToeplitzWorkload:
    """A[t, s] = coefficients[t - s]."""

    coefficients: FloatArray

    def __post_init__(self) -> None:
        own_arrays(self, "coefficients")
        _check_finite(self.coefficients, "the workload")

    @property
    def steps(self) -> int:
        """Rows and columns of A."""
        return self.coefficients.size

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        """Squared norms of the rows of A B, by what the strategy knows of itself."""
        return strategy.toeplitz_variances(self, decoder)

    def to_dense(self) -> FloatArray:
        """A as an array."""
        dense = np.zeros((self.steps, self.steps))
        for t in range(self.steps):
            dense[t, : t + 1] = self.coefficients[t::-1]
        return dense


@dataclass(frozen=True, eq=False)
class ScheduleWorkload:
    """SGD with learning rates that change: A[t, s] = sum over r = s .. t of eta_r beta^(r-s)."""

    learning_rates: FloatArray
    momentum: float

    def __post_init__(self) -> None:
        own_arrays(self, "learning_rates")
        rates = self.learning_rates
        if rates.ndim != 1 or rates.size == 0:
            raise ParameterError(
                f"learning_rates must be a list, one for each step; got shape {rates.shape}."
            )
        _check_finite(rates, "the list of learning rates")
        if not (rates >= 0).all():
            raise ParameterError(f"learning rates must not be negative, got {rates.min():g}.")

    @property
    def steps(self) -> int:
        """Rows and columns of A."""
        return self.learning_rates.size

    def rows(self) -> Iterator[FloatArray]:
        """The rows of A, some at a time; each block is overwritten by the next."""
        size = max(CHUNK // self.steps, 1)
        block = np.zeros((min(size, self.steps), self.steps))
        row = np.zeros(self.steps)
        powers = self.momentum ** np.arange(self.steps, dtype=np.float64)[::-1]
        faded = int(np.count_nonzero(powers < FADED))
        for start in range(0, self.steps, size):
            count = min(size, self.steps - start)
            for t in range(start, start + count):
                first = max(faded - self.steps + t + 1, 0)
                row[first : t + 1] += self.learning_rates[t] * powers[self.steps - t - 1 + first :]
                block[t - start] = row
            yield block[:count]

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        """Squared norms of the rows of A B, by what the strategy knows of itself."""
        return strategy.schedule_variances(self, decoder)

    def to_dense(self) -> FloatArray:
        """A as an array."""
        return np.concatenate([block.copy() for block in self.rows()])


@dataclass(frozen=True, eq=False)
class DenseWorkload:
    """A as it was given: a lower-triangular array."""

    matrix: FloatArray

    def __post_init__(self) -> None:
        own_arrays(self, "matrix")
        _check_finite(self.matrix, "the workload")
        rows, columns = self.matrix.shape
        if rows != columns or np.triu(self.matrix, 1).any():
            raise StrategyError(
                f"a workload is a square lower-triangular array: step t is estimated from steps "
                f"0 .. t. Got shape {self.matrix.shape}"
                + (" with entries above the diagonal." if rows == columns else ".")
            )

    @property
    def steps(self) -> int:
        """Rows and columns of A."""
        return len(self.matrix)

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        """Squared norms of the rows of A B, by what the strategy knows of itself."""
        return strategy.variances(self, decoder)

    def to_dense(self) -> FloatArray:
        """A as an array."""
        return self.matrix


Workload = ToeplitzWorkload | ScheduleWorkload | DenseWorkload


def _check_finite(values: FloatArray, what: str) -> None:
    if not np.isfinite(values).all():
        raise StrategyError(f"{what} has entries that are not finite numbers (NaN or infinity).")


def workload_of(given: ArrayLike | Workload | None, steps: int) -> Workload:
    """What was asked for: prefix sums, Toeplitz coefficients, an array or a schedule."""
    if steps > MAX_LENGTH:
        raise StrategyError(
            f"the error of {steps} steps is summed step by step; at most {MAX_LENGTH} steps."
        )
    if given is None:
        return ToeplitzWorkload(np.ones(steps))
    found: Workload
    if isinstance(given, Workload):
        found = given
    else:
        array = real_array("a workload", given)
        if array.ndim not in (1, 2):
            raise StrategyError(
                "a workload is a list of Toeplitz coefficients or a lower-triangular array, "
                f"got shape {array.shape}."
            )
        found = ToeplitzWorkload(array) if array.ndim == 1 else DenseWorkload(array)
    if found.steps != steps:
        raise StrategyError(
            f"the workload has {found.steps} steps, the strategy {steps}. Give one coefficient, "
            "learning rate or row for each step."
        )
    return found


def momentum(steps: int, beta: float) -> FloatArray:
    """Coefficients of SGD with momentum: the model after t steps, learning rate 1.

    1, 1 + beta, 1 + beta + beta^2, ...: prefix sums for beta = 0.
    """
    steps = whole("steps", steps, 1, MAX_LENGTH)
    beta = real("beta", beta, 0, 1, closed="l")
    return np.cumsum(beta ** np.arange(steps, dtype=np.float64))


def cooldown(steps: int, fraction: float = 0.25, final: float = 0.05) -> FloatArray:
    """Learning rates: 1, and over the last `fraction` of the steps down to `final`, in a line."""
    steps = whole("steps", steps, 1, MAX_LENGTH)
    fraction = real("fraction", fraction, 0, 1, closed="lh")
    final = real("final", final, 0, 1, closed="lh")
    falling = round(fraction * steps)
    return np.concatenate(
        [np.ones(steps - falling), np.linspace(1.0, final, falling + 1)[1:]],
    )


def schedule(learning_rates: ArrayLike, momentum: float = 0.0) -> Workload:
    """SGD with one learning rate for each step, and momentum: the model after each step."""
    beta = real("momentum", momentum, 0, 1, closed="l")
    found = ScheduleWorkload(real_array("learning_rates", learning_rates), beta)
    rates = found.learning_rates
    if (rates == rates[0]).all():
        powers = beta ** np.arange(rates.size, dtype=np.float64)
        return ToeplitzWorkload(rates[0] * np.cumsum(powers))
    return found
