"""Names that the shell completes: the values of options, and of the parts of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """The names that begin as the word does; where there is none, the shell looks for files."""
    known = tuple(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


def several_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """The same for the last name of a list such as `identity,binary-tr`."""
    known = tuple(names)

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in known if name.startswith(last)]

    return complete
