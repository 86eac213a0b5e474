"""Groups of examples under DP-SGD: mixtures of Gaussians against the black-box lemma."""

from __future__ import annotations

from typing import Any

import mmcc
from paper.drawing import STYLES, epsilon_at, legend_below, plain_numbers
from paper.records import Row, Table
from paper.rounding import rounded_up
from paper.study import Study

STEPS, RATE, DELTA = 2000, 1 / 100, 1e-5
EXAMPLES, BATCH = 50_000, 500
SIGMAS = (1.0, 2.0, 4.0)
GROUPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
QUICK = (1, 4, 16)


def _points(quick: bool) -> list[Row]:
    return [{"sigma": sigma, "k": k} for sigma in SIGMAS for k in (QUICK if quick else GROUPS)]


def _measure(point: Row) -> Row:
    k, noise = point["k"], {"sigma": point["sigma"], "delta": DELTA}
    sampled = mmcc.mixtures.group_privacy(k, STEPS, RATE, **noise)
    fixed = mmcc.mixtures.fixed_batches(EXAMPLES, BATCH, STEPS, group=k, **noise)
    alone = mmcc.mixtures.fixed_batches(EXAMPLES, BATCH, STEPS, group=k, setting="0-1", **noise)
    return {
        "sigma": point["sigma"],
        "k": k,
        "epsilon": sampled.epsilon,
        "remove": sampled.details["remove"],
        "add": sampled.details["add"],
        "black_box": sampled.details["black_box"],
        "black_box_even": sampled.details["black_box_even"],
        "fixed_batches": fixed.epsilon,
        "fixed_batches_0_1": alone.epsilon,
    }


def _describe(table: Table) -> str:
    words = []
    for sigma in sorted(table.values("sigma")):
        some = table.where(sigma=sigma).having("black_box").ordered("k")
        last = some.rows[-1]
        even = some.having("black_box_even").rows[-1]
        words.append(
            f"At sigma {sigma:g} a group of {last['k']} has epsilon {rounded_up(last['epsilon'])} "
            f"where the lemma gives {rounded_up(last['black_box'])} with every link at its best; "
            "with all links alike the lemma gives "
            f"{rounded_up(even['black_box_even'])} for {even['k']} examples (mixture: "
            f"{rounded_up(even['epsilon'])})."
        )
    row = table.ordered("k", "sigma").rows[0]
    return (
        f"DP-SGD with {STEPS} steps at rate {RATE:g}: epsilon of a group of k examples, by a "
        "mixture and by the lemma that knows one example's epsilon only.  Links alike: from (e, d) "
        "follows (k e, d (e^(k e) - 1)/(e^e - 1)), the geometric sum, which is sharper than the "
        "(k e, k e^(k e) d) that the paper quotes.  "
        f"{'  '.join(words)}  With batches of a fixed size ({BATCH} of {EXAMPLES}) one example at "
        f"sigma {row['sigma']:g} has epsilon {rounded_up(row['fixed_batches_0_1'])} if all others "
        f"contribute nothing (the paper's 0-1 setting) and {rounded_up(row['fixed_batches'])} "
        "whatever they contribute, since a member that is drawn takes another's place."
    )


def _draw(figure: Any, table: Table) -> None:
    several = sorted(table.values("sigma"))
    all_axes = figure.subplots(1, len(several), squeeze=False)[0]
    for axes, sigma in zip(all_axes, several, strict=True):
        some = table.where(sigma=sigma).ordered("k")
        k = some["k"]
        for column, label, style in (
            ("black_box_even", "lemma, all links alike", STYLES["unamplified"] | {"marker": "x"}),
            ("black_box", "lemma, links at their best", STYLES["mmcc_release"]),
            ("epsilon", "mixture of Gaussians, Poisson sampling", STYLES["upper"]),
            ("fixed_batches", "mixture, batches of a fixed size, any others", STYLES["cyclic"]),
        ):
            axes.plot(k, some[column], label=label, markersize=4, **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        plain_numbers(axes.xaxis, 1, 2, 4, 8, 16, 32)
        plain_numbers(axes.yaxis)
        axes.set_title(f"sigma = {sigma:g}", fontsize="medium")
        axes.set_xlabel("examples in the group")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel(f"{epsilon_at(DELTA)} (certified)")
    figure.suptitle(f"DP-SGD, {STEPS} steps, rate {RATE:g}", fontsize="medium")
    legend_below(figure, all_axes[0], 2)


STUDY = Study(
    name="group",
    title="Groups of examples under DP-SGD",
    keys=("sigma", "k"),
    columns={
        "sigma": "given",
        "k": "given: examples in the group",
        "epsilon": "certified upper bound: mixture of Gaussians, Poisson sampling",
        "remove": "its remove side",
        "add": "its add side",
        "black_box": "certified upper bound: from one example's epsilon, links at their best",
        "black_box_even": "certified upper bound: the same with all links alike (geometric sum)",
        "fixed_batches": "certified upper bound: batches of a fixed size, whatever others do",
        "fixed_batches_0_1": "upper bound in the paper's 0-1 setting only: others contribute zero",
    },
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        "Adjacency: k examples zeroed out (fixed batches: removed), the larger of remove and add; "
        "adaptive inputs, except in the 0-1 setting.  delta = 1e-5.  Empty: the lemma says nothing "
        "in floating point."
    ),
    size=(9.0, 4.2),
    empty=("black_box", "black_box_even"),
)
