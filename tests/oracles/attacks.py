"""Independent truth about attacks: the rates of tests that really exist.

Nothing here imports mmcc.  A test's true positive rate is at most the best one's, so that whatever
is certified for all tests must lie above it.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr


def rounded_loss_rates(p: float, sigma: float, steps: int, spacing: float) -> list[np.ndarray]:
    """Of tests of DP-SGD on the sum of its steps' losses, each rounded to a grid.

    Rows (false positive rate, true positive rate): first of those who ask whether the example took
    part, then of those who ask whether it did not.  All sums are of positive terms.
    """
    edges = np.linspace(-12 * sigma, 12 * sigma + 1, 200_001)
    middles = 0.5 * (edges[1:] + edges[:-1])
    losses = np.log1p(p * np.expm1((middles - 0.5) / sigma**2))
    places = np.rint(losses / spacing).astype(int)
    places -= places.min()
    with_it, without = (np.bincount(places, weights=_mass(edges, sigma, q)) for q in (p, 0.0))
    with_it, without = _power(with_it, steps), _power(without, steps)
    above = np.stack([without[::-1].cumsum(), with_it[::-1].cumsum()])
    below = np.stack([with_it.cumsum(), without.cumsum()])
    return [above, below]


def _mass(edges: np.ndarray, sigma: float, p: float) -> np.ndarray:
    """Of (1 - p) N(0, sigma^2) + p N(1, sigma^2) between the edges; the tails are left out."""

    def between(mean: float) -> np.ndarray:
        scaled = (edges - mean) / sigma
        return np.where(
            scaled[1:] > 0,
            ndtr(-scaled[:-1]) - ndtr(-scaled[1:]),
            ndtr(scaled[1:]) - ndtr(scaled[:-1]),
        )

    return (1 - p) * between(0.0) + p * between(1.0)


def _power(masses: np.ndarray, steps: int) -> np.ndarray:
    found = np.ones(1)
    for _ in range(steps):
        found = np.convolve(found, masses)
    return found


def best_rates(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the trade-off between two laws on a few outcomes: by the likelihood ratio."""
    order = np.argsort(-p / q)
    zero = np.zeros(1)
    return (
        np.concatenate([zero, q[order].cumsum()]),
        np.concatenate([zero, p[order].cumsum()]),
    )


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """Delta of two laws on a few outcomes, the larger of both adjacencies."""
    x = np.exp(epsilon)
    return max(float(np.maximum(p - x * q, 0).sum()), float(np.maximum(q - x * p, 0).sum()))
