"""The processes that work on a run: this one alone, or all of a group.

In: what one process has.  Out: what all have together.
Run, loader, optimizer and checkpoint ask here, so their code is the same for one process and for
many; `mmcc.training._distributed` implements the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

ACTS = (
    "optimizer.step",
    "save_checkpoint",
    "load_checkpoint",
    "optimizer.end",
    "a pass of the module",
)
STEPPING, SAVING, LOADING, ENDING, PASSING = ACTS
"""The occasions on which processes meet."""


class Peers(Protocol):
    """The processes of a run.  All of them call each method, in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, counted from 0."""

    @property
    def count(self) -> int:
        """How many processes there are."""

    def seed(self, own: int | None) -> int | None:
        """The seed of process 0; the others take it."""

    def same(self, facts: Mapping[str, str], remedy: str) -> None:
        """Refuse, on all processes, facts that differ between processes."""

    def agreeing(self) -> AbstractContextManager[None]:
        """If this block fails on one process, it fails on all.  It must not contain a meeting."""

    def every(self, value: Any) -> list[Any]:
        """The value of each process, by rank: numbers, text, tensors, lists and dicts of them."""

    def level(self, tensors: Sequence[Any]) -> None:
        """Overwrite the tensors of all processes with the content that they have on process 0."""

    def meet(self, act: str, position: int, replica: Sequence[Any]) -> None:
        """Refuse, on all processes, unless all do the same, at one step, with equal parameters."""

    def any(self, value: bool) -> bool:
        """Whether it is true on one of the processes."""

    def sum(self, sums: Sequence[Any], position: int, replica: Sequence[Any]) -> Sequence[Any]:
        """The sums over all processes, the same bits on each; this is a meeting too."""


class Alone:
    """A single process."""

    rank, count = 0, 1

    def seed(self, own: int | None) -> int | None:
        return own

    def same(self, facts: Mapping[str, str], remedy: str) -> None:
        pass

    def agreeing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def every(self, value: Any) -> list[Any]:
        return [value]

    def level(self, tensors: Sequence[Any]) -> None:
        pass

    def meet(self, act: str, position: int, replica: Sequence[Any]) -> None:
        pass

    def any(self, value: bool) -> bool:
        return value

    def sum(self, sums: Sequence[Any], position: int, replica: Sequence[Any]) -> Sequence[Any]:
        return sums


ALONE = Alone()
