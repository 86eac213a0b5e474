"""Groups of examples by brute force: every vector of counts, and adaptive adversaries in the plane.

Nothing here imports mmcc.  k members take part independently, m_j of them in step j.  The fixed
pair has the components A m, A = C / sigma; an adversary chooses each member's vector in every step,
of norm at most one, from the rows that were released before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np


def count_components(
    matrix: np.ndarray, sizes: Sequence[int], probability: float, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """All means A m with their weights; of step j up to `sizes[j]` members take part."""
    vectors = np.array(list(itertools.product(*(range(size + 1) for size in sizes))), dtype=float)
    weights = np.ones(len(vectors))
    for j, size in enumerate(sizes):
        law = [
            math.comb(size, m) * probability**m * (1 - probability) ** (size - m)
            for m in range(size + 1)
        ]
        weights *= np.array(law)[vectors[:, j].astype(int)]
    return vectors @ np.asarray(matrix, dtype=float).T / sigma, weights


def cyclic_sizes(steps: int, separation: int, groups: Sequence[int]) -> list[int]:
    """How many members may take part in each step, if they are in these public groups."""
    return [sum(group == step % separation for group in groups) for step in range(steps)]


def bin_components(
    matrix: np.ndarray, bins: int, members: int, sigma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Means of members that each have one bin, the same in every epoch, all choices as likely."""
    columns = np.array([np.asarray(matrix)[:, bin_::bins].sum(axis=1) for bin_ in range(bins)])
    choices = np.array(list(itertools.product(range(bins), repeat=members)))
    means = columns[choices].sum(axis=1) / sigma
    return means, np.full(len(means), 1 / len(means))


Adversary = Callable[[int, int, np.ndarray], np.ndarray]
"""The vectors of a member in a step (one a sample) from the rows before: shape (samples, 2)."""


def adaptive_delta(
    matrix: np.ndarray,
    members: int,
    probability: float,
    sigma: float,
    adversary: Adversary,
    epsilon: float,
    adjacency: str,
    samples: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Delta of the adaptive mechanism in the plane by simulation: mean and standard error.

    C is lower triangular: row i is released in step i and may be seen before step i + 1.  The
    likelihood ratio sums over who takes part when, all 2^(members steps) ways.
    """
    steps = len(matrix)
    ways = np.array(list(itertools.product((0.0, 1.0), repeat=members * steps)))
    ways = ways.reshape(-1, steps, members)
    sizes = ways.sum(axis=(1, 2))
    weights = probability**sizes * (1 - probability) ** (members * steps - sizes)
    truth = rng.choice(len(ways), size=samples, p=weights / weights.sum())
    rows = np.zeros((samples, steps, 2))
    vectors = np.zeros((samples, steps, members, 2))
    logs = np.tile(np.log(weights), (samples, 1))
    for i in range(steps):
        for member in range(members):
            vectors[:, i, member] = adversary(member, i, rows[:, :i])
        # Mean of row i for every way in which the members may have taken part.
        means = (
            np.einsum(
                "j,wja,najd->nwd",
                matrix[i, : i + 1],
                ways[:, : i + 1],
                vectors[:, : i + 1].transpose(0, 2, 1, 3),
            )
            / sigma
        )
        noise = rng.standard_normal((samples, 2))
        rows[:, i] = noise
        if adjacency == "remove":
            rows[:, i] += means[np.arange(samples), truth]
        logs += np.einsum("nwd,nd->nw", means, rows[:, i]) - (means**2).sum(axis=2) / 2
    top = logs.max(axis=1)
    ratio = top + np.log(np.exp(logs - top[:, None]).sum(axis=1))
    gap = epsilon - ratio if adjacency == "remove" else epsilon + ratio
    gains = np.maximum(-np.expm1(np.minimum(gap, 0.0)), 0.0)
    return float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(samples)


def revealed_delta(
    gram: np.ndarray,
    law: np.ndarray,
    epsilon: float,
    adjacency: str,
    samples: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Delta of the pair in which counts are revealed column by column, centred; by simulation.

    `remove` draws from P~, `add` from Q~.
    """
    steps, counts = len(gram), np.arange(law.size)
    root = np.linalg.cholesky(gram + 1e-12 * np.eye(steps))
    u = rng.standard_normal((samples, steps)) @ root.T
    s = rng.choice(law.size, p=law, size=(samples, steps)).astype(float)
    if adjacency == "remove":
        u = u + s @ gram
    total = np.zeros(samples)
    for j in range(steps):
        x = u[:, j] - s[:, :j] @ gram[:j, j]
        centre = counts * float(counts @ law) * gram[j, j + 1 :].sum()
        terms = np.log(law) + np.outer(x, counts) - counts**2 * gram[j, j] / 2 - centre
        top = terms.max(axis=1, keepdims=True)
        shares = np.exp(terms - top)
        log_f = top[:, 0] + np.log(shares.sum(axis=1))
        if adjacency == "add":
            edges = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
            s[:, j] = (rng.random((samples, 1)) > edges).sum(axis=1).clip(max=law.size - 1)
        total += log_f + centre[s[:, j].astype(int)]
    gap = epsilon - total if adjacency == "remove" else epsilon + total
    gains = np.maximum(-np.expm1(np.minimum(gap, 0.0)), 0.0)
    return float(gains.mean()), float(gains.std(ddof=1)) / math.sqrt(samples)
