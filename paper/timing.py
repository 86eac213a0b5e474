"""How long the accounting takes: processor seconds against the number of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import mmcc
from mmcc import sampling, strategies
from mmcc.strategies import Strategy
from paper.drawing import legend_below, plain_numbers
from paper.improvement import EXACT_COLUMNS, TAILS
from paper.records import Row, Table
from paper.study import Study

DELTA, MULTIPLIER, BANDS = 1e-6, 5.0, 8
PAPER_STEPS = 2000
PAPER_HOURS = 2.0
"""The least that "several hours" can mean."""


def _bands(steps: int) -> Strategy:
    return strategies.toeplitz(strategies.continual_counting(BANDS).coefficients, steps)


def _as_an_array(make: Callable[[int], Strategy]) -> Callable[[int], Strategy]:
    """The same matrix as an array, so that the accounting does not know its structure."""
    return lambda steps: strategies.dense(make(steps).to_dense())


TREE_ARRAY, BANDS_ARRAY = "tree as an array", f"{BANDS} bands as an array"
MECHANISMS: Mapping[str, Callable[[int], Strategy]] = {
    "dense": _as_an_array(strategies.continual_counting),
    "Toeplitz": strategies.continual_counting,
    "tree": strategies.binary_tree,
    TREE_ARRAY: _as_an_array(strategies.binary_tree),
    "banded": _bands,
    BANDS_ARRAY: _as_an_array(_bands),
}
SAME_MATRIX = {"tree": TREE_ARRAY, "banded": BANDS_ARRAY}
"""Structures whose rows share distributions, and the same matrices as arrays."""
SIZES = {
    "dense": (64, 128, 256, 512, 1024, 2048),
    "Toeplitz": (64, 128, 256, 512, 1024, 2048, 4096),
    "tree": (2**6, 2**8, 2**9, 2**10, 2**11, 2**12, 2**14, 2**16, 2**18, 2**20),
    TREE_ARRAY: (512, 1024),
    "banded": (64, 256, 512, 1024, 2048, 4096),
    BANDS_ARRAY: (512, 1024),
}
QUICK = (64, 256, 1024)
STYLES = {
    "dense": {"color": "tab:orange", "marker": "s", "linestyle": "--"},
    "Toeplitz": {"color": "tab:blue", "marker": "o", "linestyle": "-"},
    "tree": {"color": "#007a5a", "marker": "^", "linestyle": "-."},
    TREE_ARRAY: {"color": "#007a5a", "marker": "^", "linestyle": "--", "fillstyle": "none"},
    "banded": {"color": "#b05090", "marker": "D", "linestyle": ":"},
    BANDS_ARRAY: {"color": "#b05090", "marker": "D", "linestyle": "--", "fillstyle": "none"},
}
NAMES = {
    "dense": "counting matrix as an array",
    "Toeplitz": "counting matrix, known to be Toeplitz",
    "tree": "binary tree",
    TREE_ARRAY: "binary tree as an array",
    "banded": f"{BANDS} bands, Toeplitz",
    BANDS_ARRAY: f"{BANDS} bands as an array",
}


def _points(quick: bool) -> list[Row]:
    return [
        {"structure": name, "n": n}
        for name, sizes in SIZES.items()
        for n in sizes
        if not quick or n in QUICK
    ]


@cache
def _warm() -> None:
    """Run everything that is compiled once, so that no timing includes it."""
    for make in MECHANISMS.values():
        _both(make(16))


def _both(strategy: Strategy) -> dict[str, float]:
    """The paper's algorithm and our bracket, each with its processor seconds."""
    n = strategy.steps
    noise: dict[str, Any] = {"sigma": MULTIPLIER * strategy.sensitivity(n), "delta": DELTA}
    scheme = sampling.Poisson(1 / n)
    start = time.process_time()
    paper = mmcc.epsilon(strategy, scheme, method="mmcc", **noise)
    middle = time.process_time()
    ours = mmcc.bracket(strategy, scheme, **noise)
    end = time.process_time()
    return {
        "mmcc_seconds": middle - start,
        "mmcc_release": paper.epsilon,
        "bracket_seconds": end - middle,
        "upper": ours.upper,
        "lower": ours.lower,
    }


def _measure(point: Row) -> Row:
    _warm()
    strategy = MECHANISMS[point["structure"]](point["n"])
    return {"structure": point["structure"], "n": point["n"], **_both(strategy)}


def papers_size(table: Table) -> Row | None:
    """The dense matrix of the size for which the paper states its time."""
    near = [row for row in table.where(structure="dense").rows if row["n"] >= PAPER_STEPS]
    return min(near, key=lambda row: int(row["n"]), default=None)


@dataclass(frozen=True)
class Pair:
    """One matrix twice: with its structure, and as an array."""

    known: Row
    array: Row

    @property
    def speedup(self) -> float:
        """How many times longer the paper's algorithm takes with the array."""
        return float(self.array["mmcc_seconds"] / self.known["mmcc_seconds"])

    @property
    def looser(self) -> float:
        """Epsilon with the array over epsilon with the structure, by the paper's algorithm."""
        return float(self.array["mmcc_release"] / self.known["mmcc_release"])


