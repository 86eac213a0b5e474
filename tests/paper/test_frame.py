"""Claim: a study keeps what it computed, goes on where it was stopped, and says what it needs."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mmcc.errors import ParameterError
from paper import improvement, rounding, study
from paper.records import Record, Table, read_table
from paper.study import Study


def squares(calls: list[int], broken: int | None = None, quick: int = 3) -> Study:
    """A study that squares numbers, writes down what it was asked, and may stop at one."""

    def measure(point):
        if point["x"] == broken:
            raise KeyboardInterrupt
        calls.append(point["x"])
        return {"x": point["x"], "square": point["x"] ** 2 / 3, "word": None}

    def draw(figure, table):
        figure.add_subplot().plot(table["x"], table["square"])

    return Study(
        name="squares",
        title="Squares",
        keys=("x",),
        columns={"x": "given", "square": "computed", "word": "nothing"},
        points=lambda short: POINTS[: quick if short else 3],
        measure=measure,
        describe=lambda table: f"{len(table)} squares.",
        draw=draw,
        assumed="Nothing.",
        empty=("word",),
    )


POINTS = [{"x": x} for x in (3, 1, 2)]
ROOT = Path(__file__).parents[2]


def test_a_stopped_study_goes_on_where_it_was(tmp_path):
    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        squares(calls, broken=2).run(tmp_path)
    assert calls == [3, 1]
    found = squares(calls).run(tmp_path)
    assert calls == [3, 1, 2]
    assert [row["x"] for row in found.table.rows] == [1, 2, 3]
    assert found.paragraph == "3 squares."
    assert [file.name for file in found.files] == ["squares.csv", "squares.png", "squares.md"]
    assert all(file.stat().st_size > 0 for file in found.files)


def test_fewer_points_lose_nothing(tmp_path):
    squares([]).run(tmp_path)
    calls: list[int] = []
    found = squares(calls, quick=1).run(tmp_path, quick=True)
    assert calls == []
    assert len(found.table) == 3


def test_half_a_line_is_computed_again(tmp_path):
    squares([]).run(tmp_path)
    file = tmp_path / "squares.csv"
    file.write_text(file.read_text()[:-7])
    calls: list[int] = []
    again = squares(calls).run(tmp_path)
    assert calls == [2]
    assert [row["square"] for row in again.table.rows] == [1 / 3, 4 / 3, 3.0]


def test_a_file_of_other_columns_is_refused(tmp_path):
    (tmp_path / "squares.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ParameterError, match="Delete it"):
        squares([]).run(tmp_path)


HEADER = "x,square,word\n"


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (HEADER + "3,3.0,\n1,2\n", 3, "2 cells, not 3"),
        (HEADER + "3,3.0,,\n", 2, "4 cells"),
        (HEADER + "\n3,3.0,\nthree,3.0,\n", 4, "x = three is not a point"),
        (HEADER + "3,3.0,\n,3.0,\n", 3, "x =  is not a point"),
        (HEADER + "nan,3.0,\n", 2, "x = nan is not a point"),
        (HEADER + "7,3.0,\n", 2, "x = 7 is not a point"),
        (HEADER + "3,,\n", 2, "square is empty"),
        (HEADER + "3,nan,\n", 2, "square is 'nan', not a number"),
        (HEADER + "3,nine,\n", 2, "square is 'nine', not a number"),
        (HEADER + "1,3.0,\n3,3.0,\n3.0,3.1,\n", 4, "same point as line 3"),
        (b"x,square,word\n3,3.0,\n\xff,1,\n", 3, "not text"),
    ],
)
def test_a_line_that_was_edited_is_refused_by_its_number(content, line, reason, tmp_path):
    calls: list[int] = []
    file = tmp_path / "squares.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ParameterError) as refused:
        squares(calls).run(tmp_path)
    said = str(refused.value)
    assert said.startswith(f"line {line} of {str(file)!r}")
    assert reason in said
    assert "Delete the line or the file" in said
    assert calls == []


def test_blank_lines_are_ignored_and_numbers_are_compared_as_numbers(tmp_path):
    (tmp_path / "squares.csv").write_text(HEADER + "\n3.0,3.0,\n  \n2e0,1.5,\n\n")
    calls: list[int] = []
    found = squares(calls).run(tmp_path)
    assert calls == [1]
    assert [repr(row["x"]) for row in found.table.rows] == ["1", "2", "3"]


def test_a_file_of_blank_lines_is_an_empty_one(tmp_path):
    (tmp_path / "squares.csv").write_text("\n\n")
    squares([]).run(tmp_path)
    calls: list[int] = []
    assert len(squares(calls).run(tmp_path).table) == 3
    assert calls == []


def test_a_point_that_another_process_wrote_meanwhile_is_not_computed(tmp_path):
    calls: list[int] = []
    plain = squares(calls)

    def measure(point):
        if point["x"] == 3:
            plain.record(tmp_path).append({"x": 2, "square": 4 / 3, "word": None})
        return plain.measure(point)

    found = dataclasses.replace(plain, measure=measure).run(tmp_path)
    assert calls == [3, 1]
    assert [row["x"] for row in found.table.rows] == [1, 2, 3]


WRITER = """
import sys
from pathlib import Path
from paper.records import Form, Record

