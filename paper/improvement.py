"""Improvement at p = 1/n: epsilon of one fixed participation over epsilon with sampling.

In: a strategy, sigma.  Out: a row with every analysis, lines through the ratios, panels.
Rounding: ratios divide by certified upper bounds, so a proven improvement is at least the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import mmcc
from mmcc import sampling
from mmcc.strategies import Strategy
from paper.drawing import bars, curve, legend_below, plain_numbers
from paper.records import FloatArray, Table
from paper.rounding import each_at_least, each_at_most

DELTA = 1e-6
COLUMNS: Mapping[str, str] = {
    "c": "given: sigma over the largest column norm",
    "n": "given: steps; the sampling probability is 1/n",
    "column_norm": "computed: the largest column norm of C",
    "sigma": "given: c times the column norm",
    "unamplified": "certified: epsilon of one participation in a fixed step, no sampling",
    "mmcc_release": "certified upper bound: the paper's algorithm, rows in release order",
    "mmcc_reversed": "certified upper bound: the paper's algorithm, rows in reverse order",
    "upper": "certified upper bound: ours (method tight)",
    "lower": "certified lower bound on the true epsilon, whatever the method",
    "estimate": "Monte Carlo estimate of the true epsilon, not a proof",
    "estimate_low": "lower end of its 99 % interval",
    "estimate_high": "upper end of its 99 % interval",
}
ASSUMED = (
    "Adjacency zero-out, the larger of remove and add.  Poisson sampling with probability 1/n; "
    "adaptive inputs (rows are causal).  delta = 1e-6.  Estimates are for fixed inputs, which are "
    "the worst ones; they come from seed 0."
)
EXACT_COLUMNS = 512
"""Up to this many steps, method `mmcc` keeps the overlaps of any matrix."""
TAILS = (
    "The paper's algorithm pays for the participations seen so far (its s_ij) with the smaller of "
    "two bounds: the paper's, by the binomial law and the largest overlaps, and Chernoff's.  Trees "
    "and narrow bands have both at every n; of other matrices the overlaps are kept up to "
    f"n = {EXACT_COLUMNS}, so beyond it their numbers are of Chernoff's bound alone."
)
"""Which of the bounds on s_ij numbers of method mmcc use; text of several pages."""
ANALYSES = ("mmcc_release", "mmcc_reversed", "upper")


@dataclass(frozen=True)
class Line:
    """The least-squares line, and how much of the variance it explains."""

    slope: float
    intercept: float
    r_squared: float


def measure(strategy: Strategy, c: float) -> dict[str, Any]:
    """All analyses of a strategy at sigma = c column norms."""
    n = strategy.steps
    norm = strategy.sensitivity(n)
    noise: dict[str, Any] = {"sigma": c * norm, "delta": DELTA}
    scheme = sampling.Poisson(1 / n)
    one = mmcc.epsilon(strategy, sampling.CyclicPoisson(1, n), method="unamplified", **noise)
    orders = {
        f"mmcc_{order}": mmcc.epsilon(strategy, scheme, method="mmcc", order=order, **noise).epsilon
        for order in ("release", "reversed")
    }
    found = mmcc.bracket(strategy, scheme, estimate=True, **noise)
    assert found.estimate is not None
    return {
        "c": c,
        "n": n,
        "column_norm": norm,
        "sigma": noise["sigma"],
        "unamplified": one.epsilon,
        **orders,
        "upper": found.upper,
        "lower": found.lower,
        "estimate": found.estimate.epsilon,
        "estimate_low": found.estimate.low,
        "estimate_high": found.estimate.high,
    }


def axis_of(table: Table) -> FloatArray:
    """sqrt(log2 n + 1), the paper's horizontal axis."""
    return np.asarray(np.sqrt(np.log2(table["n"]) + 1))


def ratios(table: Table, analysis: str) -> FloatArray:
    """How many times smaller epsilon is with sampling, by an analysis."""
    return np.asarray(table["unamplified"] / table[analysis])


def fit(table: Table, analysis: str) -> Line:
    """The line through the improvement against sqrt(log2 n + 1)."""
    x, y = axis_of(table), ratios(table, analysis)
    slope, intercept = np.polyfit(x, y, 1)
    left = y - (slope * x + intercept)
    total = float(np.sum((y - y.mean()) ** 2))
    return Line(float(slope), float(intercept), 1 - float(np.sum(left**2)) / total)


