"""The shuffled binary tree: epsilon against the number of leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mmcc
from mmcc import sampling, strategies
from mmcc.errors import PrecisionError
from paper.drawing import curve, epsilon_at, intervals, legend_below, plain_numbers
from paper.records import Row, Table
from paper.rounding import at_least, at_most, rounded_up
from paper.study import Study

DELTA = 1e-6
SIGMAS = (1.0, 2.0, 5.0, 10.0)
STEPS = tuple(2**i for i in range(1, 17))
QUICK_SIGMAS, QUICK = (2.0, 10.0), (2, 64, 512)
ESTIMATED = 2**12
"""Longer passes have no estimate: it would take minutes per point."""


def _points(quick: bool) -> list[Row]:
    sigmas, steps = (QUICK_SIGMAS, QUICK) if quick else (SIGMAS, STEPS)
    return [{"sigma": sigma, "n": n} for sigma in reversed(sigmas) for n in steps]


def _measure(point: Row) -> Row:
    tree, scheme = strategies.binary_tree(point["n"]), sampling.Shuffle()
    noise = {"sigma": point["sigma"], "delta": DELTA}
    plain = mmcc.epsilon(tree, scheme, method="unamplified", **noise)
    found = mmcc.bracket(tree, scheme, **noise)
    guess: dict[str, float | None] = dict.fromkeys(
        ("estimate", "estimate_low", "estimate_high"), None
    )
    if point["n"] <= ESTIMATED:
        try:
            seen = mmcc.estimate(tree, scheme, **noise)
        except PrecisionError:  # too few effective samples: no interval is better than a wrong one
            pass
        else:
            guess = {
                "estimate": seen.epsilon,
                "estimate_low": seen.low,
                "estimate_high": seen.high,
            }
    return {
        "sigma": point["sigma"],
        "n": point["n"],
        "unamplified": plain.epsilon,
        "upper": found.upper,
        "lower": found.lower,
        **guess,
    }


@dataclass(frozen=True)
class Growth:
    """The relative growth of epsilon between the middle and the largest n computed."""

    first: int
    last: int
    shuffled: float
    """An upper bound: the upper bound at the end over the lower bound at the start."""
    unamplified: float


def growth(table: Table, sigma: float) -> Growth:
    """The growth at one noise level."""
    some = table.where(sigma=sigma).ordered("n")
    first, last = some.rows[(len(some) - 1) // 2], some.rows[-1]
    return Growth(
        first["n"],
        last["n"],
        last["upper"] / first["lower"] - 1,
        last["unamplified"] / first["unamplified"] - 1,
    )


def _describe(table: Table) -> str:
    words = []
    for sigma in sorted(table.values("sigma")):
        found = growth(table, sigma)
        row = table.where(sigma=sigma).ordered("n").rows[-1]
        words.append(
            f"sigma {sigma:g}: from n = {found.first} to {found.last} epsilon grows by at most "
            f"{at_most(100 * found.shuffled, 1)} % shuffled and by "
            f"{at_least(100 * found.unamplified, 1)} % unamplified, to {rounded_up(row['upper'])} "
            f"and {rounded_up(row['unamplified'])}"
        )
    widest = max(row["upper"] / row["lower"] for row in table.rows)
    return (
        "One shuffled pass over a binary tree with n leaves, at fixed noise.  Without "
        "amplification epsilon grows with the column norm sqrt(log2 n + 1).  Certified for "
        f"shuffling: {'; '.join(words)}.  Upper and lower bounds are within a "
        f"factor {at_most(widest, 5)} of each other everywhere."
    )


def _draw(figure: Any, table: Table) -> None:
    several = sorted(table.values("sigma"))
    all_axes = figure.subplots(1, len(several), squeeze=False)[0]
    for axes, sigma in zip(all_axes, several, strict=True):
        some = table.where(sigma=sigma).ordered("n")
        curve(axes, some["n"], some["unamplified"], "unamplified", "no amplification (certified)")
        curve(axes, some["n"], some["upper"], "upper", "shuffled, upper bound (certified)")
        curve(axes, some["n"], some["lower"], "lower", "shuffled, lower bound (certified)")
        seen = some.having("estimate")
        intervals(axes, seen["n"], seen, "shuffled, estimate, 99 % interval (not a proof)")
        axes.set_xscale("log", base=2)
        plain_numbers(axes.xaxis, 2, 64, 2048, 65536)
        axes.set_ylim(bottom=0)
        axes.set_title(f"sigma = {sigma:g}", fontsize="medium")
        axes.set_xlabel("leaves n")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel(epsilon_at(DELTA))
    figure.suptitle("binary tree, one shuffled pass, 0-1 setting", fontsize="medium")
    legend_below(figure, all_axes[0], 2)


STUDY = Study(
    name="shuffled-tree",
    title="The shuffled binary tree",
    keys=("sigma", "n"),
    columns={
        "sigma": "given",
        "n": "given: leaves of the tree, steps of the pass",
        "unamplified": "certified: epsilon of one participation in a fixed place",
        "upper": "certified upper bound for one shuffled pass (0-1 setting)",
        "lower": "certified lower bound for one shuffled pass, whatever the method",
        "estimate": "Monte Carlo estimate, not a proof",
        "estimate_low": "lower end of its 99 % interval",
        "estimate_high": "upper end of its 99 % interval",
    },
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        "Adjacency zero-out, the larger of remove and add.  One shuffled pass; the paper's 0-1 "
        "setting (all other examples contribute nothing) and inputs fixed in advance: not a "
        "guarantee for a training run.  delta = 1e-6.  Estimates come from seed 0 and end at "
        f"n = {ESTIMATED}; an empty one was refused, or not asked for."
    ),
    size=(10.0, 4.0),
    empty=("estimate", "estimate_low", "estimate_high"),
)
