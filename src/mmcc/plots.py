"""Plots of certified numbers.  Needs matplotlib, which is imported when a plot is drawn.

In: a mechanism, or a comparison.  Out: a matplotlib figure, written to a file if one is named.
The house style is in `mmcc._picture`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import mmcc
from mmcc._arrays import FloatArray
from mmcc._outputs import check_place
from mmcc._progress import so_far
from mmcc.accounting._best_bound import amplified, lower_epsilon
from mmcc.accounting._bounds import PLAIN, Bound, Problem, known_bounds
from mmcc.accounting._parallel import Progress, spread
from mmcc.design import Comparison
from mmcc.design._comparison import BASELINE, UNAMPLIFIED, Row, floored
from mmcc.errors import MmccError, ParameterError
from mmcc.sampling import Scheme
from mmcc.sampling._families_at_rate import in_fixed_order
from mmcc.strategies._base import Strategy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mmcc._picture import Picture

FORMATS = (".png", ".svg", ".pdf")
POINTS = 7
RANGE = 2.0
"""Plots cover sigmas from the given one divided by this to the given one times this."""
TALLEST = 12.0
"""Points above this many times the best bound are outside the plot."""
LOWER, ORDERED = "lower bound: no method can prove less", "as many epochs in a fixed order"
BETWEEN = "between the bounds: the truth"
BAR = 0.32
"""Height in inches per bar."""


def check_file(file: str | Path | None) -> None:
    """Raise an error for a plot that could not be drawn, before long work starts."""
    if file is not None:
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
    file: str | Path | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Figure:
    """Draw the certified lower bound and every upper bound around a noise level.

    The points are computed separately, on the executor if there is one.
    """
    check_file(file)
    from mmcc._picture import house_style, in_powers, picture

    sigmas = sigma * np.geomspace(1 / RANGE, RANGE, POINTS)
    bounds = [PLAIN, *amplified(Problem(strategy, sampling, sigma))]
    ordered = in_fixed_order(sampling, strategy.steps)
    asked: list[tuple[Bound | None, Scheme]] = [(None, sampling), *((b, sampling) for b in bounds)]
    if ordered is not None and ordered != sampling:
        asked.append((PLAIN, ordered))
    points = list(product(asked, sigmas.tolist()))
    found: list[float] = []
    for value in spread(partial(_point, strategy, delta), points, executor, chunk=1):
        found.append(value)
        if progress is not None:
            progress(so_far("the plot", "point", len(points)), len(found))
    lower, *rows = np.array(found).reshape(-1, POINTS)
    best = np.fmin.reduce(rows[: len(bounds)])
    if not np.nanmax([*lower, *best], initial=0.0) > 0:
        raise ParameterError("every epsilon here is 0, so there is nothing to draw on a log scale.")
    with house_style():
        figure, axes = picture(6.4, 4.8)
        _draw_bracket(axes, sigmas, lower, best)
        for (bound, scheme), values in zip(asked[1:], rows, strict=True):
            if bound is not None:
                _draw_bound(axes, sigmas, values, best, bound, ordered=scheme is ordered)
        _frame_bracket(axes, sigmas, np.array([lower, *rows]), best, sigma)
        column = strategy.sensitivity(strategy.steps)
        axes.set_xlabel(f"sigma, in clip norms (noise multiplier: sigma / {column:.4g})")
        axes.set_ylabel(f"epsilon at delta = {in_powers(delta)}, certified")
        setting = ", amplified in the paper's 0-1 setting" if sampling.setting else ""
        axes.set_title(f"{strategy!r}\n{sampling!r}{setting}")
        figure.legend(loc="outside lower left", ncols=2)  # where no line is
        figure.write(file)
    return figure


def _draw_bracket(axes: Axes, sigmas: FloatArray, lower: FloatArray, best: FloatArray) -> None:
    """Draw the area between the two ends, and the lower end if it is known anywhere."""
    from mmcc._picture import BLUE, DARK

    known = lower > 0
    if known.any():
        axes.fill_between(
            sigmas[known], lower[known], best[known], color=BLUE, alpha=0.2, lw=0, label=BETWEEN
        )
        axes.plot(sigmas[known], lower[known], color=DARK, linewidth=1.0, label=LOWER, zorder=3)


def _draw_bound(
    axes: Axes,
    sigmas: FloatArray,
    values: FloatArray,
    best: FloatArray,
    bound: Bound,
    *,
    ordered: bool,
) -> None:
    """Draw a bound's line if any of it is inside the plot; the legend has only such lines."""
    from mmcc._picture import DOTTED, GREY

    inside = values <= _roof(best)
    if not inside.any():
        return
    if ordered:
        style: dict[str, Any] = {"color": GREY, "linestyle": (0, (6, 2)), "label": ORDERED}
    elif not bound.amplified:
        style = {"color": GREY, "linestyle": DOTTED, "label": UNAMPLIFIED}
    else:
        style = {**_line(bound), "label": bound.label}
    axes.plot(sigmas, np.where(values > 0, values, np.nan), zorder=2, **style)


