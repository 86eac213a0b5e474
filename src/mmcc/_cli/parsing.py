"""Parsing values: numbers, lists, files.

In: text as it was typed.  Out: numbers, or an error that names the option.
"""

from __future__ import annotations

import math
import os
import re

from mmcc.errors import MmccError

FILES = (".npy", ".npz", ".csv")
A_FILE = f"a {', '.join(FILES)} file"
SMALLEST = 5e-324
NUMBER, WHOLE = "a number such as 0.01, 1e-6 or 1/2048", "a whole number such as 8"


class UsageError(MmccError):
    """Words on the command line that are not a valid question."""


def number(name: str, text: str, needed: str = NUMBER) -> float:
    """A decimal (0.01, 1e-6) or a fraction (1/2048)."""
    try:
        top, _, bottom = text.partition("/")
        value = float(top) / float(bottom) if "/" in text else float(top)
        if value == 0 and re.search("[1-9]", re.split("[eE]", top)[0]):
            raise UsageError(
                f"--{name} {_shortened(text)} is below {SMALLEST:.2g}, the smallest number that "
                "floating point has; use a larger one."
            )
        return value
    except UsageError:
        raise
    except ZeroDivisionError:
        raise UsageError(f"--{name} {text} divides by zero.") from None
    except ValueError:
        raise UsageError(f"--{name} needs {needed}, not {_shortened(text)}.") from None


def whole_number(name: str, text: str) -> int:
    """A whole number, which may be written as 1e6."""
    try:
        return int(text)
    except ValueError:
        value = number(name, text, WHOLE)
    if not (math.isfinite(value) and value.is_integer()):
        raise UsageError(f"--{name} needs {WHOLE}, not {_shortened(text)}.")
    return int(value)


def numbers(name: str, text: str) -> list[float]:
    """Numbers separated by commas."""
    return [number(name, part) for part in text.split(",")]


def names_a_file(name: str) -> bool:
    """Whether a strategy is the name of a file."""
    return name.lower().endswith(FILES) or os.sep in name or os.path.exists(name)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:36]}...")