first = int(sys.argv[2])
form = Form(("x",), tuple({"x": x} for x in range(150)))
record = Record(Path(sys.argv[1]), ("x", "y"), form)
print("ready", flush=True)
sys.stdin.readline()
for x in range(first, first + 100):
    record.append({"x": x, "y": x / 3})
"""


def test_two_processes_lose_no_row_and_write_none_twice(tmp_path):
    """One writes points 0 to 99, the other 50 to 149, started together."""
    file = tmp_path / "n.csv"
    file.write_text("x,y\n0,0.0\n1,0.33")  # half a line, from an interruption
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), first],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for first in ("0", "50")
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    lines = file.read_text().splitlines()
    assert lines[0] == "x,y"
    assert sorted(lines[1:]) == sorted(f"{x},{x / 3!r}" for x in range(150))


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ParameterError, match="is a file"):
        squares([]).run(tmp_path / "taken")
    with pytest.raises(ParameterError, match=r"taken/inside'.*cannot be made: Not a directory"):
        squares([]).run(tmp_path / "taken" / "inside")


def test_a_link_to_nothing_is_told_as_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(ParameterError, match=r"is a link to '.*gone', which is not there"):
        squares([]).run(tmp_path / "link")


@pytest.mark.parametrize("kind", ["csv", "md", "png"])
def test_what_cannot_be_written_is_found_before_anything_is_computed(kind, tmp_path):
    (tmp_path / f"squares.{kind}").mkdir()
    calls: list[int] = []
    with pytest.raises(ParameterError, match=rf"squares\.{kind}' cannot be written: Is a dir"):
        squares(calls).run(tmp_path)
    assert calls == []


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder nobody can write to")
def test_a_folder_that_takes_no_file_is_found_before_anything_is_computed():
    calls: list[int] = []
    with pytest.raises(ParameterError, match=r"/proc/self/squares\.csv' cannot be written"):
        squares(calls).run("/proc/self")
    assert calls == []


@pytest.mark.parametrize("value", [0.8341175486, 2.07635, 1.000754, -0.0005, 2.0, 1e-9, 123.4565])
@pytest.mark.parametrize("places", [1, 3, 5])
def test_few_digits_stay_on_the_side_that_was_proven(value, places):
    low, high = rounding.at_least(value, places), rounding.at_most(value, places)
    assert Fraction(low) <= Fraction(value) <= Fraction(high)
    assert Fraction(high) - Fraction(low) <= Fraction(1, 10**places)
    assert all(len(text.partition(".")[2]) == places for text in (low, high))


@pytest.mark.parametrize("value", [0.8341175486, 2.07635, 0.1, 1234567.8, 1e-9, 0.0, math.inf])
def test_six_digits_stay_on_the_side_that_was_proven(value):
    low, high = rounding.rounded_down(value), rounding.rounded_up(value)
    assert float(low) <= value <= float(high)
    assert float(high) - float(low) <= 1e-5 * value or low == high
    assert float(f"{value:.6g}") in (float(low), float(high))


def test_without_matplotlib_the_rest_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "find_spec", lambda _: None)
    found = squares([]).run(tmp_path)
    assert "pip install 'mmcc[plot]'" in found.note
    assert {file.name for file in tmp_path.iterdir()} == {"squares.csv", "squares.md"}


def test_numbers_come_back_to_the_last_digit(tmp_path):
    record = Record(tmp_path / "n.csv", ("a", "b", "c", "d"))
    row = {"a": 0.1 + 0.2, "b": 12, "c": 'a, "b"', "d": None}
    record.append(row)
    record.append(row | {"a": np.float64(1e-300), "b": 7})
    assert record.read().rows == (row, row | {"a": 1e-300, "b": 7})
    assert read_table(tmp_path / "n.csv").rows == record.read().rows
    assert math.isnan(record.read()["d"][0])


def test_progress_is_told(tmp_path):
    heard = []
    squares([]).run(tmp_path, False, lambda what, done: heard.append((what, done)))
    assert [done for _, done in heard] == [0, 1, 2]
    assert all("squares" in what for what, _ in heard)


def test_the_line_is_the_least_squares_line():
    """Against the normal equations and the squared correlation."""
    ratio = [1.02, 1.31, 1.48, 1.77, 1.86]
    steps = [2, 4, 8, 16, 32]
    rows = [{"n": n, "unamplified": r, "upper": 1.0} for n, r in zip(steps, ratio, strict=True)]
    found = improvement.fit(Table(tuple(rows)), "upper")
    x = np.sqrt(np.log2(steps) + 1)
    design = np.column_stack([x, np.ones(5)])
    slope, intercept = np.linalg.solve(design.T @ design, design.T @ ratio)
    assert found.slope == pytest.approx(slope, rel=1e-9)
    assert found.intercept == pytest.approx(intercept, rel=1e-9)
    assert found.r_squared == pytest.approx(np.corrcoef(x, ratio)[0, 1] ** 2, rel=1e-9)
