"""Optimised strategies against jax_privacy's optimisers: error and time, in one run.

Each peer's strategy is written out as a matrix and measured as ours is: sensitivity times the root
mean square of the rows of A C^-1 (or the largest row), in float64.  The sensitivity is the largest
column norm, for one participation; for several at least so many steps apart it is the norm of the
first columns that far apart, which is the most that falling coefficients >= 0 allow.
Both run a first time on a small problem, so that compiling is not timed for either.
Seconds are of the process on all cores (`cpu`) and on the clock.

    python benchmarks/strategies.py [--steps 1000] [--only banded|toeplitz|blt|apart|optimal]

Not compared: bands of C^-1, which release 2.0.0 does not optimise, and any matrix in a fixed epoch
order, which mmcc does not: the best ones have negative entries.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax_privacy.matrix_factorization import banded, buffered_toeplitz, dense, toeplitz

from mmcc import strategies

jax.config.update("jax_enable_x64", True)


ANY_MATRIX = 128
"""The most steps of a matrix without structure."""


def error(matrix: np.ndarray, largest: bool = False, apart: tuple[int, int] | None = None) -> float:
    """The error from the written-out matrix, for both sides."""
    inverse = np.linalg.inv(matrix)
    rows = np.linalg.norm(np.cumsum(inverse, axis=0), axis=1)
    spread = rows.max() if largest else np.sqrt(np.mean(rows**2))
    if apart is None:
        return float(np.linalg.norm(matrix, axis=0).max() * spread)
    separation, times = apart
    assert (np.diff(matrix[:, 0]) <= 1e-12).all()
    assert matrix[-1, 0] >= 0
    columns = matrix[:, ::separation][:, :times]
    return float(np.linalg.norm(columns.sum(axis=1)) * spread)


def timed(make: Callable[[], Any]) -> tuple[np.ndarray, float, float]:
    """The matrix, processor seconds and seconds."""
    clock, processor = time.perf_counter(), time.process_time()
    made = np.asarray(make(), dtype=np.float64)
    return made, time.process_time() - processor, time.perf_counter() - clock


def compare(
    what: str,
    ours: Callable[[int], Any],
    peer: Callable[[int], Any],
    steps: int,
    apart: tuple[int, int] | None = None,
) -> None:
    largest = "max" in what
    ours(8), peer(8)
    mine, my_cpu, my_clock = timed(lambda: ours(steps))
    theirs, their_cpu, their_clock = timed(lambda: peer(steps))
    mine_error, their_error = error(mine, largest, apart), error(theirs, largest, apart)
    print(
        f"{what:34} error {mine_error:.6f} peer {their_error:.6f} ratio "
        f"{mine_error / their_error:.6f}  cpu {my_cpu:.2f} peer {their_cpu:.2f}  "
        f"clock {my_clock:.2f} peer {their_clock:.2f}  times faster {their_clock / my_clock:.0f}",
        flush=True,
    )


def peer_blt(
    steps: int, buffers: int, objective: str, apart: tuple[int, int] = (1, 1)
) -> np.ndarray:
    found = buffered_toeplitz.optimize(
        n=steps,
        error=objective,
        min_sep=apart[0],
        max_participations=apart[1],
        min_buffers=buffers,
        max_buffers=buffers,
    )
    return np.asarray(found.materialize(steps))


def peer_toeplitz(steps: int, bands: int) -> np.ndarray:
    found = toeplitz.optimize_banded_toeplitz(steps, bands)
    return strategies.toeplitz(np.asarray(found, dtype=np.float64), steps).to_dense()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", choices=("banded", "toeplitz", "blt", "apart", "optimal"))
    options = parser.parse_args()
    steps, only = options.steps, options.only
    for bands in (8, 32) if only in (None, "banded") else ():
        compare(
            f"banded, {bands} bands, mean",
            lambda n, b=bands: strategies.banded(n, min(b, n)).to_dense(),
            lambda n, b=bands: banded.optimize(n, bands=min(b, n)).materialize(),
            steps,
        )
    for bands in (8, 32) if only in (None, "toeplitz") else ():
        compare(
            f"banded Toeplitz, {bands} bands, mean",
            lambda n, b=bands: strategies.banded_toeplitz(n, min(b, n)).to_dense(),
            lambda n, b=bands: peer_toeplitz(n, min(b, n)),
            steps,
        )
    for objective in ("mean", "max") if only in (None, "blt") else ():
        for buffers in (1, 2, 3, 4):
            compare(
                f"blt, {buffers} buffers, {objective}",
                lambda n, b=buffers, o=objective: strategies.blt(n, b, objective=o).to_dense(),
                lambda n, b=buffers, o=objective: peer_blt(n, b, o),
                steps,
            )
    for buffers in (1, 2) if only in (None, "apart") else ():
        apart = (steps // 8, 8)
        compare(
            f"blt, {buffers} buffers, mean, {apart[1]} times, {apart[0]} apart",
            lambda n, b=buffers: strategies.blt(n, b, participations=(n // 8, 8)).to_dense(),
            lambda n, b=buffers: peer_blt(n, b, "mean", (n // 8, 8)),
            steps,
            apart,
        )
    if only in (None, "optimal"):
        compare(
            "any matrix, mean",
            lambda n: strategies.optimal(n).to_dense(),
            lambda n: dense.optimize(n),
            min(steps, ANY_MATRIX),
        )


if __name__ == "__main__":
    main()
