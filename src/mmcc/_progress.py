"""A line on stderr for work that takes a while, where someone sees it.

Work reports in words, with how many pieces of it are finished.  Words made by `so_far` also say
what is known of the answer and how many pieces there will be, so that the time left can be guessed.
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
"""Before this part is done, or so much time has passed, nothing is said about the time left."""


def so_far(known: str, unit: str, total: int, *, about: bool = False) -> str:
    """What is known, to be reported with the number of pieces done: `trial`s of about 8."""
    return f"{known}, {unit}s of {'about ' * about}{total}"


def as_detail(progress: Progress) -> Progress:
    """The callback for work that is one piece of something larger: its own total is left out."""

    def report(what: str, done: float) -> None:
        found = PIECES.match(what)
        progress(found["text"] if found else what, done)

    return report


@dataclass(eq=False)
class Line:
    """The words of the line, from one report to the next."""

    unit: str = ""
    start: float = 0.0
    known: str = ""
    """What is known so far; it stays while details of the next piece go by."""
    part: float | None = None
    """Of all pieces, those that are done."""
    end: float | None = None
    """When it may all be done."""

    def words(self, what: str, done: float, now: float) -> str:
        """What the line says after a report."""
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
    """A rough time: seconds by fives, then minutes."""
    if seconds <= 90:
        return f"{max(5 * math.ceil(seconds / 5), 5)} s"
    return f"{math.ceil(seconds / 60)} min"


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A callback that moves a line on stderr, or None where nobody would see it."""
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
    """What is to be called: a line where someone sees it, nothing for False, or what was given."""
    if progress is None or progress is True:
        with progress_bar() as bar:
            yield bar
    else:
        yield progress or None
