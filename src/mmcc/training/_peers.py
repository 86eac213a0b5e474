"""Who else works on a run: nobody, or the other processes of a group.

In: what one process has.  Out: what all have together.
Run, loader, optimizer and checkpoint ask here, so that they are the same for one process and for
many; `mmcc.training._distributed` has the many.
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
"""What processes meet for."""


class Peers(Protocol):
    """The processes of a run.  All of them call each method, in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0 on."""

    @property
    def count(self) -> int:
        """How many processes there are."""

    def seed(self, own: int | None) -> int | None:
        """The seed of process 0; the others take it."""

    def same(self, facts: Mapping[str, str], remedy: str) -> None:
        """Refuse, on all processes, facts that are not the same on all."""

    def agreeing(self) -> AbstractContextManager[None]:
        """What fails in this block on one process fails on all.  It holds no other meeting."""

    def every(self, value: Any) -> list[Any]:
        """The value of each process, by rank: numbers, text, tensors, lists and dicts of them."""

    def level(self, tensors: Sequence[Any]) -> None:
        """Give the tensors of all processes the content that they have on process 0."""

    def meet(self, act: str, position: int, replica: Sequence[Any]) -> None:
        """Refuse, on all processes, unless all do the same, at one step, with equal parameters."""

    def any(self, value: bool) -> bool:
        """Whether it is so on one of the processes."""

    def sum(self, sums: Sequence[Any], position: int, replica: Sequence[Any]) -> Sequence[Any]:
        """The sums over all processes, the same bits on each; they meet for it."""


class Alone:
    """One process and no other."""

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
