"""Standard streams that never fail, so that the exit code is that of the answer.

In: the streams of the process.  Out: the same, except that a reader that has gone away is not an
error, and characters that the encoding lacks are escaped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, TypeVar, cast

Result = TypeVar("Result")


class Lasting:
    """A text stream that survives its reader, as in `mmcc --help | head`: the rest is discarded.

    Other errors, such as a full disk, are raised once: unwritten text in the buffers would raise
    them again while the interpreter shuts down.
    """

    buffer = None
    """None, so that everything that is written passes through this object."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._done(lambda: self._stream.write(text), len(text))

    def flush(self) -> None:
        self._done(self._stream.flush, None)

    def _done(self, action: Callable[[], Result], otherwise: Result) -> Result:
        try:
            return action()
        except OSError as problem:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._stream.fileno())
            os.close(nothing)
            if not isinstance(problem, BrokenPipeError):
                raise
            return otherwise


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Replace the standard streams by lasting ones."""
    with (
        redirect_stdout(_lasting(sys.stdout)),
        redirect_stderr(_lasting(sys.stderr)),
    ):
        yield


def _lasting(stream: TextIO | None) -> TextIO:
    if stream is None:  # whoever started the program closed it
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return cast(TextIO, Lasting(stream))
