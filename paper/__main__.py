"""The command `python -m paper NAME|all`: one study, or all of them.

In: the name of a study and a folder.  Out: files in the folder, and a summary on stdout; progress
and errors on stderr.
Exit codes: 0 done, 2 bad input (one line on stderr says what to do), 130 stopped by the user.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

from mmcc.errors import MmccError, suggestion
from paper import STUDIES, learning
from paper.study import MissingPartError, Progress, Report

ALL = "all"
FOLDER = "reproduction"
OPTIONS = ("--quick", "--out", "--data", "--help")
TRAINED = (learning.STUDY.name,)
"""Studies that need the images of CIFAR-10."""
BAD_INPUT, STOPPED = 2, 130


class UsageError(MmccError):
    """The words typed are not a command."""


class _Parser(argparse.ArgumentParser):
    """Reports errors by raising, so that all mistakes are reported in the same way."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See python -m paper --help.")


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    width = max(map(len, STUDIES))
    listed = "\n".join(f"  {name:<{width}}  {study.title}" for name, study in STUDIES.items())
    found = _Parser(
        prog="python -m paper",
        description="Compute the paper's figures again: a CSV, a picture and a paragraph for each "
        "study.\nA study that was stopped continues where it was.",
        epilog=f"studies:\n{listed}\n  {ALL:<{width}}  every one of them, in this order",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument("name", nargs="?", metavar="NAME|all", help="a study; none: list them")
    found.add_argument("--quick", action="store_true", help="fewer points: minutes in all")
    found.add_argument(
        "--out",
        metavar="DIR",
        default=FOLDER,
        help="folder for the files, default %(default)s; points already there are kept",
    )
    found.add_argument(
        "--data",
        metavar="DIR",
        default=learning.DATA,
        help="cifar10: folder with the images, default %(default)s",
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; return the exit code."""
    try:
        _answer(sys.argv[1:] if arguments is None else arguments)
    except (KeyboardInterrupt, SystemError) as problem:
        if not _interrupted(problem):
            raise
        return _complain("stopped; the same command continues from here.", STOPPED)
    except MmccError as problem:
        return _complain(str(problem), BAD_INPUT)
    except OSError as problem:
        return _complain(f"cannot read or write: {problem.strerror or problem}.", BAD_INPUT)
    return 0


def _interrupted(problem: BaseException | None) -> bool:
    """Whether Ctrl-C is the cause: from a compiled kernel it comes as a SystemError."""
    while problem is not None and not isinstance(problem, KeyboardInterrupt):
        problem = problem.__cause__
    return problem is not None


def _answer(words: Sequence[str]) -> None:
    typed, unknown = parser().parse_known_args(words)
    if unknown:
        if unknown[0].startswith("-"):
            raise UsageError(f"no such option {unknown[0]!r}; {suggestion(unknown[0], OPTIONS)}")
        raise UsageError(f"{unknown[0]!r} is one name too many; give one study, or {ALL}.")
    if typed.name is None:
        parser().print_help()
        return
    if typed.name not in (*STUDIES, ALL):
        raise UsageError(f"unknown study {typed.name!r}; {suggestion(typed.name, (*STUDIES, ALL))}")
    for name in STUDIES if typed.name == ALL else (typed.name,):
        run = partial(learning.cifar10, data=typed.data) if name in TRAINED else STUDIES[name].run
        try:
            _show(run, typed.out, typed.quick)
        except MissingPartError as problem:
            if typed.name != ALL:
                raise
            print(f"{name} left out: {problem}", file=sys.stderr, flush=True)


def _show(run: Callable[..., Report], folder: str, quick: bool) -> None:
    """Run one study, and print its summary."""
    start = time.perf_counter()
    with progress_line() as progress:
        found = run(folder, quick=quick, progress=progress)
    seconds = time.perf_counter() - start
    print(f"{found.name} ({len(found.table)} points, {seconds:.0f} s)")
    for text in (found.paragraph, found.note):
        if text:
            print(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  "))
    print(f"  {', '.join(str(file) for file in found.files)}\n", flush=True)


@contextmanager
def progress_line() -> Iterator[Progress | None]:
    """A callback that shows progress on stderr, or None if nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as line:
        yield lambda what, done: line.update(f"{what}: {done:.0f}")


def _complain(message: str, code: int) -> int:
    print(f"paper: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
