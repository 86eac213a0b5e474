"""Pictures for a report, as SVG to be embedded in the page itself.

In: points of a curve, a strategy.  Out: `Picture`: SVG without scripts, styles or external
references, with a title and a description for screen readers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._guarantee import rounded_down, rounded_up
from mmcc.report._facts import Claim, Dot
from mmcc.strategies._base import Strategy

BLUE, DARK, GREY = "#0b5394", "#1b1b1b", "#595959"
CELLS = 128
"""The most rows and columns of a heat map."""
MOST_ENTRIES = 2**24
"""Of matrices with more rows than this, only the first steps are drawn."""
FIRST = 64
"""How many steps are drawn then."""
WIDE, PANEL = (5.2, 3.5), (3.6, 3.1)
"""Inches of a picture alone, and of one beside another: text stays readable on a phone."""
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": DARK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": DARK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.formatter.use_mathtext": False,
}
BARE = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True, slots=True)
class Picture:
    """The content of an <svg> element, and a description of it in words."""

    name: str
    box: str
    """The view box of the element."""
    body: str
    title: str
    description: str


@dataclass(frozen=True, slots=True)
class View:
    """What is drawn of C: a smaller matrix, how many steps it covers, and how it was made."""

    values: FloatArray
    rows: int
    steps: int
    made: str


def curve_picture(dots: Sequence[Dot], claim: Claim) -> Picture:
    """Epsilon against delta: certified upper bounds as dots, lower bounds as bars."""
    known = [dot for dot in dots if dot.lower > 0]
    epsilon, delta = claim.shown
    title = "Certified epsilon-delta curve"
    description = (
        f"Delta on a logarithmic axis against epsilon, {len(dots)} certified points from "
        f"({rounded_up(dots[-1].upper)}, {rounded_up(dots[-1].delta)}) to "
        f"({rounded_up(dots[0].upper)}, {rounded_up(dots[0].delta)}); the guarantee of this report "
        f"is the point ({epsilon}, {delta})."
    )

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.set_yscale("log")
        for dot in known:
            axes.plot([dot.lower, dot.upper], [dot.delta] * 2, color=GREY, linewidth=1)
        axes.plot(
            [dot.upper for dot in dots],
            [dot.delta for dot in dots],
            "o",
            color=BLUE,
            markersize=5,
            label="upper bound: proven to hold",
        )
        if known:
            axes.plot(
                [dot.lower for dot in known],
                [dot.delta for dot in known],
                "|",
                color=DARK,
                markersize=11,
                label="lower bound: nothing smaller can hold",
            )
        axes.plot(
            [claim.epsilon],
            [claim.delta],
            "o",
            markersize=11,
            markerfacecolor="none",
            markeredgecolor="#b45309",
            markeredgewidth=2,
            label="the guarantee of this report",
        )
        axes.margins(x=0.06, y=0.08)
        axes.set_xlabel("epsilon")
        axes.set_ylabel("delta")
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.legend(frameon=False, fontsize="small", loc="lower left")

    return _picture(draw, WIDE, "curve", title, description)


def strategy_pictures(strategy: Strategy) -> list[Picture]:
    """A heat map of C; for Toeplitz strategies with several bands their coefficients too."""
    view = thinned(strategy)
    heat = (
        f"Heat map of C, {strategy.rows:,} rows (releases) by {strategy.steps:,} columns (steps): "
        f"{view.made}. Entries lie between {rounded_down(float(view.values.min()))} and "
        f"{rounded_up(float(view.values.max()))}."
    )
    pictures = [_picture(partial(_heat_map, view), PANEL, "matrix", "The strategy matrix C", heat)]
    if strategy.toeplitz is not None and strategy.toeplitz.bands > 1:
        c = strategy.toeplitz.coefficients
        line = (
            f"The {c.size:,} coefficients of C, a Toeplitz matrix: from {c[0]:.4g} at lag 0 to "
            f"{c[-1]:.4g} at lag {c.size - 1:,}."
        )
        pictures.append(
            _picture(partial(_coefficients, c), PANEL, "coefficients", "Coefficients of C", line)
        )
    return pictures


def thinned(strategy: Strategy) -> View:
    """C itself, the largest entries of its blocks, or its first steps: whatever fits."""
    rows, steps = strategy.rows, strategy.steps
    if rows * steps > MOST_ENTRIES and not strategy.is_array:
        first = strategy.prefix(FIRST)
        made = f"the first {FIRST} of {steps:,} steps"
        return View(first.to_dense(), first.rows, first.steps, made)
    matrix = strategy.to_dense()
    if rows <= CELLS and steps <= CELLS:
        return View(matrix, rows, steps, "every entry")
    across, down = _edges(steps), _edges(rows)
    largest = np.maximum.reduceat(np.maximum.reduceat(matrix, across, axis=1), down, axis=0)
    made = f"each cell shows the largest entry of a block, {down.size} by {across.size} cells"
    return View(largest, rows, steps, made)


def _edges(length: int) -> IntArray:
    """Where blocks begin: at most as many as there are cells, or one for each row."""
    return np.unique(np.arange(min(length, CELLS)) * length // min(length, CELLS))


def _heat_map(view: View, figure: Any) -> None:
    from matplotlib.colors import PowerNorm

    axes = figure.add_subplot()
    largest = float(view.values.max())
    image = axes.imshow(
        view.values,
        cmap="Blues",
        norm=PowerNorm(0.5, vmin=0.0, vmax=largest),  # makes small entries visible
        interpolation="none",
        aspect="auto",
        extent=(0, view.steps, view.rows, 0),
    )
    axes.set_xlabel("step")
    axes.set_ylabel("release")
    axes.xaxis.set_major_locator(_whole(4))
    axes.yaxis.set_major_locator(_whole(5))
    bar = figure.colorbar(image, ax=axes, ticks=[0.0, largest / 4, largest])
    bar.ax.set_yticklabels(["0", f"{largest / 4:.3g}", f"{largest:.3g}"])
    bar.outline.set_visible(False)


def _coefficients(coefficients: FloatArray, figure: Any) -> None:
    """c_k against the lag k; large numbers are thinned out evenly on a logarithmic axis."""
    from matplotlib.ticker import NullLocator

    axes = figure.add_subplot()
    lags = np.arange(coefficients.size)
    many = coefficients.size > CELLS
    if many:
        lags = np.unique(np.geomspace(1, coefficients.size, CELLS).astype(np.int64)) - 1
    axes.plot(
        lags + many, coefficients[lags], color=BLUE, marker="." if lags.size <= 40 else "", lw=1.5
    )
    axes.set_xlabel("lag + 1" if many else "lag")
    axes.set_ylabel("coefficient")
    axes.grid(color="#dddddd", linewidth=0.6)
    if many:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(_whole(6))
        axes.set_ylim(bottom=0)


def _whole(most: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(most, integer=True)


def _picture(
    draw: Callable[[Any], None],
    size: tuple[float, float],
    name: str,
    title: str,
    description: str,
) -> Picture:
    """Draw on a new figure; `name` keeps the ids of two pictures on one page apart."""
    import matplotlib
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata=BARE)
    svg = buffer.getvalue()
    box = re.search(r'viewBox="([-0-9. ]+)"', svg)
    assert box is not None
    return Picture(name, box[1], _inside(svg, name), title, description)


def _inside(svg: str, name: str) -> str:
    """The content of the <svg> element, for a page that may have other pictures.

    Ids are made unique, and the style that matplotlib writes is left out: it would apply to the
    whole page.
    """
    opened = svg.index(">", svg.index("<svg")) + 1
    body = svg[opened : svg.rindex("</svg>")]
    body = re.sub(r"<(metadata|style)\b.*?</\1>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
