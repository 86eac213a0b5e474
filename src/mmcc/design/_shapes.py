"""Families of Toeplitz encoders with few parameters, for searching.

In: coordinates of a search, all of them free real numbers.  Out: a strategy, C >= 0, diagonal 1.
Rounding: none; whatever coefficients come out are the strategy, and are certified as such.

Shapes are c(x) = ((1 - lam x) / (1 - rho x))^a with 0 <= lam < rho <= 1 and a > 0:

    a = 1           one buffer, 1, w, w rho, w rho^2, ..., w = rho - lam
    a = 1/2, lam = 0, rho = 1     the square root of the prefix sums, continual_counting
    a = 1/2, lam = 0, rho < 1     the same, fading

All coefficients are non-negative: those of log c are, a (rho^k - lam^k) / k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.strategies._blt import blt
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._toeplitz import Toeplitz, toeplitz

LIMITS = ((0.02, 16.0), (-9.0, 9.0), (-2.5, 1.5))
"""Of -log(1 - rho), of the log odds of w/rho, and of log a."""
DIGITS = 6


@dataclass(frozen=True, slots=True)
class Shapes:
    """The family for so many steps, cut off after `bands` coefficients if that is a number."""

    steps: int
    bands: int | None = None

    def strategy(self, point: Sequence[float] | FloatArray) -> Toeplitz | None:
        """The member at (-log(1 - rho), log odds of w/rho[, log a]); None outside the limits.

        Without a third coordinate a = 1: a BLT with one buffer, unless it is cut off.
        """
        if not all(low <= x <= high for x, (low, high) in zip(point, LIMITS, strict=False)):
            return None
        decay = _rounded(-math.expm1(-float(point[0])))
        scale = min(_rounded(decay / (1 + math.exp(-float(point[1])))), decay)
        if len(point) == 2 and self.bands is None:
            return blt(self.steps, decay=[decay], scale=[scale])
        power = 1.0 if len(point) == 2 else _rounded(math.exp(float(point[2])))
        length = self.steps if self.bands is None else min(self.bands, self.steps)
        return toeplitz(coefficients(length, power, decay, decay - scale), self.steps)


def coefficients(length: int, power: float, decay: float, other: float) -> FloatArray:
    """Of ((1 - other x) / (1 - decay x))^power, from the differential equation of the power.

    (1 - rho x) (1 - lam x) c' = a (rho - lam) c gives
    k c_k = ((rho + lam) (k - 1) + a (rho - lam)) c_{k-1} - rho lam (k - 2) c_{k-2}.
    """
    series = [1.0, power * (decay - other)][:length]
    for k in range(2, length):
        slope = (decay + other) * (k - 1) + power * (decay - other)
        series.append((slope * series[-1] - decay * other * (k - 2) * series[-2]) / k)
    found = np.array(series)
    return np.where(found < SMALLEST, 0.0, found)


def _rounded(value: float) -> float:
    """A few digits, so that a strategy can be written down; 1 - value keeps them too."""
    near_one = 1 - float(f"{1 - value:.{DIGITS}g}")
    return near_one if value > 0.5 else float(f"{value:.{DIGITS}g}")
