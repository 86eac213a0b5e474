"""Buffered linear Toeplitz encoders (BLTs): C[i, j] = c[i - j], c_0 = 1, then sums of powers.

c(x) = 1 + x sum_i scale_i / (1 - decay_i x) = prod (1 - lam_i x) / prod (1 - decay_i x), so the
noise C^-1 z needs one vector of memory per buffer, whatever the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, own_arrays, real_array
from mmcc.errors import ParameterError, StrategyError, suggestion, whole
from mmcc.sampling._participations import MAX_STEPS
from mmcc.sampling._unsampled import Limits
from mmcc.strategies._blt_optimum import (
    best_buffers,
    best_buffers_for,
    buffers_error,
    prefix_error,
)
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._descent import Progress, check_progress
from mmcc.strategies._descriptions import MOST_LISTED, Call, Record, exact_text
from mmcc.strategies._provenance import Argument, Provenance, made_by
from mmcc.strategies._registry import BLT, OBJECTIVES
from mmcc.strategies._toeplitz import MAX_COEFFICIENTS, Toeplitz
from mmcc.strategies._toeplitz_objective import objective_of
from mmcc.strategies._workloads import Workload

MAX_BUFFERS = 1000
MAX_OPTIMISED = 12
"""Buffers beyond these no longer reduce the error of prefix sums, even for 10^7 steps."""
HUGE = 1e300
"""Larger than any sum that is allowed, yet sums of such numbers do not overflow."""


@dataclass(frozen=True, eq=False, repr=False)
class BufferedToeplitz(Toeplitz):
    """The encoder with coefficients 1, then sum_i scale_i decay_i^(k-1).

    `coefficients` are rounded up, and raised to 1e-100 where they would be smaller.  A larger
    C, entry by entry, has a larger Gram matrix and a larger epsilon, so what is proven for them
    holds for the encoder that `decay` and `scale` define.
    """

    decay: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        own_arrays(self, "decay", "scale")
        check_buffers(self.decay, self.scale)
        super().__post_init__()
        if not np.array_equal(self.coefficients, power_sums(self.length, self.decay, self.scale)):
            raise StrategyError(
                "coefficients do not belong to the given decay and scale; make the strategy with "
                "blt."
            )

    @property
    def buffers(self) -> int:
        """The number of buffers, that is, of noise vectors to keep."""
        return self.decay.size

    def prefix(self, steps: int) -> BufferedToeplitz:
        """The same buffers over fewer steps."""
        steps = whole("steps", steps, 1, self.length)
        return from_buffers(steps, self.decay, self.scale, None)

    @property
    def buffer_numbers(self) -> tuple[FloatArray, FloatArray]:
        return self.decay, self.scale

    @property
    def excess(self) -> int:
        return 4 * (self.buffers + 4)

    def defining(self) -> tuple[Any, ...]:
        return ("blt", self.length, self.decay, self.scale)

    def record(self) -> Record:
        return Record("blt", {"steps": self.length}, {"decay": self.decay, "scale": self.scale})

    def call(self) -> Call | None:
        if self.buffers > MOST_LISTED:
            return None
        decay, scale = self.decay.tolist(), self.scale.tolist()
        return Call(BLT, {"steps": self.length, "decay": decay, "scale": scale})

    def __repr__(self) -> str:
        decay, scale = (", ".join(map(exact_text, part)) for part in (self.decay, self.scale))
        return f"blt({self.length}, decay=[{decay}], scale=[{scale}])"


@dataclass(frozen=True, eq=False, repr=False)
class Blt(BufferedToeplitz):
    """One buffer: c = 1, w, w rho, w rho^2, ...

    It is a separate class because the reveal bounds lose nothing here: a chain has the same Gram
    matrix.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffers != 1:
            raise StrategyError(f"a Blt has one buffer, got {self.buffers}; make several with blt.")

    @property
    def geometric(self) -> bool:
        return True

    def record(self) -> Record:
        return super().record()


