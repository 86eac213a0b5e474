"""Strategies of every kind for the tests of noise, and what their noise must be, by brute force."""

from __future__ import annotations

import numpy as np

from mmcc import strategies


def random_lower(steps: int, bands: int) -> np.ndarray:
    """A lower triangular array with so many bands."""
    raw = np.random.default_rng([steps, bands]).uniform(0.1, 1.0, (steps, steps))
    return np.tril(raw) - np.tril(raw, -bands) + 2 * np.eye(steps)


SQUARE = {
    "identity": lambda: strategies.identity(12),
    "one step": lambda: strategies.identity(1),
    "scaled identity": lambda: strategies.toeplitz([0.5], 12),
    "counting, few steps": lambda: strategies.continual_counting(12),
    "counting, blocks": lambda: strategies.continual_counting(40),
    "bands": lambda: strategies.toeplitz([2.0, 1.0, 0.0, 0.5], 13),
    "banded": lambda: strategies.banded(14, 4),
    "banded toeplitz": lambda: strategies.banded_toeplitz(14, 5),
    "banded inverse": lambda: strategies.banded_inverse(14, 4),
    "banded inverse, one band": lambda: strategies.banded_inverse(9, 1),
    "blt, one buffer": lambda: strategies.blt(14, 1),
    "blt, three buffers": lambda: strategies.blt(14, 3),
    "blt, more buffers than steps": lambda: strategies.blt(3, 4),
    "blt, given": lambda: strategies.blt(15, decay=[0.9, 0.5], scale=[0.4, 0.2]),
    "optimal, few steps": lambda: strategies.optimal(12),
    "optimal, blocks": lambda: strategies.optimal(40),
    "dense": lambda: strategies.dense(random_lower(39, 39)),
    "dense with bands": lambda: strategies.dense(random_lower(13, 3)),
}
TREES = {
    "tree of 2^4": lambda: strategies.binary_tree(16),
    "tree of 13": lambda: strategies.binary_tree(13),
    "tree of 1": lambda: strategies.binary_tree(1),
    "restart": lambda: strategies.tree_restart(21, 3),
    "restart every step": lambda: strategies.tree_restart(6, 1),
}
MADE = SQUARE | TREES
CASES: list[tuple[str, str | None]] = [
    *((name, None) for name in SQUARE),
    *((name, decoder) for name in TREES for decoder in ("online", "honaker")),
]


def decoded(strategy: strategies.Strategy, decoder: str | None) -> np.ndarray:
    """The matrix B with noise of step t = sigma (B z)_t."""
    C = strategy.to_dense()
    if decoder is None:
        return np.linalg.inv(C)
    prefixes = np.zeros((strategy.steps + 1, strategy.rows))
    for t in range(1, strategy.steps + 1):
        # Rows are nodes, as intervals of steps; those released by the end of step t - 1.
        released = [row for row in range(len(C)) if np.flatnonzero(C[row])[-1] < t]
        if decoder == "honaker":  # least squares from all that was released by then
            prefixes[t, released] = np.linalg.pinv(C[released, :t]).sum(axis=0)
            continue
        covered = 0
        while covered < t:  # the largest node that starts where the last one ended
            starting = [row for row in released if np.flatnonzero(C[row])[0] == covered]
            row = max(starting, key=lambda r: C[r].sum())
            prefixes[t, row] = 1.0
            covered += int(C[row].sum())
    return np.diff(prefixes, axis=0)


class UnitVectors:
    """In the place of normals: row r is the r-th unit vector, so that outputs are a matrix."""

    segment, types, anywhere = 1, ("float64",), True

    def fill(self, row: int, out: np.ndarray, start: int = 0) -> None:
        out[...] = np.arange(start, start + out.size) == row

    def state(self) -> dict[str, str]:
        return {"kind": "philox", "key": "00" * 16}
