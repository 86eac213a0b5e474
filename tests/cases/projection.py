"""Random mechanisms for the tests of the projection bracket.

A case names its strategy and builds it both ways: as the package does, and as a plain matrix
written out here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from oracles.mechanisms import counting_matrix, random_matrix

from mmcc import sampling, strategies
from mmcc.accounting._bounds.projection.bracket import ProjectionBracket
from mmcc.sampling import Scheme
from mmcc.strategies import Strategy

SHAPES = (
    "lower",
    "sparse",
    "heavy_column",
    "binary_tree",
    "toeplitz",
    "identity",
    "random_tree",
    "spiky",
    "counting",
    "blocks",
)
SEVERAL = (*SHAPES, "blt")
LOWEST, HIGHEST = np.log([0.02, 0.5, 1e-9]), np.log([0.95, 30.0, 1e-3])
"""Sampling probability, sigma and delta."""


@dataclass(frozen=True)
class BracketCase:
    """One mechanism; `separation` 1 means Poisson sampling."""

    shape: str
    strategy: Strategy
    matrix: np.ndarray
    probability: float
    separation: int
    sigma: float
    delta: float

    @property
    def scheme(self) -> Scheme:
        if self.separation == 1:
            return sampling.Poisson(self.probability)
        return sampling.CyclicPoisson(self.probability, self.separation)

    def columns(self, group: int) -> list[int]:
        return list(range(group, self.matrix.shape[1], self.separation))

    def __str__(self) -> str:
        return (
            f"{self.shape} {self.matrix.shape} p={self.probability!r} every {self.separation} "
            f"sigma={self.sigma!r} delta={self.delta!r}"
        )


def bracket_case(seed: int, fewest: int = 2, most: int = 9) -> BracketCase:
    """The seed chooses everything; shapes alternate, three cases of ten are cyclic."""
    rng = np.random.default_rng([seed, 411])
    shape = SHAPES[seed % len(SHAPES)]
    steps = round(float(np.exp(rng.uniform(np.log(fewest), np.log(most + 0.49)))))
    separation = int(rng.integers(2, steps + 1)) if rng.random() < 0.3 else 1
    low = np.array(LOWEST)
    if most > 20:
        low[0] = np.log(min(0.02, 1.0 / steps))
    p, sigma, delta = np.exp(rng.uniform(low, HIGHEST))
    p = rng.uniform(0.3, 0.95) if rng.random() < 0.25 else p
    strategy, matrix = _build(rng, shape, steps)
    return BracketCase(shape, strategy, matrix, float(p), separation, float(sigma), float(delta))


@dataclass(frozen=True)
class AllocationCase:
    """One mechanism of several epochs, `times` steps of each."""

    shape: str
    strategy: Strategy
    matrix: np.ndarray
    epoch_steps: int
    sigma: float
    delta: float
    times: int = 1

    def __str__(self) -> str:
        return (
            f"{self.shape} {self.matrix.shape} {self.times} of epochs of {self.epoch_steps} "
            f"sigma={self.sigma!r} delta={self.delta!r}"
        )


def allocation_case(seed: int, most: int = 4) -> AllocationCase:
    """The seed chooses everything; shapes alternate, at most 3 epochs of 4 steps or 5 of 2."""
    rng = np.random.default_rng([seed, 412])
    shape = SHAPES[seed % len(SHAPES)]
    length = int(rng.integers(2, most + 1))
    epochs = int(rng.integers(2, {2: 6, 3: 5, 4: 4}[length])) if most > 2 else 2
    sigma, delta = np.exp(rng.uniform(LOWEST[1:], HIGHEST[1:]))
    strategy, matrix = _build(rng, shape, length * epochs)
    return AllocationCase(shape, strategy, matrix, length, float(sigma), float(delta))


def several_case(seed: int, most: int = 5) -> AllocationCase:
    """Two or three steps of one or two epochs of at most `most`; now and then of three epochs."""
    rng = np.random.default_rng([seed, 413])
    shape = SEVERAL[seed % len(SEVERAL)]
    times = int(rng.integers(2, min(most, 4)))
    length = int(rng.integers(times + 1, most + 1))
    epochs = int(rng.integers(1, 4 if length <= 3 else 3))
    sigma, delta = np.exp(rng.uniform(LOWEST[1:], HIGHEST[1:]))
    strategy, matrix = _build(rng, shape, length * epochs)
    return AllocationCase(shape, strategy, matrix, length, float(sigma), float(delta), times)


def _build(rng: np.random.Generator, shape: str, steps: int) -> tuple[Strategy, np.ndarray]:
    if shape == "binary_tree":
        return strategies.binary_tree(steps), forest_matrix(steps)
    if shape == "identity":
        return strategies.identity(steps), np.eye(steps)
    if shape == "counting":
        return strategies.continual_counting(steps), counting_matrix(steps)
    if shape == "blt":
        decay, scale = np.sort(rng.uniform(0.2, 0.98, 2))[::-1], rng.uniform(0.05, 0.3, 2)
        falls = np.arange(steps)[:, None] - np.arange(steps)
        powers = np.array(
            [w * d ** np.maximum(falls - 1, 0) for d, w in zip(decay, scale, strict=True)]
        )
        matrix = np.where(falls > 0, powers.sum(axis=0), 1.0 * (falls == 0))
        return strategies.blt(steps, decay=list(decay), scale=list(scale)), matrix
    if shape == "toeplitz":
        bands = int(rng.integers(1, steps + 1))
        c = np.sort(rng.uniform(0, 1, bands))[::-1] * rng.uniform(0.3, 1.5)
        index = np.arange(steps)[:, None] - np.arange(steps)
        inside = (index >= 0) & (index < bands)
        matrix = np.where(inside, c[np.clip(index, 0, bands - 1)], 0.0)
        return strategies.toeplitz(c, steps), matrix
    if shape == "heavy_column":
        matrix = random_matrix(rng, "lower", steps)
        matrix[:, int(rng.integers(steps))] *= rng.uniform(3, 20)
    elif shape == "random_tree":
        matrix = random_matrix(rng, "tree", steps)
    else:
        matrix = random_matrix(rng, shape, steps)
    return strategies.dense(matrix), matrix


def forest_matrix(steps: int) -> np.ndarray:
    """All complete nodes of the binary tree over any number of steps, in the order of release."""
    rows = []
    for step in range(1, steps + 1):
        size = 1
        while step % size == 0:
            row = np.zeros(steps)
            row[step - size : step] = 1
            rows.append(row)
            size *= 2
    return np.array(rows)


def bracket_of(strategy: Strategy, scheme: Scheme, sigma: float) -> ProjectionBracket:
    """The projection's bracket, asked with a scheme."""
    sampled = scheme.rounds(strategy.steps) or scheme.positions(strategy.steps)
    assert sampled is not None
    return ProjectionBracket(strategy, sampled, sigma)
