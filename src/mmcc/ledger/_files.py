"""Appending to a file without loss, with several processes, each of which may be killed any time.

In: a path, a line to append.  Out: a file with the old content and the new line, or the old alone.

A writer opens the file (created empty if there is none) and takes its lock (`flock`, which the
system releases when its holder dies).  If the path names another file by then, it releases the lock
and starts again.  Otherwise it writes old content and new line to a second file, flushes that to
disk, renames it over the first, and flushes the folder.

Why no line is lost.  Say that a writer is *in* if it holds the lock of the file that the path
names, and has checked that.

1.  While it is in, the path keeps naming that file F: only writers that are in rename or unlink,
    and another one would need the lock of F too.  (While a process has a file open, no other file
    gets its inode number, so equal numbers mean the same file.)  So one writer is in at a time,
    what it has read is all there is when it renames, and the content afterwards is the content
    before plus one line.
2.  From the rename on, the path names a new file, whose content is on disk.  A writer that waited
    for the lock of F notices that, and starts again; one that locks the new file is in, and reads
    the line.  The second file is unlinked, created and renamed by a writer that is in: no two
    write to it.
3.  `append` returns when the folder is flushed: after a power cut the path names the new file or a
    later one, and both have the line.
4.  A writer killed before the rename has changed nothing (but created an empty file if there was
    none); killed afterwards, it has done everything.  A reader sees the file before or after a
    rename: never half a line.

There is no lock file to delete.  If somebody else deletes or replaces the ledger itself during a
write, this is noticed before the rename and the entry is refused, but not in the moment between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mmcc.ledger._entries import LedgerError

FRESH = ".new"
"""The ending of the name of the second file beside a ledger."""
MODE = 0o666
"""The mode of a new ledger, from which the system removes the bits of its mask."""


def content_of(path: Path) -> bytes | None:
    """The whole file; None if there is none."""
    with _in_one_sentence(path, "read"):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def append(path: Path, line: Callable[[bytes], str]) -> None:
    """Append a line made from the content, which nobody else changes meanwhile."""
    path = Path(os.path.realpath(path))  # a rename over a link would detach its target
    with _in_one_sentence(path, "written"):
        if not path.parent.is_dir():
            raise LedgerError(f"there is no folder {str(path.parent)!r} for a ledger; make it.")
        with _locked(path) as held:
            content = held.read()
            added = line(content).encode("ascii")
            _replace(path, held.fileno(), content + added + b"\n")


@contextmanager
def _in_one_sentence(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        where = problem.filename
        beside = f" ({str(where)!r})" if where is not None and str(where) != str(path) else ""
        raise LedgerError(
            f"the ledger {str(path)!r} cannot be {done}: {problem.strerror or problem}{beside}."
        ) from None


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file that the path names, locked; an empty one created here is removed if unused.

    A refused entry then leaves no trace, and nothing is lost: a writer that waits for the lock of
    the file notices that the path no longer names it.
    """
    try:
        import fcntl
    except ImportError:
        raise LedgerError(
            "a ledger needs POSIX file locks, which this system lacks. Write to it from a machine "
            "that has them."
        ) from None
    while True:
        descriptor, made = _opened(path)
        with open(descriptor, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            try:
                if not _named(path, descriptor):
                    continue
                _check_kind(path, descriptor)
                yield held
                return
            except BaseException:
                if made and _named(path, descriptor):
                    os.unlink(path)
                raise
            finally:
                # Closing is not enough if another thread has forked: the child has the handle too.
                fcntl.flock(held, fcntl.LOCK_UN)


def _opened(path: Path) -> tuple[int, bool]:
    """A descriptor of the file, and whether the file was created here."""
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW), False
        with suppress(FileExistsError):
            return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CREAT | os.O_EXCL, MODE), True


def _named(path: Path, held: int) -> bool:
    """Whether the path names the file of this descriptor."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(held))
    except FileNotFoundError:
        return False


def _check_kind(path: Path, held: int) -> None:
    found = os.fstat(held)
    if not stat.S_ISREG(found.st_mode):
        raise LedgerError(f"{str(path)!r} is not a regular file, so it cannot be a ledger.")
    if found.st_nlink > 1:
        raise LedgerError(
            f"the ledger {str(path)!r} has {found.st_nlink} names (hard links), and a new line "
            "would appear under only one of them: keep one, and make the others symbolic links."
        )


def _replace(path: Path, held: int, content: bytes) -> None:
    """Write the content to disk in place of the locked file, with its mode."""
    fresh = path.with_name(path.name + FRESH)
    with suppress(FileNotFoundError):
        os.unlink(fresh)  # left by a killed writer; or a link, which is not followed
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(fresh, flags, 0o600), "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fchmod(handle.fileno(), stat.S_IMODE(os.fstat(held).st_mode))
            os.fsync(handle.fileno())
        if not _named(path, held):
            raise LedgerError(
                f"the ledger {str(path)!r} was deleted or replaced while it was written: nothing "
                "was entered. Put it back, with all its lines, and enter this again."
            )
        os.replace(fresh, path)
    except (OSError, LedgerError):  # not for interruptions, which may come after the rename
        with suppress(OSError):
            os.unlink(fresh)  # nobody needs it, and the disk may be full
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
