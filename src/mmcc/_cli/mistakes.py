"""What went wrong, as one line in the words of the command line.

In: an exception.  Out: a sentence or two, or None if the program itself is at fault.
"""

from __future__ import annotations

import re
from typing import Any

from mmcc.errors import MmccError, closest, harmless
from mmcc.sampling._registry import SCHEMES

LONGEST = 1000
"""Of what is said, in letters: a file name may be longer than anybody reads."""


def one_line(problem: Exception) -> str | None:
    """What to tell the user; None where a traceback is the better answer."""
    if isinstance(problem, MmccError):
        text = in_options(str(problem))
    elif isinstance(problem, MemoryError):
        text = "not enough memory for this mechanism; use fewer steps or a structured strategy."
    elif isinstance(problem, OSError):
        where = "" if problem.filename is None else f" {str(problem.filename)!r}"
        text = f"cannot read or write{where}: {problem.strerror or problem}."
    elif hasattr(problem, "format_message"):
        text = _usage(problem)
    else:
        return None
    return harmless(_cut(" ".join(text.split())))


def _cut(text: str) -> str:
    """Without the middle of what is too long."""
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


def in_options(text: str) -> str:
    """The library speaks of arguments and classes, which are options and names here."""
    for entry in SCHEMES.values():  # but what was asked about is shown as it is: Poisson(...)
        text = re.sub(rf"\b{entry.class_name}\b(?!\()", entry.name, text)
    text = re.sub(r"\b(method|order)='(\w+)'", r"--\1 \2", text)
    return text.replace("adaptive=False", "--non-adaptive").replace(
        "mmcc.estimate", "mmcc estimate"
    )


def _usage(problem: Any) -> str:
    """Click's usage errors: an option that there is not, or one without its value."""
    context = getattr(problem, "ctx", None)
    where = getattr(context, "command_path", "mmcc")
    if hasattr(problem, "possibilities"):  # an unknown option
        wrong = str(problem.option_name)
        meant = closest(wrong, _options(context))
        text = f"no such option {wrong}{f'; did you mean {meant}?' if meant else '.'}"
    else:
        text = str(problem.format_message())
        text = text[:1].lower() + text[1:]
    return f"{text} See {where} --help."


def _options(context: Any) -> list[str]:
    if context is None:
        return []
    params = context.command.get_params(context)
    return [name for param in params for name in param.opts if name.startswith("--")]
