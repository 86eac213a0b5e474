"""Sampling schemes other than Poisson: the tables of docs/tightness-tables.md, one per run.

    python benchmarks/schemes.py shuffled-tree [SIGMA ...] | bins | estimates

Every line has both certified ends and the seconds that they took, and a Monte Carlo estimate.
"""

from __future__ import annotations

import sys
import time

import mmcc
from mmcc import sampling, strategies


def estimated(strategy, scheme, sigma, delta, **options) -> str:
    start = time.perf_counter()
    try:
        found = mmcc.estimate(strategy, scheme, sigma=sigma, delta=delta, **options)
    except mmcc.MmccError:
        return "refused | "
    seconds = time.perf_counter() - start
    return f"{found.low:.4f} to {found.high:.4f} | {seconds:.1f}"


def certified(strategy, scheme, sigma, delta) -> str:
    start = time.perf_counter()
    found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta)
    seconds = time.perf_counter() - start
    return f"{found.lower:.4f} | {found.upper:.4f} | {found.ratio:.5f} | {seconds:.1f}"


def shuffled_tree(*sigmas: str) -> None:
    """One shuffled pass over a binary tree, 0-1 setting, delta = 1e-6; 8192 samples at most."""
    print(
        "| sigma | n | lower | upper | ratio | seconds | estimate (99 %) | seconds | unamplified |"
    )
    print("|" + "---|" * 9)
    for sigma in map(float, sigmas or ("1", "2", "5", "10")):
        for height in range(1, 17):
            tree, scheme = strategies.binary_tree(2**height), sampling.Shuffle()
            plain = mmcc.epsilon(tree, scheme, sigma=sigma, delta=1e-6, method="unamplified")
            ends = certified(tree, scheme, sigma, 1e-6)
            middle = estimated(tree, scheme, sigma, 1e-6)
            print(
                f"| {sigma:g} | 2^{height} | {ends} | {middle} | {plain.epsilon:.4f} |", flush=True
            )


def bins() -> None:
    """Counting matrix, delta = 1e-5, at noise that gives epsilon near .5, 1, 2, 4, 8."""
    print("| bins, epochs | sigma | lower | upper | ratio | seconds | estimate (99 %) | seconds |")
    print("|" + "---|" * 8)
    for many, epochs in ((64, 1), (64, 4), (100, 20)):
        strategy, scheme = strategies.continual_counting(many * epochs), sampling.BallsInBins(many)
        for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
            sigma = mmcc.sigma(strategy, scheme, epsilon=epsilon, delta=1e-5).sigma
            ends = certified(strategy, scheme, sigma, 1e-5)
            middle = estimated(strategy, scheme, sigma, 1e-5)
            print(f"| {many}, {epochs} | {sigma:.4g} | {ends} | {middle} |", flush=True)


def estimates() -> None:
    """Counting matrix, n = 2048, Poisson sampling with p = 1/n, delta = 1e-6."""
    print("| c | lower | upper | ratio | seconds | estimate (99 %) | seconds |")
    print("|" + "---|" * 7)
    n = 2048
    strategy, scheme = strategies.continual_counting(n), sampling.Poisson(1 / n)
    for c in (2, 3, 5, 10, 20):
        sigma = c * strategy.sensitivity(n)
        ends = certified(strategy, scheme, sigma, 1e-6)
        print(f"| {c} | {ends} | {estimated(strategy, scheme, sigma, 1e-6)} |", flush=True)


if __name__ == "__main__":
    {"shuffled-tree": shuffled_tree, "bins": bins, "estimates": estimates}[sys.argv[1]](
        *sys.argv[2:]
    )
