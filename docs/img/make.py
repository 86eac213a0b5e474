"""Redraw the figures of README.md and of the docs: python docs/img/make.py.

In: the tables of the docs, and what `mmcc` certifies for the bracket.  Out: PNG files in the house
style, small enough that a telephone shows their letters.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

import mmcc
from mmcc import sampling, strategies
from mmcc._picture import (
    BLUE,
    COLOURS,
    DARK,
    DASHES,
    DOTTED,
    GREY,
    MARKERS,
    PALE,
    Picture,
    house_style,
    in_powers,
    picture,
    set_log,
)

STEPS, EPOCH, DELTA = 2000, 100, 1e-5
TREE = strategies.binary_tree(STEPS)
POISSON, FIXED_ORDER = sampling.Poisson(1 / EPOCH), sampling.CyclicPoisson(1, EPOCH)
CURVES: tuple[tuple[str, sampling.Scheme, str, dict[str, Any]], ...] = (
    ("the paper's algorithm", POISSON, "mmcc", {"color": COLOURS[1], "ls": DASHES[1]}),
    ("as many epochs in a fixed order", FIXED_ORDER, "unamplified", {"color": GREY, "ls": DOTTED}),
)
WIDTH = 5.2
"""Inches: letters are as large as those of the page, and readable on a telephone."""


def draw(path: Path) -> None:
    """The bracket of epsilon against sigma, and two other proofs of the same mechanism."""
    sigmas = np.geomspace(16, 160, 17)
    figure, axes = picture(WIDTH, 3.9)
    for label, scheme, method, style in CURVES:
        found = [mmcc.epsilon(TREE, scheme, sigma=s, delta=DELTA, method=method) for s in sigmas]
        axes.plot(sigmas, [one.epsilon for one in found], label=label, **style)
    brackets = [mmcc.bracket(TREE, POISSON, sigma=s, delta=DELTA) for s in sigmas]
    lower, upper = [one.lower for one in brackets], [one.upper for one in brackets]
    axes.plot(sigmas, upper, label="certified upper bound", color=BLUE, linewidth=3.5)
    axes.plot(sigmas, lower, label="lower bound of every proof", color=DARK, linewidth=1.0)
    set_log(axes, "x", (16.0, 160.0), at=[16, 20, 40, 80, 160])
    set_log(axes, "y", (0.3, 40.0), at=[0.5, 1, 2, 5, 10, 20, 40])
    axes.set_ylim(0.3, 45)
    axes.set_xlabel("sigma, in clip norms")
    axes.set_ylabel(f"epsilon at delta = {in_powers(DELTA)}, certified")
    axes.set_title(f"binary tree, {STEPS} steps, sampling rate 1/{EPOCH}")
    finish(figure, path)


def draw_widths(page: Path, path: Path) -> None:
    """Upper over lower end against epsilon, from the table of 2000 steps: 0.9.0 and now."""
    number, word = r"([\d.]+) \| ", r"\w+ \| "
    row = r"\| (tree|counting|\d+ bands) \| 2000[^|]*\| [^|]*\| "
    pattern = re.compile(row + number + number + r"[\d.]+ \| " + word + number)
    rows = pattern.findall(page.read_text())
    figure, axes = picture(WIDTH, 3.9)
    names = ("8 bands", "32 bands", "100 bands", "tree", "counting")
    for name, color, marker in zip(names, COLOURS, MARKERS, strict=False):
        ends = np.array([[float(end) for end in row[1:]] for row in rows if row[0] == name])
        lower, upper, before = ends.T
        style = {"marker": marker, "color": color}
        axes.plot(lower, np.maximum(upper / lower - 1, 1e-5), label=name, **style)
        axes.plot(lower, before / lower - 1, ls=DOTTED, markerfacecolor="white", **style)
    axes.plot([], [], color=DARK, ls=DOTTED, marker="o", markerfacecolor="white", label="0.9.0")
    axes.set_xlabel("epsilon (certified lower end)")
    axes.set_ylabel("upper end above the lower end")
    axes.set_title("2000 steps, sampling rate 1/100")
    set_log(axes, "x", (0.5, 8.0), at=[0.5, 1, 2, 4, 8])
    set_percent(axes, [1e-4, 1e-3, 0.01, 0.1, 1, 10])
    axes.set_ylim(1e-4, 40)
    finish(figure, path, columns=3)


def draw_errors(page: Path, path: Path) -> None:
    """Error of prefix sums at equal guarantees, from the table of tuned BLTs: bars by epsilon."""
    number = r"([\d.]+) \| "
    row = re.compile(r"^\| (\d) \| [.\d]+, [.\d]+, [.\d]+ \| " + number + number, re.MULTILINE)
    rows = [tuple(map(float, found)) for found in row.findall(page.read_text())]
    figure, axes = picture(WIDTH, 3.2)
    axes.grid(visible=False, axis="x")
    places = np.arange(len(rows))
    _, tuned, plain = np.array(rows).T
    axes.bar(places - 0.2, plain, 0.38, label="DP-SGD", color=PALE, edgecolor=GREY)
    axes.bar(places + 0.2, tuned, 0.38, label="BLT, one buffer, tuned", color=BLUE)
    for place, ours, theirs in zip(places, tuned, plain, strict=True):
        axes.annotate(
            f"\N{MINUS SIGN}{int(100 * (1 - ours / theirs))} %",
            (place + 0.2, ours),
            (0, 3),
            textcoords="offset points",
            ha="center",
        )
    axes.set_xticks(places, [f"epsilon {row[0]:g}" for row in rows])
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("RMSE of prefix sums, in clip norms")
    finish(figure, path)


def draw_savings(page: Path, path: Path) -> None:
    """What each scheme saves beside DP-SGD against epsilon, from the table of schemes."""
    row = re.compile(
        r"^\| ([^|]*) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE
    )
    (_, *plain), *others = row.findall(page.read_text())[:6]  # sigmas are in the next table
    figure, axes = picture(WIDTH, 4.1)
    looks = zip(COLOURS, MARKERS, DASHES, strict=False)
    for (name, *errors), (color, marker, dashes) in zip(others, looks, strict=False):
        saved = 100 * (1 - np.array(errors, dtype=float) / np.array(plain, dtype=float))
        label = name.replace("`", "")
        axes.plot([1, 2, 4, 8], saved, color=color, marker=marker, ls=dashes, label=label)
    set_log(axes, "x", (1.0, 8.0), at=[1, 2, 4, 8])
    axes.set_xlabel(f"epsilon at delta = {in_powers(DELTA)}, certified")
    axes.set_ylabel("less error than DP-SGD")
    axes.yaxis.set_major_formatter("{x:g} %")
    axes.set_ylim(0, None)
    finish(figure, path)


def draw_one_epoch(page: Path, path: Path) -> None:
    """Upper over lower end against the noise in column norms, from the tables of one epoch."""
    row = re.compile(r"\| (tree|counting) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \|")
    rows = row.findall(page.read_text())
    figure, axes = picture(WIDTH, 4.1)
    lengths = dict(zip(("2048", "512", "64", "8"), (*DASHES[:3], DOTTED), strict=True))
    for name, color, marker in zip(("tree", "counting"), COLOURS, MARKERS, strict=False):
        for steps, dashes in lengths.items():
            found = [row[2:] for row in rows if row[:2] == (name, steps)]
            noise, lower, upper = np.array(found, dtype=float)[:5].T  # beyond, digits are too few
            axes.plot(noise, upper / lower - 1, marker=marker, color=color, ls=dashes)
        axes.plot([], [], marker=marker, color=color, label=name)
    for steps, dashes in lengths.items():
        axes.add_line(Line2D([], [], color=DARK, ls=dashes, label=f"{steps} steps"))
    set_log(axes, "x", (1.0, 10.0), at=[1, 2, 3, 5, 10])
    set_percent(axes, [1e-3, 0.01, 0.1, 1])
    axes.set_xlabel("noise in column norms (c)")
    axes.set_ylabel("upper end above the lower end")
    finish(figure, path, columns=3)


def draw_shuffled(page: Path, path: Path) -> None:
    """Epsilon of a shuffled pass against n, from the table of the shuffled tree."""
    number = r"([\d.]+) \| "
    row = re.compile(r"\| (\d+) \| 2\^(\d+) \| [\d.]+ \| " + number + r"[^|]*\| " + number)
    rows = np.array(row.findall(page.read_text()), dtype=float)
    figure, axes = picture(WIDTH, 4.1)
    for sigma, color, marker in zip((1, 2, 5, 10), COLOURS, MARKERS, strict=False):
        _, height, upper, plain = rows[rows[:, 0] == sigma].T
        axes.plot(2**height, upper, color=color, marker=marker, label=f"sigma {sigma}")
        axes.plot(2**height, plain, color=color, ls=DOTTED)
    axes.plot([], [], color=DARK, ls=DOTTED, label="without amplification")
    heights = range(2, 17, 2)
    set_log(axes, "x", (2.0, 2.0**16), at=[2.0**k for k in heights])
    axes.set_xticklabels([f"$2^{{{k}}}$" for k in heights])
    set_log(axes, "y", (0.5, 32.0), at=[0.5, 1, 2, 4, 8, 16, 32])
    axes.set_xlabel("steps of the pass, n")
    axes.set_ylabel("epsilon, certified")
    finish(figure, path, columns=3)


def set_percent(axes: Axes, places: list[float]) -> None:
    """A log scale of shares, as percentages."""
    set_log(axes, "y", (places[0], places[-1]), at=places)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def finish(figure: Picture, path: Path, columns: int = 2) -> None:
    """The legend below, where no line is; and the file."""
    figure.legend(loc="outside lower left", ncols=columns)
    figure.write(path)


if __name__ == "__main__":
    here = Path(__file__).parent
    measured = here.parent / "tightness-tables.md"
    with house_style():
        draw_widths(measured, here / "tightness.png")
        draw_one_epoch(measured, here / "one-epoch.png")
        draw_shuffled(measured, here / "shuffled.png")
        draw_savings(here.parent / "choosing.md", here / "savings.png")
        draw_errors(here.parent / "tightness.md", here / "error.png")
        draw(here / "bracket.png")
