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
from mmcc.accounting._bounds import chain
from mmcc.accounting._methods import Problem, sampled
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
STYLES: dict[str, dict[str, Any]] = {
    "unamplified": {"color": "0.6", "linestyle": ":"},
    "mmcc": {"color": "tab:orange", "linestyle": "--"},
    "chain": {"color": "tab:green", "linestyle": "-."},
    "projection": {"color": "tab:blue", "linestyle": "-"},
    "cascade": {"color": "tab:purple", "linestyle": "-"},
}
LABELS = {
    "unamplified": "unamplified",
    "mmcc": "MMCC, rows in release order (the paper's)",
    "chain": "chain",
    "projection": "projection",
    "cascade": "cascade",
}


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
    methods = _methods(strategy, sampling)
    points = list(product(("lower", *methods), sigmas.tolist()))
    found: list[float] = []
    for value in spread(partial(_point, strategy, sampling, delta), points, executor, chunk=1):
        found.append(value)
        if progress is not None:
            progress("points of the plot", len(found))
    lower, *rows = np.array(found).reshape(-1, POINTS)
    uppers = dict(zip(methods, rows, strict=True))
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    best = np.fmin.reduce(rows)
    known = lower > 0
    axes.fill_between(sigmas[known], lower[known], best[known], color="tab:blue", alpha=0.2)
    for method, values in uppers.items():
        shown = np.where(values <= TALLEST * np.maximum(best, 1e-12), values, np.nan)
        axes.plot(sigmas, shown, label=LABELS[method], marker=".", **STYLES[method])
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


def _methods(strategy: Strategy, sampling: Scheme) -> list[str]:
    """The bounds that there are for a scheme, in the order of drawing."""
    proven = sampled(sampling, strategy.steps)
    if proven is None:
        return ["unamplified"]
    if isinstance(proven, int):
        tree = strategy.hierarchy(proven) is not None
        return ["unamplified", "projection", *(["cascade"] if tree else [])]
    return ["unamplified", "mmcc", *(["chain"] if chain.applies(strategy) else []), "projection"]


def _point(strategy: Strategy, sampling: Scheme, delta: float, point: tuple[str, float]) -> float:
    """One point of a curve; NaN leaves a gap where a bound cannot be computed."""
    name, sigma = point
    try:
        if name == "lower":
            return Problem(strategy, sampling, sigma).lower_epsilon(delta)
        return mmcc.epsilon(strategy, sampling, sigma=sigma, delta=delta, method=name).epsilon
    except MmccError:
        return float("nan")
