"""Redraw the figure of the README: python docs/img/make.py (needs matplotlib)."""

from __future__ import annotations

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


if __name__ == "__main__":
    draw(Path(__file__).parent / "bracket.png")
