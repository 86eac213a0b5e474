"""The errors of mmcc.  Every message is one sentence or two: what, why, what to do.

MmccError (ValueError)
  ParameterError    a number out of range
  StrategyError     a matrix that cannot be analysed, or a file that cannot be read as one
  SamplingError     a scheme that does not fit the strategy
  MethodError       no proof exists for this combination, or a name is unknown
    NothingCertifiedError    a bound applies but proves no finite number at this noise
  PrecisionError    floating point cannot certify the number asked for
  NotVerifiedError  a simulation did not verify what was asked
  RecordError       a record of verdicts that cannot be read, or is inconsistent
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Sequence

SHORTEST_PART = 3
"""Fewest characters of a part that identify a name: `tree` is a part of `binary-tree`."""
MOST_SHOWN = 200
"""Most characters of a value in a message."""


class MmccError(ValueError):
    """Base of all errors raised on purpose."""


class ParameterError(MmccError):
    """A number is out of range."""


class StrategyError(MmccError):
    """A matrix cannot be analysed."""


class SamplingError(MmccError):
    """A sampling scheme does not fit."""


class MethodError(MmccError):
    """No proof exists for this combination, or a name is unknown."""


class NothingCertifiedError(MethodError):
    """A bound applies but proves no finite number at this noise."""


class PrecisionError(MmccError):
    """Floating point cannot certify the number that was asked for."""


class NotVerifiedError(MmccError):
    """A simulation did not verify what was asked; holds what it suggests instead."""

    def __init__(
        self,
        message: str,
        *,
        samples: int = 0,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        super().__init__(message)
        self.samples = samples
        """The number of samples drawn, including the pilot's."""
        self.epsilon = epsilon
        """Roughly the smallest epsilon that would pass at this delta; None if unknown."""
        self.delta = delta
        """Roughly the smallest delta that would pass at this epsilon; None if unknown."""


class RecordError(MmccError):
    """A record of verdicts cannot be read, or is inconsistent."""


def real(name: str, value: object, low: float, high: float, *, closed: str = "") -> float:
    """A float in the interval (low, high), closed at the ends named in `closed`; else an error."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ParameterError(f"{name} must be a number, got {shown(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    above = number >= low if "l" in closed else number > low
    below = number <= high if "h" in closed else number < high
    if not (math.isfinite(number) and above and below):
        left = "[" if "l" in closed else "("
        right = "]" if "h" in closed else ")"
        raise ParameterError(f"{name} must lie in {left}{low:g}, {high:g}{right}, got {number!r}.")
    return number


def whole(name: str, value: object, low: int, high: int) -> int:
    """An integer in [low, high], or an error."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ParameterError(f"{name} must be a whole number, got {shown(value)}.")
    number = int(value)
    if not low <= number <= high:
        raise ParameterError(f"{name} must lie between {low} and {high}, got {shown(number)}.")
    return number


def shown(value: object) -> str:
    """The repr of a value on one line, cut off if it is long."""
    try:
        text = harmless(" ".join(line.strip() for line in repr(value).splitlines()))
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        return f"a {type(value).__name__} that is too long to print"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def harmless(text: str) -> str:
    """Foreign text on one line, without characters that break it or move the cursor."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def suggestion(name: object, known: Sequence[str]) -> str:
    """A hint with the name that was probably meant, and all known names."""
    close = closest(str(name), known)
    meant = f"did you mean {close!r}? " if close else ""
    return f"{meant}choose from {', '.join(known)}."


def closest(name: str, known: Sequence[str], alike: float = 0.6) -> str | None:
    """The known name that was probably meant: mistyped, or a part of the name.

    `alike` is the fraction of characters that must agree.
    """
    spelled = {plain.lower().replace("_", "-"): plain for plain in known}
    typed = name.lower().replace("_", "-")
    near = difflib.get_close_matches(typed, spelled, n=1, cutoff=alike)
    if not near and len(typed) >= SHORTEST_PART:
        near = [plain for plain in spelled if typed in plain][:1]
    return spelled[near[0]] if near else None
