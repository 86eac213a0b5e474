"""Claim: a study keeps what it computed, goes on where it was stopped, and says what it needs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmcc.errors import ParameterError
from mmcc.studies import improvement, study
from mmcc.studies.records import Record, Table, read_table
from mmcc.studies.study import Study


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
        tell=lambda table: f"{len(table)} squares.",
        draw=draw,
        assumed="Nothing.",
    )


POINTS = [{"x": x} for x in (3, 1, 2)]


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


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ParameterError, match="is a file"):
        squares([]).run(tmp_path / "taken")


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