def at(table: Table, c: float, n: int, analysis: str) -> float:
    """The improvement at one point; NaN if it was not computed."""
    row = table.only(c=c, n=n)
    return math.nan if row is None else row["unamplified"] / row[analysis]


def comparable(table: Table) -> Table:
    """The rows whose n has been computed for every c."""
    shared = set.intersection(*(set(table.where(c=c).values("n")) for c in table.values("c")))
    return Table(tuple(row for row in table.rows if row["n"] in shared))


def sentences(table: Table, reverse: str) -> str:
    """Ratios at the largest n and lines through all points, by every analysis."""
    every, table = table, comparable(table)
    several = sorted(table.values("c"))
    n = int(table["n"].max())
    names = {"mmcc_release": "the paper's algorithm in release order", "mmcc_reversed": reverse}
    shares, lines = [], []
    for analysis in ANALYSES:
        name = names.get(analysis, "ours")
        shares.append(f"{each_at_least(at(table, c, n, analysis) for c in several)} by {name}")
        found = [fit(table.where(c=c), analysis) for c in several]
        lines.append(
            f"{_list((line.r_squared for line in found), '.4f')} (slopes "
            f"{_list(line.slope for line in found)}) by {name}"
        )
    best = each_at_most(at(table, c, n, "lower") for c in several)
    missing = sorted(set(every.values("n")) - set(table.values("n")))
    left_out = (
        f"  Left out, because it was not computed for every c: n = {', '.join(map(str, missing))}."
        if missing
        else ""
    )
    return (
        f"At n = {n} and c = {', '.join(f'{c:g}' for c in several)} epsilon is smaller by factors "
        f"{'; '.join(shares)}; by more than {best} it cannot be.  Least-squares lines in "
        f"sqrt(log2 n + 1) through {len(table.where(c=several[0]))} points have R^2 "
        f"{'; '.join(lines)}.{left_out}"
    )


def _list(numbers: Iterable[float], form: str = ".3f") -> str:
    return ", ".join(f"{number:{form}}" for number in numbers)


def panels(figure: Any, table: Table, what: str, reverse: str, marked: int | None = None) -> None:
    """One panel for each c: ratios with their lines, the estimate with its interval.

    The paper did not compute what is beyond `marked` steps.
    """
    several = sorted(table.values("c"))
    all_axes = figure.subplots(1, len(several), sharey=True, squeeze=False)[0]
    labels = {
        "mmcc_release": "paper's algorithm, release order (certified)",
        "mmcc_reversed": f"paper's algorithm, {reverse} (certified)",
        "upper": "ours (certified)",
    }
    for axes, c in zip(all_axes, several, strict=True):
        some = table.where(c=c).ordered("n")
        x = axis_of(some)
        axes.axhline(1, color="0.5", linewidth=0.8, linestyle=":")
        for analysis in ANALYSES:
            line = fit(some, analysis)
            axes.plot(x, line.slope * x + line.intercept, color="0.75", linewidth=0.8, zorder=0)
            curve(
                axes,
                x,
                ratios(some, analysis),
                analysis,
                labels[analysis],
            )
        one = some["unamplified"]
        bars(
            axes,
            x,
            one / some["estimate"],
            one / some["estimate_high"],
            one / some["estimate_low"],
            "estimate, 99 % interval (not a proof)",
        )
        if marked is not None and some["n"].max() > marked:
            edge = math.sqrt(math.log2(marked) + 1)
            axes.axvspan(edge, float(x.max()) * 1.02, color="0.94", zorder=-1)
            axes.text(
                edge,
                0.02,
                " beyond the paper",
                fontsize="x-small",
                color="0.4",
                va="bottom",
                transform=axes.get_xaxis_transform(),
            )
        axes.set_title(f"c = {c:g}", fontsize="medium")
        axes.set_xlabel("sqrt(log2 n + 1)")
        _steps_above(axes)
    all_axes[0].set_ylabel("epsilon unamplified / epsilon with sampling")
    legend_below(figure, all_axes[0], 2)
    figure.suptitle(what, fontsize="medium")


def _steps_above(axes: Any) -> None:
    """The number of steps on a second axis."""
    top = axes.secondary_xaxis(
        "top",
        functions=(lambda x: 2 ** (x**2 - 1), lambda n: np.sqrt(np.log2(np.maximum(n, 1)) + 1)),
    )
    plain_numbers(top.xaxis, 2, 16, 128, 1024, 4096)
    top.tick_params(labelsize="x-small")
