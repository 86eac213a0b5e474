"""MMCC for the dense counting matrix against one dp_accounting mixture distribution per row.

Both run in this process, one after the other, on the same machine.  The peer gets what the paper's
own implementation gives it: each row's product mixture, entries rounded up to a lattice and turned
into an explicit mixture, on a grid of losses.  Both are just fine enough for about the same
epsilon: the lattice costs 1 % of the row's mean sensitivity, the grid 0.01 % of epsilon, about what
ours costs.  A few rows are timed and extrapolated; the bound is shown beside the time.

    python benchmarks/row_against_peer.py [--steps 2048] [--rows 3]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

import mmcc
from mmcc import sampling, strategies

DELTA = 1e-6
LATTICE_COST = 0.01  # of the row's mean sensitivity
INTERVAL = 2e-5  # of the peer's grid: 0.01 % of epsilon, at spacing^2/6 per row


def main() -> None:
    """Time both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2048)
    parser.add_argument("--sigma", type=float, default=40.0)
    parser.add_argument("--rows", type=int, default=3)
    options = parser.parse_args()
    steps, sigma = options.steps, options.sigma
    matrix = strategies.continual_counting(steps).to_dense()
    scheme = sampling.Poisson(1 / steps)
    mmcc.epsilon(strategies.binary_tree(4), scheme, sigma=1.0, delta=DELTA, method="mmcc")

    start = time.perf_counter()
    found = mmcc.epsilon(strategies.dense(matrix), scheme, sigma=sigma, delta=DELTA, method="mmcc")
    ours = time.perf_counter() - start
    print(f"mmcc, all {steps} rows: {ours:.2f} s, epsilon {found.epsilon:.5f} (both adjacencies)")

    chosen = np.linspace(steps // 4, steps - 1, options.rows).astype(int)
    seconds = []
    for row in chosen:
        values, probs = lattice_law(matrix[row, : row + 1], 1 / steps)
        start = time.perf_counter()
        privacy_loss_distribution.from_mixture_gaussian_mechanism(
            standard_deviation=sigma,
            sensitivities=values,
            sampling_probs=probs,
            value_discretization_interval=INTERVAL,
        )
        seconds.append(time.perf_counter() - start)
        print(f"dp_accounting, row {row}, {values.size} components: {seconds[-1]:.2f} s")
    peer = float(np.mean(seconds)) * steps
    print(f"dp_accounting, extrapolated to {steps} rows: {peer:.0f} s")
    print(f"times faster: {peer / ours:.0f}")


def lattice_law(row: np.ndarray, probability: float) -> tuple[np.ndarray, np.ndarray]:
    """The law of a row's sensitivity on a lattice, entries rounded up; rare values dropped."""
    spacing = 2 * LATTICE_COST * float(row.mean())
    size = int(8 * row.max() / spacing)
    law = np.zeros(size + 1)
    law[0] = 1.0
    for jump in np.ceil(row / spacing).astype(int):
        moved = np.zeros_like(law)
        moved[jump:] = law[: law.size - jump]
        law = (1 - probability) * law + probability * moved
    kept = law > 1e-15
    return np.flatnonzero(kept) * spacing, law[kept] / law[kept].sum()


if __name__ == "__main__":
    main()
