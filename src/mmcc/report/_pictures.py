"""Pictures for a report, as SVG to be embedded in the page itself.

In: points of a curve, a strategy.  Out: `Picture`: SVG without scripts, styles or external
references, with a title and a description for screen readers.  The house style is in
`mmcc._picture`.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._guarantee import rounded_down, rounded_up
from mmcc.report._facts import Claim, Dot
from mmcc.strategies._base import Strategy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = 128
"""The most rows and columns of a heat map."""
MOST_ENTRIES = 2**24
"""Of matrices with more rows than this, only the first steps are drawn."""
FIRST = 64
"""How many steps are drawn then."""
WIDE, PANEL = (4.0, 3.6), (3.4, 2.9)
"""Inches of a picture alone, and of one beside another: text stays readable on a phone."""
SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "font.family": "sans-serif"}
"""Text stays text, in the reader's own font."""
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

    draw = partial(_curve, dots, known, claim)
    return _picture(draw, WIDE, "curve", title, description)


def _curve(dots: Sequence[Dot], known: Sequence[Dot], claim: Claim, figure: Figure) -> None:
    """Dots, bars and the ring around the one that was asked for; the legend covers none."""
    from matplotlib.ticker import LogFormatterMathtext

    from mmcc._picture import BLUE, DARK, GREY, RED, gridded, set_log

    axes = gridded(figure)
    for dot in known:
        axes.plot([dot.lower, dot.upper], [dot.delta] * 2, color=GREY, linewidth=1.0)
    deltas = [dot.delta for dot in dots]
    axes.plot(
        [dot.upper for dot in dots],
        deltas,
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
            label="lower bound: no method can prove less",
        )
    axes.plot(
        [claim.epsilon],
        [claim.delta],
        "o",
        markersize=11,
        markerfacecolor="none",
        markeredgecolor=RED,
        markeredgewidth=1.5,
        label="the guarantee of this report",
    )
    first, last = (math.floor(math.log10(end)) for end in (min(deltas), max(deltas)))
    set_log(axes, "y", (min(deltas), max(deltas)), at=[10.0**k for k in range(first, last + 1)])
    axes.yaxis.set_major_formatter(LogFormatterMathtext())
    axes.margins(x=0.06, y=0.08)
    axes.set_xlabel("epsilon")
    axes.set_ylabel("delta")
    figure.legend(loc="outside lower left", fontsize=9.0)


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


def _heat_map(view: View, figure: Figure) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    from mmcc._picture import SHADES

    axes = figure.add_subplot()
    largest = float(view.values.max())
    image = axes.imshow(
        view.values,
        cmap=LinearSegmentedColormap.from_list("house", SHADES),
        norm=PowerNorm(0.5, vmin=0.0, vmax=largest),  # makes small entries visible
        interpolation="none",
        aspect="auto",
        extent=(0, view.steps, view.rows, 0),
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)  # what is white belongs to C
    axes.set_xlabel("step")
    axes.set_ylabel("release")
    axes.xaxis.set_major_locator(_whole(4))
    axes.yaxis.set_major_locator(_whole(5))
    bar = figure.colorbar(image, ax=axes, ticks=[0.0, largest / 4, largest])
    bar.ax.set_yticklabels(["0", f"{largest / 4:.3g}", f"{largest:.3g}"])


def _coefficients(coefficients: FloatArray, figure: Figure) -> None:
    """c_k against the lag k; large numbers are thinned out evenly on a logarithmic axis."""
    from mmcc._picture import BLUE, gridded, set_log

    axes = gridded(figure)
    lags = np.arange(coefficients.size)
    many = coefficients.size > CELLS
    if many:
        lags = np.unique(np.geomspace(1, coefficients.size, CELLS).astype(np.int64)) - 1
    drawn = coefficients[lags]
    marker = "o" if lags.size <= 40 else ""
    axes.plot(lags + many, drawn, color=BLUE, marker=marker, markersize=3)
    axes.set_xlabel("lag + 1" if many else "lag")
    axes.set_ylabel("coefficient")
    if many:
        seen = drawn[drawn > 0]
        set_log(axes, "x", (1.0, float(coefficients.size)))
        set_log(axes, "y", (float(seen.min()) / 1.1, float(seen.max()) * 1.1))
    else:
        axes.xaxis.set_major_locator(_whole(6))
        axes.set_ylim(bottom=0)


def _whole(most: int) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(most, integer=True)


def _picture(
    draw: Callable[[Figure], None],
    size: tuple[float, float],
    name: str,
    title: str,
    description: str,
) -> Picture:
    """Draw on a new figure; `name` keeps the ids of two pictures on one page apart."""
    import matplotlib
    from matplotlib.figure import Figure

    from mmcc._picture import house_style

    buffer = io.StringIO()
    with house_style(), matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
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
