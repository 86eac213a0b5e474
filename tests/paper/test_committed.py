"""Claim: the committed figures hold what the project promises, and the page says what they show."""

from __future__ import annotations

import numpy as np
import pytest

from mmcc.strategies import _geometry as geometry
from paper import STUDIES, improvement, page, timing
from paper.page import DOCS, FIGURES
from paper.records import Table, read_table

ROOT_FIRST = {5: 1.447, 10: 1.943, 20: 2.167}
"""Improvement of the paper's bound at n = 1024, to three digits: the least that must hold."""
ALL_UPPERS = ("mmcc", "mmcc_release", "mmcc_reversed", "upper")


def table(name: str) -> Table:
    return read_table(FIGURES / f"{name}.csv")


def ratios(name: str, analysis: str, c: int) -> tuple[np.ndarray, np.ndarray]:
    some = table(name).where(c=c).ordered("n")
    return np.sqrt(np.log2(some["n"]) + 1), some["unamplified"] / some[analysis]


def test_the_tree_improves_along_a_line():
    for analysis, least in (("mmcc_reversed", 0.98), ("upper", 0.99)):
        x, y = ratios("tree", analysis, 20)
        assert len(x) == 10
        assert np.corrcoef(x, y)[0, 1] ** 2 > least
        assert np.polyfit(x, y, 1)[0] > 0


@pytest.mark.parametrize("c", ROOT_FIRST)
def test_the_tree_improves_by_as_much_as_promised(c):
    for analysis in ("mmcc_reversed", "upper"):
        x, y = ratios("tree", analysis, c)
        assert x[-1] == pytest.approx(11**0.5)
        assert round(y[-1], 3) >= ROOT_FIRST[c]


@pytest.mark.parametrize(
    "name",
    ["tree", "counting", "tree-restart", "bracket", "shuffled-tree", "speed", "cifar10"],
)
def test_bounds_are_on_their_sides(name):
    found = table(name)
    assert (found["lower"] <= found["upper"]).all()
    for analysis in ALL_UPPERS:
        if analysis in found.rows[0]:
            assert (found["lower"] <= found[analysis]).all()
            assert (found["upper"] <= found[analysis] * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", ["tree", "counting", "tree-restart", "bracket", "shuffled-tree"])
def test_estimates_meet_the_brackets(name):
    """Intervals of 99 %: of a hundred a few may miss, and none by much."""
    found = table(name).having("estimate")
    low, high = found["estimate_low"], found["estimate_high"]
    meets = (low <= found["upper"]) & (found["lower"] <= high)
    assert meets.mean() > 0.9
    assert (low <= found["upper"] * 1.01).all()
    assert (high >= found["lower"] * 0.99).all()


def test_the_papers_numbers_of_the_last_iterate():
    row = table("last-iterate").only(n=128, sigma=1.0)
    assert row["composition"] == pytest.approx(0.8064, abs=2e-4)
    assert row["remove"] == pytest.approx(0.4199, abs=2e-4)
    assert row["add"] == pytest.approx(0.2908, abs=2e-4)


def test_groups_are_never_worse_than_the_lemma():
    found = table("group")
    for column in ("black_box", "black_box_even"):
        some = found.having(column)
        assert (some["epsilon"] <= some[column] * (1 + 1e-9)).all()
    assert (found["epsilon"] == np.maximum(found["remove"], found["add"])).all()


@pytest.mark.parametrize("name", list(STUDIES))
def test_every_quick_point_is_in_the_committed_file(name, tmp_path):
    """A quick study in a folder that has the committed points computes nothing."""
    study = STUDIES[name]
    (tmp_path / f"{name}.csv").write_bytes((FIGURES / f"{name}.csv").read_bytes())
    found = study.run(tmp_path, quick=True)
    assert (tmp_path / f"{name}.csv").read_bytes() == (FIGURES / f"{name}.csv").read_bytes()
    assert (FIGURES / f"{name}.md").read_text() == (tmp_path / f"{name}.md").read_text()
    assert (FIGURES / f"{name}.png").stat().st_size > 10_000
    assert found.paragraph in (DOCS / "reproduction.md").read_text()
    assert set(found.table.rows[0]) == set(study.columns)
    points = [tuple(row[key] for key in study.keys) for row in found.table.rows]
    assert len(set(points)) == len(points)
    wanted = {tuple(point[key] for key in study.keys) for point in study.points(False)}
    assert set(points) <= wanted


def test_structure_changes_the_bound_only_where_the_tail_is_cheaper():
    """One matrix twice: the same epsilon as an array while both have the paper's tail."""
    found = timing.pairs(table("speed"))
    assert {pair.known["structure"] for pair in found} == {"tree", "banded"}
    for pair in found:
        if pair.known["n"] <= 512:
            assert pair.looser == pytest.approx(1, rel=1e-4)
        else:
            assert pair.looser > 1.001
            assert pair.array["upper"] == pytest.approx(pair.known["upper"], rel=0.01)


def test_the_library_changes_tails_where_the_texts_say():
    assert improvement.EXACT_COLUMNS == geometry.EXACT_COLUMNS


@pytest.mark.parametrize("name", ["tree", "counting"])
def test_what_one_c_lacks_is_left_out_for_all(name, tmp_path):
    """A full run that was stopped, then a quick one."""
    study = STUDIES[name]
    largest = max(int(row["n"]) for row in study.points(False))
    lines = (FIGURES / f"{name}.csv").read_text().splitlines(keepends=True)
    lost = (f"10,{largest},", f"20,{largest},")
    kept = [line for line in lines if not line.startswith(lost)]
    assert len(kept) == len(lines) - 2
    (tmp_path / f"{name}.csv").write_text("".join(kept))
    told = study.describe(study.record(tmp_path).read().ordered(*study.keys))
    assert "nan" not in told
    assert f"not computed for every c: n = {largest}." in told
    assert "neither" not in told


def test_the_page_is_written_from_the_files():
    assert page.page() == (DOCS / "reproduction.md").read_text(encoding="utf-8")


def test_the_page_answers_every_section():
    answered = {claim.section.partition(",")[0].split()[0] for claim in page.claims()}
    assert {"6.1", "6.2", "6.3", "6.4", "B.1", "B.2", "B.3", "B.4", "B.5"} <= answered
    assert len({claim.quote for claim in page.claims()}) == len(page.claims())
