"""Reading reprs back: a name with plain values, such as "blt(8, decay=[0.5])".

In: text.  Out: the name and the arguments.  Only literals are evaluated.
"""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

LONGEST = 100_000
"""Most characters of a call that is read."""


class ReadCall(NamedTuple):
    """The name of a function and its arguments."""

    name: str
    values: list[Any]
    named: dict[str, Any]


def looks_like_call(text: str) -> bool:
    """Whether the text is a name with arguments, rather than a word or a file."""
    return re.fullmatch(r"\s*[A-Za-z_.]+\(.*\)\s*", text, flags=re.DOTALL) is not None


def read_call(text: str, package: str) -> ReadCall | None:
    """The call; None if the text is not one, or has values other than literals, such as "..."."""
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
    """The parts between commas outside brackets, stripped of spaces."""
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:])]
