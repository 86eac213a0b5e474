"""Redraw the figure of the README: python docs/img/make.py (needs matplotlib)."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

import mmcc
from mmcc import sampling, strategies

matplotlib.use("Agg")
import matplotlib.pyplot as plt

STEPS, DELTA = 128, 1e-6
TREE = strategies.binary_tree(STEPS)
CURVES = (
    ("one fixed pass, no amplification", sampling.CyclicPoisson(1, STEPS), "unamplified", "0.5"),
    ("mmcc, rows in release order (the paper's)", sampling.Poisson(1 / STEPS), "mmcc", "C1"),
    ("tight (default)", sampling.Poisson(1 / STEPS), "tight", "C0"),
)


def draw(path: Path) -> None:
    """One curve for each certified bound, epsilon against sigma."""
    sigmas = np.geomspace(8, 80, 25)
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for label, scheme, method, colour in CURVES:
        found = [mmcc.epsilon(TREE, scheme, sigma=s, delta=DELTA, method=method) for s in sigmas]
        axes.loglog(sigmas, [one.epsilon for one in found], label=label, color=colour)
    brackets = [mmcc.bracket(TREE, CURVES[-1][1], sigma=s, delta=DELTA) for s in sigmas]
    lower = [one.lower for one in brackets]
    axes.loglog(sigmas, lower, label="lower bound, any method", color="black", linewidth=0.8)
    axes.set_xlabel("sigma (noise, in units of the clip norm)")
    axes.set_ylabel("certified epsilon")
    axes.set_title(f"binary tree, {STEPS} steps, delta = {DELTA:g}", fontsize=10)
    ticks = ([8, 14, 20, 40, 80], [0.1, 0.2, 0.5, 1, 2, 5])
    for axis, places in zip((axes.xaxis, axes.yaxis), ticks, strict=True):
        axis.set_major_locator(matplotlib.ticker.FixedLocator(places))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())
        axis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(__file__).parent / "epsilon-against-sigma.png")