def pairs(table: Table) -> list[Pair]:
    """All pairs that were computed, by the number of steps."""
    found = []
    for name, array in SAME_MATRIX.items():
        for row in table.where(structure=array).ordered("n").rows:
            known = table.only(structure=name, n=row["n"])
            if known is not None:
                found.append(Pair(known, row))
    return found


def _describe(table: Table) -> str:
    words = []
    for name in MECHANISMS:
        some = table.where(structure=name).ordered("n")
        if not len(some):
            continue
        last = some.rows[-1]
        words.append(
            f"{NAMES[name]}, n = {last['n']}: {last['mmcc_seconds']:.2g} s for the paper's "
            f"algorithm, {last['bracket_seconds']:.2g} s for our bracket"
        )
    told = (
        "Processor seconds on the machine of the run, imports and compilation left out, p = 1/n, "
        f"sigma of {MULTIPLIER:g} column norms; they vary from machine to machine and run to run.  "
        f"{'; '.join(words)}.  {_alike(table)}"
    )
    row = papers_size(table)
    if row is None:
        return (
            f"{told}The paper's implementation took several hours at n of about {PAPER_STEPS}; "
            "that size is in the full study."
        )
    return (
        f"{told}The paper's implementation took several hours at n of about {PAPER_STEPS}: if that "
        f"is {PAPER_HOURS:g} hours, and machines were alike, the algorithm (with the cheaper of "
        f"its bounds) is here {PAPER_HOURS * 3600 / row['mmcc_seconds']:.0f} times faster, and the "
        f"tighter bracket {PAPER_HOURS * 3600 / row['bracket_seconds']:.0f} times."
    )


def _alike(table: Table) -> str:
    """What the paper's algorithm gains from knowing the structure of the same matrix."""
    words = [
        f"{NAMES[pair.known['structure']]}, n = {pair.known['n']}: {pair.speedup:.1f} times"
        for pair in pairs(table)
    ]
    if not words:
        return ""
    return (
        "The same matrix as an array takes the paper's algorithm longer (beyond n = "
        f"{EXACT_COLUMNS} with the cheaper of its bounds, so by more if they were alike): "
        f"{'; '.join(words)}.  "
    )


def _draw(figure: Any, table: Table) -> None:
    all_axes = figure.subplots(1, 2, sharey=True)
    titles = ("the paper's algorithm (mmcc)", "our bracket, both certified ends")
    columns = ("mmcc_seconds", "bracket_seconds")
    for axes, column, title in zip(all_axes, columns, titles, strict=True):
        for name in MECHANISMS:
            some = table.where(structure=name).ordered("n")
            axes.plot(some["n"], some[column], label=NAMES[name], markersize=4, **STYLES[name])
        hours = [PAPER_HOURS * 3600, 4 * PAPER_HOURS * 3600]
        axes.plot([PAPER_STEPS] * 2, hours, color="black", linewidth=4, solid_capstyle="butt")
        axes.annotate(
            "the paper's implementation:\nseveral hours at n = 2000",
            (PAPER_STEPS, hours[0]),
            xytext=(-5, 0),
            textcoords="offset points",
            fontsize="x-small",
            ha="right",
        )
        if (row := papers_size(table)) is not None:
            _mark_ratio(axes, row["n"], row[column], hours[0])
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        plain_numbers(axes.xaxis, 64, 1024, 16384, 262144)
        plain_numbers(axes.yaxis, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("steps n")
        axes.grid(alpha=0.3)
    all_axes[0].set_ylabel("processor seconds")
    legend_below(figure, all_axes[0], 3)


def _mark_ratio(axes: Any, n: float, seconds: float, hours: float) -> None:
    """An arrow from the paper's time down to ours."""
    axes.annotate(
        "",
        (n, 1.3 * seconds),
        xytext=(n, hours),
        arrowprops={"arrowstyle": "->", "color": "0.4", "linewidth": 0.8},
    )
    middle = (hours * seconds) ** 0.5
    axes.text(n, middle, f" {hours / seconds:.0f} times", fontsize="x-small", color="0.3")


STUDY = Study(
    name="speed",
    title="How long it takes",
    keys=("structure", "n"),
    columns={
        "structure": "given: what C is, and what the accounting is told of it",
        "n": "given: steps; the sampling probability is 1/n",
        "mmcc_seconds": "measured on the machine of the run: processor seconds of method mmcc",
        "mmcc_release": "certified upper bound: epsilon of method mmcc, release order",
        "bracket_seconds": "measured on the machine of the run: processor seconds of the bracket",
        "upper": "certified upper bound: ours",
        "lower": "certified lower bound, whatever the method",
    },
    points=_points,
    measure=_measure,
    describe=_describe,
    draw=_draw,
    assumed=(
        "Adjacency zero-out, both sides computed; Poisson sampling with probability 1/n, adaptive "
        f"inputs, delta = 1e-6.  {TAILS}  Here that is the arrays and the counting matrix from "
        f"n = {2 * EXACT_COLUMNS} on: their times are of less work, their epsilons larger."
    ),
    size=(9.0, 4.8),
    empty=(),
)