def _frame_bracket(
    axes: Axes, sigmas: FloatArray, every: FloatArray, best: FloatArray, sigma: float
) -> None:
    """Draw scales, ticks, and a line at the noise that was asked about."""
    from mmcc._picture import DARK, GREY, set_log

    roof = _roof(best)
    inside = every[(every > 0) & (every <= roof)]
    low, high = 0.85 * float(inside.min()), min(1.2 * float(inside.max()), roof)
    ends = float(sigmas[0]), float(sigmas[-1])
    set_log(axes, "x", ends)
    set_log(axes, "y", (low, high))
    axes.set_xlim(ends[0] / 1.03, ends[1] * 1.03)
    axes.set_ylim(low, high)
    axes.axvline(sigma, color=GREY, linewidth=1.0, zorder=1)
    axes.annotate(
        f"sigma = {sigma:.6g}",
        (sigma, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 5),
        textcoords="offset points",
        color=DARK,
        rotation=90,
        fontsize=8,
    )


def _roof(best: FloatArray) -> float:
    """The upper edge of a bracket's plot, which higher points do not extend."""
    return TALLEST * float(np.nanmax(best))


def errors_against_epsilon(found: Comparison, file: str | Path | None = None) -> Figure:
    """Draw the RMSE of every certified row: bars at one epsilon, beside DP-SGD's at several.

    Rows without amplification are marked; other reservations and estimates are left out.
    """
    check_file(file)
    from mmcc._picture import house_style, in_powers

    base = [row for row in found.baseline if row.rmse]
    certified = [row for row in found.rows if _drawn(row)]
    if not certified:
        raise ParameterError("no row has a certified error, so there is nothing to draw.")
    rows = [row for row in certified if not _is_dp_sgd(row, base)]
    draw = _bars if len(found.epsilons) == 1 else _curves
    with house_style():
        figure = draw(base, rows, f"RMSE of {found.workload}")
        (axes,) = figure.axes
        at = f"epsilon {found.epsilons[0]:g}, " if len(found.epsilons) == 1 else ""
        axes.set_title(
            f"{found.steps} steps, rate {found.rate:g}, {at}delta {in_powers(found.delta)}; "
            "certified noise"
        )
        figure.write(file)
    return figure


def _drawn(row: Row) -> bool:
    """Whether a row has a certified error and no reservation except missing amplification."""
    return bool(row.certified and row.rmse and not row.at_tie) and {*row.reservations} <= {
        UNAMPLIFIED
    }


def _is_dp_sgd(row: Row, base: Sequence[Row]) -> bool:
    """Whether a row repeats the baseline, which is drawn already."""
    return not row.correlated and row.sampling in [one.sampling for one in base]


