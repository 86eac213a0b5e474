"""Families of Toeplitz encoders with few parameters, in which a search moves.

In: a point.  Out: the strategy there, or None outside the limits.  Coordinates are logarithms, so a
step of a given length has about the same effect anywhere.
Rounding: parameters have six digits, so that a strategy can be written down.

Powers are c(x) = ((1 - lam x) / (1 - rho x))^a with 0 <= lam < rho <= 1 and a > 0:

    a = 1           one buffer, 1, w, w rho, w rho^2, ..., w = rho - lam
    a = 1/2, lam = 0, rho = 1     the square root of the prefix sums, continual_counting
    a = 1/2, lam = 0, rho < 1     the same, decaying

All coefficients are non-negative: those of log c are, a (rho^k - lam^k) / k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.strategies._banded_inverse import from_inverse
from mmcc.strategies._blt import blt
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._toeplitz import Toeplitz, toeplitz

LIMITS = ((0.02, 16.0), (-9.0, 9.0), (-2.5, 1.5))
"""Limits of -log(1 - rho), of the log odds of w/rho, and of log a."""
DIGITS = 6
APART = 0.05
"""Least distance between the -log(1 - rho) of two buffers."""
SECOND = (1.5, -2.5)
"""Where a second buffer starts: -log(1 - rho) relative to the first one's, log of its part."""


class Family(Protocol):
    """A family of strategies, indexed by points."""

    def strategy(self, point: Sequence[float] | FloatArray) -> Toeplitz | None:
        """The member at a point; None outside the limits."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Powers for `steps` steps, cut off after `bands` coefficients if that is a number."""

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


@dataclass(frozen=True, slots=True)
class Buffers:
    """BLTs with several buffers.

    Buffer i has (-log(1 - rho_i), log of its part), one after another: w_i / rho_i = e^(x_i) / (1 +
    sum e^x), so that these parts sum to less than 1, as they must.
    """

    steps: int

    def strategy(self, point: Sequence[float] | FloatArray) -> Toeplitz | None:
        depths, logs = np.asarray(point[0::2]), np.asarray(point[1::2])
        (shallow, deep), (small, large) = LIMITS[:2]
        inside = (depths >= shallow) & (depths <= deep) & (logs >= small) & (logs <= large)
        if not inside.all() or (np.diff(np.sort(depths)) < APART).any():
            return None
        decay = np.array([_rounded(-math.expm1(-float(depth))) for depth in depths])
        parts = np.exp(logs) / (1 + np.exp(logs).sum())
        scale = np.array([_rounded_down(float(x)) for x in decay * parts])
        order = np.argsort(decay)
        return blt(self.steps, decay=decay[order], scale=scale[order])

    @staticmethod
    def with_another(point: FloatArray) -> FloatArray:
        """The point with one more buffer: a small one that decays more slowly than all others."""
        depth = min(float(point[0::2].max()) + SECOND[0], LIMITS[0][1])
        return np.concatenate([point, [depth, float(point[1::2].max()) + SECOND[1]]])


@dataclass(frozen=True, slots=True)
class InverseBands:
    """C^-1 = 1 - q_1 x - q_2 x^2 - ... with q_m = e^(t_m) / (1 + sum e^t): a sum below 1."""

    steps: int

    def strategy(self, point: Sequence[float] | FloatArray) -> Toeplitz | None:
        logs = np.asarray(point)
        if not (np.abs(logs) <= LIMITS[1][1]).all() or logs.size >= self.steps:
            return None
        parts = np.exp(logs) / (1 + np.exp(logs).sum())
        inverse = np.array([1.0, *(-_rounded_down(float(part)) for part in parts)])
        return from_inverse(inverse, self.steps, None)


@dataclass(frozen=True, slots=True)
class Bands:
    """Bands given by the logarithms of c_1, c_2, ..., after c_0 = 1."""

    steps: int

    def strategy(self, point: Sequence[float] | FloatArray) -> Toeplitz | None:
        logs = np.asarray(point)
        if not (np.abs(logs) <= LIMITS[1][1]).all() or logs.size >= self.steps:
            return None
        later = [_rounded(math.exp(float(x))) for x in logs]
        return toeplitz([1.0, *later], self.steps)


def coefficients(length: int, power: float, decay: float, other: float) -> FloatArray:
    """Coefficients of ((1 - other x) / (1 - decay x))^power, from its differential equation.

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
    """The value with few digits, so a strategy can be written down; 1 - value keeps them too."""
    if value <= 0.5:
        return float(f"{value:.{DIGITS}g}")
    rest = 1 - value
    return round(1 - rest, DIGITS - 1 - math.floor(math.log10(rest))) if rest > 0 else 1.0


def _rounded_down(value: float) -> float:
    """The value rounded down to few digits, because parts must not sum to more than 1."""
    unit = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    return float(f"{math.floor(value / unit) * unit:.{DIGITS}g}")
