"""Certified numbers in words: few digits, and still on the side that was proven.

In: a number, how many places.  Out: text.
Rounding: `at_least` never says more than the number, `at_most` never less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

PLACES = 3


def at_least(value: float, places: int = PLACES) -> str:
    """Rounded down to so many places behind the point."""
    return _rounded(value, places, ROUND_FLOOR)


def at_most(value: float, places: int = PLACES) -> str:
    """Rounded up to so many places behind the point."""
    return _rounded(value, places, ROUND_CEILING)


def each_at_least(values: Iterable[float], places: int = PLACES) -> str:
    """All of them, rounded down."""
    return ", ".join(at_least(value, places) for value in values)


def each_at_most(values: Iterable[float], places: int = PLACES) -> str:
    """All of them, rounded up."""
    return ", ".join(at_most(value, places) for value in values)


def _rounded(value: float, places: int, way: str) -> str:
    if not math.isfinite(value):
        return str(float(value))
    return str(Decimal(float(value)).quantize(Decimal(1).scaleb(-places), way))
