"""The look of curves in every figure: one colour, line and marker for each kind of number.

The colours are distinguishable for colour-blind readers, and lines and markers differ as well.
"""

from __future__ import annotations

from typing import Any

from paper.records import FloatArray

STYLES: dict[str, dict[str, Any]] = {
    "unamplified": {"color": "0.5", "linestyle": ":", "marker": ""},
    "mmcc_release": {"color": "tab:orange", "linestyle": "--", "marker": "s"},
    "mmcc_reversed": {"color": "#8c4a00", "linestyle": "-.", "marker": "^"},
    "cyclic": {"color": "#b05090", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "D"},
    "upper": {"color": "tab:blue", "linestyle": "-", "marker": "o"},
    "lower": {"color": "black", "linestyle": "-", "marker": "", "linewidth": 0.8},
}
"""Styles of certified numbers; estimates are crosses with bars."""
MARKER = 4.0


def curve(axes: Any, x: FloatArray, y: FloatArray, kind: str, label: str) -> None:
    """Points of one kind, joined."""
    axes.plot(x, y, label=label, markersize=MARKER, **STYLES[kind])


def intervals(axes: Any, x: FloatArray, rows: Any, label: str) -> None:
    """Monte Carlo estimates with their 99 % intervals; `rows` has estimate, low and high."""
    middle, low, high = (rows[name] for name in ("estimate", "estimate_low", "estimate_high"))
    bars(axes, x, middle, low, high, label)


def bars(
    axes: Any, x: FloatArray, middle: FloatArray, low: FloatArray, high: FloatArray, label: str
) -> None:
    """Crosses with bars from low to high."""
    axes.errorbar(
        x,
        middle,
        yerr=[abs(middle - low), abs(high - middle)],
        fmt="x",
        color="#007a5a",
        markersize=5,
        capsize=2,
        linewidth=1,
        label=label,
        zorder=5,
    )


def plain_numbers(axis: Any, *places: float) -> None:
    """A logarithmic axis with ordinary numbers: 1, 2, 5 in each decade, or the places given."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

    axis.set_major_locator(FixedLocator(places) if places else LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def epsilon_at(delta: float) -> str:
    """The label of an axis of epsilon."""
    return f"epsilon at delta = {delta:g}".replace("e-0", "e-")


def legend(axes: Any, **options: Any) -> None:
    """A small legend without a frame, in the best place."""
    axes.legend(**{"frameon": False, "fontsize": "small", **options})


def legend_below(figure: Any, axes: Any, columns: int) -> None:
    """One legend for all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small"
    )
