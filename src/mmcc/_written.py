"""A mechanism as words again: for the command line, and as Python.

In: strategy and scheme objects.  Out: options of `mmcc epsilon`, and expressions.
Numbers are written so that they are read back to the last bit.  A strategy without a name of its
own is known by a file.
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
"""The file of a strategy that has no name and came from no file."""


@dataclass(frozen=True, slots=True)
class Written:
    """A strategy as options and as Python; `file` is where it is kept, if it has no name."""

    options: tuple[str, ...]
    python: str
    file: str | None = None
    note: str = ""


def written_strategy(strategy: Strategy, file: str | None) -> Written:
    """The strategy in words; `file` is where it came from."""
    found = _filed(strategy, file) if file is not None else _called(strategy.call())
    return found or _filed(strategy, None)


def written_scheme(scheme: Scheme) -> Written:
    """The scheme as options and as Python; one from elsewhere has no options."""
    kind = type(scheme)
    values = ", ".join(f"{name}={value!r}" for name, value in scheme.arguments().items())
    if not is_registered(scheme):
        note = (
            f"{kind.__name__} is a sampling scheme of its own, from {kind.__module__}: no command "
            "knows it."
        )
        return Written((), f"{kind.__name__}({values})", note=note)
    options = ["--sampling", scheme.name]
    for name, value in scheme.arguments().items():
        options += [f"--{option_of(name)}", *([] if value is True else [repr(value)])]
    positional = ", ".join(map(repr, scheme.arguments().values()))
    return Written(tuple(options), f"sampling.{kind.__name__}({positional})")


def typed(words: Sequence[str]) -> str:
    """A line for a shell."""
    return " ".join(shlex.quote(word) for word in words)


def printable(name: str, otherwise: str) -> str:
    """The name of a file, or another one for it if it has characters that cannot be shown."""
    return name if name.isprintable() else otherwise


def _called(call: Call | None) -> Written | None:
    """By a constructor and its numbers, where these say all."""
    if call is None:
        return None
    options = ["--strategy", call.entry.name]
    for name, value in call.arguments.items():
        text = ",".join(map(repr, value)) if isinstance(value, list) else repr(value)
        options += [f"--{name}", text]
    inside = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return Written(tuple(options), f"strategies.{call.entry.python}({inside})")


def _filed(strategy: Strategy, file: str | None) -> Written:
    """By a file; a strategy that came from none has to be saved first."""
    name = SAVED if file is None else printable(file, SAVED)
    plain = () if strategy.adaptive else ("--non-adaptive",)
    adaptive = "" if strategy.adaptive else ", adaptive=False"
    note = "" if name == file else f"as saved by mmcc.strategies.save(strategy, {SAVED!r})"
    return Written(("--strategy", name, *plain), f"strategies.load({name!r}{adaptive})", name, note)
