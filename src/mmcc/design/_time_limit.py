"""A time limit for work that reports its progress.

The limit is looked at whenever progress is reported: between evaluations at the latest, so a
cell may take longer by one of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mmcc.accounting._parallel import Progress


class TimeUpError(Exception):
    """A cell took longer than it may; raised from the progress callback."""


@dataclass(eq=False)
class TimeLimit:
    """A progress callback that ends a cell in time."""

    seconds: float
    progress: Progress | None = None
    start: float = field(default_factory=time.perf_counter)

    def __call__(self, what: str, done: float) -> None:
        if self.passed() > self.seconds:
            raise TimeUpError
        if self.progress is not None:
            self.progress(what, done)

    def passed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start
