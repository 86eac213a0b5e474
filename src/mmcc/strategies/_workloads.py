"""Workloads: the matrix A whose product A x is wanted, by default the prefix sums.

In: coefficients, learning rates, an array, or another workload.  Out: checked, read-only objects.
Rounding: plain floating point.

With learning rates eta, momentum beta and weight decay w, SGD moves by m_t = m_(t-1) + eta_t v_t
with v_t = beta v_(t-1) + x_t - w m_(t-1).  Without decay A[t, s] is the sum over r = s .. t of
eta_r beta^(r-s); with constant rates A is Toeplitz: eta / ((1 - x) (1 - beta x) +
eta w x).  A is lower triangular with a row for every step, or a single row if one vector is wanted.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, own_arrays, real_array
from mmcc.errors import ParameterError, StrategyError, real, whole
from mmcc.strategies._base import CHUNK, Strategy
from mmcc.strategies._series import product, quotient

MAX_LENGTH = 10**7
"""Most steps whose errors are all held in memory."""
LARGEST_DECAY = 1e6
MAX_PRODUCTS = 8192
"""Most steps for which A^T A is kept as an array."""
MOST_DIFFERENCES = 8
"""Most bands of A^-1 that count as few."""
ROUNDED = 1e-13
"""Coefficients of 1 / a below this fraction of the largest are rounding errors."""
FADED = 1e-290
"""Smaller weights are set to zero, because denormal numbers are slow."""
PREFIX_SUMS = "prefix sums"


@dataclass(frozen=True, eq=False)
class SeriesForm:
    """n times the mean squared error of a Toeplitz encoder c, as a form in numerator / c.

    `curvature` has one number per coefficient of that series, or is a symmetric array.
    """

    numerator: FloatArray
    curvature: FloatArray

    def weighted(self, series: FloatArray) -> FloatArray:
        """Half the gradient of the form; its product with the series is the value."""
        if self.curvature.ndim == 1:
            return self.curvature * series
        return np.asarray(self.curvature @ series)


class Workload(ABC):
    """What the releases should estimate: a matrix A, and the weight of each of its rows."""

    name: str
    """The name that it prints; if empty, a digest is printed."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of columns of A."""

    @property
    def weights(self) -> FloatArray | None:
        """The weight of each row in the mean, summing to 1; None if all are equal."""
        return None

    @abstractmethod
    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        """Squared norms of the rows of A B, by the strategy's own method."""

    @abstractmethod
    def to_dense(self) -> FloatArray:
        """A as an array."""

    def weighted_row(self, weights: FloatArray) -> FloatArray:
        """The weighted sum of the rows of A."""
        return np.asarray(weights @ self.to_dense())

    def products(self, weights: FloatArray | None = None) -> FloatArray:
        """A^T A with weighted rows, such that its trace with (C^T C)^-1 is n times the mean square.

        The array has steps x steps entries.
        """
        if self.steps > MAX_PRODUCTS:
            raise StrategyError(
                f"{self} over {self.steps} steps is not a Toeplitz workload, and the error of a "
                f"strategy optimised for it needs A^T A as an array: at most {MAX_PRODUCTS} steps. "
                "Use constant rates, or optimise for fewer steps."
            )
        dense = self.to_dense()
        if weights is not None:
            dense = dense * np.sqrt(self.steps * weights)[:, None]
        return np.asarray(dense.T @ dense)

    def series_form(self, weights: FloatArray | None = None) -> SeriesForm:
        """The error of Toeplitz encoders: C^-1 has shifted columns g, so it is a form in g = 1 / c.

        Its entries are sums along the diagonals of A^T A: column j of C^-1 is g moved down by j.
        """
        form = np.array(self.products(weights))
        for k in range(self.steps):
            sums = np.cumsum(form.diagonal(k)[::-1])[::-1]
            np.fill_diagonal(form[:, k:], sums)
            np.fill_diagonal(form[k:], sums)
        return SeriesForm(np.concatenate([[1.0], np.zeros(self.steps - 1)]), form)

    @property
    def is_prefix_sums(self) -> bool:
        """Whether A is the prefix sums, so that their closed forms apply."""
        return False

    def differences(self) -> FloatArray | None:
        """Entry [j, m] is A^-1[j + m, j], if A^-1 has few bands; None otherwise."""
        return None

    def __str__(self) -> str:
        return self.name or f"workload {self._digest()}"

    @abstractmethod
    def _digest(self) -> str:
        """A few digits that distinguish it from other workloads."""


