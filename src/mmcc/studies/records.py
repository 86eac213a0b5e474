"""A table that grows point by point, in a CSV that an interrupted study finds again.

In: rows, one at a time.  Out: a file with one line a row, written as it comes; tables to draw from.
Rounding: numbers are written with all their digits, so bounds stay bounds.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmcc.arrays import FloatArray
from mmcc.errors import ParameterError

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
class Record:
    """The file of a study: a header, then one line a row."""

    path: Path
    columns: tuple[str, ...]

    def read(self) -> Table:
        """What is known so far; half a line, left by an interruption, is forgotten."""
        if not self.path.exists():
            return Table(())
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        lines = list(csv.reader(io.StringIO(whole)))
        if lines and tuple(lines[0]) != self.columns:
            raise ParameterError(
                f"{str(self.path)!r} has other columns than this study writes: it is of another "
                "version. Delete it, or choose another folder."
            )
        rows = (zip(self.columns, map(_value, line), strict=True) for line in lines[1:])
        return Table(tuple(dict(row) for row in rows))

    def append(self, row: Row) -> None:
        """Write one more line, whole lines only."""
        known = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole = known[: known.rfind("\n") + 1] or _line(self.columns)
        if whole != known:
            self.path.write_text(whole, encoding="utf-8")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line([_cell(row[name]) for name in self.columns]))


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