def blt(
    steps: int,
    buffers: int | None = None,
    *,
    decay: Sequence[float] | FloatArray | None = None,
    scale: Sequence[float] | FloatArray | None = None,
    objective: str = "mean",
    workload: ArrayLike | Workload | None = None,
    participations: Limits | None = None,
    progress: Progress | None = None,
) -> BufferedToeplitz:
    """A BLT, either optimised (with one buffer by default) or given by its decay and scale.

    Optimised means the smallest error of prefix sums at one participation: with "mean", the largest
    column norm * |A C^-1|_F / sqrt(n); with "max", the largest column norm * the largest row norm
    of A C^-1.  A workload (docs/workloads.md) replaces the prefix sums, and `Unsampled(separation,
    at_most)` the single participation.  Scale and 1 - decay are rounded to six digits.
    """
    steps = whole("steps", steps, 1, MAX_STEPS)
    check_progress(progress)
    if steps > MAX_COEFFICIENTS:
        raise StrategyError(
            f"blt({steps}) stores a coefficient per step, for at most {MAX_COEFFICIENTS} steps."
        )
    if objective not in OBJECTIVES:
        raise ParameterError(
            f"unknown objective {objective!r}; {suggestion(objective, OBJECTIVES)}"
        )
    if (decay is None) != (scale is None):
        raise StrategyError("a BLT needs decay and scale together, one number per buffer.")
    if decay is None or scale is None:
        count = 1 if buffers is None else whole("buffers", buffers, 1, MAX_OPTIMISED)
        arguments: dict[str, Argument] = {"steps": steps, "buffers": count, "objective": objective}
        if workload is None and participations is None:
            decays, scales = best_buffers(steps, count, objective, progress)
            error = prefix_error(steps, decays, scales, objective)
        else:
            asked = objective_of(steps, workload, participations, objective)
            decays, scales = best_buffers_for(asked, count, progress)
            error = buffers_error(asked, decays, scales)
            arguments |= asked.extra
        made = made_by("blt", arguments, objective, error)
        return from_buffers(steps, decays, scales, made)
    if workload is not None or participations is not None:
        raise StrategyError(
            "decay and scale are given, so nothing is optimised: leave workload out."
        )
    decays, scales = real_array("decay", decay), real_array("scale", scale)
    if buffers is not None and whole("buffers", buffers, 1, MAX_BUFFERS) != decays.size:
        raise StrategyError(
            f"buffers={buffers} but decay has {decays.size} numbers: leave one out."
        )
    return from_buffers(steps, decays, scales, None)


def from_buffers(
    steps: int, decay: FloatArray, scale: FloatArray, provenance: Provenance | None
) -> BufferedToeplitz:
    """The BLT with these numbers, one decay and one scale per buffer."""
    check_buffers(decay, scale)
    kind = Blt if decay.size == 1 else BufferedToeplitz
    coefficients = power_sums(steps, decay, scale)
    return kind(coefficients, steps, provenance=provenance, decay=decay, scale=scale)


def rebuild(
    made: Provenance | None, steps: int, decay: FloatArray, scale: FloatArray
) -> BufferedToeplitz:
    """The encoder that a saved file describes."""
    return from_buffers(steps, decay, scale, made)


def check_buffers(decay: FloatArray, scale: FloatArray) -> None:
    """Raise an error for numbers that do not make a stable encoder.

    With scale > 0 the zeros lam_i of c interlace the decays from below, and the smallest is not
    negative if and only if sum scale_i / decay_i <= 1.
    """
    if decay.ndim != 1 or decay.shape != scale.shape or not 0 < decay.size <= MAX_BUFFERS:
        raise StrategyError(
            f"decay and scale must be lists of the same length, one number per buffer (at most "
            f"{MAX_BUFFERS}); got shapes {decay.shape} and {scale.shape}."
        )
    for value in decay[~((decay > 0) & (decay < 1))]:
        raise StrategyError(
            f"decay must lie in (0, 1), got {float(value)!r}: older noise must fade."
        )
    for value in scale[~((scale > 0) & (scale <= 1))]:
        raise StrategyError(
            f"scale must lie in (0, decay], got {float(value)!r}: a negative scale may make "
            "entries of C negative, and a larger one makes the noise of later steps grow."
        )
    with np.errstate(over="ignore"):
        total = math.fsum(np.minimum(scale / decay, HUGE))
    if not total <= 1:
        raise StrategyError(
            f"scale over decay, summed over the buffers, must be at most 1, got {total:g}: a "
            "larger scale makes the noise of later steps grow."
        )


def power_sums(steps: int, decay: FloatArray, scale: FloatArray) -> FloatArray:
    """1, then sum_i scale_i decay_i^(k-1), rounded up: a power errs by at most two units."""
    steps = whole("steps", steps, 1, MAX_COEFFICIENTS)
    exponents = np.arange(steps - 1.0)
    later = np.zeros(steps - 1)
    for rho, weight in zip(decay, scale, strict=True):
        later += weight * rho**exponents
    later *= 1 + (3 + decay.size) * 2.0**-52
    return np.concatenate([[1.0], np.maximum(later, SMALLEST)])
