"""The plots of the page, as plain plotly descriptions.

In: certified brackets, errors, a matrix.  Out: dictionaries.  Points are certified; the lines
between them only connect them.  Texts consist of numbers and known names only, as plotly reads them
as markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mmcc._arrays import FloatArray
from mmcc._ticks import ticks_between
from mmcc.accounting._guarantee import rounded_down, rounded_up
from mmcc.explore._answers import Errors
from mmcc.explore._settings import SIGMA

Figure = dict[str, Any]

INK, QUIET, RULE = "#1d2733", "#566273", "#e3e8ee"
ACCENT, SOFT = "#0b5fa5", "rgba(11, 95, 165, 0.14)"
WARM = "#a8480a"
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
SHADES = [[0.0, "rgba(255, 255, 255, 0)"], [0.02, "#e6f0f9"], [0.5, "#5b9bd0"], [1.0, "#08406f"]]
LINES = (
    (QUIET, "solid"),
    (ACCENT, "solid"),
    (WARM, "dash"),
    ("#2e7d32", "dot"),
    ("#7b3fa0", "dashdot"),
    (INK, "longdash"),
)
MOST_POINTS = 400
"""The most points of a line: more cannot be seen."""
TALLEST = 60.0
"""Comparisons more than this many times the certified epsilon are left out."""
WIDE = 1e4
"""Over more than this factor, no ticks are set within decades: plotly would label each of them."""

Curve = Sequence[tuple[float, float]]
"""Sigma and epsilon, in the order of sigma."""


def epsilon_figure(
    chosen: float, *, uppers: Curve, lowers: Curve, unamplified: Curve, one_pass: Curve
) -> Figure:
    """Epsilon against sigma: the bracket, and what proofs without sampling give."""
    traces = [
        {
            **_places(lowers),
            "name": "lower bound",
            "text": [rounded_down(value) for _, value in lowers],
            "line": {"color": QUIET, "width": 1.5},
            "marker": {"size": 5},
            "hovertemplate": SIGMA + " %{x:.4g}<br>ε ≥ %{text}<extra></extra>",
        },
        {
            **_places(uppers),
            "name": "certified ε",
            "text": [rounded_up(value) for _, value in uppers],
            "fill": "tonexty" if len(uppers) == len(lowers) else "none",
            "fillcolor": SOFT,
            "line": {"color": ACCENT, "width": 2.5},
            "marker": {"size": [11 if sigma == chosen else 6 for sigma, _ in uppers]},
            "hovertemplate": SIGMA + " %{x:.4g}<br>ε ≤ %{text}<extra></extra>",
        },
    ]
    known = [value for _, value in (*uppers, *lowers)]
    roof = TALLEST * max(known, default=math.inf)
    for name, curve, dash, color in (
        ("no amplification", unamplified, "dot", WARM),
        ("fixed order, as many epochs", one_pass, "dash", INK),
    ):
        kept = [(sigma, value) for sigma, value in curve if 0 < value <= roof]
        traces.append(
            {
                **_places(kept),
                "name": name,
                "text": [rounded_up(value) for _, value in kept],
                "mode": "lines",
                "line": {"color": color, "width": 1.5, "dash": dash},
                "hovertemplate": f"{SIGMA} %{{x:.4g}}<br>{name}: ε ≤ %{{text}}<extra></extra>",
            }
        )
    mark = {
        "type": "line",
        "x0": chosen,
        "x1": chosen,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": RULE, "width": 2},
        "layer": "below",
    }
    layout = _layout(f"noise {SIGMA}", "ε", log=True)
    for axis, places in (("xaxis", "x"), ("yaxis", "y")):
        layout[axis] |= _ticks([value for trace in traces for value in trace[places]])
    layout["legend"]["traceorder"] = "normal"
    named = {
        "text": f"{SIGMA} = {chosen:.4g}",
        "x": math.log10(chosen),
        "yref": "paper",
        "y": 0,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "textangle": -90,
        "font": {"size": 11, "color": QUIET},
    }
    more = {"shapes": [mark], "annotations": [named]}
    return {"data": [_lines(t) for t in traces], "layout": {**layout, **more}}


def _ticks(values: Sequence[float]) -> dict[str, Any]:
    """Round numbers, several of them; over many decades those of plotly."""
    known = [value for value in values if math.isfinite(value)]
    if not known or max(known) > WIDE * min(known) or max(known) < 1.01 * min(known):
        return {"dtick": None}
    places = ticks_between(min(known), max(known))
    return {
        "dtick": None,
        "tickmode": "array",
        "tickvals": places,
        "ticktext": [f"{place:.6g}" for place in places],
    }


def error_figure(errors: Errors) -> Figure:
    """The error of every prefix sum."""
    count = len(errors.steps)
    stride = max(math.ceil(count / MOST_POINTS), 1)
    steps = [*range(0, count, stride)]
    shown = {
        "name": "prefix sum",
        "x": [step + 1 for step in steps],
        "y": [float(errors.steps[step]) for step in steps],
        "mode": "lines",
        "line": {"color": ACCENT, "width": 2},
        "hovertemplate": "step %{x}<br>error %{y:.4g}<extra></extra>",
    }
    mean = {
        "name": "RMSE",
        "x": [1, count],
        "y": [errors.rmse, errors.rmse],
        "mode": "lines",
        "line": {"color": WARM, "width": 1.5, "dash": "dot"},
        "hovertemplate": f"RMSE {errors.rmse:.4g}<extra></extra>",
    }
    layout = _layout("step", "standard deviation")
    layout["yaxis"]["rangemode"] = "tozero"
    return {"data": [_lines(shown), _lines(mean)], "layout": layout}


def comparison_figure(mechanisms: Sequence[tuple[str, Errors]]) -> Figure:
    """Errors of prefix sums of several mechanisms, each with its own colour and dash pattern."""
    traces = []
    for place, (name, errors) in enumerate(mechanisms):
        stride = max(math.ceil(len(errors.steps) / MOST_POINTS), 1)
        steps = [*range(0, len(errors.steps), stride)]
        color, dash = LINES[place % len(LINES)]
        traces.append(
            {
                "name": name,
                "x": [step + 1 for step in steps],
                "y": [float(errors.steps[step]) for step in steps],
                "mode": "lines",
                "line": {"color": color, "width": 2, "dash": dash},
                "hovertemplate": f"{name}<br>step %{{x}}<br>error %{{y:.4g}}<extra></extra>",
            }
        )
    layout = _layout("step", "standard deviation")
    layout["yaxis"]["rangemode"] = "tozero"
    layout["showlegend"] = True
    return {"data": [_lines(trace) for trace in traces], "layout": layout}


def strategy_figure(matrix: FloatArray) -> Figure:
    """The first rows and columns of C, darker where they are larger."""
    rows, columns = matrix.shape
    heat = {
        "type": "heatmap",
        "z": matrix.tolist(),
        "x0": 1,
        "y0": 1,
        "colorscale": SHADES,
        "zmin": 0,
        "xgap": 1 if columns <= 40 else 0,
        "ygap": 1 if rows <= 40 else 0,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"color": QUIET}},
        "hovertemplate": "row %{y}, step %{x}<br>%{z:.4g}<extra></extra>",
    }
    layout = _layout("step", "row")
    layout["showlegend"] = False
    for axis in ("xaxis", "yaxis"):
        layout[axis]["showgrid"] = False
    # Set explicitly: a figure that replaces an empty one may otherwise keep its direction.
    layout["xaxis"] |= {"range": [0.5, columns + 0.5], "autorange": False}
    layout["yaxis"] |= {"range": [rows + 0.5, 0.5], "autorange": False}
    return {"data": [heat], "layout": layout}


def empty_figure() -> Figure:
    """A figure without content."""
    layout = _layout("", "")
    for axis in ("xaxis", "yaxis"):
        layout[axis]["visible"] = False
    return {"data": [], "layout": layout}


def _places(curve: Curve) -> dict[str, Any]:
    return {"x": [sigma for sigma, _ in curve], "y": [value for _, value in curve]}


def _lines(trace: dict[str, Any]) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines+markers", **trace}


def _layout(x: str, y: str, *, log: bool = False) -> dict[str, Any]:
    axis = {
        "gridcolor": RULE,
        "linecolor": RULE,
        "zeroline": False,
        "automargin": True,
        "tickfont": {"color": QUIET},
        "fixedrange": True,
    }
    if log:
        axis |= {"type": "log", "dtick": "D2", "tickformat": "~g"}
    return {
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 12, "t": 34, "b": 44},
        "xaxis": {**axis, "title": {"text": x, "standoff": 8}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 8}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        "uirevision": "kept",
    }
