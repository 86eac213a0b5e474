"""The paper's second figure: improvement by sampling for the continual-counting matrix."""

from __future__ import annotations

from typing import Any

from mmcc import strategies
from paper import improvement
from paper.improvement import EXACT_COLUMNS
from paper.records import Row, Table
from paper.study import Study

MULTIPLIERS = (10, 20, 40)
STEPS = tuple(2**i for i in range(1, 13))
QUICK = (2, 16, 128)
PAPER = 2**7
"""The largest n that the paper computed."""


def _points(quick: bool) -> list[Row]:
    return [{"c": c, "n": n} for n in (QUICK if quick else STEPS) for c in MULTIPLIERS]


def in_the_paper(table: Table) -> Table:
    """The points that are in the paper's figure."""
    return Table(tuple(row for row in table.rows if row["n"] <= PAPER))


def matching_order(table: Table) -> str:
    """The order in which R^2 grows with c, as the paper's text says."""
    table = improvement.comparable(table)
    orders = (("mmcc_release", "release order"), ("mmcc_reversed", "last row first"))
    found = []
    for name, words in orders:
        fits = [
            improvement.fit(table.where(c=c), name).r_squared for c in sorted(table.values("c"))
        ]
        if fits == sorted(fits):
            found.append(words)
    return " and ".join(found) or "neither"


def _measure(point: Row) -> Row:
    return improvement.measure(strategies.continual_counting(point["n"]), point["c"])


def _describe(table: Table) -> str:
    papers = in_the_paper(table)
    told = (
        "Improvement of epsilon by Poisson sampling for the continual-counting matrix, against one "
        "participation in a fixed step at the same noise.  "
        f"{improvement.sentences(papers, 'the same, last row first')}  The paper's text (the fit "
        "is better as c increases) fits its algorithm with rows in this order: "
        f"{matching_order(papers)}."
    )
    if improvement.comparable(table)["n"].max() <= PAPER:
        return told
    return (
        f"{told}  All of that is the paper's range, n up to {PAPER}.  Beyond "
        f"it: {improvement.sentences(table, 'the same, last row first')}"
    )


def _draw(figure: Any, table: Table) -> None:
    what = "continual-counting matrix, p = 1/n, delta = 1e-6"
    improvement.panels(figure, table, what, "last row first", PAPER)


STUDY = Study(
    name="counting",
    title="Continual counting: improvement by sampling",
    keys=("c", "n"),
    columns=improvement.COLUMNS,
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        f"{improvement.ASSUMED}  {improvement.TAILS}  Here that is from n = {2 * EXACT_COLUMNS} "
        "on, and the curves of the paper's algorithm have a step there."
    ),
    empty=(),
    size=(9.0, 4.4),
)
