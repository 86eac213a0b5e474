"""Random balls-in-bins mechanisms for the tests.

A case names its strategy and builds it both ways: as the package does, and as a plain matrix
written out here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from oracles.mechanisms import counting_matrix, random_matrix

from cases.projection import forest_matrix
from mmcc import sampling, strategies
from mmcc.strategies import Strategy

SHAPES = (
    "lower",
    "tree",
    "sparse",
    "identity",
    "heavy_column",
    "restarted",
    "toeplitz",
    "blocks",
    "counting",
    "banded",
    "spiky",
    "diagonal",
)


@dataclass(frozen=True)
class BinsCase:
    """One mechanism, one bin of `bins` for each example."""

    shape: str
    strategy: Strategy
    matrix: np.ndarray
    bins: int
    sigma: float
    delta: float

    @property
    def scheme(self) -> sampling.BallsInBins:
        return sampling.BallsInBins(self.bins)

    @property
    def components(self) -> np.ndarray:
        """m_r = sum_e (column r + e bins of C / sigma), one a row."""
        return folded(self.matrix, self.bins).T / self.sigma

    def __str__(self) -> str:
        epochs = self.matrix.shape[1] // self.bins
        return (
            f"{self.shape} {self.bins} bins {epochs} epochs sigma={self.sigma!r} "
            f"delta={self.delta!r}"
        )


def folded(matrix: np.ndarray, bins: int) -> np.ndarray:
    """The sums of the columns r, r + bins, r + 2 bins, ..."""
    return np.stack([matrix[:, r::bins].sum(axis=1) for r in range(bins)], axis=1)


def bins_case(seed: int, most: int = 64) -> BinsCase:
    """The seed chooses everything; shapes alternate.  Sigma is in units of the longest bin."""
    rng = np.random.default_rng([seed, 871])
    shape = SHAPES[seed % len(SHAPES)]
    bins = round(float(np.exp(rng.uniform(np.log(2), np.log(most + 0.49)))))
    epochs = int(rng.integers(1, 6))
    if shape in ("tree", "restarted") and rng.random() < 0.6:
        bins = 1 << max(bins.bit_length() - 1, 1)
    if shape == "tree" and rng.random() < 0.4:
        epochs = 1
    strategy, matrix = build(rng, shape, bins * epochs)
    longest = float(np.linalg.norm(folded(matrix, bins), axis=0).max())
    sigma = longest * float(np.exp(rng.uniform(np.log(0.3), np.log(30))))
    delta = float(10 ** rng.uniform(-9, -3))
    return BinsCase(shape, strategy, matrix, bins, sigma, delta)


def build(rng: np.random.Generator, shape: str, steps: int) -> tuple[Strategy, np.ndarray]:
    """A strategy with its matrix."""
    if shape == "tree":
        return strategies.binary_tree(steps), forest_matrix(steps)
    if shape == "restarted":
        height = int(rng.integers(1, steps.bit_length() + 1))
        matrix = forest_matrix(steps)
        matrix = matrix[matrix.sum(axis=1) < 2**height]
        return strategies.tree_restart(steps, height), matrix
    if shape == "identity":
        return strategies.identity(steps), np.eye(steps)
    if shape == "counting":
        return strategies.continual_counting(steps), counting_matrix(steps)
    if shape in ("toeplitz", "banded"):
        bands = int(rng.integers(1, steps + 1)) if shape == "toeplitz" else min(3, steps)
        c = rng.uniform(0, 1, bands) * rng.uniform(0.3, 1.5)
        c = np.sort(c)[::-1] if shape == "banded" else c
        index = np.arange(steps)[:, None] - np.arange(steps)
        inside = (index >= 0) & (index < bands)
        matrix = np.where(inside, c[np.clip(index, 0, bands - 1)], 0.0)
        return strategies.toeplitz(c, steps), matrix
    if shape == "diagonal":
        matrix = np.diag(rng.choice([0.3, 0.5, 1.0, 2.0], steps))
    elif shape == "heavy_column":
        matrix = random_matrix(rng, "lower", steps)
        matrix[:, int(rng.integers(steps))] *= rng.uniform(3, 20)
    else:
        matrix = random_matrix(rng, shape, steps)
    return strategies.dense(matrix), matrix
