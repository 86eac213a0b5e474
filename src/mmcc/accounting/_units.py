"""A guarantee in all units, for print, JSON and reports.

In: a guarantee with its mechanism.  Out: `Units`.  Rounding: upwards, in print too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmcc.accounting._guarantee import FLOOR, Guarantee, rounded_up

RATES = (1e-3, 1e-2, 1e-1)
"""False positive rates for which the true positive rate is bounded."""
UNAMPLIFIED = "unamplified: no use of sampling"


@dataclass(frozen=True, slots=True)
class Units:
    """Certified numbers of one mechanism; each holds on its own."""

    mu: float
    """Mu of Gaussian differential privacy, up to a delta of `floor`."""
    floor: float
    unamplified_mu: float
    """Mu of Gaussian differential privacy, without a floor."""
    rho: float
    """Rho of zero-concentrated differential privacy, without amplification."""
    advantage: float
    powers: tuple[tuple[float, float], ...]
    """Pairs of a false positive rate and the largest true positive rate at it."""

    def rows(self) -> list[tuple[str, str, str]]:
        """Rows of the unit's name, the number, and what it means or assumes."""
        floored = f"at every epsilon, plus a delta of {self.floor:g}"
        return [
            ("mu of Gaussian DP, up to a floor", rounded_up(self.mu), floored),
            ("mu of Gaussian DP, no floor", rounded_up(self.unamplified_mu), UNAMPLIFIED),
            ("rho of zCDP", rounded_up(self.rho), UNAMPLIFIED),
            (
                "advantage of an attack",
                rounded_up(self.advantage),
                "true minus false positive rate, at most",
            ),
            *(
                (
                    f"true positive rate at {rate:g}",
                    rounded_up(power),
                    "at most, for attacks with that false positive rate",
                )
                for rate, power in self.powers
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {
            "gdp": {"mu": self.mu, "floor": self.floor},
            "gdp_without_floor": {"mu": self.unamplified_mu, "amplified": False},
            "zcdp": {"rho": self.rho, "amplified": False},
            "advantage": self.advantage,
            "true_positive_rates": [
                {"false_positive_rate": rate, "true_positive_rate": power}
                for rate, power in self.powers
            ],
        }


def units_of(found: Guarantee, floor: float = FLOOR) -> Units:
    """The guarantee in every unit, by a few dozen questions about its mechanism."""
    return Units(
        mu=found.gdp(floor),
        floor=floor,
        unamplified_mu=found.gdp(0),
        rho=found.zcdp(),
        advantage=found.advantage(),
        powers=tuple((rate, found.true_positive_rate(rate)) for rate in RATES),
    )
