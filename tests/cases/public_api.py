"""The public interface as lines of text: every name with its signature, every command's options.

    python tests/cases/public_api.py    # after a deliberate change: writes tests/api/public_api.txt

A line is a promise to scripts that exist.  One that is added is a minor release; one that is
changed or taken away belongs in the CHANGELOG, and to a major release from 1.0 on.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

import mmcc

STORED = Path(__file__).parents[1] / "api" / "public_api.txt"
BESIDES = ("bridge.jax_privacy", "design", "errors")
"""Packages that docs and examples name, though `import mmcc` does not offer them."""
COMMAND_LINE = "mmcc._cli.app"


def modules() -> list[str]:
    """The package, its public packages, and the command line."""
    found = [name for name in mmcc.__all__ if isinstance(getattr(mmcc, name), ModuleType)]
    return ["mmcc", *(f"mmcc.{name}" for name in sorted({*found, *BESIDES})), COMMAND_LINE]


def lines(module: str) -> list[str]:
    """What one module promises."""
    if module == COMMAND_LINE:
        return list(_commands())
    loaded = import_module(module)
    return [line for name in names(loaded) for line in _described(f"{module}.{name}", loaded, name)]


def stored(module: str) -> list[str]:
    """What it promised when the file was written."""
    found: dict[str, list[str]] = {}
    for line in STORED.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            found[line.removeprefix("# ")] = []
        elif line:
            found[list(found)[-1]].append(line)
    return found.get(module, [])


def names(module: ModuleType) -> list[str]:
    """Those of `__all__`; without one, the classes and functions that are written there."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return [
        name
        for name, value in sorted(vars(module).items())
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _described(path: str, module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        yield f"{path}: a module"
    elif isinstance(value, type):
        yield from _class(path, value, {getattr(module, other) for other in _types(module)})
    elif callable(value):
        yield path + _signature(value)
    elif isinstance(value, UnionType):
        yield f"{path} = {value}"
    else:
        yield f"{path}: {type(value).__name__}"


def _types(module: ModuleType) -> list[str]:
    return [name for name in names(module) if isinstance(getattr(module, name), type)]


def _class(path: str, kind: type, public: set[type]) -> Iterator[str]:
    """The constructor, then what the class has beyond its public bases, which have theirs."""
    if issubclass(kind, Exception):
        yield f"{path}: {' and '.join(base.__name__ for base in kind.__bases__)}"
        return
    bases = [base for base in kind.__mro__[1:] if base in public]
    names = ", ".join(base.__name__ for base in bases[:1])
    yield f"{path}{_signature(kind, returns=False)}{f' is a {names}' if names else ''}"
    known = {member for base in bases for member in _members(base)}
    for member in _members(kind):
        if member not in known:
            yield f"{path}.{member}"


def _members(kind: type) -> list[str]:
    fields = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == "mmcc":  # what torch promises is torch's
            found |= inspect.get_annotations(base) | vars(base)
    return [
        name + _member(member)
        for name, member in sorted(found.items())
        if not name.startswith("_") and name not in fields
    ]


def _member(member: Any) -> str:
    if isinstance(member, property):
        return f": {_annotation(inspect.signature(member.fget).return_annotation)}"
    if isinstance(member, (classmethod, staticmethod)):
        return _signature(member.__func__)
    if inspect.isfunction(member):
        return _signature(member)
    return f": {member}" if isinstance(member, str) else ""


def _signature(function: Callable[..., Any], *, returns: bool = True) -> str:
    """As it is written, on one line and without quotes around annotations."""
    signature = inspect.signature(function)
    parameters = [
        p.replace(annotation=_Written(_annotation(p.annotation)))
        if p.annotation is not p.empty
        else p
        for p in signature.parameters.values()
    ]
    result = signature.return_annotation
    bare = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    if not returns or result is signature.empty:
        return bare
    return f"{bare} -> {_annotation(result)}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


class _Written(str):
    """Text whose repr is itself."""

    def __repr__(self) -> str:
        return str(self)


def _commands() -> Iterator[str]:
    """Every option of every command, by its spelling."""
    from mmcc._cli.app import cli

    for name, command in sorted(cli.commands.items()):
        for option in sorted(command.params, key=lambda option: option.opts):
            yield " ".join(("mmcc", name, *option.opts, *option.secondary_opts))


if __name__ == "__main__":
    parts = ("\n".join((f"# {module}", *lines(module))) for module in modules())
    STORED.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
