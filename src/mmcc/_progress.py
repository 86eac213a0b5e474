"""A bar on stderr for work that takes a while, where somebody sees it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmcc.accounting._parallel import Progress


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A callback that moves a bar on stderr, or None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed:.0f}"),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        last = -math.inf

        def report(what: str, done: float) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= 0.1:
                last = now
                bar.update(task, description=what, completed=done)

        yield report


@contextmanager
def shown(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """What is to be called: a bar where somebody sees it, nothing for False, or what was given."""
    if progress is None or progress is True:
        with progress_bar() as bar:
            yield bar
    else:
        yield progress or None
