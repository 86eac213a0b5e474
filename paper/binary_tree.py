"""The paper's first figure: improvement by sampling for the binary tree."""

from __future__ import annotations

from typing import Any

from mmcc import strategies
from paper import improvement
from paper.records import Row, Table
from paper.study import Study

MULTIPLIERS = (5, 10, 20)
STEPS = tuple(2**i for i in range(1, 11))
QUICK = (2, 32, 1024)


def _points(quick: bool) -> list[Row]:
    return [{"c": c, "n": n} for c in MULTIPLIERS for n in (QUICK if quick else STEPS)]


def _measure(point: Row) -> Row:
    return improvement.measure(strategies.binary_tree(point["n"]), point["c"])


def matching_order(table: Table) -> str:
    """The order of rows in which the paper's algorithm behaves as the paper's text says.

    It says that for every c there is an improvement, which grows with sqrt(log2 n + 1).
    """
    orders = (("mmcc_release", "release order"), ("mmcc_reversed", "root first"))
    found = [words for name, words in orders if improves(table, name)]
    return " and ".join(found) or "neither"


def improves(table: Table, analysis: str) -> bool:
    """Whether for every c the line rises and the ratio at the largest n is above one."""
    table = improvement.comparable(table)
    n = int(table["n"].max())
    return all(
        improvement.fit(table.where(c=c), analysis).slope > 0
        and improvement.at(table, c, n, analysis) > 1
        for c in table.values("c")
    )


def _describe(table: Table) -> str:
    ends = improvement.sentences(table, "the same root first")
    return (
        "Improvement of epsilon by Poisson sampling for the binary tree, against one participation "
        f"in a fixed step at the same noise.  {ends}  The paper's text (an improvement for every "
        "c, which grows about as sqrt(log2 n + 1)) fits its algorithm with rows in this order: "
        f"{matching_order(table)}."
    )


def _draw(figure: Any, table: Table) -> None:
    improvement.panels(figure, table, "binary tree, p = 1/n, delta = 1e-6", "root first")


STUDY = Study(
    name="tree",
    title="Binary tree: improvement by sampling",
    keys=("c", "n"),
    columns=improvement.COLUMNS,
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=f"{improvement.ASSUMED}  {improvement.TAILS}  Here it is a tree.",
    empty=(),
    size=(9.0, 4.4),
)
