"""The house style of all plots: colours, lines, marks, ticks, and how a file is written.

It imports matplotlib, so it is imported only when a plot is drawn.  Everything can be told apart in
grey: neighbouring colours differ in lightness, and lines also differ in dashes or marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from mmcc._ticks import ticks_between

DARK, GREY, PALE = "#1d2733", "#77818c", "#dde2e7"
BLUE, RED = "#0b5fa5", "#a31621"
COLOURS = (BLUE, "#d9822b", "#5b2a86", "#3f9c6b", RED, "#57b4d6", "#7a5c00", "#c77cae")
"""Colours that alternate dark and light, and can be told apart with red-green blindness."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (4, 1.5, 1, 1.5)), (0, (2, 1.5)), (0, (8, 2)))
DOTTED = (0, (1, 1.5))
SHADES = ("#ffffff", "#e6f0f9", "#5b9bd0", "#08406f")
"""Of a matrix: darker where its entries are larger."""
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.edgecolor": GREY,
    "axes.labelcolor": DARK,
    "axes.labelsize": 9.0,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "pdf.fonttype": 42,
    "text.color": DARK,
    "xtick.color": GREY,
    "xtick.labelcolor": DARK,
    "ytick.color": GREY,
    "ytick.labelcolor": DARK,
}
RESOLUTION = 200


class Picture(Figure):
    """A figure that notebooks display without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=RESOLUTION)
        return buffer.getvalue()

    def write(self, file: str | Path | None) -> None:
        """Write to a file in the format of its ending; do nothing for None."""
        if file is not None:
            kind = Path(file).suffix[1:].lower()
            # The same plot gives the same file, so no date is written into it.
            stamp = {"svg": "Date", "pdf": "CreationDate"}.get(kind)
            self.savefig(file, dpi=RESOLUTION, metadata={stamp: None} if stamp else None)


@contextmanager
def house_style() -> Iterator[None]:
    """Apply the house style to everything drawn and written inside."""
    with matplotlib.rc_context(STYLE):
        yield


def picture(width: float, height: float) -> tuple[Picture, Axes]:
    """An empty plot of this size in inches."""
    figure = Picture(figsize=(width, height), layout="constrained")
    return figure, gridded(figure)


def gridded(figure: Figure) -> Axes:
    """Axes with a grid behind all that is drawn."""
    axes = figure.add_subplot()
    axes.grid(visible=True, zorder=0)
    axes.set_axisbelow(True)
    return axes


def set_log(
    axes: Axes, which: Literal["x", "y"], ends: tuple[float, float], at: Sequence[float] = ()
) -> None:
    """A log scale with round ticks, or with those given."""
    axis: Axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    axis.set_major_locator(FixedLocator(list(at) or ticks_between(*ends)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: in_powers(value))


def in_powers(value: float) -> str:
    """A number as it is printed: the very small and the very large with a power of ten."""
    digits, _, exponent = f"{value:.6g}".partition("e")
    if not exponent:
        return digits
    power = f"10^{{{int(exponent)}}}"
    return f"${power}$" if digits == "1" else rf"${digits} \cdot {power}$"
