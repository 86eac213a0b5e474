"""How tight and how fast the bracket is: the tables of docs/tightness-tables.md, one per run.

    python benchmarks/bracket.py one-epoch | many | bands | blt | growth

Each line: lower and upper bound (the default method, and which bound won), their ratio, the paper's
algorithm and the unamplified bound at the same noise, seconds of the bracket.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator

import numpy as np

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting import Problem
from mmcc.accounting._calibrate import impossible_sigma
from mmcc.strategies._base import Strategy

PATIENCE = 30
"""Seconds after which the paper's algorithm is stopped: it is slow for small noise."""

Line = tuple[str, Strategy, sampling.Scheme, float, float]


class TooSlowError(Exception):
    pass


def paper(strategy: Strategy, scheme: sampling.Scheme, sigma: float, delta: float) -> str:
    def stop(*_: object) -> None:
        raise TooSlowError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        found = mmcc.epsilon(strategy, scheme, sigma=sigma, delta=delta, method="mmcc").epsilon
        return f"{found:.4g}"
    except (TooSlowError, SystemError, mmcc.MmccError):  # SystemError: stopped in compiled code
        return "-"
    finally:
        signal.alarm(0)


def one_epoch() -> Iterator[Line]:
    for name, make in (
        ("tree", strategies.binary_tree),
        ("counting", strategies.continual_counting),
    ):
        for n in (8, 64, 512, 2048):
            strategy = make(n)
            column = strategy.sensitivity(n)
            for c in (1, 2, 3, 5, 10, 20, 40):
                yield f"{name} | {n} | {c}", strategy, sampling.Poisson(1 / n), c * column, 1e-6


def many() -> Iterator[Line]:
    strategy = strategies.continual_counting(512)
    for c in (5, 10, 20):
        sigma = c * strategy.sensitivity(512)
        yield f"counting | 512, p = .04 | {c}", strategy, sampling.Poisson(0.04), sigma, 1e-6


def bands() -> Iterator[Line]:
    counting = strategies.continual_counting(2000)
    scheme, delta = sampling.Poisson(0.01), 1e-5
    mechanisms: dict[str, Strategy] = {
        "identity": strategies.identity(2000),
        "tree": strategies.binary_tree(2000),
        "counting": counting,
    }
    for b in (8, 32, 100):
        mechanisms[f"{b} bands"] = strategies.toeplitz(counting.coefficients[:b], 2000)
    for name, strategy in mechanisms.items():
        for epsilon in (0.5, 1, 2, 4, 8):
            sigma = impossible_sigma(Problem(strategy, scheme, 0.0), epsilon, delta)
            sigma = float(f"{sigma:.4g}")
            yield f"{name} | 2000, p = .01 | sigma {sigma:g}", strategy, scheme, sigma, delta


def blts() -> Iterator[Line]:
    for sigma, decay, scale in (
        (3.945, 0.859, 0.181),
        (2.587, 0.899, 0.171),
        (1.766, 0.940, 0.126),
        (1.249, 0.958, 0.0995),
    ):
        strategy = strategies.blt(2000, decay=[decay], scale=[scale])
        name = f"blt {decay}, {scale} | 2000, p = .01 | sigma {sigma}"
        yield name, strategy, sampling.Poisson(0.01), sigma, 1e-5


def growth() -> Iterator[Line]:
    for n in (128, 512, 2048, 4096, 10_000):
        strategy = strategies.continual_counting(n)
        sigma = 5 * strategy.sensitivity(n)
        yield f"counting | {n} | 5", strategy, sampling.Poisson(1 / n), sigma, 1e-6
    for n in (2**10, 2**16, 2**20):
        tree = strategies.binary_tree(n)
        yield f"tree | {n} | 5", tree, sampling.Poisson(1 / n), 5 * tree.sensitivity(n), 1e-6


TABLES = {"one-epoch": one_epoch, "many": many, "bands": bands, "blt": blts, "growth": growth}


def prefix_error(coefficients: np.ndarray, sigma: float) -> float:
    """sigma |A C^-1|_F / sqrt(n) for prefix sums A and a Toeplitz C, by power series."""
    n = len(coefficients)
    inverse = np.zeros(n)
    inverse[0] = 1 / coefficients[0]
    for k in range(1, n):
        inverse[k] = -coefficients[1 : k + 1] @ inverse[k - 1 :: -1][:k] / coefficients[0]
    prefix = np.cumsum(inverse)
    return sigma * math.sqrt(float(np.sum(prefix**2 * np.arange(n, 0, -1))) / n)


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in TABLES:
        raise SystemExit(f"choose a table: {', '.join(TABLES)}")
    print("| strategy | steps | noise | lower | upper | ratio | by | paper | unamplified | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, strategy, scheme, sigma, delta in TABLES[wanted]():
        start = time.perf_counter()
        found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta)
        seconds = time.perf_counter() - start
        plain = mmcc.epsilon(strategy, scheme, sigma=sigma, delta=delta, method="unamplified")
        other = "" if wanted == "growth" else paper(strategy, scheme, sigma, delta)
        print(
            f"| {name} | {found.lower:.4f} | {found.upper:.4f} | {found.ratio:.4f} "
            f"| {found.method.partition(',')[0]} | {other} | {plain.epsilon:.4g} | {seconds:.1f} |",
            flush=True,
        )
    if wanted == "blt":
        compare_with_dp_sgd()


def compare_with_dp_sgd() -> None:
    """Prefix-sum error of each BLT and of independent noise at the certified epsilon of the BLT."""
    print("\n| epsilon | error, BLT | error, DP-SGD | better by |\n|---|---|---|---|")
    for _, strategy, scheme, sigma, delta in blts():
        epsilon = mmcc.epsilon(strategy, scheme, sigma=sigma, delta=delta).epsilon
        plain = mmcc.sigma(strategies.identity(2000), scheme, epsilon=epsilon, delta=delta).sigma
        ours = prefix_error(strategy.coefficients, sigma)
        theirs = plain * math.sqrt((2000 + 1) / 2)
        print(f"| {epsilon:.4f} | {ours:.2f} | {theirs:.2f} | {100 * (1 - ours / theirs):.1f} % |")


if __name__ == "__main__":
    main()
