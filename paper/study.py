"""A study: points computed one by one, a CSV, a figure and a paragraph.

In: the points wanted.  Out: NAME.csv, NAME.png and NAME.md in a folder.
Points in the CSV are not computed again, so a study continues where it was stopped; figure and
paragraph show everything in the CSV.  The figure needs matplotlib; without it the rest is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from mmcc.errors import MmccError, ParameterError
from paper.records import Form, Record, Row, Table, named

Progress = Callable[[str, float], None]
"""Called with what is being done, and how many parts of it are done."""
KINDS = ("csv", "png", "md")
"""Extensions of the files that a study writes."""
NO_FIGURE = "no figure was drawn: pip install 'mmcc[plot]' and run the study again."


class MissingPartError(MmccError):
    """A study needs something that is not installed, or data that is not there."""


@dataclass(frozen=True)
class Report:
    """What a study found, and where the files are."""

    name: str
    table: Table
    paragraph: str
    files: tuple[Path, ...]
    note: str = ""
    """What is missing, and what to do about it."""


@dataclass(frozen=True)
class Study:
    """A question asked at many points."""

    name: str
    title: str
    keys: tuple[str, ...]
    """The columns that identify the point of a row."""
    columns: Mapping[str, str]
    """All columns, and what each is: given, certified or estimated."""
    points: Callable[[bool], Sequence[Row]]
    """The points of the quick version (True), a subset of those of the full one (False)."""
    measure: Callable[[Row], Row]
    """Computes the whole row of a point."""
    describe: Callable[[Table], str]
    """Says in words what the numbers show."""
    draw: Callable[[Any, Table], None]
    """Draws the table on an empty matplotlib figure."""
    assumed: str
    """What holds for all certified numbers: adjacency, sampling, inputs."""
    size: tuple[float, float] = (6.4, 4.2)
    """Size of the figure, in inches."""
    words: tuple[str, ...] = ()
    """Columns of words, besides the keys."""
    empty: tuple[str, ...] | None = None
    """Columns that may be empty; None: all but the keys."""

    def run(
        self, folder: str | Path, quick: bool = False, progress: Progress | None = None
    ) -> Report:
        """Compute what is missing and write all files."""
        points = self.points(quick)
        home = _made(Path(folder))
        for kind in KINDS:
            _check_writable(home / f"{self.name}.{kind}")
        record = self.record(home)
        for done, point in enumerate(points):
            if progress is not None:
                progress(f"{self.name}: points of {len(points)}", done)
            # Read again each time: another process may have written meanwhile.
            if self._key(point) not in map(self._key, record.read().rows):
                record.append(self.measure(point))
        return self.report(home)

    def record(self, home: Path) -> Record:
        """The file of this study in a folder."""
        every = (*self.points(False), *self.points(True))
        form = Form(self.keys, every, self.words, self.empty)
        return Record(home / f"{self.name}.csv", tuple(self.columns), form)

    def report(self, home: Path) -> Report:
        """Write figure and paragraph from the CSV."""
        record = self.record(home)
        table = record.read().ordered(*self.keys)
        words, picture = home / f"{self.name}.md", home / f"{self.name}.png"
        paragraph = self.describe(table)
        with named(words, "written"):
            words.write_text(self._page(paragraph), encoding="utf-8")
        if find_spec("matplotlib") is None:
            return Report(self.name, table, paragraph, (record.path, words), NO_FIGURE)
        with named(picture, "written"):
            self._picture(table, picture)
        return Report(self.name, table, paragraph, (record.path, picture, words))

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    def _page(self, paragraph: str) -> str:
        columns = "\n".join(f"| `{name}` | {what} |" for name, what in self.columns.items())
        return (
            f"# {self.title}\n\n{paragraph}\n\n{self.assumed}\n\n"
            f"Columns of `{self.name}.csv`:\n\n| column | what it is |\n|---|---|\n{columns}\n"
        )

    def _picture(self, table: Table, file: Path) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=self.size, layout="constrained")
        self.draw(figure, table)
        figure.savefig(file, dpi=150, metadata={"Software": None})


def _made(folder: Path) -> Path:
    """The folder, created if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if folder.is_symlink() and not folder.exists():
            raise ParameterError(
                f"{str(folder)!r} is a link to {os.readlink(folder)!r}, which is not there. Make "
                "that folder, or choose another."
            ) from None
        raise ParameterError(f"{str(folder)!r} is a file, not a folder to write to.") from None
    except OSError as problem:
        raise ParameterError(
            f"there is no folder {str(folder)!r}, and it cannot be made: "
            f"{problem.strerror or problem}."
        ) from None
    return folder


def _check_writable(file: Path) -> None:
    """Check, before anything is computed, that a file of this name can be written."""
    with named(file, "written"):
        if file.exists():
            with file.open("r+b"):
                return
        with TemporaryFile(dir=file.parent):
            pass
