"""A progress line on stderr for long work, shown only if someone can see it.

Work reports in words, with the number of pieces that are finished.  Words made by `so_far` also
state what is known about the answer and how many pieces there will be, so that the time left can be
estimated.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmcc.accounting._parallel import Progress

PIECES = re.compile(r"^(?P<text>.*), (?P<unit>\w+)s of (?P<about>about )?(?P<total>\d+)$")
LEAST_PART, LEAST_SECONDS = 0.1, 2.0
"""No time left is shown before this fraction is done, or this many seconds have passed."""


def so_far(known: str, unit: str, total: int, *, about: bool = False) -> str:
    """Words for a report: what is known, and the total number of pieces, such as trials."""
    return f"{known}, {unit}s of {'about ' * about}{total}"


def as_detail(progress: Progress) -> Progress:
    """The callback for work that is part of a larger task, without its own total."""

    def report(what: str, done: float) -> None:
        found = PIECES.match(what)
        progress(found["text"] if found else what, done)

    return report


@dataclass(eq=False)
class Line:
    """The text of the progress line, updated with every report."""

    unit: str = ""
    start: float = 0.0
    known: str = ""
    """What is known so far, which stays while details of the next piece change."""
    part: float | None = None
    """The fraction of all pieces that is done."""
    end: float | None = None
    """The estimated time at which everything will be done."""

    def words(self, what: str, done: float, now: float) -> str:
        """The text of the line after a report."""
        found = PIECES.match(what)
        if found is None:
            detail = f"{what} {done:.0f}"
            return f"{self.known}{self._left(now)} ({detail})" if self.known else detail
        if found["unit"] != self.unit:
            self.unit, self.start = found["unit"], now
        total = float(found["total"])
        self.part = min(done / total, 1.0) if total else None
        self.known = (
            f"{found['text']}, {found['unit']} {done:.0f} of {found['about'] or ''}{total:.0f}"
        )
        passed = now - self.start
        told = self.part is not None and self.part >= LEAST_PART and passed >= LEAST_SECONDS
        self.end = now + passed * (1 / self.part - 1) if told and self.part else None
        return f"{self.known}{self._left(now)}"

    def _left(self, now: float) -> str:
        return "" if self.end is None else f"; about {in_words(self.end - now)} left"


def in_words(seconds: float) -> str:
    """A rough duration: in steps of five seconds, then in minutes."""
    if seconds <= 90:
        return f"{max(5 * math.ceil(seconds / 5), 5)} s"
    return f"{math.ceil(seconds / 60)} min"


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A callback that updates a line on stderr, or None if nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=16),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        line, last = Line(), -math.inf

        def report(what: str, done: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last < 0.1 and PIECES.match(what) is None:
                return
            last = now
            text = line.words(what, done, now)
            total = None if line.part is None else 1.0
            bar.update(task, description=text, completed=line.part or 0.0, total=total)

        yield report


@contextmanager
def shown(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """The callback to use: a progress line if visible, None for False, or the one given."""
    if progress is None or progress is True:
        with progress_bar() as bar:
            yield bar
    else:
        yield progress or None
