"""What a strategy tells about itself: to a file, and as a call of the function that makes it.

In: facts a strategy knows.  Out: plain tuples; nothing is ever proven from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mmcc._arrays import FloatArray
from mmcc.strategies._registry import Entry

MOST_LISTED = 16
"""Coefficients that are written out in a call; more are known by what made them, or by a file."""


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
    """The shortest text that is read back to the last bit; a description is read back."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
