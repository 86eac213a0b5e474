"""What a bound says about each adjacency.

In: numbers of the same kind (all epsilons at one delta, or all deltas at one epsilon).
Rounding: none here; the methods that fill it in round up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sides:
    """Certified upper bounds for both adjacencies, each of them for every group of examples."""

    remove: float
    add: float
    group: int = 0
    """The group that has the larger of the two."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """How the bound came about: shown to users, never computed with."""

    @property
    def value(self) -> float:
        """The larger of the two: what is promised."""
        return max(self.remove, self.add)
