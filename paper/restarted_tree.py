"""The paper's comparison of sampling schemes: trees of height 4, one after another."""

from __future__ import annotations

from typing import Any

import numpy as np

import mmcc
from mmcc import sampling, strategies
from paper.drawing import curve, epsilon_at, intervals, legend, plain_numbers
from paper.records import Row, Table
from paper.rounding import rounded_up
from paper.study import Study

STEPS, HEIGHT, RATE, DELTA = 512, 4, 1 / 16, 1e-6
LEAVES = 2 ** (HEIGHT - 1)
SIGMAS = (8, 10, 12, 14, 16, 18, 20, 22, 24, 27, 30, 35, 40, 50, 70, 100, 150)
QUICK = (12, 20, 40)
LABELS = {
    "cyclic": "cyclic Poisson, banded analysis, exact",
    "mmcc_release": "Poisson, paper's algorithm, release order",
    "mmcc_reversed": "Poisson, paper's algorithm, roots first",
    "upper": "Poisson, ours",
}
NAMES = {
    "mmcc_release": "the paper's algorithm in release order",
    "mmcc_reversed": "the same with roots first",
    "upper": "ours",
}


def _points(quick: bool) -> list[Row]:
    return [{"sigma": float(sigma)} for sigma in (QUICK if quick else SIGMAS)]


def _measure(point: Row) -> Row:
    strategy = strategies.tree_restart(STEPS, HEIGHT)
    everywhere = sampling.Poisson(RATE)
    in_turn = sampling.CyclicPoisson(LEAVES * RATE, LEAVES)
    noise = {"sigma": point["sigma"], "delta": DELTA}
    cyclic = mmcc.bracket(strategy, in_turn, method="mmcc", **noise)
    found = mmcc.bracket(strategy, everywhere, estimate=True, **noise)
    assert found.estimate is not None
    orders = {
        f"mmcc_{order}": mmcc.epsilon(
            strategy, everywhere, method="mmcc", order=order, **noise
        ).epsilon
        for order in ("release", "reversed")
    }
    return {
        "sigma": point["sigma"],
        "cyclic": cyclic.upper,
        "cyclic_lower": cyclic.lower,
        **orders,
        "upper": found.upper,
        "lower": found.lower,
        "estimate": found.estimate.epsilon,
        "estimate_low": found.estimate.low,
        "estimate_high": found.estimate.high,
    }


def crossing(table: Table, analysis: str) -> tuple[float, float] | None:
    """Neighbouring sigmas between which an analysis falls below cyclic Poisson; None if nowhere."""
    some = table.ordered("sigma")
    below = some[analysis] < some["cyclic"]
    sigma = some["sigma"]
    changes = np.flatnonzero(below[1:] & ~below[:-1])
    if len(changes) == 0:
        return None
    last = int(changes[-1])
    return float(sigma[last]), float(sigma[last + 1])


def proven_better(table: Table) -> list[float]:
    """Sigmas at which Poisson sampling is certified to be more private than cyclic can be."""
    return [row["sigma"] for row in table.rows if row["upper"] < row["cyclic_lower"]]


def _describe(table: Table) -> str:
    words = []
    for analysis in NAMES:
        found = crossing(table, analysis)
        name = NAMES[analysis]
        some = table.ordered("sigma")
        if found is not None:
            told = (
                f"falls below cyclic Poisson between sigma {found[0]:g} and {found[1]:g} "
                f"(epsilon {_between(some, found, 'cyclic')})"
            )
        elif (some[analysis] < some["cyclic"]).all():
            told = "is below it at every sigma computed"
        else:
            told = "is above it at every sigma computed"
        words.append(f"{name} {told}")
    better = proven_better(table)
    return (
        f"Trees of height {HEIGHT}, {STEPS} steps, every example in a batch with chance 1/16 on "
        f"average.  Poisson sampling (p = 1/16 in every step) against cyclic Poisson sampling "
        f"(1/2 in every eighth step), whose banded analysis is exact.  Under Poisson "
        f"sampling {'; '.join(words)}.  At "
        f"{len(better)} of {len(table)} noise levels our upper bound for Poisson sampling is below "
        "the lower bound for cyclic Poisson sampling: there the more random scheme is more private "
        "whatever the analysis."
    )


def _between(table: Table, sigmas: tuple[float, float], column: str) -> str:
    first, second = (table.only(sigma=sigma) for sigma in sigmas)
    assert first is not None
    assert second is not None
    return f"{rounded_up(second[column])} to {rounded_up(first[column])}"


def _draw(figure: Any, table: Table) -> None:
    some = table.ordered("sigma")
    axes = figure.add_subplot()
    sigma = some["sigma"]
    for analysis, label in LABELS.items():
        curve(axes, sigma, some[analysis], analysis, f"{label} (certified)")
    curve(axes, sigma, some["lower"], "lower", "Poisson, lower bound, any method (certified)")
    intervals(axes, sigma, some, "Poisson, estimate, 99 % interval (not a proof)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_numbers(axes.xaxis, 8, 10, 12, 15, 20, 30, 40, 50, 70, 100, 150)
    plain_numbers(axes.yaxis)
    axes.set_xlabel("sigma (noise, in units of the clip norm)")
    axes.set_ylabel(epsilon_at(DELTA))
    axes.set_title(f"tree restart, height {HEIGHT}, {STEPS} steps, rate 1/16", fontsize="medium")
    axes.grid(alpha=0.3)
    legend(axes, fontsize="x-small")


STUDY = Study(
    name="tree-restart",
    title="Restarted trees: Poisson against cyclic Poisson sampling",
    keys=("sigma",),
    columns={
        "sigma": "given",
        "cyclic": "certified upper bound: cyclic Poisson (1/2 every 8 steps), composed exactly",
        "cyclic_lower": "certified lower bound under cyclic Poisson, whatever the method",
        "mmcc_release": "certified upper bound: Poisson, the paper's algorithm, release order",
        "mmcc_reversed": "certified upper bound: Poisson, the paper's algorithm, roots first",
        "upper": "certified upper bound: Poisson, ours (method tight)",
        "lower": "certified lower bound under Poisson, whatever the method",
        "estimate": "Monte Carlo estimate under Poisson, not a proof",
        "estimate_low": "lower end of its 99 % interval",
        "estimate_high": "upper end of its 99 % interval",
    },
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        "Adjacency zero-out, the larger of remove and add; adaptive inputs.  delta = 1e-6.  The "
        "paper does not print its delta for this figure; 1e-6 is that of its other figures.  "
        "Estimates are for fixed inputs, which are the worst ones; they come from seed 0."
    ),
    size=(6.8, 4.8),
    empty=(),
)
