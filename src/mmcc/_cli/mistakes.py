"""Error messages: one line, in the terms of the command line.

In: an exception.  Out: a sentence or two, or None if the program itself is at fault.
"""

from __future__ import annotations

import re
from typing import Any

from mmcc.errors import MmccError, closest, harmless
from mmcc.sampling._registry import SCHEMES

LONGEST = 1000
"""The most characters of a message: file names can be longer than anyone would read."""
ALIKE = 0.7
"""How similar two options must be, ignoring hyphens, for one to be suggested for the other."""
MEANT: dict[str, tuple[str, ...]] = {
    "noise": ("sigma",),
    "noise-multiplier": ("sigma",),
    "noise-scale": ("sigma",),
    "std": ("sigma",),
    "eps": ("epsilon",),
    "target-epsilon": ("epsilon",),
    "target-delta": ("delta",),
    "prob": ("rate",),
    "probability": ("prob", "rate"),
    "p": ("prob", "rate"),
    "q": ("prob", "rate"),
    "sampling-rate": ("prob", "rate"),
    "sample-rate": ("prob", "rate"),
    "sampling-probability": ("prob", "rate"),
    "rate": ("prob",),
    "strategy": ("strategies",),
    "strategies": ("strategy",),
    "mechanism": ("strategy", "strategies"),
    "sampling": ("schemes",),
    "scheme": ("sampling", "schemes"),
    "schemes": ("sampling",),
    "batch": ("batch-size", "prob", "rate"),
    "batch-size": ("batch", "prob", "rate"),
    "epochs": ("steps",),
    "iterations": ("steps",),
    "n": ("steps",),
    "output": ("out", "plot"),
    "file": ("out", "plot"),
    "figure": ("plot",),
    "png": ("plot",),
}
"""Options by the names that other tools give them; the first that a command has is suggested."""
NOTES = {
    "noise-multiplier": "--sigma is in clip norms: the noise multiplier times the sensitivity, "
    "which is 1 for DP-SGD.",
    "batch-size": "The probability is the batch size divided by the number of examples.",
    "epochs": "The number of steps is the epochs times the batches in an epoch.",
}


def one_line(problem: Exception) -> str | None:
    """The message for the user; None if a traceback is the better answer."""
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
    """The text, without its middle if it is too long."""
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[:half]} ... {text[-half:]}"


def in_options(text: str) -> str:
    """The message with options and names instead of the library's arguments and classes."""
    for entry in SCHEMES.values():  # but what was asked about is shown as it is: Poisson(...)
        text = re.sub(rf"\b{entry.class_name}\b(?!\()", entry.name, text)
    text = re.sub(r"\b(method|order)='(\w+)'", r"--\1 \2", text)
    return text.replace("adaptive=False", "--non-adaptive").replace(
        "mmcc.estimate", "mmcc estimate"
    )


def _usage(problem: Any) -> str:
    """Click's usage errors: an unknown option, or one without its value."""
    context = getattr(problem, "ctx", None)
    where = getattr(context, "command_path", "mmcc")
    if hasattr(problem, "possibilities"):  # an unknown option
        text = _unknown(str(problem.option_name), context)
    else:
        text = str(problem.format_message())
        text = text[:1].lower() + text[1:]
    return f"{text} See {where} --help."


def _unknown(typed: str, context: Any) -> str:
    """The message for an unknown option: what was probably meant, and why."""
    if not typed.startswith("--"):
        return f"no such option {typed}."
    name, options = typed.removeprefix("--").replace("_", "-"), _options(context)
    asked = getattr(context, "info_name", None)
    if asked in (name, *MEANT.get(name, ())):
        return f"no such option {typed}: {asked} is what this command computes; leave it out."
    known = [option.removeprefix("--") for option in options]
    meant = next((other for other in MEANT.get(name, ()) if other in known), None)
    note = f" {NOTES[name]}" if meant and name in NOTES else ""
    meant = meant or closest(name, known, ALIKE)
    return f"no such option {typed}{f'; did you mean --{meant}?{note}' if meant else '.'}"


def _options(context: Any) -> list[str]:
    if context is None:
        return []
    params = context.command.get_params(context)
    return [name for param in params for name in param.opts if name.startswith("--")]
