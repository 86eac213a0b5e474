"""How a strategy describes itself: as a record in a file, and as a call of its constructor.

In: facts that a strategy knows.  Out: plain tuples; nothing is ever proven from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mmcc._arrays import FloatArray
from mmcc.strategies._registry import Entry

MOST_LISTED = 16
"""Most coefficients written out in a call; longer lists need their constructor or a file."""


class Record(NamedTuple):
    """What defines a strategy: its kind, whole numbers, and arrays."""

    kind: str
    facts: Mapping[str, int]
    arrays: Mapping[str, FloatArray]


class Call(NamedTuple):
    """A constructor with arguments that make the same strategy again."""

    entry: Entry
    arguments: Mapping[str, int | float | list[float]]


def exact_text(value: float) -> str:
    """A short text that is read back to the last bit, since descriptions are read back."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
