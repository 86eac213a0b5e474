"""Is independent noise ever optimal under amplification?  The tables of docs/theory-identity.md.

    python benchmarks/identity.py two-steps | many-steps [--record FILE]

Both tables are at delta = 1e-5 under Poisson sampling, both adjacencies.  `two-steps` compares true
guarantees by quadrature; `many-steps` compares certified ones, sigma from `mmcc.sigma`.  Every
finished line is appended to FILE, and what is already in FILE is skipped.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from near_identity import ADJACENCIES, Gram, alignment, two_step_delta, two_step_scale
from scipy.optimize import minimize, minimize_scalar

import mmcc
from mmcc import sampling, strategies

DELTA = 1e-5
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
RATES = {"1/4": 1 / 4, "1/16": 1 / 16, "1/100": 1 / 100, "1/1000": 1 / 1000}
STEPS = 256
BANDS = (1 / 16,)  # c = [1, tau]
BUFFERS = ((0.7, 0.3), (0.9, 1.2))  # decay, and the sum of all coefficients but the first


def two_step_errors(gram: Gram) -> tuple[float, float]:
    """Mean and largest squared error of both prefix sums, sigma^2 included."""
    determinant = gram.first * gram.second - gram.cross**2
    first = gram.second / determinant
    both = (gram.first + gram.second - 2 * gram.cross) / determinant
    return (first + both) / 2, max(first, both)


def lower_triangular(corner: float, last: float) -> Gram:
    """The Gram matrix of C = [[1, 0], [corner, last]]."""
    return Gram(1 + corner**2, corner * last, last**2)


def two_steps(epsilon: float, p: float) -> dict[str, float]:
    """The gain of two steps over the identity at the same true epsilon and delta."""

    def root_error(corner: float, last: float, which: int) -> float:
        gram = lower_triangular(corner, last)
        scale = two_step_scale(gram, p, epsilon, DELTA)
        return math.sqrt(two_step_errors(gram.scaled(scale))[which])

    one = Gram(1.0, 0.0, 1.0)
    scale = two_step_scale(one, p, epsilon, DELTA)
    deltas = {name: two_step_delta(one.scaled(scale), p, epsilon, name) for name in ADJACENCIES}
    worse = max(ADJACENCIES, key=lambda name: deltas[name])
    found = {"sigma": scale**-0.5, "rho": alignment(2, p, scale**-0.5, epsilon, worse)}
    for which, name in enumerate(("rmse", "max")):
        base = root_error(0.0, 1.0, which)
        corner = minimize_scalar(
            lambda c, w=which: root_error(c, 1.0, w), bounds=(0, 2), method="bounded",
            options={"xatol": 1e-6},
        )  # fmt: skip
        diagonal = minimize_scalar(
            lambda b, w=which: root_error(0.0, math.exp(b), w), bounds=(-2, 2), method="bounded"
        )
        both = minimize(
            lambda v, w=which: root_error(v[0] ** 2, math.exp(v[1]), w),
            [math.sqrt(max(corner.x, 0.01)), diagonal.x - 0.1],
            method="Nelder-Mead",
            options={"xatol": 1e-5, "fatol": 1e-9},
        )
        found[f"{name} tau"] = float(corner.x) if corner.fun < base else 0.0
        for kind, best in (("corner", corner), ("diagonal", diagonal), ("both", both)):
            found[f"{name} {kind}"] = max(0.0, 1 - float(best.fun) / base)
        found[f"{name} both tau"] = float(both.x[0] ** 2)
        found[f"{name} both last"] = math.exp(float(both.x[1]))
    return found


@dataclass(frozen=True)
class Candidate:
    """A strategy, its errors for sigma = 1, and the method that certifies its noise."""

    strategy: strategies.Strategy
    rmse: float
    largest: float
    method: str


def toeplitz_errors(coefficients: np.ndarray) -> tuple[float, float]:
    """RMSE and largest error of prefix sums for sigma = 1: C^-1 and then sums, as series."""
    inverse = np.zeros(STEPS)
    inverse[0] = 1 / coefficients[0]
    for k in range(1, STEPS):
        inverse[k] = -(coefficients[1 : k + 1] @ inverse[k - 1 :: -1]) / coefficients[0]
    squares = np.cumsum(inverse) ** 2
    rmse = math.sqrt(float(squares @ np.arange(STEPS, 0, -1)) / STEPS)
    return rmse, math.sqrt(float(squares.sum()))


def unequal_noise() -> Candidate:
    """Independent noise, more of it later: the full-batch optimum, in eight blocks."""
    left = np.arange(STEPS, 0.0, -1.0)
    blocks = np.repeat(left.reshape(8, -1).mean(axis=1), STEPS // 8)
    squares = np.sqrt(blocks / blocks[0])
    rmse, largest = (left / squares).sum() / STEPS, (1 / squares).sum()
    strategy = strategies.dense(np.diag(np.sqrt(squares)))
    return Candidate(strategy, math.sqrt(rmse), math.sqrt(largest), "mmcc")


def candidates() -> dict[str, Candidate]:
    """All strategies that are compared with the identity."""
    found = {"unequal": unequal_noise()}
    for tau in BANDS:
        coefficients = np.zeros(STEPS)
        coefficients[:2] = 1, tau
        strategy = strategies.toeplitz([1, tau], STEPS)
        found[f"band {tau:g}"] = Candidate(strategy, *toeplitz_errors(coefficients), "reveal")
    for decay, total in BUFFERS:
        scale = total * (1 - decay)
        coefficients = np.r_[1.0, scale * decay ** np.arange(STEPS - 1)]
        strategy = strategies.blt(STEPS, decay=[decay], scale=[scale])
        errors = toeplitz_errors(coefficients)
        found[f"blt {decay:g} {total:g}"] = Candidate(strategy, *errors, "reveal")
    return found


def certified_noise(strategy: strategies.Strategy, p: float, epsilon: float, method: str) -> float:
    try:
        found = mmcc.sigma(
            strategy, sampling.Poisson(p), epsilon=epsilon, delta=DELTA, method=method
        )
    except mmcc.MmccError:
        return math.inf  # no finite bound by this method here
    return found.sigma


def gains(candidate: Candidate, identity: float, p: float, epsilon: float) -> tuple[float, float]:
    """Gains in RMSE and in largest error at equal certified epsilon, negative if it is worse."""
    noise = certified_noise(candidate.strategy, p, epsilon, candidate.method) / identity
    rmse = candidate.rmse / math.sqrt((STEPS + 1) / 2)
    largest = candidate.largest / math.sqrt(STEPS)
    return 1 - noise * rmse, 1 - noise * largest


def many_steps(epsilon: float, p: float) -> dict[str, float]:
    """Certified gains of all candidates over the identity, whose noise is certified by `mmcc`."""
    identity = certified_noise(strategies.identity(STEPS), p, epsilon, "mmcc")
    found = {"sigma": identity, "rho": alignment(STEPS, p, identity, epsilon, "remove")}
    for name, candidate in candidates().items():
        found[f"rmse {name}"], found[f"max {name}"] = gains(candidate, identity, p, epsilon)
    return found


STUDIES: dict[str, Callable[[float, float], dict[str, float]]] = {
    "two-steps": two_steps,
    "many-steps": many_steps,
}


def main() -> None:
    """Compute what is not in the record yet, one JSON object per line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--record", type=Path, default=Path("identity.jsonl"))
    options = parser.parse_args()
    text = options.record.read_text(encoding="utf-8") if options.record.exists() else ""
    done = {tuple(json.loads(line)["cell"]) for line in text.splitlines()}
    for rate, p in RATES.items():
        for epsilon in EPSILONS:
            if (options.study, rate, epsilon) in done:
                continue
            found = {"cell": [options.study, rate, epsilon], **STUDIES[options.study](epsilon, p)}
            with options.record.open("a", encoding="utf-8") as record:
                print(json.dumps(found), file=record)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
