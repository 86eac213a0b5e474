"""Certified numbers in words: a few digits, safely rounded, and how far off the truth may be.

In: numbers as computed.  Out: text.
Rounding: upper ends, noise and deltas up, lower ends down, so a printed interval is never too
narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

DIGITS = 4
"""Significant digits in print."""
OPEN = 1.05
"""If upper over lower exceeds this ratio, the bracket counts as open."""
REMEDIES = "closed_by"
"""The entry of `Guarantee.details` that lists what would close an open bracket."""


def rounded_up(value: float) -> str:
    """The value with at most `DIGITS` significant digits, rounded up."""
    text = f"{value:.{DIGITS}g}"
    if not math.isfinite(value) or float(text) >= value:
        return text
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - DIGITS + 1)
    return f"{float(text) + unit:.{DIGITS}g}"


def rounded_down(value: float) -> str:
    """The value with at most `DIGITS` significant digits, rounded down."""
    return rounded_up(-value).removeprefix("-") if value > 0 else f"{value:.{DIGITS}g}"


def is_open(lower: float, upper: float) -> bool:
    """Whether the lower end is so far away that the reader must be told."""
    return upper > OPEN * lower


def between(lower: float, upper: float, asked: str, remedies: Sequence[str] = ()) -> str:
    """Where the true number lies, and what would close the gap if it is wide."""
    subject = "the least sigma is " if asked == "sigma" else ""
    if upper == lower:
        return f"{subject}{rounded_up(upper)}"
    if lower > 0:
        text = f"{subject}between {rounded_down(lower)} and {rounded_up(upper)}"
    else:
        text = f"{subject}at most {rounded_up(upper)}; nothing is known from below"
    if not is_open(lower, upper):
        return text
    if lower > 0:
        text += f", a factor of {rounded_up(upper / lower)}"
    return f"{text}; to close it: {', or '.join(remedies)}" if remedies else text
