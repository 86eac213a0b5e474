"""The last iterate of DP-SGD on linear losses, against composition of all iterates."""

from __future__ import annotations

from typing import Any

import mmcc
from paper.drawing import STYLES, epsilon_at, legend_below, plain_numbers
from paper.records import Row, Table
from paper.rounding import at_least, rounded_up
from paper.study import Study

DELTA = 1e-6
SIGMAS = (0.5, 1.0, 4.0)
STEPS = tuple(2**i for i in range(1, 15))
QUICK = (2, 128, 4096)
PAPER_STEPS, PAPER_SIGMA, PAPER_COMPOSITION, PAPER_LAST = 128, 1.0, 0.806, 0.291
"""The paper's example and the numbers printed there."""


def _points(quick: bool) -> list[Row]:
    return [{"sigma": sigma, "n": n} for sigma in SIGMAS for n in (QUICK if quick else STEPS)]


def _measure(point: Row) -> Row:
    n = point["n"]
    found = mmcc.mixtures.last_iterate(n, 1 / n, sigma=point["sigma"], delta=DELTA)
    return {
        "sigma": point["sigma"],
        "n": n,
        "epsilon": found.epsilon,
        "remove": found.details["remove"],
        "add": found.details["add"],
        "composition": found.details["composition"],
    }


def papers_row(table: Table) -> Row:
    """The point printed in the paper."""
    row = table.only(sigma=PAPER_SIGMA, n=PAPER_STEPS)
    assert row is not None  # it is one of the quick points
    return row


def _describe(table: Table) -> str:
    row = papers_row(table)
    words = []
    for sigma in sorted(table.values("sigma")):
        last = table.where(sigma=sigma).ordered("n").rows[-1]
        words.append(
            f"{at_least(last['composition'] / last['epsilon'], 2)} times at sigma {sigma:g}, n = "
            f"{last['n']}"
        )
    return (
        f"Linear losses, p = 1/n.  The paper's example (n = {PAPER_STEPS}, sigma {PAPER_SIGMA:g}): "
        f"composition gives {rounded_up(row['composition'])} (paper: {PAPER_COMPOSITION}), the "
        f"last iterate {rounded_up(row['remove'])} when the example is removed and "
        f"{rounded_up(row['add'])} when it is added (paper: {PAPER_LAST}, the add side alone); a "
        f"guarantee needs both, so it is {rounded_up(row['epsilon'])}.  Composition is larger than "
        f"the last iterate by {', '.join(words)}."
    )


def _draw(figure: Any, table: Table) -> None:
    several = sorted(table.values("sigma"))
    all_axes = figure.subplots(1, len(several), squeeze=False)[0]
    for axes, sigma in zip(all_axes, several, strict=True):
        some = table.where(sigma=sigma).ordered("n")
        for column, label, style in (
            ("composition", "all iterates, any losses (composition)", STYLES["mmcc_release"]),
            ("remove", "last iterate, linear losses: remove", STYLES["upper"]),
            ("add", "last iterate, linear losses: add", STYLES["cyclic"]),
        ):
            axes.plot(some["n"], some[column], label=label, markersize=4, **style)
        if sigma == PAPER_SIGMA:
            printed = [PAPER_COMPOSITION, PAPER_LAST]
            axes.plot([PAPER_STEPS] * 2, printed, "k*", markersize=9, fillstyle="none")
            axes.annotate(
                "printed in the paper",
                (PAPER_STEPS, PAPER_LAST),
                xytext=(0, -14),
                textcoords="offset points",
                fontsize="x-small",
                ha="right",
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        plain_numbers(axes.xaxis, 2, 16, 128, 1024, 8192)
        plain_numbers(axes.yaxis)
        axes.set_title(f"sigma = {sigma:g}", fontsize="medium")
        axes.set_xlabel("steps n")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel(f"{epsilon_at(DELTA)} (certified)")
    figure.suptitle("DP-SGD, p = 1/n", fontsize="medium")
    legend_below(figure, all_axes[0], 3)


STUDY = Study(
    name="last-iterate",
    title="The last iterate of DP-SGD on linear losses",
    keys=("sigma", "n"),
    columns={
        "sigma": "given: noise of a step",
        "n": "given: steps; the sampling probability is 1/n",
        "epsilon": "certified upper bound: last iterate, the larger of both sides",
        "remove": "its remove side",
        "add": "its add side",
        "composition": "certified upper bound: all iterates, any losses",
    },
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        "Adjacency zero-out of one example.  Poisson sampling with probability 1/n.  The last "
        "iterate: linear losses, equal steps, nothing but the last iterate released; composition: "
        "any losses, adaptive inputs, all iterates.  delta = 1e-6."
    ),
    size=(9.0, 4.0),
    empty=(),
)
