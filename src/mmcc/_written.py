"""A mechanism as text: options of the command line, and Python.

In: strategy and scheme objects.  Out: options of `mmcc epsilon`, and expressions.  Numbers are
written so that they are read back to the last bit.  A strategy without a name is referred to by a
file.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from mmcc.sampling import Scheme
from mmcc.sampling._registry import is_registered, option_of
from mmcc.strategies._base import Strategy
from mmcc.strategies._descriptions import Call

SAVED = "strategy.npz"
"""The file name for a strategy that has no name and came from no file."""


@dataclass(frozen=True, slots=True)
class Written:
    """A strategy or scheme as options and as Python; `file` holds a strategy without a name."""

    options: tuple[str, ...]
    python: str
    file: str | None = None
    note: str = ""


def written_strategy(strategy: Strategy, file: str | None) -> Written:
    """The strategy as text; `file` is the one it came from."""
    found = _filed(strategy, file) if file is not None else _called(strategy.call())
    return found or _filed(strategy, None)


def written_scheme(scheme: Scheme) -> Written:
    """The scheme as options and as Python; a user-defined scheme has no options."""
    kind = type(scheme)
    values = ", ".join(f"{name}={value!r}" for name, value in scheme.arguments().items())
    if not is_registered(scheme):
        note = (
            f"{kind.__name__} is a user-defined sampling scheme, from {kind.__module__}: no "
            "command knows it."
        )
        return Written((), f"{kind.__name__}({values})", note=note)
    options = ["--sampling", scheme.name]
    for name, value in scheme.arguments().items():
        options += [f"--{option_of(name)}", *([] if value is True else [repr(value)])]
    positional = ", ".join(map(repr, scheme.arguments().values()))
    return Written(tuple(options), f"sampling.{kind.__name__}({positional})")


def typed(words: Sequence[str]) -> str:
    """The words as a line for a shell."""
    return " ".join(shlex.quote(word) for word in words)


def printable(name: str, otherwise: str) -> str:
    """The name of a file, or a substitute if it has unprintable characters."""
    return name if name.isprintable() else otherwise


def _called(call: Call | None) -> Written | None:
    """The strategy by its constructor, if the arguments define it completely."""
    if call is None:
        return None
    options = ["--strategy", call.entry.name]
    for name, value in call.arguments.items():
        text = ",".join(map(repr, value)) if isinstance(value, list) else repr(value)
        options += [f"--{name}", text]
    inside = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return Written(tuple(options), f"strategies.{call.entry.python}({inside})")


def _filed(strategy: Strategy, file: str | None) -> Written:
    """The strategy by a file; one that came from none has to be saved first."""
    name = SAVED if file is None else printable(file, SAVED)
    plain = () if strategy.adaptive else ("--non-adaptive",)
    adaptive = "" if strategy.adaptive else ", adaptive=False"
    note = "" if name == file else f"as saved by mmcc.strategies.save(strategy, {SAVED!r})"
    return Written(("--strategy", name, *plain), f"strategies.load({name!r}{adaptive})", name, note)
