"""Certified numbers in words: few digits, rounded to the side that was proven.

In: a number, how many places.  Out: text.
Rounding: `at_least` and `rounded_down` never print more than the number, `at_most` and `rounded_up`
never less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

PLACES, DIGITS = 3, 6


def at_least(value: float, places: int = PLACES) -> str:
    """Rounded down to this many decimal places."""
    return _rounded(value, places, ROUND_FLOOR)


def at_most(value: float, places: int = PLACES) -> str:
    """Rounded up to this many decimal places."""
    return _rounded(value, places, ROUND_CEILING)


def each_at_least(values: Iterable[float], places: int = PLACES) -> str:
    """All of them, rounded down."""
    return ", ".join(at_least(value, places) for value in values)


def each_at_most(values: Iterable[float], places: int = PLACES) -> str:
    """All of them, rounded up."""
    return ", ".join(at_most(value, places) for value in values)


def rounded_up(value: float) -> str:
    """At most `DIGITS` significant digits, never below the value."""
    text = f"{value:.{DIGITS}g}"
    if not math.isfinite(value) or float(text) >= value:
        return text
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - DIGITS + 1)
    return f"{float(text) + unit:.{DIGITS}g}"


def rounded_down(value: float) -> str:
    """At most `DIGITS` significant digits, never above the value."""
    return rounded_up(-value).removeprefix("-") if value > 0 else f"{value:.{DIGITS}g}"


def _rounded(value: float, places: int, way: str) -> str:
    if not math.isfinite(value):
        return str(float(value))
    return str(Decimal(float(value)).quantize(Decimal(1).scaleb(-places), way))
