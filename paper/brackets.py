"""How far from the truth each analysis is: epsilon against sigma, between two certified ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mmcc import strategies
from mmcc.strategies import Strategy
from paper import improvement
from paper.drawing import curve, epsilon_at, intervals, legend_below, plain_numbers
from paper.records import Row, Table
from paper.rounding import at_most
from paper.study import Study

STEPS, BANDS = 512, 8
MULTIPLIERS = (3, 4, 5, 7, 10, 14, 20, 28, 40)
QUICK = (5, 20)


def _bands(steps: int) -> Strategy:
    """The first square-root coefficients as bands."""
    return strategies.toeplitz(strategies.continual_counting(BANDS).coefficients, steps)


MECHANISMS: Mapping[str, Callable[[int], Strategy]] = {
    "binary tree": strategies.binary_tree,
    "counting": strategies.continual_counting,
    f"{BANDS} bands": _bands,
}


def _points(quick: bool) -> list[Row]:
    several = QUICK if quick else MULTIPLIERS
    return [{"strategy": name, "c": c} for name in MECHANISMS for c in several]


def _measure(point: Row) -> Row:
    strategy = MECHANISMS[point["strategy"]](STEPS)
    return {"strategy": point["strategy"], **improvement.measure(strategy, point["c"])}


def _describe(table: Table) -> str:
    words = []
    for name in MECHANISMS:
        some = table.where(strategy=name).ordered("c")
        if not len(some):
            continue
        first, last = some.rows[0], some.rows[-1]
        words.append(
            f"{name}: at c = {first['c']:g} the paper's algorithm is "
            f"{at_most(first['mmcc_release'] / first['lower'], 2)} times the lower bound in "
            f"release order and {at_most(first['mmcc_reversed'] / first['lower'], 2)} times in "
            f"reverse, ours {at_most(first['upper'] / first['lower'], 4)} times; at c = "
            f"{last['c']:g} {at_most(last['mmcc_release'] / last['lower'])}, "
            f"{at_most(last['mmcc_reversed'] / last['lower'])} and "
            f"{at_most(last['upper'] / last['lower'], 5)} times"
        )
    return (
        f"{STEPS} steps, p = 1/{STEPS}; sigma is c column norms.  The true epsilon lies between a "
        f"lower bound that holds for any method and our upper bound.  {'; '.join(words)}."
    )


def _draw(figure: Any, table: Table) -> None:
    names = [name for name in MECHANISMS if len(table.where(strategy=name))]
    all_axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(all_axes, names, strict=True):
        some = table.where(strategy=name).ordered("sigma")
        sigma = some["sigma"]
        for column, label in (
            ("unamplified", "one fixed participation, no amplification (certified)"),
            ("mmcc_release", "paper's algorithm, release order (certified)"),
            ("mmcc_reversed", "paper's algorithm, reverse order (certified)"),
            ("upper", "ours, upper bound (certified)"),
            ("lower", "lower bound, any method (certified)"),
        ):
            curve(axes, sigma, some[column], column, label)
        intervals(axes, sigma, some, "estimate, 99 % interval (not a proof)")
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis)
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel("sigma (in units of the clip norm)")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel(epsilon_at(improvement.DELTA))
    figure.suptitle(f"{STEPS} steps, Poisson sampling, p = 1/{STEPS}", fontsize="medium")
    legend_below(figure, all_axes[0], 2)


STUDY = Study(
    name="bracket",
    title="Between two certified ends",
    keys=("strategy", "c"),
    columns={"strategy": f"given; bands are the first {BANDS} coefficients of the counting matrix"}
    | dict(improvement.COLUMNS),
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=f"{improvement.ASSUMED}  {improvement.TAILS}  Here n = {STEPS}.",
    empty=(),
    size=(9.5, 4.8),
)
