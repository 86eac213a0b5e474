"""Encoders whose inverse is banded Toeplitz: the noise C^-1 z needs only the last few z.

In: steps and bands.  Out: C = 1 / (1 - a_1 x - ... - a_{b-1} x^{b-1}) with a >= 0, so that C >= 0.
`banded_inverse` keeps the first coefficients of the inverse square root of the prefix sums,
(1 - x)^1/2 = 1 - x/2 - x^2/8 - ... (BISR: Kalinin, McKenna, Upadhyay, Lampert 2025), of another
power of 1 - x, of the root of another workload, or searches for the best bands.  `lambda_cgd` has
C^-1 = 1 - lambda x (DP-lambda-CGD: Kalinin, McKenna, Pagh, Lampert 2026), columns not normalised.
Rounding: coefficients of C are rounded up.  A larger C, entry by entry, has a larger Gram matrix
and a larger epsilon, so what is proven for them holds for the encoder that `inverse` defines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, own_arrays
from mmcc.errors import StrategyError, real, whole
from mmcc.sampling._unsampled import Limits
from mmcc.strategies._base import Strategy
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._descent import Progress, check_progress, minimise
from mmcc.strategies._descriptions import Call, Record
from mmcc.strategies._provenance import Argument, Provenance, made_by
from mmcc.strategies._series import product, quotient
from mmcc.strategies._toeplitz import MAX_COEFFICIENTS, Toeplitz
from mmcc.strategies._toeplitz_objective import Objective, objective_of
from mmcc.strategies._workloads import ToeplitzWorkload, Workload, workload_of

MAX_PRODUCTS = 10**10
"""Most products in the recursion for the coefficients of C: about ten seconds."""
TOLERANCE = 1e-8
"""On the gradient of the log error."""
FARTHEST = 30.0
"""Bound on the unknowns, which keeps the bands negative and their sum above 0."""


@dataclass(frozen=True, eq=False, repr=False)
class BandedInverse(Toeplitz):
    """C^-1[i, j] = inverse[i - j] for 0 <= i - j < len(inverse), else 0; `inverse` starts with 1.

    `bands` counts those of C, which has no zeros; `inverse_bands` those of C^-1.
    """

    inverse: FloatArray = field(default_factory=lambda: np.ones(1))

    def __post_init__(self) -> None:
        own_arrays(self, "inverse")
        super().__post_init__()
        expected = encoder_coefficients(self.inverse, self.length)
        if not np.array_equal(self.coefficients, expected):
            raise StrategyError(
                "coefficients do not belong to the inverse with the given bands; make the strategy "
                "with banded_inverse."
            )

    @property
    def inverse_bands(self) -> int:
        """The number of non-zero diagonals of C^-1: noise vectors to keep, including the newest."""
        return self.inverse.size

    def prefix(self, steps: int) -> BandedInverse:
        """The inverse of a leading square of C is the leading square of C^-1."""
        steps = whole("steps", steps, 1, self.length)
        return from_inverse(self.inverse[:steps], steps, None)

    @property
    def inverse_coefficients(self) -> FloatArray:
        return self.inverse

    @property
    def excess(self) -> int:
        return 2 * (self.inverse_bands + 2) * self.length

    def defining(self) -> tuple[Any, ...]:
        return ("banded inverse", self.length, self.inverse)

    def record(self) -> Record:
        return Record("banded_inverse", {"steps": self.length}, {"inverse": self.inverse})

    def call(self) -> Call | None:
        return Strategy.call(self)

    def __repr__(self) -> str:
        return str(self.provenance or f"banded_inverse({self.steps}, {self.inverse_bands}), given")


def banded_inverse(
    steps: int,
    bands: int,
    *,
    power: float | None = None,
    workload: ArrayLike | Workload | None = None,
    optimised: bool = False,
    participations: Limits | None = None,
    progress: Progress | None = None,
) -> BandedInverse:
    """An encoder with this many bands of C^-1; by default the banded inverse square root (BISR).

    BISR keeps the first coefficients of A^-1/2: of (1 - x)^1/2 for prefix sums, or of the root of a
    Toeplitz workload.  With `power`, 0 < power < 1, it keeps those of (1 - x)^power instead.  With
    `optimised`, bands are searched for the least error of the workload, at one participation or at
    `Unsampled(separation, at_most)`.
    """
    steps = whole("steps", steps, 1, 10**12)
    bands = whole("bands", bands, 1, steps)
    check_progress(progress)
    if steps > MAX_COEFFICIENTS:
        raise StrategyError(
            f"banded_inverse({steps}, {bands}) stores a coefficient for each step, for at most "
            f"{MAX_COEFFICIENTS} steps."
        )
    arguments: dict[str, Argument] = {"steps": steps, "bands": bands}
    if participations is not None and not optimised:
        raise StrategyError(
            "the root of a workload does not depend on participations: pass optimised=True, or "
            "leave participations out."
        )
    if power is not None:
        if workload is not None or optimised:
            raise StrategyError(
                "power selects a power of 1 - x, which is not optimised and has no workload: "
                "leave out either power, or workload and optimised."
            )
        exponent = real("power", power, 0, 1)
        made = made_by("banded_inverse", arguments | {"power": exponent}, "", None)
        return from_inverse(_power(exponent, bands), steps, made)
    if optimised:
        objective = objective_of(steps, workload, participations)
        inverse, error = best_inverse(objective, bands, progress)
        arguments |= {"optimised": "optimised", **objective.extra}
        return from_inverse(inverse, steps, made_by("banded_inverse", arguments, "mean", error))
    if workload is None:
        inverse = _power(0.5, bands)
        return from_inverse(inverse, steps, made_by("banded_inverse", arguments, "", None))
    asked = workload_of(workload, steps)
    inverse = _inverse_root(asked, bands)
    arguments["workload"] = str(asked)
    return from_inverse(inverse, steps, made_by("banded_inverse", arguments, "", None))


def lambda_cgd(steps: int, cancel: float) -> BandedInverse:
    """DP-lambda-CGD: every step subtracts `cancel` times the last step's fresh noise.

    C^-1 has the coefficients 1 and -cancel; columns are not normalised.
    """
    steps = whole("steps", steps, 1, MAX_COEFFICIENTS)
    cancel = real("cancel", cancel, 0, 1)
    inverse = np.array([1.0, -cancel])[:steps]
    arguments = {"steps": steps, "cancel": cancel}
    return from_inverse(inverse, steps, made_by("lambda_cgd", arguments, "", None))


def _power(exponent: float, bands: int) -> FloatArray:
    """The first coefficients of (1 - x)^exponent: 1, then negative, with a sum above 0."""
    return np.cumprod(np.concatenate([[1.0], 1 - (1 + exponent) / np.arange(1.0, bands)]))


def _inverse_root(workload: Workload, bands: int) -> FloatArray:
    """The first coefficients of A^-1/2, divided by the first."""
    from mmcc.strategies._recurrences import square_root  # compiles

    if not isinstance(workload, ToeplitzWorkload) or not workload.coefficients[0] > 0:
        raise StrategyError(
            f"the banded inverse square root needs a Toeplitz workload with a positive diagonal, "
            f"and {workload} is not one. Pass optimised=True, or use banded or optimal."
        )
    inverse = quotient(np.ones(1), square_root(workload.coefficients[:bands].copy()), bands)
    inverse = np.asarray(inverse / inverse[0])
    if not (inverse[1:] < 0).all():
        raise StrategyError(
            f"the inverse square root of {workload} has later coefficients above 0, so C may "
            "have negative entries, and the amplification proof needs C >= 0. Pass optimised=True."
        )
    return inverse


def best_inverse(
    objective: Objective, bands: int, progress: Progress | None
) -> tuple[FloatArray, float]:
    """The best bands found, and the error that they reach.

    The bands after the first are -q, where q > 0 has a sum below 1: q_m = e^(t_m) / (1 + sum e^t),
    t free. The squared norm of A C^-1 is a form in numerator * inverse.
    """
    from scipy import signal  # takes a while to import, and few need it

    steps, form = objective.steps, objective.form
    impulse = np.eye(1, steps)[0]

    def log_error(logits: FloatArray) -> tuple[float, FloatArray]:
        parts = _parts(logits)
        inverse = np.concatenate([[1.0], -parts])
        c = signal.lfilter([1.0], inverse, impulse)
        twice = signal.lfilter([1.0], inverse, c)
        series = signal.lfilter(inverse, [1.0], form.numerator)
        weighted = form.weighted(series)
        norm, rise = objective.sensitivity(c)
        square = float(weighted @ series)
        slope = np.empty(parts.size)
        for m in range(1, bands):
            of_norm = float(rise[m:] @ twice[: steps - m])
            of_square = float(weighted[m:] @ form.numerator[: steps - m])
            slope[m - 1] = of_norm / norm - of_square / square
        return 0.5 * math.log(norm * square / steps), parts * (slope - float(parts @ slope))

    if bands == 1:
        inverse = np.ones(1)
    else:
        parts = -_power(0.5, bands)[1:]
        start = np.log(parts / (1 - parts.sum()))
        limits = (-FARTHEST, FARTHEST)
        logits, _ = minimise(
            log_error, start, limits, tolerance=TOLERANCE, what="banded_inverse", progress=progress
        )
        inverse = np.concatenate([[1.0], -_parts(logits)])
    series = product(form.numerator, inverse, steps)
    norm = objective.largest(Toeplitz(encoder_coefficients(inverse, steps), steps))
    return inverse, norm * math.sqrt(float(form.weighted(series) @ series) / steps)


def _parts(logits: FloatArray) -> FloatArray:
    """Positive numbers with a sum below 1."""
    powers = np.exp(logits)
    return np.asarray(powers / (1 + powers.sum()))


def rebuild(made: Provenance | None, steps: int, inverse: FloatArray) -> BandedInverse:
    """The encoder that a file describes."""
    return from_inverse(inverse, steps, made)


def from_inverse(inverse: FloatArray, steps: int, provenance: Provenance | None) -> BandedInverse:
    """The encoder whose inverse has these bands."""
    coefficients = encoder_coefficients(inverse, steps)
    return BandedInverse(coefficients, steps, provenance=provenance, inverse=inverse)


def encoder_coefficients(inverse: FloatArray, steps: int) -> FloatArray:
    """The coefficients c_k = sum_m a_m c_{k-m}, rounded up, and raised to 1e-100 if smaller.

    All terms are non-negative, each turn of the recursion makes at most `bands` + 1 roundings, and
    c_k is k turns away from c_0 = 1.
    """
    from scipy import signal  # takes a while to import, and few need it

    steps = whole("steps", steps, 1, MAX_COEFFICIENTS)
    if inverse.ndim != 1 or inverse.size == 0 or inverse.size > steps or inverse[0] != 1:
        raise StrategyError(
            f"the bands of an inverse must be a list of at most {steps} numbers starting with 1, "
            f"got shape {inverse.shape}."
        )
    if inverse.size * steps > MAX_PRODUCTS:
        raise StrategyError(
            f"{inverse.size} bands of an inverse over {steps} steps need more than "
            f"{MAX_PRODUCTS:.0e} products. Use fewer bands or fewer steps."
        )
    if not (np.isfinite(inverse).all() and (inverse[1:] < 0).all()):
        raise StrategyError(
            "the bands of an inverse after the first must be negative numbers: the amplification "
            "proof needs C >= 0."
        )
    if not -inverse[1:].sum() <= 1:
        raise StrategyError("the bands of an inverse must sum to at least 0, or C would grow.")
    if inverse.size == 1:
        return np.ones(1)
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    found = signal.lfilter([1.0], inverse, impulse)
    up = 1.0 + (inverse.size + 2.0) * np.arange(steps) * 2.0**-52
    return np.maximum(found * up, SMALLEST)
