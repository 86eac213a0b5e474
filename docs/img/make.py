"""Redraw the figures of README.md and of the docs: python docs/img/make.py."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import numpy as np

import mmcc
from mmcc import sampling, strategies

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STEPS, EPOCH, DELTA = 2000, 100, 1e-5
TREE = strategies.binary_tree(STEPS)
POISSON, FIXED_ORDER = sampling.Poisson(1 / EPOCH), sampling.CyclicPoisson(1, EPOCH)
CURVES = (
    ("the paper's algorithm (method mmcc)", POISSON, "mmcc", {"color": "tab:orange", "ls": "--"}),
    ("fixed order, no amplification", FIXED_ORDER, "unamplified", {"color": "0.5", "ls": ":"}),
)


def draw(path: Path) -> None:
    """The bracket of epsilon against sigma, and two other proofs of the same mechanism."""
    sigmas = np.geomspace(16, 160, 17)
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for label, scheme, method, style in CURVES:
        found = [mmcc.epsilon(TREE, scheme, sigma=s, delta=DELTA, method=method) for s in sigmas]
        axes.loglog(sigmas, [one.epsilon for one in found], label=label, **style)
    brackets = [mmcc.bracket(TREE, POISSON, sigma=s, delta=DELTA) for s in sigmas]
    lower, upper = [one.lower for one in brackets], [one.upper for one in brackets]
    axes.loglog(sigmas, upper, label="mmcc, upper bound", color="tab:blue", linewidth=1.8)
    axes.loglog(sigmas, lower, label="mmcc, lower bound, any method", color="black", linewidth=0.9)
    axes.fill_between(sigmas, lower, upper, color="tab:blue", alpha=0.25)
    axes.set_xlabel("sigma (noise, in units of the clip norm)")
    axes.set_ylabel(f"epsilon at delta = {DELTA:g}, certified")
    axes.set_ylim(0.3, 40)
    axes.set_title(f"binary tree, {STEPS} steps, sampling rate 1/{EPOCH}", fontsize=10)
    ticks = ([16, 20, 40, 80, 160], [0.5, 1, 2, 5, 10, 20])
    for axis, places in zip((axes.xaxis, axes.yaxis), ticks, strict=True):
        axis.set_major_locator(matplotlib.ticker.FixedLocator(places))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())
        axis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def draw_widths(page: Path, path: Path) -> None:
    """Upper over lower end against epsilon, from the table of 2000 steps: 0.9.0 and now."""
    number, word = r"([\d.]+) \| ", r"\w+ \| "
    row = r"\| (tree|counting|\d+ bands) \| 2000[^|]*\| [^|]*\| "
    pattern = re.compile(row + number + number + r"[\d.]+ \| " + word + number)
    rows = pattern.findall(page.read_text())
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    names = ("8 bands", "32 bands", "100 bands", "tree", "counting")
    for name, marker in zip(names, "osD^v", strict=True):
        ends = np.array([[float(end) for end in row[1:]] for row in rows if row[0] == name])
        lower, upper, before = ends.T
        style = {"marker": marker, "markersize": 4}
        (line,) = axes.loglog(lower, np.maximum(upper / lower - 1, 1e-5), label=name, **style)
        axes.loglog(lower, before / lower - 1, ls=":", color=line.get_color(), **style)
    axes.set_xlabel("epsilon (certified lower end)")
    axes.set_ylabel("upper end above the lower end")
    axes.set_title("2000 steps, sampling rate 1/100: now (solid), 0.9.0 (dotted)", fontsize=10)
    axes.xaxis.set_major_locator(matplotlib.ticker.FixedLocator([0.5, 1, 2, 4, 8]))
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(matplotlib.ticker.FixedLocator([1e-4, 1e-3, 0.01, 0.1, 1, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_ylim(6e-5, 40)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def draw_errors(page: Path, path: Path) -> None:
    """Error of prefix sums at equal guarantees, from the table of tuned BLTs: bars by epsilon."""
    number = r"([\d.]+) \| "
    row = re.compile(r"^\| (\d) \| [.\d]+, [.\d]+, [.\d]+ \| " + number + number, re.MULTILINE)
    rows = [tuple(map(float, found)) for found in row.findall(page.read_text())]
    figure, axes = plt.subplots(figsize=(6.4, 3.0), layout="constrained")
    places = np.arange(len(rows))
    _, tuned, plain = np.array(rows).T
    axes.bar(places - 0.2, plain, 0.38, label="DP-SGD", color="0.62")
    axes.bar(places + 0.2, tuned, 0.38, label="BLT, one buffer, tuned", color="tab:blue")
    for place, ours, theirs in zip(places, tuned, plain, strict=True):
        axes.annotate(
            f"\N{MINUS SIGN}{int(100 * (1 - ours / theirs))} %",
            (place + 0.2, ours),
            (0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
    axes.set_xticks(places, [f"epsilon {row[0]:g}" for row in rows])
    axes.set_ylabel("error of prefix sums\n(RMSE, clip norms)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def draw_savings(page: Path, path: Path) -> None:
    """What each scheme saves beside DP-SGD against epsilon, from the table of schemes."""
    row = re.compile(
        r"^\| ([^|]*) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE
    )
    (_, *plain), *others = row.findall(page.read_text())[:6]  # sigmas are in the next table
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (name, *errors), marker in zip(others, "osD^v", strict=True):
        saved = 100 * (1 - np.array(errors, dtype=float) / np.array(plain, dtype=float))
        axes.plot([1, 2, 4, 8], saved, marker=marker, ms=4, label=name.replace("`", ""))
    axes.set_xscale("log", base=2)
    axes.set_xlabel("epsilon at delta = 1e-5, certified")
    axes.set_ylabel("less error than DP-SGD")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g} %")
    axes.set_ylim(0, None)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def draw_one_epoch(page: Path, path: Path) -> None:
    """Upper over lower end against the noise in column norms, from the tables of one epoch."""
    row = re.compile(r"\| (tree|counting) \| (\d+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \|")
    rows = row.findall(page.read_text())
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for name, color, marker in (("tree", "tab:blue", "o"), ("counting", "tab:orange", "s")):
        for steps, style in (("8", ":"), ("64", "--"), ("512", "-."), ("2048", "-")):
            found = [row[2:] for row in rows if row[:2] == (name, steps)]
            noise, lower, upper = np.array(found, dtype=float)[:5].T  # beyond, digits are too few
            label, look = f"{name}, {steps} steps", {"color": color, "ls": style}
            axes.loglog(noise, upper / lower - 1, marker=marker, ms=4, label=label, **look)
    axes.set_xlabel("noise in column norms (c)")
    axes.set_ylabel("upper end above the lower end")
    axes.xaxis.set_major_locator(matplotlib.ticker.FixedLocator([1, 2, 3, 5, 10]))
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def draw_shuffled(page: Path, path: Path) -> None:
    """Epsilon of a shuffled pass against n, from the table of the shuffled tree."""
    number = r"([\d.]+) \| "
    row = re.compile(r"\| (\d+) \| 2\^(\d+) \| [\d.]+ \| " + number + r"[^|]*\| " + number)
    rows = np.array(row.findall(page.read_text()), dtype=float)
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    colors = ("black", "tab:blue", "tab:orange", "tab:green")
    for sigma, color in zip((1, 2, 5, 10), colors, strict=True):
        _, height, upper, plain = rows[rows[:, 0] == sigma].T
        axes.loglog(2**height, upper, color=color, label=f"sigma {sigma}", base=2)
        axes.loglog(2**height, plain, color=color, ls=":", base=2)
    axes.set_xlabel("steps of the pass, n")
    axes.set_ylabel("epsilon, certified")
    axes.yaxis.set_major_locator(matplotlib.ticker.FixedLocator([0.5, 1, 2, 4, 8, 16]))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    here = Path(__file__).parent
    measured = here.parent / "tightness-tables.md"
    draw_widths(measured, here / "tightness.png")
    draw_one_epoch(measured, here / "one-epoch.png")
    draw_shuffled(measured, here / "shuffled.png")
    draw_savings(here.parent / "choosing.md", here / "savings.png")
    draw_errors(here.parent / "tightness.md", here / "error.png")
    draw(here / "bracket.png")
