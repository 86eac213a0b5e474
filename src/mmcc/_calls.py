"""What objects print, read again: a name and plain values, such as "blt(8, decay=[0.5])".

In: text.  Out: the name and the arguments.  Nothing is evaluated but literals.
"""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

LONGEST = 100_000
"""Characters of a call that is read."""


class ReadCall(NamedTuple):
    """A function's name, and its arguments."""

    name: str
    values: list[Any]
    named: dict[str, Any]


def looks_called(text: str) -> bool:
    """Whether this is a name with arguments, and neither a word nor a file."""
    return re.fullmatch(r"\s*[A-Za-z_.]+\(.*\)\s*", text, flags=re.DOTALL) is not None


def read_call(text: str, package: str) -> ReadCall | None:
    """The call; None where it is none, or has values that are no literals, such as "..."."""
    if len(text) > LONGEST:
        return None
    try:
        call = ast.parse(text.strip().removeprefix(f"{package}."), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            return None
        values = [ast.literal_eval(value) for value in call.args]
        named = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    if len(named) != len(call.keywords):  # **more
        return None
    return ReadCall(call.func.id, values, named)


def split_outside_brackets(text: str) -> list[str]:
    """Parts between commas that stand in no brackets, without spaces around them."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:])]
