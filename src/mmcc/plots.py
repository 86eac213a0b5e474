"""Pictures of certified numbers.  Needs matplotlib, which is imported when a picture is drawn."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import mmcc
from mmcc._outputs import check_place
from mmcc.accounting._best_bound import amplified, lower_epsilon
from mmcc.accounting._bounds import PLAIN, Bound, Problem, known_bounds
from mmcc.accounting._parallel import Progress, spread
from mmcc.design import Comparison
from mmcc.design._table import UNAMPLIFIED
from mmcc.errors import MmccError, ParameterError
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

FORMATS = (".png", ".svg", ".pdf")
POINTS = 7
RANGE = 2.0
"""Sigmas from the given one divided by this to the given one times this."""
TALLEST = 100.0
"""Bounds more than this many times the lower one are left out of the picture."""
PLAIN_LINE: dict[str, Any] = {"color": "0.6", "linestyle": ":"}
LINES: tuple[dict[str, Any], ...] = (
    {"color": "tab:orange", "linestyle": "--"},
    {"color": "tab:purple", "linestyle": "-"},
    {"color": "tab:blue", "linestyle": "-"},
    {"color": "tab:green", "linestyle": "-."},
    {"color": "tab:red", "linestyle": "--"},
    {"color": "tab:brown", "linestyle": "-."},
)
"""Of the amplified bounds, in the order in which they are known."""


def check_file(file: str | Path) -> None:
    """Refuse a picture that could not be drawn, before the long work starts."""
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        raise ParameterError(f"a plot needs a {', '.join(FORMATS)} file, got {path.name!r}.")
    check_place(path, "plot")
    if find_spec("matplotlib") is None:
        raise ParameterError("plots need matplotlib: pip install 'mmcc[plot]'.")


def epsilon_against_sigma(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    file: str | Path,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> None:
    """Draw the certified lower bound and every upper bound around a noise level.

    The points are computed one by one, on the executor if there is one.
    """
    check_file(file)
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    sigmas = sigma * np.geomspace(1 / RANGE, RANGE, POINTS)
    bounds = [PLAIN, *amplified(Problem(strategy, sampling, sigma))]
    points = list(product((None, *bounds), sigmas.tolist()))
    found: list[float] = []
    for value in spread(partial(_point, strategy, sampling, delta), points, executor, chunk=1):
        found.append(value)
        if progress is not None:
            progress("points of the plot", len(found))
    lower, *rows = np.array(found).reshape(-1, POINTS)
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    best = np.fmin.reduce(rows)
    known = lower > 0
    axes.fill_between(sigmas[known], lower[known], best[known], color="tab:blue", alpha=0.2)
    for bound, values in zip(bounds, rows, strict=True):
        shown = np.where(values <= TALLEST * np.maximum(best, 1e-12), values, np.nan)
        axes.plot(sigmas, shown, label=bound.label, marker=".", **_line(bound))
    axes.plot(
        sigmas[known], lower[known], color="black", linewidth=1, label="lower bound, any method"
    )
    axes.axvline(sigma, color="0.8", linewidth=1, zorder=0)
    if not np.nanmax([*lower, *best], initial=0.0) > 0:
        raise ParameterError("every epsilon here is 0: there is nothing to draw on a log scale.")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("noise multiplier sigma")
    axes.set_ylabel(f"epsilon at delta = {delta:g}, certified")
    setting = " (amplified: the paper's 0-1 setting)" if sampling.setting else ""
    axes.set_title(f"{strategy!r}, {sampling!r}{setting}", fontsize="medium")
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=150)


def errors_against_epsilon(found: Comparison, file: str | Path) -> None:
    """Draw the RMSE of every certified row against epsilon; DP-SGD is black.

    Rows without amplification are dotted, other reservations and estimates are left out.
    """
    check_file(file)
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    plain = {UNAMPLIFIED}
    for row in found.rows:
        if row.certified and row.rmse and not row.at_tie and {*row.reservations} <= plain:
            dotted = " (without amplification)" if row.reservations else ""
            name = f"{row.strategy}, {row.scheme}{dotted}"
            curves.setdefault((name, ":" if dotted else "-"), []).append((row.epsilon, row.rmse))
    if not curves:
        raise ParameterError("no row has a certified error: there is nothing to draw.")
    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for (name, style), points in curves.items():
        axes.plot(*zip(*points, strict=True), label=name, linestyle=style, marker=".")
    base = [(row.epsilon, row.rmse) for row in found.baseline if row.rmse]
    axes.plot(*zip(*base, strict=True), label="DP-SGD", color="black", marker="o")
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"epsilon at delta = {found.delta:g}, certified")
    axes.set_ylabel("RMSE of prefix sums, in units of the clip norm")
    axes.set_title(f"{found.steps} steps, rate {found.rate:g}", fontsize="medium")
    axes.legend(fontsize="x-small")
    figure.savefig(file, dpi=150)


def _line(bound: Bound) -> dict[str, Any]:
    """The colour of a bound, the same in every picture."""
    known = [other for other in known_bounds() if other.amplified]
    return LINES[known.index(bound) % len(LINES)] if bound in known else PLAIN_LINE


def _point(
    strategy: Strategy, sampling: Scheme, delta: float, point: tuple[Bound | None, float]
) -> float:
    """One point of a curve, the lower one for None; NaN where a bound cannot be computed."""
    bound, sigma = point
    try:
        if bound is None:
            return lower_epsilon(Problem(strategy, sampling, sigma), delta)
        found = mmcc.epsilon(strategy, sampling, sigma=sigma, delta=delta, method=bound.name)
        return found.epsilon
    except MmccError:
        return float("nan")
