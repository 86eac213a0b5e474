"""The paper's learning experiment: trees on CIFAR-10, and the epsilon of each analysis.

Accuracy depends on the noise, not on the analysis.  The runs are Poisson sampled, and have an
epsilon by the paper's algorithm and a smaller one by ours.  A run in a fixed order with the same
noise would have a third one, without sampling; no such run is trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import mmcc
from mmcc import sampling, strategies
from mmcc.strategies import Strategy
from paper.drawing import STYLES, epsilon_at, legend_below, plain_numbers
from paper.records import Row, Table
from paper.rounding import rounded_down, rounded_up
from paper.study import MissingPartError, Progress, Report, Study

if TYPE_CHECKING:
    from paper.cifar_data import Images

STEPS, RATE, DELTA, HEIGHT = 2000, 1 / 100, 1e-5, 8
APART = 100
"""Steps between two uses of an example in a fixed order: as many uses as Poisson's on average."""
TREE, RESTARTED = "one tree", "restarted trees"
TRAINED = {TREE: (35.5, 13.5, 120.0), RESTARTED: (15.6, 9.7, 50.0)}
"""Noise of the runs, at which our epsilon is about 2, 8 and 0.5."""
LEARNING_RATES = (0.15, 0.3, 0.05)
"""Seeds of the runs with that noise."""
ACCOUNTED = (9.0, 11.0, 18.0, 25.0, 30.0, 40.0, 60.0, 80.0, 100.0, 160.0)
"""Noise levels without training: where do the analyses cross?"""
SEEDS = (0, 1, 2)
ORDERS: tuple[Literal["release", "reversed"], ...] = ("release", "reversed")
BRIEF = 100
"""Steps of a quick run: the first of the 2000, with the same noise."""
LABELS = {
    "fixed_order": "fixed order, no sampling: not these runs, the same noise",
    "mmcc_release": "Poisson, paper's algorithm, release order",
    "mmcc_reversed": "Poisson, paper's algorithm, roots first",
    "upper": "Poisson, ours",
}
NAMES = {
    "mmcc_release": "the paper's algorithm in release order",
    "mmcc_reversed": "the same with roots first",
    "upper": "ours",
}
DATA = "cifar-10"


@dataclass(frozen=True)
class Runs:
    """The results of runs with the same noise."""

    row: Row
    """The row of one of them, for its epsilons."""
    accuracy: float
    """Their mean accuracy."""
    spread: float
    """Their standard deviation; NaN for a single run."""
    count: int

    def words(self) -> str:
        """The accuracy in per cent, with the deviation if there is one."""
        told = f"{100 * self.accuracy:.1f} %"
        several = f" (deviation {100 * self.spread:.1f}, {self.count} runs)"
        return told + (several if self.count > 1 else " (one run)")


