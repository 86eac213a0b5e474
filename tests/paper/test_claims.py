"""Claim: a verdict on the page is the outcome of a comparison, and can go either way."""

from __future__ import annotations

import math

import pytest

from paper import page, prefix_error, timing
from paper.records import Table


def judged(name: str, **changed: Table) -> str:
    """The verdict of a claim if some tables were these."""
    known = page.tables() | {key.replace("_", "-"): table for key, table in changed.items()}
    claim = next(one for one in page.claims() if one.found.__name__ == name)
    return claim.found(known)[0]


def scaled(table: Table, column: str, factor: float) -> Table:
    return Table(tuple({**row, column: row[column] * factor} for row in table.rows))


def test_several_hours_are_compared_with_the_time_measured():
    speed = page.tables()["speed"]
    assert judged("several_hours", speed=scaled(speed, "mmcc_seconds", 1e-3)) == "no longer"
    assert judged("several_hours", speed=scaled(speed, "mmcc_seconds", 1e6)) == "yes"


def test_restarted_trees_can_be_tighter_everywhere_and_nowhere():
    table = page.tables()["tree-restart"]
    assert judged("restart_tighter", tree_restart=scaled(table, "cyclic", 100)) == "yes"
    assert judged("restart_tighter", tree_restart=scaled(table, "cyclic", 0.01)) == "**no**"
    half = Table(
        tuple(
            {**row, "cyclic": row["cyclic"] * (100 if row["sigma"] > 20 else 0.01)}
            for row in table.rows
        )
    )
    assert judged("restart_tighter", tree_restart=half) == "**in part**"
    assert judged("more_random", tree_restart=scaled(table, "upper", 100)) == "**no**"


def test_the_last_iterate_can_be_no_tighter():
    table = page.tables()["last-iterate"]
    assert judged("lot_tighter", last_iterate=scaled(table, "epsilon", 1.5)) == "**no**"
    assert judged("lot_tighter", last_iterate=scaled(table, "epsilon", 0.5)) == "yes"


def test_the_shuffled_tree_can_grow():
    table = page.tables()["shuffled-tree"]
    grown = Table(tuple({**row, "upper": row["upper"] * math.log2(row["n"])} for row in table.rows))
    assert judged("shuffled_growth", shuffled_tree=grown) != "yes"


def test_sharing_rows_is_held_against_the_same_matrix():
    speed = page.tables()["speed"]
    for name, array in timing.SAME_MATRIX.items():
        assert name in timing.SIZES
        assert timing.MECHANISMS[name](8).to_dense() == pytest.approx(
            timing.MECHANISMS[array](8).to_dense()
        )

    def taking(seconds: float) -> Table:
        return Table(
            tuple(
                {**row, "mmcc_seconds": seconds} if row["structure"] in timing.SAME_MATRIX else row
                for row in speed.rows
            )
        )

    assert judged("shared_rows", speed=taking(100.0)) == "**no**"
    assert judged("shared_rows", speed=taking(1e-4)) == "yes"
    counting = Table(tuple(row for row in speed.rows if "array" not in row["structure"]))
    assert judged("shared_rows", speed=counting) == "not measured"


def test_a_weaker_tail_can_matter():
    speed = page.tables()["speed"]
    loose = Table(
        tuple(
            {**row, "mmcc_release": 2 * row["mmcc_release"]} if "array" in row["structure"] else row
            for row in speed.rows
        )
    )
    assert judged("weaker_tail", speed=loose) == "**no**"


def point(part, epsilon, analysis, strategy, saving):
    keys = {"part": part, "epsilon": epsilon, "analysis": analysis, "strategy": strategy}
    return {**keys, "rmse": 1 - saving, "saving": saving}


def prefix(*, tuned: tuple[float, ...], saving: float) -> Table:
    """Two epsilons; bands win at the second, the paper's algorithm saves so much at the first."""
    rows = [point(16, e, "cyclic", "2 bands", 0.1 if e > 1 else -0.1) for e in (1.0, 2.0)]
    rows += [point(16, e, "mmcc_release", "counting", -0.2) for e in (1.0, 2.0)]
    rows += [point(16, e, "ours", "blt", 0.1) for e in (1.0, 2.0)]
    rows += [point(16, e, "mmcc_release", "blt for mmcc", saving) for e in tuned]
    return Table(tuple(rows))


def test_no_win_is_not_a_loss_where_nothing_was_tuned():
    def verdict(name, **settings):
        return judged(name, prefix_sums=prefix(**settings))

    assert verdict("beats_independent", tuned=(1.0,), saving=-0.1) == "**not shown**"
    assert verdict("beats_independent", tuned=(1.0, 2.0), saving=-0.1) == "**no**"
    assert verdict("beats_independent", tuned=(1.0,), saving=0.1) == "yes"
    assert verdict("consistently", tuned=(1.0,), saving=-0.1) == "**not shown**"
    assert verdict("consistently", tuned=(1.0, 2.0), saving=-0.1) == "**no**"
    assert verdict("consistently", tuned=(1.0,), saving=0.1) == "**in part**"
    assert verdict("consistently", tuned=(1.0, 2.0), saving=0.1) == "yes"
    told = prefix_error.STUDY.describe(prefix(tuned=(1.0,), saving=-0.1))
    assert "at none of the 2 epsilons computed, with counting, blt for mmcc at {1}" in told
