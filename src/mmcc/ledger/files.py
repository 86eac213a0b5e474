"""Appending so that nothing is lost: by several processes at once, and killed at any moment.

In: a path, what to append.  Out: the file has the old content and the new line, or the old alone.

A lock (`flock` on a file beside it, freed by the system when its holder dies) lets one writer in at
a time.  It writes old content and new line to a second file, flushes that to disk, renames it
over the first, and flushes the folder.  A reader sees the file before or after the rename: a
half line cannot be seen.  Once `append` has returned, the line is on disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mmcc.ledger.entries import LedgerError

LOCK, FRESH = ".lock", ".new"
"""What the names of the two files beside a ledger end in."""


def content_of(path: Path) -> bytes | None:
    """The whole file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def append(path: Path, line: Callable[[bytes | None], str]) -> None:
    """Append the line made from the content, which nobody else changes meanwhile."""
    path = Path(os.path.realpath(path))  # a rename over a link would leave its target behind
    if not path.parent.is_dir():
        raise LedgerError(f"there is no folder {str(path.parent)!r} for a ledger; make it first.")
    with _locked(path):
        content = content_of(path)
        added = line(content).encode("ascii")
        _replace(path, (content or b"") + added + b"\n")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        raise LedgerError(
            "a ledger needs file locks as POSIX has them, which this system lacks. Write it from "
            "a machine that has them."
        ) from None
    with open(path.with_name(path.name + LOCK), "ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing would not do if another thread has forked: the child has the handle too.
            fcntl.flock(handle, fcntl.LOCK_UN)


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_name(path.name + FRESH)  # a killed writer's is overwritten by the next
    with open(fresh, "wb") as handle:
        handle.write(content)
        handle.flush()
        if path.exists():
            shutil.copymode(path, fresh)
        os.fsync(handle.fileno())
    os.replace(fresh, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
