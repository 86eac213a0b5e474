"""How a strategy was made: the constructor, its arguments, the objective it reached.

In: facts that a constructor knows when it is done.  Out: a record that `save` writes to the file.
Nothing is ever proven from it: accounting looks at the matrix alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mmcc.errors import StrategyError, shown
from mmcc.strategies._registry import CONSTRUCTORS

Argument = int | float | str
LONGEST = 100
"""Most characters in the text of an argument."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """`constructor(**arguments)`, by this version; `reached` is the value of `objective`."""

    constructor: str
    arguments: tuple[tuple[str, Argument], ...] = ()
    objective: str = ""
    reached: float | None = None
    version: str = ""

    def __post_init__(self) -> None:
        if self.constructor not in CONSTRUCTORS:
            raise StrategyError(f"unknown strategy constructor {shown(self.constructor)}.")
        for pair in self.arguments:
            if not (len(pair) == 2 and isinstance(pair[0], str)) or not _plain(pair[1]):
                raise StrategyError(
                    f"an argument of a strategy's constructor must be a name with a number or "
                    f"text, got {shown(pair)}."
                )
        if not (isinstance(self.objective, str) and isinstance(self.version, str)):
            raise StrategyError("objective and version of a strategy's provenance must be text.")
        if isinstance(self.reached, str) or not (self.reached is None or _plain(self.reached)):
            raise StrategyError(
                f"the objective reached must be a number, got {shown(self.reached)}."
            )

    def __str__(self) -> str:
        return f"{self.constructor}({', '.join(str(value) for _, value in self.arguments)})"


def _plain(value: object) -> bool:
    if isinstance(value, str):  # it is printed, so control characters are refused
        return value.isprintable() and len(value) <= LONGEST
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def made_by(
    constructor: str, arguments: Mapping[str, Argument], objective: str, reached: float | None
) -> Provenance:
    """The provenance of a strategy made by a constructor of this version."""
    from mmcc import __version__  # mmcc itself is still being imported when this module is

    return Provenance(constructor, tuple(arguments.items()), objective, reached, __version__)