@dataclass(frozen=True, eq=False)
class ToeplitzWorkload(Workload):
    """A[t, s] = coefficients[t - s]."""

    coefficients: FloatArray
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        own_arrays(self, "coefficients")
        _check_finite(self.coefficients, "the workload")

    @property
    def steps(self) -> int:
        return self.coefficients.size

    @property
    def is_prefix_sums(self) -> bool:
        return bool((self.coefficients == 1).all())

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        return strategy.toeplitz_variances(self, decoder)

    def to_dense(self) -> FloatArray:
        dense = np.zeros((self.steps, self.steps))
        for t in range(self.steps):
            dense[t, : t + 1] = self.coefficients[t::-1]
        return dense

    def weighted_row(self, weights: FloatArray) -> FloatArray:
        return product(weights[::-1], self.coefficients, self.steps)[::-1]

    def series_form(self, weights: FloatArray | None = None) -> SeriesForm:
        """The form weights coefficient k of A C^-1 by the rows from k on, in which it occurs."""
        if weights is None:
            return SeriesForm(self.coefficients, np.arange(self.steps, 0, -1.0))
        return SeriesForm(self.coefficients, self.steps * np.cumsum(weights[::-1])[::-1])

    def differences(self) -> FloatArray | None:
        if self.coefficients[0] == 0:
            return None
        inverse = quotient(np.ones(1), self.coefficients, self.steps)
        used = np.flatnonzero(np.abs(inverse) > ROUNDED * np.abs(inverse).max())
        bands = int(used[-1]) + 1
        if bands > MOST_DIFFERENCES:
            return None
        inside = np.arange(self.steps)[:, None] + np.arange(bands) < self.steps
        return np.where(inside, inverse[:bands], 0.0)

    def _digest(self) -> str:
        return digits_of(self.coefficients)


