"""Claim: what a page shows of the measurements is what was measured, in pictures of one style."""

from __future__ import annotations

import re
import struct
from importlib import util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FROM_TABLES = {
    "tightness": ("draw_widths", "tightness-tables.md"),
    "one-epoch": ("draw_one_epoch", "tightness-tables.md"),
    "shuffled": ("draw_shuffled", "tightness-tables.md"),
    "savings": ("draw_savings", "choosing.md"),
    "error": ("draw_errors", "tightness.md"),
}


@pytest.fixture(scope="module")
def drawing():
    """`docs/img/make.py`, which is no module of a package."""
    pytest.importorskip("matplotlib")
    spec = util.spec_from_file_location("make", DOCS / "img" / "make.py")
    make = util.module_from_spec(spec)
    spec.loader.exec_module(make)
    return make


def rows(page: str) -> list[list[str]]:
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in one.strip("|").split("|")] for one in lines if "|" in one]


def size(picture: Path) -> tuple[int, ...]:
    """Width and height, from the header of a PNG file."""
    return struct.unpack(">II", picture.read_bytes()[16:24])


def test_the_short_tables_are_part_of_the_long_ones():
    """Lower, upper, ratio, and the paper's number under its title."""
    every = {
        (r[0], r[2].split()[-1], *r[3:6], r[9]) for r in rows("tightness-tables.md") if len(r) == 11
    }
    short = [row for row in rows("tightness.md") if len(row) == 6 and re.match(r"[\d.]+$", row[1])]
    mine = [tuple(row) for row in short if re.match(r"identity|tree|counting|\d+ bands", row[0])]
    assert len(mine) == 44
    assert [row for row in mine if row not in every] == []


@pytest.mark.parametrize("name", FROM_TABLES)
def test_a_picture_is_drawn_from_its_table_in_the_house_style(drawing, tmp_path, name):
    draw, page = FROM_TABLES[name]
    file = tmp_path / f"{name}.png"
    with drawing.house_style():
        getattr(drawing, draw)(DOCS / page, file)
    assert size(file) == size(DOCS / "img" / f"{name}.png")


def test_the_bracket_has_the_size_of_the_others():
    """Its numbers take a minute: it is not drawn here."""
    assert size(DOCS / "img" / "bracket.png")[0] == size(DOCS / "img" / "error.png")[0]
