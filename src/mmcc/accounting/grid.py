"""A privacy loss on a grid: masses at k * spacing, and mass at infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc.arrays import FloatArray, read_only
from mmcc.errors import PrecisionError


@dataclass(frozen=True, eq=False, slots=True)
class GridLoss:
    """Mass `masses[i]` at loss (first + i) * spacing, `infinite` at infinity.

    The masses may add up to a little more than one: they are upper bounds, and delta(epsilon) =
    infinite + sum of masses times (1 - e^(epsilon - loss))_+ only grows with them.
    """

    spacing: float
    first: int
    masses: FloatArray
    infinite: float

    def __post_init__(self) -> None:
        read_only(self.masses)

    @property
    def losses(self) -> FloatArray:
        """The grid points."""
        places = np.arange(self.first, self.first + self.masses.size, dtype=np.float64)
        return places * self.spacing

    def pushed_up(self, error: float) -> GridLoss:
        """Pay for a relative error of the masses, and an absolute one of the losses, of `error`.

        Every mass grows by 2 error, and a fraction 8 error / (1 - e^-spacing) of it moves one
        grid point up.  A cell's split between its two points is off by at most
        2 error / (1 - e^-spacing) of the cell's mass, its losses lie at most `error` outside the
        cell, and one of the two points holds at least half the mass: what moves up from there
        raises delta(epsilon) by more than the errors can have lowered it, at every epsilon.
        """
        fraction = 8.0 * error / -math.expm1(-self.spacing)
        if not fraction <= 0.5:
            raise PrecisionError(
                f"rounding errors of {error:.2g} are too large for a grid of spacing "
                f"{self.spacing:.2g}. Use a larger delta, or a larger spacing."
            )
        masses = np.append(self.masses, 0.0) * (1 + 2 * error)
        moved = masses * fraction
        masses -= moved
        masses[1:] += moved[:-1]
        return GridLoss(self.spacing, self.first, masses, self.infinite)