@dataclass(frozen=True, eq=False)
class ScheduleWorkload(Workload):
    """SGD with varying learning rates, momentum and weight decay."""

    learning_rates: FloatArray
    momentum: float
    weight_decay: float = 0.0
    name: str = field(default="", kw_only=True)

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
        return self.learning_rates.size

    def rows(self) -> Iterator[FloatArray]:
        """The rows of A in blocks; each block is overwritten by the next."""
        size = max(CHUNK // self.steps, 1)
        block = np.zeros((min(size, self.steps), self.steps))
        each = self._each_row()
        for start in range(0, self.steps, size):
            count = min(size, self.steps - start)
            for place in range(count):
                block[place] = next(each)
            yield block[:count]

    def _each_row(self) -> Iterator[FloatArray]:
        """One row after another, in the same array."""
        if self.weight_decay:
            yield from self.moved_rows(np.eye(1, self.steps)[0])
            return
        row = np.zeros(self.steps)
        powers = self.momentum ** np.arange(self.steps, dtype=np.float64)[::-1]
        faded = int(np.count_nonzero(powers < FADED))
        for t in range(self.steps):
            first = max(faded - self.steps + t + 1, 0)
            row[first : t + 1] += self.learning_rates[t] * powers[self.steps - t - 1 + first :]
            yield row

    def moved_rows(self, inputs: FloatArray) -> Iterator[FloatArray]:
        """The rows of A times the Toeplitz matrix with these coefficients, in the same array."""
        backwards = inputs[::-1].copy()
        velocity, row = np.zeros(self.steps), np.zeros(self.steps)
        for t, rate in enumerate(self.learning_rates):
            velocity *= self.momentum
            velocity -= self.weight_decay * row
            velocity[: t + 1] += backwards[self.steps - t - 1 :]
            velocity[np.abs(velocity) < FADED] = 0.0
            row += rate * velocity
            yield row

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        return strategy.schedule_variances(self, decoder)

    def to_dense(self) -> FloatArray:
        return np.concatenate([block.copy() for block in self.rows()])

    def weighted_row(self, weights: FloatArray) -> FloatArray:
        from mmcc.strategies._recurrences import scheduled_row  # compiles

        numbers = self.momentum, self.weight_decay
        return np.asarray(scheduled_row(self.learning_rates, *numbers, np.array(weights)))

    def differences(self) -> FloatArray | None:
        """x_t = d_t - beta d_(t-1) + w m_(t-1), where d_t = (m_t - m_(t-1)) / eta_t."""
        rates, beta = self.learning_rates, self.momentum
        if not (rates > 0).all():
            return None
        found = np.zeros((self.steps, 3 if beta else 2))
        found[:, 0] = 1 / rates
        found[:-1, 1] = self.weight_decay - 1 / rates[1:] - beta / rates[:-1]
        if beta:
            found[:-2, 2] = beta / rates[1:-1]
        return found

    def _digest(self) -> str:
        return digits_of(self.learning_rates, np.array([self.momentum, self.weight_decay]))


@dataclass(frozen=True, eq=False)
class DenseWorkload(Workload):
    """A workload given as a lower-triangular array."""

    matrix: FloatArray
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        own_arrays(self, "matrix")
        _check_finite(self.matrix, "the workload")
        rows, columns = self.matrix.shape
        if rows != columns or np.triu(self.matrix, 1).any():
            raise StrategyError(
                f"a workload must be a square lower-triangular array: step t is estimated from "
                f"steps 0 .. t. Got shape {self.matrix.shape}"
                + (" with entries above the diagonal." if rows == columns else ".")
            )

    @property
    def steps(self) -> int:
        return len(self.matrix)

    def variances(self, strategy: Strategy, decoder: str) -> FloatArray:
        return strategy.variances(self, decoder)

    def to_dense(self) -> FloatArray:
        return self.matrix

    def _digest(self) -> str:
        return digits_of(self.matrix)


def _check_finite(values: FloatArray, what: str) -> None:
    if not np.isfinite(values).all():
        raise StrategyError(f"{what} has entries that are not finite numbers (NaN or infinity).")


def digits_of(*arrays: FloatArray) -> str:
    """A few digits of a digest."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()[:8]


def prefix_sums(steps: int) -> ToeplitzWorkload:
    """The default workload: the sum of the first t + 1 inputs, for every step t."""
    return ToeplitzWorkload(np.ones(steps), name=PREFIX_SUMS)


def given_workload(given: ArrayLike | Workload) -> Workload:
    """The workload that an argument means: itself, Toeplitz coefficients or an array."""
    if isinstance(given, Workload):
        return given
    array = real_array("a workload", given)
    if array.ndim not in (1, 2):
        raise StrategyError(
            "a workload must be a list of Toeplitz coefficients or a lower-triangular array, "
            f"got shape {array.shape}."
        )
    return ToeplitzWorkload(array) if array.ndim == 1 else DenseWorkload(array)


def workload_of(given: ArrayLike | Workload | None, steps: int) -> Workload:
    """The workload that an argument means, checked to have `steps` steps; prefix sums for None."""
    if steps > MAX_LENGTH:
        raise StrategyError(
            f"the error of {steps} steps is summed step by step, for at most {MAX_LENGTH} steps."
        )
    if given is None:
        return prefix_sums(steps)
    found = given_workload(given)
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


def schedule(
    learning_rates: ArrayLike, momentum: float = 0.0, weight_decay: float = 0.0
) -> Workload:
    """SGD with one learning rate for each step, momentum and weight decay: the model after each.

    As in torch.optim.SGD, the decay is added to the gradient before momentum.
    """
    beta = real("momentum", momentum, 0, 1, closed="l")
    decay = real("weight_decay", weight_decay, 0, LARGEST_DECAY, closed="lh")
    found = ScheduleWorkload(real_array("learning_rates", learning_rates), beta, decay)
    rates = found.learning_rates
    first = float(rates[0])
    settings = f", momentum {beta:g}" if beta else ""
    settings += f", weight decay {decay:g}" if decay else ""
    if not (rates == first).all():
        name = f"rates {digits_of(rates)}{settings}"
        return ScheduleWorkload(rates, beta, decay, name=name)
    name = f"rate {first:g}{settings}"
    if decay:
        divisor = np.array([1.0, first * decay - 1 - beta, beta])
        return ToeplitzWorkload(quotient(rates[:1], divisor, rates.size), name=name)
    powers = beta ** np.arange(rates.size, dtype=np.float64)
    return ToeplitzWorkload(first * np.cumsum(powers), name=name)
