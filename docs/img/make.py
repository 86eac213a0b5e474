"""Redraw the figures of the README and of docs/tightness.md: python docs/img/make.py."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import mmcc
from mmcc import sampling, strategies
from mmcc._picture import BLUE, COLOURS, DARK, DOTTED, GREY, MARKERS, house_style, picture, set_log

STEPS, EPOCH, DELTA = 2000, 100, 1e-5
TREE = strategies.binary_tree(STEPS)
POISSON, FIXED_ORDER = sampling.Poisson(1 / EPOCH), sampling.CyclicPoisson(1, EPOCH)
CURVES = (
    (
        "the paper's algorithm (method mmcc)",
        POISSON,
        "mmcc",
        {"color": COLOURS[1], "ls": (0, (5, 2))},
    ),
    ("20 epochs in a fixed order, no sampling", FIXED_ORDER, "unamplified", {"color": GREY}),
)


def draw(path: Path) -> None:
    """The bracket of epsilon against sigma, and two other proofs of the same mechanism."""
    sigmas = np.geomspace(16, 160, 17)
    figure, axes = picture(6.4, 3.8)
    for label, scheme, method, style in CURVES:
        found = [mmcc.epsilon(TREE, scheme, sigma=s, delta=DELTA, method=method) for s in sigmas]
        dotted = {"ls": DOTTED} if method == "unamplified" else {}
        axes.plot(sigmas, [one.epsilon for one in found], label=label, **style, **dotted)
    brackets = [mmcc.bracket(TREE, POISSON, sigma=s, delta=DELTA) for s in sigmas]
    lower, upper = [one.lower for one in brackets], [one.upper for one in brackets]
    axes.plot(sigmas, upper, label="mmcc, upper bound", color=BLUE, linewidth=2.4)
    axes.plot(sigmas, lower, label="mmcc, lower bound, any method", color=DARK, linewidth=0.9)
    axes.fill_between(sigmas, lower, upper, color=BLUE, alpha=0.2, lw=0)
    axes.set_xlabel(
        f"sigma, in clip norms (noise multiplier: sigma / {TREE.sensitivity(STEPS):.4g})"
    )
    axes.set_ylabel(f"epsilon at delta = {DELTA:g}, certified")
    axes.set_title(f"binary tree, {STEPS} steps, sampling rate 1/{EPOCH}")
    set_log(axes, "x", (16, 160), at=[16, 20, 40, 80, 160])
    set_log(axes, "y", (0.3, 40), at=[0.5, 1, 2, 5, 10, 20])
    axes.set_ylim(0.3, 40)
    axes.legend()
    figure.write(path)


def draw_widths(page: Path, path: Path) -> None:
    """Upper over lower end against epsilon, from the table of 2000 steps: 0.9.0 and now."""
    number, word = r"([\d.]+) \| ", r"\w+ \| "
    row = r"\| (tree|counting|\d+ bands) \| 2000[^|]*\| [^|]*\| "
    pattern = re.compile(row + number + number + r"[\d.]+ \| " + word + number)
    rows = pattern.findall(page.read_text())
    figure, axes = picture(6.4, 3.8)
    names = ("8 bands", "32 bands", "100 bands", "tree", "counting")
    for name, marker, colour in zip(names, MARKERS, COLOURS, strict=False):
        ends = np.array([[float(end) for end in row[1:]] for row in rows if row[0] == name])
        lower, upper, before = ends.T
        style = {"marker": marker, "color": colour}
        axes.plot(lower, np.maximum(upper / lower - 1, 1e-5), label=name, **style)
        axes.plot(lower, before / lower - 1, ls=DOTTED, markerfacecolor="white", **style)
    axes.set_xlabel("epsilon (certified lower end)")
    axes.set_ylabel("upper end above the lower end")
    axes.set_title("2000 steps, sampling rate 1/100: now (solid), 0.9.0 (dotted)")
    set_log(axes, "x", (0.5, 8), at=[0.5, 1, 2, 4, 8])
    set_log(axes, "y", (6e-5, 40), at=[1e-4, 1e-3, 0.01, 0.1, 1, 10])
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_ylim(6e-5, 40)
    axes.legend(ncols=2)
    figure.write(path)


if __name__ == "__main__":
    here = Path(__file__).parent
    with house_style():
        draw_widths(here.parent / "tightness.md", here / "tightness.png")
        draw(here / "bracket.png")