def cifar10(
    folder: str | Path,
    *,
    quick: bool = False,
    progress: Progress | None = None,
    data: str | Path = DATA,
) -> Report:
    """Accuracy against epsilon for trees on CIFAR-10; `data` is a folder with the images.

    A run takes minutes; points in the CSV are not trained again.
    """
    return replace(STUDY, measure=lambda point: _measure(point, data, progress)).run(
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


def _measure(point: Row, data: str | Path = DATA, progress: Progress | None = None) -> Row:
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
    orders = {
        f"mmcc_{order}": mmcc.epsilon(
            strategy, poisson, sigma=sigma, delta=DELTA, method="mmcc", order=order
        ).epsilon
        for order in ORDERS
    }
    return {
        "fixed_order": mmcc.epsilon(strategy, in_turn, sigma=sigma, delta=DELTA).epsilon,
        **orders,
        "upper": found.upper,
        "lower": found.lower,
    }


def _accuracy(point: Row, rate: float, data: str | Path, progress: Progress | None) -> float:
    if find_spec("torch") is None or find_spec("opacus") is None:
        raise MissingPartError("cifar10 trains with PyTorch and Opacus: pip install 'mmcc[train]'.")
    from paper import cifar_training

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
    from paper.cifar_data import read

    return read(data)


# ------------------------------------------------------------------------------- what they show


def runs(table: Table, strategy: str, trained: int = STEPS) -> Iterator[Runs]:
    """The runs of so many steps, by noise level."""
    some = table.where(strategy=strategy, trained=trained)
    for sigma in sorted(some.values("sigma")):
        found = some.where(sigma=sigma)
        spread = float(np.std(found["accuracy"], ddof=1)) if len(found) > 1 else math.nan
        yield Runs(found.rows[0], float(np.mean(found["accuracy"])), spread, len(found))


def better_from(table: Table, strategy: str, analysis: str) -> Row | None:
    """The least noise from which an analysis stays below the fixed order's; None: nowhere."""
    found = None
    for row in reversed(table.where(strategy=strategy).ordered("sigma").rows):
        if row[analysis] >= row["fixed_order"]:
            break
        found = row
    return found


def _describe(table: Table) -> str:
    words = [
        f"{name}, sigma {run.row['sigma']:g}: {run.words()}, {_epsilon_words(run.row)}"
        for name in table.values("strategy")
        for run in runs(table, name, STEPS if _complete(table) else BRIEF)
    ]
    told = f"{STEPS} steps" if _complete(table) else f"the first {BRIEF} of {STEPS} steps"
    return (
        f"CIFAR-10, {told}, Poisson sampling at rate 1/100 (500 of 50,000 images expected), "
        f"one tree over all steps and restarted trees of height {HEIGHT}, each decoded causally "
        "after Honaker; accuracy on the test images, and epsilon of all steps by each analysis.  "
        f"{'; '.join(words)}.  {' '.join(_crossings(table))}"
    )


def _complete(table: Table) -> bool:
    """Whether any run was trained for all steps."""
    return len(table.where(trained=STEPS)) > 0


def _epsilon_words(row: Row) -> str:
    return (
        f"epsilon {rounded_up(row['mmcc_release'])} by the paper's algorithm "
        f"({rounded_up(row['mmcc_reversed'])} with roots first), {rounded_up(row['upper'])} by "
        f"ours (at least {rounded_down(row['lower'])}); a run in a fixed order would have "
        f"{rounded_up(row['fixed_order'])}"
    )


def _crossings(table: Table) -> Iterator[str]:
    for name in table.values("strategy"):
        noises = table.where(strategy=name).values("sigma")
        if len(noises) == 1:
            continue
        least, most = min(noises), max(noises)
        told = []
        for analysis, words in NAMES.items():
            found = better_from(table, name, analysis)
            told.append(
                f"{words} at no noise computed"
                if found is None
                else f"{words} from sigma {found['sigma']:g} on "
                f"(epsilon {rounded_up(found[analysis])} and less)"
            )
        yield (
            f"Of {len(noises)} noises from {least:g} to {most:g}, for {name} Poisson sampling is "
            f"below the fixed order by {'; by '.join(told)}."
        )


def _draw(figure: Any, table: Table) -> None:
    names = table.values("strategy")
    trained = STEPS if _complete(table) else BRIEF
    all_axes = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    for axes, name in zip(all_axes, names, strict=True):
        found = list(runs(table, name, trained))
        for analysis, label in LABELS.items():
            axes.errorbar(
                [run.row[analysis] for run in found],
                [100 * run.accuracy for run in found],
                yerr=[100 * run.spread for run in found],
                label=label,
                capsize=3,
                markersize=4,
                **STYLES["cyclic" if analysis == "fixed_order" else analysis],
            )
        axes.set_xscale("log")
        plain_numbers(axes.xaxis)
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel(f"{epsilon_at(DELTA)} (certified)")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("accuracy on the test images, %")
    figure.suptitle(f"CIFAR-10, {trained} steps: the same noise, analysed", fontsize="medium")
    legend_below(figure, all_axes[0], 2)


STUDY = Study(
    name="cifar10",
    title="Trees on CIFAR-10: the same noise, analysed",
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
        "mmcc_release": "certified upper bound: Poisson, the paper's algorithm, release order",
        "mmcc_reversed": "certified upper bound: Poisson, the paper's algorithm, roots first",
        "upper": "certified upper bound: Poisson, ours (method tight)",
        "lower": "certified lower bound under Poisson, whatever the method",
    },
    empty=("learning_rate", "accuracy"),
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        "Adjacency zero-out, the larger of remove and add; adaptive inputs; delta = 1e-5; epsilons "
        f"are of all {STEPS} steps.  The runs are Poisson sampled: `fixed_order` is not an epsilon "
        "of theirs, but that of runs in a fixed order with the same noise, which use an example as "
        "often as these do on average.  Each epsilon is for one run; all seeds together compose.  "
        "No epsilon covers what was chosen by looking: learning rates, by the accuracy on the same "
        "test images, and the scale of the colours, published statistics of the training images.  "
        "The network (three convolutions, 58,506 parameters) is not the paper's.  "
        "Error bars: standard deviation over seeds."
    ),
    size=(8.6, 4.4),
)
