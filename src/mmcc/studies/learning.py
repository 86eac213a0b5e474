"""The paper's learning experiment: trees on CIFAR-10, and what each analysis says of the same runs.

A run's accuracy depends on its noise alone, so its analyses are three places on one line: the
paper's algorithm, ours, and, for a run that it does not describe, the analysis without sampling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting.guarantee import rounded_down, rounded_up
from mmcc.accounting.parallel import Progress
from mmcc.strategies.base import Strategy
from mmcc.studies.drawing import STYLES, epsilon_at, legend_below, plain_numbers
from mmcc.studies.records import Row, Table
from mmcc.studies.study import MissingPartError, Report, Study

if TYPE_CHECKING:
    from mmcc.studies.cifar_data import Images

STEPS, RATE, DELTA, HEIGHT = 2000, 1 / 100, 1e-5, 8
APART = 100
"""Steps between two uses of an example in a fixed order: as many uses as Poisson's on average."""
TREE, RESTARTED = "one tree", "restarted trees"
TRAINED = {TREE: (35.5, 13.5, 120.0), RESTARTED: (15.6, 9.7, 50.0)}
"""Noise of the runs: our epsilon is about 2, 8 and 0.5."""
LEARNING_RATES = (0.15, 0.3, 0.05)
"""Of the runs with that noise."""
ACCOUNTED = (9.0, 11.0, 18.0, 25.0, 30.0, 40.0, 60.0, 80.0, 100.0, 160.0)
"""Noise at which nothing is trained: where do the analyses cross?"""
SEEDS = (0, 1, 2)
BRIEF = 100
"""Steps of a quick run: the first of the 2000, the same noise."""
ANALYSES = {
    "fixed_order": "without sampling: every 100th step, not these runs",
    "mmcc": "Poisson, paper's algorithm",
    "upper": "Poisson, ours",
}
LOOKS = {"fixed_order": "cyclic", "mmcc": "mmcc_release", "upper": "upper"}
DATA = "cifar-10"


def cifar10(
    folder: str | Path,
    *,
    quick: bool = False,
    progress: Progress | None = None,
    data: str | Path = DATA,
) -> Report:
    """Accuracy against epsilon for trees on CIFAR-10; `data` is a folder that has the images.

    A run takes minutes; points that the CSV has are not trained again.
    """
    return replace(STUDY, measure=lambda point: _measured(point, data, progress)).run(
        folder, quick, progress
    )


def _points(quick: bool) -> list[Row]:
    brief = [_point(name, TRAINED[name][0], BRIEF, 0) for name in TRAINED]
    if quick:
        return brief
    accounted = [_point(name, sigma, 0, 0) for name in TRAINED for sigma in ACCOUNTED]
    trained = [
        _point(name, TRAINED[name][level], STEPS, seed)
        for seed in SEEDS
        for level in range(len(LEARNING_RATES))
        for name in TRAINED
    ]
    return brief + accounted + trained


def _point(strategy: str, sigma: float, trained: int, seed: int) -> Row:
    return {"strategy": strategy, "sigma": sigma, "trained": trained, "seed": seed}


def _strategy(name: str) -> Strategy:
    return strategies.binary_tree(STEPS) if name == TREE else strategies.tree_restart(STEPS, HEIGHT)


def _measured(point: Row, data: str | Path = DATA, progress: Progress | None = None) -> Row:
    learnt: Row = {"learning_rate": None, "accuracy": None}
    if point["trained"]:
        rate = LEARNING_RATES[TRAINED[point["strategy"]].index(point["sigma"])]
        learnt = {"learning_rate": rate, "accuracy": _accuracy(point, rate, data, progress)}
    return {**point, **learnt, **_epsilons(point["strategy"], point["sigma"])}


@cache
def _epsilons(name: str, sigma: float) -> Row:
    strategy, poisson = _strategy(name), sampling.Poisson(RATE)
    in_turn = sampling.CyclicPoisson(1.0, APART)
    found = mmcc.bracket(strategy, poisson, sigma=sigma, delta=DELTA)
    papers = mmcc.epsilon(strategy, poisson, sigma=sigma, delta=DELTA, method="mmcc")
    return {
        "fixed_order": mmcc.epsilon(strategy, in_turn, sigma=sigma, delta=DELTA).epsilon,
        "mmcc": papers.epsilon,
        "upper": found.upper,
        "lower": found.lower,
    }


def _accuracy(point: Row, rate: float, data: str | Path, progress: Progress | None) -> float:
    if find_spec("torch") is None or find_spec("opacus") is None:
        raise MissingPartError("cifar10 trains with PyTorch and Opacus: pip install 'mmcc[train]'.")
    from mmcc.studies import cifar_training

    train, test = _images(str(data))
    work = f"cifar10, {point['strategy']}, sigma {point['sigma']:g}: steps of {point['trained']}"
    return cifar_training.accuracy(
        train,
        test,
        strategy=_strategy(point["strategy"]),
        sampling=sampling.Poisson(RATE),
        sigma=point["sigma"],
        delta=DELTA,
        seed=point["seed"],
        trained=point["trained"],
        recipe=cifar_training.Recipe(rate=rate),
        progress=None if progress is None else lambda done: progress(work, done),
    )


