"""A time limit for work that reports its progress.

The limit is checked whenever progress is reported, at least between evaluations, so a cell may take
longer by one evaluation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mmcc.accounting._parallel import Progress


class TimeUpError(Exception):
    """A cell exceeded its time limit; raised from the progress callback."""


@dataclass(eq=False)
class TimeLimit:
    """A progress callback that raises an error when the time is up."""

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
