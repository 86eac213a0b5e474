"""A table that grows point by point, in a CSV from which an interrupted study continues.

In: rows, one at a time.  Out: a file with one line per row, written as it comes; tables to draw.
Rounding: numbers are written with all their digits, so bounds stay bounds.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mmcc.errors import ParameterError

FloatArray = NDArray[np.float64]
Row = Mapping[str, Any]
"""Numbers and words by column; None where there is no answer."""


@dataclass(frozen=True)
class Table:
    """Rows of a study, in the order of the file."""

    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> FloatArray:
        """A column of numbers; NaN where a cell is empty."""
        cells = (row[column] for row in self.rows)
        return np.array([math.nan if cell is None else cell for cell in cells], dtype=np.float64)

    def where(self, **same: object) -> Table:
        """The rows that have these values."""
        return Table(
            tuple(
                row for row in self.rows if all(row[name] == value for name, value in same.items())
            )
        )

    def having(self, *columns: str) -> Table:
        """The rows that have an answer in all these columns."""
        return Table(
            tuple(row for row in self.rows if all(row[name] is not None for name in columns))
        )

    def ordered(self, *columns: str) -> Table:
        """Sorted by these columns."""
        return Table(tuple(sorted(self.rows, key=lambda row: [row[name] for name in columns])))

    def values(self, column: str) -> list[Any]:
        """The different values of a column, in the order in which they appear."""
        return list(dict.fromkeys(row[column] for row in self.rows))

    def only(self, **same: object) -> Row | None:
        """The row that has these values; None if it was not computed."""
        found = self.where(**same).rows
        return found[0] if found else None


@dataclass(frozen=True)
class Form:
    """The form that lines of a study must have."""

    keys: tuple[str, ...]
    """The columns that identify the point of a row."""
    points: tuple[Row, ...]
    """All points of the study."""
    words: tuple[str, ...] = ()
    """Columns of words, besides the keys; all others are numbers."""
    empty: tuple[str, ...] | None = None
    """Columns that may be empty; None: all but the keys."""

    def key(self, row: Row) -> tuple[Any, ...]:
        """The point of a row; numbers compare as numbers, 20.0 is 20."""
        return tuple(row[name] for name in self.keys)

    def checked(self, row: Row, known: Mapping[tuple[Any, ...], Row]) -> Row:
        """The row, its point in the words of the study; ValueError says what is wrong."""
        point = known.get(self.key(row))
        if point is None:
            said = ", ".join(
                f"{name} = {'' if (v := row[name]) is None else v}" for name in self.keys
            )
            raise ValueError(f"{said} is not a point of this study")
        for name, value in row.items():
            if name in self.keys:
                continue
            if value is None:
                if self.empty is not None and name not in self.empty:
                    raise ValueError(f"{name} is empty")
            elif name not in self.words and (isinstance(value, str) or math.isnan(value)):
                raise ValueError(f"{name} is {str(value)!r}, not a number")
        return {**row, **point}


@dataclass(frozen=True)
class Record:
    """The file of a study: a header, then one line a row.

    Several processes may append to it: the file is locked if the system has `flock`.
    """

    path: Path
    columns: tuple[str, ...]
    form: Form | None = None
    """The form of lines; None: any."""

    def read(self) -> Table:
        """What is known so far; half a line, left by an interruption, is ignored."""
        with named(self.path, "read"):
            content = self.path.read_bytes() if self.path.exists() else b""
        return self._table(content)

    def append(self, row: Row) -> None:
        """Append a line, as a whole or not at all; a point that is already there is left alone."""
        with named(self.path, "written"), _locked(self.path) as file:
            known = file.read()
            whole = known[: known.rfind(b"\n") + 1]
            rows = self._table(whole).rows
            if self.form is not None and self.form.key(row) in map(self.form.key, rows):
                return
            file.truncate(len(whole))
            line = _line([_cell(row[name]) for name in self.columns])
            file.write((line if whole.strip() else _line(self.columns) + line).encode())

    def _table(self, content: bytes) -> Table:
        whole = content[: content.rfind(b"\n") + 1]
        lines = list(self._lines(whole))
        if lines and tuple(lines[0][1]) != self.columns:
            raise ParameterError(
                f"{str(self.path)!r} has other columns than this study writes: it comes from "
                "another version. Delete it, or choose another folder."
            )
        known = {} if self.form is None else {self.form.key(p): p for p in self.form.points}
        rows: list[Row] = []
        places: dict[tuple[Any, ...], int] = {}
        for place, cells in lines[1:]:
            try:
                if len(cells) != len(self.columns):
                    raise ValueError(f"it has {len(cells)} cells, not {len(self.columns)}")
                row: Row = dict(zip(self.columns, map(_value, cells), strict=True))
                if self.form is not None:
                    row = self.form.checked(row, known)
                    first = places.setdefault(self.form.key(row), place)
                    if first != place:
                        raise ValueError(f"it is the same point as line {first}")
            except ValueError as problem:
                raise self._refusal(place, str(problem)) from None
            rows.append(row)
        return Table(tuple(rows))

    def _lines(self, content: bytes) -> Iterator[tuple[int, list[str]]]:
        """The number and the cells of each line that is not blank."""
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as problem:
            place = content.count(b"\n", 0, problem.start) + 1
            raise self._refusal(place, "it is not text (UTF-8)") from None
        reader = csv.reader(io.StringIO(text, newline=""))
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells) or len(cells) > 1:
                    yield reader.line_num, cells
        except csv.Error as problem:
            raise self._refusal(reader.line_num, str(problem)) from None

    def _refusal(self, place: int, problem: str) -> ParameterError:
        return ParameterError(
            f"line {place} of {str(self.path)!r} is not as this study wrote it: {problem}. Delete "
            "the line or the file; what is missing is computed again."
        )


@contextmanager
def named(path: Path, done: str) -> Iterator[None]:
    """Report errors of the system in one sentence that names the file."""
    try:
        yield
    except OSError as problem:
        raise ParameterError(
            f"{str(path)!r} cannot be {done}: {problem.strerror or problem}. Fix that, or choose "
            "another folder."
        ) from None


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file, created empty if there is none, for this process alone where there are locks.

    It is written in place: a concurrent reader sees whole lines, or half of the last one.
    """
    try:
        import fcntl
    except ImportError:  # no such locks here: one process at a time
        with path.open("a+b") as file:
            file.seek(0)
            yield file
        return
    while True:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
                    continue  # deleted or replaced while this process waited
                file.seek(0)
                yield file
                file.flush()
                return
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)


def read_table(path: Path) -> Table:
    """The table in a file, whatever its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    return Record(path, tuple(columns)).read()


def _line(cells: Sequence[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(cells)
    return written.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def _value(cell: str) -> object:
    """The number or word that was written."""
    if not cell:
        return None
    try:
        return int(cell) if cell.isdigit() else float(cell)
    except ValueError:
        return cell
