"""Strategies optimised by mmcc and by jax_privacy for the same objective: error and time.

    python benchmarks/optimisers.py [--python PYTHON]

PYTHON is the interpreter of an environment with the peer; without it our side runs alone:

    python3 -m venv peers && peers/bin/pip install jax-privacy==2.0.0

The objectives are those that both have: prefix sums, no amplification, the mean (or the largest)
squared error at the sensitivity of one participation, or of several at least b steps apart.  The
error of both is computed here, from first columns or matrices, by one function that is neither's.
The peer computes in double precision, which its bands do not unless told; it compiles in each case,
and its seconds are given with and without: without is a second call.  Seconds are the processor's.

No column for BandInv, which release 2.0.0 does not optimise, and none for dense matrices in a fixed
epoch order, which mmcc does not optimise: the best ones have negative entries.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.signal import lfilter

from mmcc import strategies
from mmcc.strategies import Strategy

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """One objective."""

    name: str
    ours: Callable[[], Strategy]
    theirs: str
    """An expression whose value is a first column or a matrix."""
    objective: str = "mean"
    separation: int = 1
    at_most: int = 1


PROGRAM = """
import json, os, sys, time
os.environ["JAX_ENABLE_X64"] = "1"
import numpy as np
from jax_privacy.matrix_factorization import banded, buffered_toeplitz, dense, toeplitz
def blt(n, buffers, **options):
    made = buffered_toeplitz.optimize(n=n, min_buffers=buffers, max_buffers=buffers, **options)
    return np.asarray(made.toeplitz_coefs(n))
seconds = []
for _ in range(2):
    start = time.process_time()
    found = np.asarray(eval(sys.argv[1]))
    seconds.append(time.process_time() - start)
print(json.dumps([found.tolist(), *seconds]))
"""


def cases() -> list[Case]:
    """Objectives that both sides have."""
    return [
        *(_bands(*numbers) for numbers in ((1024, 8), (1024, 32), (2000, 100))),
        *(_buffers(number, kind) for kind in ("mean", "max") for number in (1, 2, 3)),
        *(_several_times(number) for number in (1, 2)),
        Case(
            "8 bands of columns of norm 1, 128 steps",
            lambda: strategies.banded(128, 8),
            "banded.optimize(128, bands=8).materialize()",
        ),
        Case("any matrix, 128 steps", lambda: strategies.optimal(128), "dense.optimize(128)"),
    ]


def _bands(steps: int, bands: int) -> Case:
    return Case(
        f"{bands} Toeplitz bands, {steps} steps",
        lambda: strategies.banded_toeplitz(steps, bands),
        f"toeplitz.optimize_banded_toeplitz({steps}, {bands})",
    )


def _buffers(number: int, objective: str) -> Case:
    return Case(
        f"BLT, {number} buffers, 1024 steps, {objective}",
        lambda: strategies.blt(1024, number, objective=objective),
        f"blt(1024, {number}, error={objective!r})",
        objective,
    )


def _several_times(number: int) -> Case:
    return Case(
        f"BLT, {number} buffers, 1024 steps, 8 times, 128 apart",
        lambda: strategies.blt(1024, number, participations=(128, 8)),
        f"blt(1024, {number}, error='mean', min_sep=128, max_participations=8)",
        separation=128,
        at_most=8,
    )


def error(encoder: Array, case: Case) -> float:
    """Root of the mean or largest squared error of prefix sums, times the sensitivity."""
    if encoder.ndim == 1:
        sums = np.cumsum(np.square(lfilter([1.0], encoder, np.ones(encoder.size))))
        column = np.zeros(encoder.size)
        for start in range(0, min(case.at_most * case.separation, encoder.size), case.separation):
            column[start:] += encoder[: encoder.size - start]
        norm = float(np.linalg.norm(column))  # the worst set, for coefficients that fall
        assert (encoder >= 0).all()
        assert (np.diff(encoder) <= 1e-9).all()
    else:
        inverse = solve_triangular(encoder, np.eye(len(encoder)), lower=True)
        sums = np.square(np.cumsum(inverse, axis=0)).sum(axis=1)
        norm = float(np.linalg.norm(encoder, axis=0).max())
    return norm * float(np.sqrt(sums.mean() if case.objective == "mean" else sums.max()))


def encoder_of(strategy: Strategy) -> Array:
    """The first column of a Toeplitz matrix, padded; else the matrix."""
    if strategy.toeplitz is not None:
        column = np.zeros(strategy.steps)
        column[: strategy.toeplitz.coefficients.size] = strategy.toeplitz.coefficients
        return column
    return np.asarray(strategy.matrix, dtype=float)


def peer(python: str, case: Case) -> tuple[Array, float, float]:
    """What the peer finds; its seconds with and without compiling."""
    command = [python, "-c", PROGRAM, case.theirs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found, first, again = json.loads(done.stdout.splitlines()[-1])
    encoder = np.array(found)
    steps = int(case.theirs.split("(")[1].split(",")[0].rstrip(")"))
    return (
        (np.pad(encoder, (0, steps - encoder.size)) if encoder.ndim == 1 else encoder),
        first,
        again,
    )


def main() -> None:
    """Print a row for each objective."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="interpreter of an environment with jax_privacy")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    strategies.blt(16)  # imports are not timed
    print("| objective | ours | s | jax_privacy | s | s, compiled | ours / theirs |")
    print("|---|---|---|---|---|---|---|")
    for case in cases():
        if options.only not in case.name:
            continue
        start = time.process_time()
        made = case.ours()
        seconds = time.process_time() - start
        ours = error(encoder_of(made), case)
        row = f"| {case.name} | {ours:.6f} | {seconds:.3f} |"
        if options.python is not None:
            try:
                found, first, again = peer(options.python, case)
                theirs = error(found, case)
                row += f" {theirs:.6f} | {first:.1f} | {again:.1f} | {ours / theirs:.6f} |"
            except RuntimeError as problem:
                row += f" no answer: {problem} | | | |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
