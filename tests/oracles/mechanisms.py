"""Matrices and random mechanisms for the tests; written out here, not taken from the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SHAPES = ("lower", "tree", "banded", "sparse", "spiky", "one_row", "blocks")


@dataclass(frozen=True)
class Case:
    """One small mechanism; `separation` 1 means Poisson sampling."""

    shape: str
    matrix: np.ndarray
    probability: float
    separation: int
    sigma: float
    delta: float

    def groups(self) -> list[list[int]]:
        """The columns of each group of examples."""
        return [
            list(range(first, self.matrix.shape[1], self.separation))
            for first in range(self.separation)
        ]


def random_case(seed: int) -> Case:
    """The seed chooses everything; shapes and schemes alternate so that all are met."""
    rng = np.random.default_rng([seed, 20240607])
    shape = SHAPES[seed % len(SHAPES)]
    columns = int(rng.integers(2, 10 if seed % 20 == 0 else 8))
    separation = 1 if rng.random() < 0.6 else int(rng.integers(2, columns + 1))
    p = float(np.exp(rng.uniform(np.log(0.01), 0))) if rng.random() < 0.9 else 1.0
    return Case(
        shape=shape,
        matrix=random_matrix(rng, shape, columns),
        probability=p,
        separation=separation,
        sigma=float(np.exp(rng.uniform(np.log(0.3), np.log(20)))),
        delta=float(10 ** rng.uniform(-6, -1.5)),
    )


def random_matrix(rng: np.random.Generator, shape: str, columns: int) -> np.ndarray:
    """A non-negative matrix without zero rows or columns, rows in the order of release."""
    if shape == "one_row":
        return rng.uniform(0.1, 2, (1, columns))
    if shape == "blocks":
        labels = np.sort(rng.integers(0, max(1, columns // 2), columns))
        raw = np.where(labels[:, None] == labels, np.tril(rng.random((columns, columns))), 0)
    elif shape == "tree":
        raw = (rng.random((2 * columns - 1, columns)) < 0.5) * rng.uniform(0.2, 1.5)
    elif shape == "sparse":
        raw = np.tril(rng.random((columns, columns)) * (rng.random((columns, columns)) < 0.3))
    elif shape == "banded":
        raw = np.tril(rng.random((columns, columns)))
        raw = np.triu(raw, -int(rng.integers(0, columns)))
    elif shape == "spiky":
        raw = np.tril(np.exp(rng.uniform(np.log(1e-3), np.log(5), (columns, columns))))
    else:
        raw = np.tril(rng.random((columns, columns)))
    if shape != "tree":
        raw = raw + np.diag(np.where(np.diag(raw) > 0, 0.0, rng.uniform(0.2, 1.0, columns)))
    raw = np.vstack([raw, np.eye(columns)[raw.sum(axis=0) == 0]])
    raw = raw[raw.any(axis=1)]
    last = [int(np.flatnonzero(row)[-1]) for row in raw]
    return raw[np.argsort(last, kind="stable")]


def tree_matrix(steps: int) -> np.ndarray:
    """The binary tree of a power of two of steps: one row a node, in the order of release."""
    rows, size = [], 1
    while size <= steps:
        rows += [(first + size - 1, -size, first, size) for first in range(0, steps, size)]
        size *= 2
    matrix = np.zeros((len(rows), steps))
    for i, (_, _, first, width) in enumerate(sorted(rows, key=lambda r: (r[0], -r[1]))):
        matrix[i, first : first + width] = 1
    return matrix


def counting_matrix(steps: int) -> np.ndarray:
    """Lower triangular Toeplitz square root of the prefix-sum matrix: binom(2k, k) / 4^k."""
    f = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, steps)]))
    index = np.arange(steps)[:, None] - np.arange(steps)
    return np.where(index >= 0, f[np.abs(index)], 0.0)