@cache
def _images(data: str) -> tuple[Images, Images]:
    from mmcc.studies.cifar_data import read

    return read(data)


# ------------------------------------------------------------------------------- what they show


def runs(table: Table, strategy: str) -> Iterator[tuple[Row, float, float, int]]:
    """For each noise: a row with its epsilons, accuracy's mean and deviation, number of runs."""
    some = table.where(strategy=strategy, trained=STEPS)
    for sigma in sorted(some.values("sigma")):
        found = some.where(sigma=sigma)
        spread = float(np.std(found["accuracy"], ddof=1)) if len(found) > 1 else 0.0
        yield found.rows[0], float(np.mean(found["accuracy"])), spread, len(found)


def better_from(table: Table, strategy: str, analysis: str) -> Row | None:
    """The least noise from which an analysis stays below the fixed order's; None: nowhere."""
    rows = table.where(strategy=strategy).ordered("sigma").rows
    found = None
    for row in reversed(rows):
        if row[analysis] >= row["fixed_order"]:
            break
        found = row
    return found


def _told(table: Table) -> str:
    words = []
    for name in table.values("strategy"):
        for row, mean, spread, count in runs(table, name):
            words.append(
                f"{name}, sigma {row['sigma']:g}: {100 * mean:.1f} % (deviation "
                f"{100 * spread:.1f}, {count} runs), epsilon {rounded_up(row['fixed_order'])} "
                f"without sampling, {rounded_up(row['mmcc'])} by the paper's algorithm, "
                f"{rounded_up(row['upper'])} by ours (at least {rounded_down(row['lower'])})"
            )
    if not words:
        words = ["no run of all steps yet"]
    return (
        f"CIFAR-10, {STEPS} steps, Poisson sampling at rate 1/100 (500 of 50,000 images expected), "
        f"one tree over all steps and restarted trees of height {HEIGHT}, each decoded causally "
        "after Honaker.  The same run has three epsilons: they differ by the analysis alone, and "
        "accuracy is the same.  "
        f"{'; '.join(words)}.  {' '.join(_crossings(table))}"
    )


def _crossings(table: Table) -> Iterator[str]:
    for name in table.values("strategy"):
        for analysis, words in (("mmcc", "the paper's algorithm"), ("upper", "ours")):
            found = better_from(table, name, analysis)
            if found is None:
                yield f"For {name} {words} is nowhere below the analysis without sampling."
            else:
                yield (
                    f"For {name} {words} is below the analysis without sampling from sigma "
                    f"{found['sigma']:g} on (epsilon {rounded_up(found[analysis])} and less)."
                )


def _drawn(figure: Any, table: Table) -> None:
    names = table.values("strategy")
    all_axes = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for axes, name in zip(all_axes, names, strict=True):
        found = list(runs(table, name))
        for analysis, label in ANALYSES.items():
            axes.errorbar(
                [row[analysis] for row, *_ in found],
                [100 * mean for _, mean, _, _ in found],
                yerr=[100 * spread for _, _, spread, _ in found],
                label=label,
                capsize=3,
                markersize=4,
                **STYLES[LOOKS[analysis]],
            )
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel(f"{epsilon_at(DELTA)} (certified)")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("accuracy on the test images, %")
    figure.suptitle("CIFAR-10, the same runs under three analyses", fontsize="medium")
    legend_below(figure, all_axes[0], len(ANALYSES))


STUDY = Study(
    name="cifar10",
    title="Trees on CIFAR-10: one run, three analyses",
    keys=("strategy", "sigma", "trained", "seed"),
    columns={
        "strategy": f"given: one tree over {STEPS} steps, or trees of height {HEIGHT} in turn",
        "sigma": "given: noise, in units of the clip norm",
        "trained": "given: steps that were trained; 0: accounting alone",
        "seed": "given: of the first weights, the batches and the noise",
        "learning_rate": "given: of the plain SGD with momentum, before its cooldown",
        "accuracy": "measured: part of the 10,000 test images that are recognised",
        "fixed_order": (
            "certified upper bound for other runs: every example in every 100th step, no sampling"
        ),
        "mmcc": "certified upper bound: Poisson, the paper's algorithm, release order",
        "upper": "certified upper bound: Poisson, ours (method tight)",
        "lower": "certified lower bound under Poisson, whatever the method",
    },
    points=_points,
    measure=_measured,
    tell=_told,
    draw=_drawn,
    assumed=(
        "Adjacency zero-out, the larger of remove and add; adaptive inputs; delta = 1e-5; epsilons "
        f"are of all {STEPS} steps.  The runs are Poisson sampled: the analysis without sampling "
        "would hold for runs in a fixed order with the same noise, which have the same number of "
        "uses an example on average.  Each epsilon is for one run; all seeds together compose, and "
        "the learning rates were chosen by looking at accuracies, which no epsilon here covers.  "
        "Error bars: standard deviation over seeds."
    ),
    size=(8.6, 4.4),
)
