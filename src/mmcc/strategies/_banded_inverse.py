"""Encoders whose inverse is banded Toeplitz: the noise C^-1 z needs the last few z only.

In: steps and bands.  Out: C = 1 / (1 - a_1 x - ... - a_{b-1} x^{b-1}) with a >= 0, so that C >= 0.
`banded_inverse` keeps the first coefficients of the inverse square root of the prefix sums,
(1 - x)^1/2 = 1 - x/2 - x^2/8 - ... (Kalinin, McKenna, Upadhyay, Lampert 2025).
Rounding: coefficients of C are rounded up.  A larger C, entry by entry, has a larger Gram matrix
and a larger epsilon, so what is proven for them holds for the encoder that `inverse` defines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray, own_arrays
from mmcc.errors import StrategyError, whole
from mmcc.strategies._base import Strategy
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._descriptions import Call, Record
from mmcc.strategies._provenance import Provenance, made_by
from mmcc.strategies._toeplitz import MAX_COEFFICIENTS, Toeplitz

MAX_PRODUCTS = 10**10
"""Of the recursion for the coefficients of C: about ten seconds."""


@dataclass(frozen=True, eq=False, repr=False)
class BandedInverse(Toeplitz):
    """C^-1[i, j] = inverse[i - j] for 0 <= i - j < len(inverse), else 0; `inverse` starts with 1.

    `bands` are those of C, which has no zeros; `inverse_bands` those of C^-1.
    """

    inverse: FloatArray = field(default_factory=lambda: np.ones(1))

    def __post_init__(self) -> None:
        own_arrays(self, "inverse")
        super().__post_init__()
        expected = encoder_coefficients(self.inverse, self.length)
        if not np.array_equal(self.coefficients, expected):
            raise StrategyError(
                "coefficients are not those of the inverse of the bands given; make the strategy "
                "with banded_inverse."
            )

    @property
    def inverse_bands(self) -> int:
        """Diagonals of C^-1 that are not zero: vectors of noise to be kept, the newest included."""
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


def banded_inverse(steps: int, bands: int) -> BandedInverse:
    """The banded inverse square root of the prefix sums: C^-1 has so many bands."""
    steps = whole("steps", steps, 1, 10**12)
    bands = whole("bands", bands, 1, steps)
    if steps > MAX_COEFFICIENTS:
        raise StrategyError(
            f"banded_inverse({steps}, {bands}) keeps a coefficient for each step; at most "
            f"{MAX_COEFFICIENTS} steps."
        )
    inverse = np.cumprod(np.concatenate([[1.0], 1 - 1.5 / np.arange(1.0, bands)]))
    arguments = {"steps": steps, "bands": bands}
    return from_inverse(inverse, steps, made_by("banded_inverse", arguments, "", None))


def rebuild(made: Provenance | None, steps: int, inverse: FloatArray) -> BandedInverse:
    """The encoder that a file describes."""
    return from_inverse(inverse, steps, made)


def from_inverse(inverse: FloatArray, steps: int, provenance: Provenance | None) -> BandedInverse:
    """The encoder whose inverse has these bands."""
    coefficients = encoder_coefficients(inverse, steps)
    return BandedInverse(coefficients, steps, provenance=provenance, inverse=inverse)


def encoder_coefficients(inverse: FloatArray, steps: int) -> FloatArray:
    """c_k = sum_m a_m c_{k-m}, rounded up, and to 1e-100 where they would be smaller.

    All terms are non-negative, each turn of the recursion makes at most `bands` + 1 roundings, and
    c_k is k turns away from c_0 = 1.
    """
    from scipy import signal  # takes a while to import, and few need it

    steps = whole("steps", steps, 1, MAX_COEFFICIENTS)
    if inverse.ndim != 1 or inverse.size == 0 or inverse.size > steps or inverse[0] != 1:
        raise StrategyError(
            f"the bands of an inverse are a list of at most {steps} numbers that starts with 1, "
            f"got shape {inverse.shape}."
        )
    if inverse.size * steps > MAX_PRODUCTS:
        raise StrategyError(
            f"{inverse.size} bands of an inverse over {steps} steps are more than "
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