def _bars(base: Sequence[Row], rows: Sequence[Row], error: str) -> Picture:
    """One bar per row, least error on top; DP-SGD is dark, with a line at its error."""
    from mmcc._picture import DARK, GREY, MARKERS, PALE, picture

    ranked = sorted((*base, *rows), key=lambda row: row.rmse or math.inf)
    colours, markers = _looks(rows)
    figure, axes = picture(6.8, 1.3 + BAR * len(ranked))
    axes.grid(visible=False)  # the bars have their numbers beside them
    dp_sgd = base[0].rmse or math.nan
    longest = max(row.rmse or 0.0 for row in ranked)
    for place, row in enumerate(ranked):
        value = row.rmse or 0.0
        own = row.verdict == BASELINE
        plain = bool(row.reservations)
        colour = DARK if own else colours[row.strategy]
        face: dict[str, Any] = (
            {"color": "white", "edgecolor": colour, "hatch": "///"} if plain else {"color": colour}
        )
        axes.barh(place, value, height=0.66, zorder=2, **face)
        marker = MARKERS[0] if own else markers[row.scheme]
        spot: dict[str, Any] = {"marker": marker, "color": "white", "markeredgecolor": DARK}
        if not own:
            axes.plot(value - 0.012 * longest, place, zorder=4, markersize=5, **spot)
        saving = 1 - value / dp_sgd if row.saving is None else row.saving
        change = "" if own else f" ({_change(saving)})"
        axes.annotate(
            f"{value:#.4g}".rstrip(".") + change,
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    axes.axvline(dp_sgd, color=GREY, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    axes.set_yticks(range(len(ranked)), [_name(row) for row in ranked])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * longest)
    axes.spines["left"].set_color(PALE)
    axes.set_xlabel(f"{error}, in clip norms (and against {BASELINE}'s)")
    return figure


def _change(saving: float) -> str:
    """More or less than DP-SGD's, a saving rounded down as in the table."""
    return f"{-100 * floored(saving):+.1f} %".replace("-", "\N{MINUS SIGN}")


def _curves(base: Sequence[Row], rows: Sequence[Row], error: str) -> Picture:
    """One line for each strategy under each scheme, as multiples of DP-SGD's error."""
    from mmcc._picture import DARK, DASHES, DOTTED, picture, set_log

    colours, markers = _looks(rows)
    dashes = {name: DASHES[k % len(DASHES)] for k, name in enumerate(markers)}
    lines: dict[tuple[str, str, bool], list[Row]] = {}
    for row in rows:
        lines.setdefault((row.strategy, row.scheme, bool(row.reservations)), []).append(row)
    dp_sgd = {row.epsilon: row.rmse or math.nan for row in base}
    figure, axes = picture(7.4, 4.4)
    ratios = [1.0]
    for (strategy, scheme, plain), points in lines.items():
        beside = [(row.rmse or math.nan) / dp_sgd[row.epsilon] for row in points]
        ratios += beside
        axes.plot(
            [row.epsilon for row in points],
            beside,
            color=colours[strategy],
            marker=markers[scheme],
            markerfacecolor="white" if plain else colours[strategy],
            linestyle=DOTTED if plain else dashes[scheme],
            label=_name(points[0]),
        )
    epsilons = list(dp_sgd)
    axes.plot(epsilons, [1.0] * len(epsilons), color=DARK, linewidth=2.0, label=BASELINE)
    set_log(axes, "x", (min(epsilons), max(epsilons)), at=epsilons)
    set_log(axes, "y", (min(ratios) / 1.05, max(ratios) * 1.05))
    axes.set_ylim(min(ratios) / 1.08, max(ratios) * 1.08)
    axes.set_xlabel("epsilon")
    axes.set_ylabel(f"{error} over {BASELINE}'s")
    plain = any(row.reservations for row in rows)
    keys = _keys(colours, markers, dashes, plain=plain)
    axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _keys(
    colours: dict[str, str], markers: dict[str, str], dashes: dict[str, Any], *, plain: bool
) -> list[Any]:
    """What a colour means, and what a mark: with every pair of them a legend would be too long."""
    from matplotlib.lines import Line2D

    from mmcc._picture import DARK, DOTTED

    keys = [Line2D([], [], color=DARK, linewidth=2.0, label=f"{BASELINE}, poisson")]
    keys += [Line2D([], [], color=one, linewidth=4.0, label=name) for name, one in colours.items()]
    keys += [
        Line2D([], [], color=DARK, marker=marker, linestyle=dashes[name], label=name)
        for name, marker in markers.items()
    ]
    if plain:
        look: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "linestyle": DOTTED}
        keys.append(Line2D([], [], color=DARK, label=UNAMPLIFIED, **look))
    return keys


def _looks(rows: Sequence[Row]) -> tuple[dict[str, str], dict[str, str]]:
    """A colour for each strategy and a marker for each scheme."""
    from mmcc._picture import COLOURS, MARKERS

    strategies = dict.fromkeys(row.strategy for row in rows)
    schemes = dict.fromkeys(row.scheme for row in rows)
    return (
        {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(strategies)},
        {name: MARKERS[k % len(MARKERS)] for k, name in enumerate(schemes)},
    )


def _name(row: Row) -> str:
    """The label of a bar or a line."""
    if row.verdict == BASELINE:
        return f"{BASELINE}, poisson"
    told = f" ({UNAMPLIFIED})" if row.reservations else ""
    return f"{row.strategy}, {row.scheme}{told}"


def _line(bound: Bound) -> dict[str, Any]:
    """Colour, dashes and marker of an amplified bound, the same in every plot."""
    from mmcc._picture import COLOURS, DASHES, MARKERS

    known = [other.name for other in known_bounds() if other.amplified]
    k = known.index(bound.name) if bound.name in known else len(known)
    return {
        "color": COLOURS[k % len(COLOURS)],
        "linestyle": DASHES[k % len(DASHES)],
        "marker": MARKERS[k % len(MARKERS)],
    }


def _point(
    strategy: Strategy, delta: float, point: tuple[tuple[Bound | None, Scheme], float]
) -> float:
    """One point of a curve (of the lower end for None); NaN if the bound cannot be computed."""
    (bound, sampling), sigma = point
    try:
        if bound is None:
            return lower_epsilon(Problem(strategy, sampling, sigma), delta)
        found = mmcc.epsilon(strategy, sampling, sigma=sigma, delta=delta, method=bound.name)
        return found.epsilon
    except MmccError:
        return float("nan")
