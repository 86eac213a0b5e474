"""A privacy loss on a grid: masses at k * spacing, and mass at infinity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, read_only
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

    def push_up(self, error: float) -> GridLoss:
        """Move mass up to pay for a total `error`: relative in the masses, absolute in the losses.

        Every mass grows by 2 error; then, twice, a fraction f = 4 e^h error / (1 - e^-h), h the
        spacing, of each mass moves one grid point up.  This is enough: let a cell have mass p, of
        which `up` was put on its upper point.  The exact value would be at most up + E, with E <= p
        (2 error) / (1 - e^-h), and losses up to `error` above the upper point cost at most a
        further fraction 2 error / (1 - e^-h) of the upper mass one point higher.  The first move
        raises delta(epsilon) at least as much as moving E would have done (at the lower point: f (p
        - up + up e^-h) >= f p e^-h >= E), and the second, which keeps any order between losses,
        pays for the rest.
        """
        fraction = 4.0 * math.exp(self.spacing) * error / -math.expm1(-self.spacing)
        if not fraction <= 0.5:
            raise PrecisionError(
                f"rounding errors of {error:.2g} are too large for a grid of spacing "
                f"{self.spacing:.2g}; floating point cannot certify this number. Use a larger "
                "delta or sigma."
            )
        masses = np.concatenate([self.masses * (1 + 2 * error), [0.0, 0.0]])
        for _ in range(2):
            moved = masses * fraction
            masses -= moved
            masses[1:] += moved[:-1]
        return GridLoss(self.spacing, self.first, masses, self.infinite)
