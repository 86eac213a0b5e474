"""A small mechanism with everything summed over all participation sets; nothing from mmcc.

Notation of docs/theory.md, sigma = 1: d = A w / |A w|, a_j = <d, A_j>, A' = A - d a^T,
omega_S = pi_S exp(t a_S - a_S^2/2).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr


@dataclass(frozen=True)
class Brute:
    """Columns A, sampling probability p, direction w."""

    A: np.ndarray
    p: float
    w: np.ndarray

    @cached_property
    def sets(self) -> np.ndarray:
        return np.array(list(itertools.product((0.0, 1.0), repeat=self.A.shape[1])))

    @cached_property
    def sizes(self) -> np.ndarray:
        return self.sets.sum(axis=1)

    @cached_property
    def prior(self) -> np.ndarray:
        return self.p**self.sizes * (1 - self.p) ** (self.A.shape[1] - self.sizes)

    @cached_property
    def a(self) -> np.ndarray:
        mean = self.A @ self.w
        return self.A.T @ mean / np.linalg.norm(mean)

    @cached_property
    def rest(self) -> np.ndarray:
        """A'."""
        mean = self.A @ self.w
        return self.A - np.outer(mean, self.a) / np.linalg.norm(mean)

    @cached_property
    def inner(self) -> np.ndarray:
        """<A'_S, A'_S'> for all pairs of sets."""
        shifts = self.sets @ self.rest.T
        return shifts @ shifts.T

    def omega(self, t: float) -> np.ndarray:
        along = self.sets @ self.a
        return self.prior * np.exp(t * along - along**2 / 2)

    def chaos(self, t: float, s: float, first: int, kmax: int) -> float:
        """sum_(r >= first) s^r T_r over the sets of at most kmax members."""
        kept = self.sizes <= kmax
        omega = self.omega(t)[kept]
        x = s * self.inner[np.ix_(kept, kept)]
        left = np.expm1(x) - sum(x**r / math.factorial(r) for r in range(1, first))
        small = np.abs(x) < 0.3  # no cancellation: by the series
        series = sum(np.where(small, x, 0.0) ** r / math.factorial(r) for r in range(first, 24))
        return float(omega @ np.where(small, series, left) @ omega)

    @cached_property
    def across(self) -> np.ndarray:
        """Signed A'_S for two rows, where z has one dimension."""
        mean = self.A @ self.w
        normal = np.array([-mean[1], mean[0]]) / np.linalg.norm(mean)
        return self.sets @ (normal @ self.A)

    def excess(self, t: float, threshold: float) -> float:
        """U(t) = E_z (X_t - threshold)_+ for two rows: X_t(z) is convex in z."""
        return convex_excess(self.omega(t), self.across, threshold)


def convex_excess(weights: np.ndarray, shifts: np.ndarray, threshold: float) -> float:
    """E (sum_k w_k exp(c_k z - c_k^2/2) - threshold)_+ for z ~ N(0, 1), between the two roots."""
    top = 40.0

    def value(z):
        return float(weights @ np.exp(shifts * z - shifts**2 / 2)) - threshold

    def slope(z):
        return float((weights * shifts) @ np.exp(shifts * z - shifts**2 / 2))

    lowest = _bisect(slope, -top, top)
    if value(lowest) >= 0:
        return float(weights.sum()) - threshold
    left = _bisect(lambda z: -value(z), -top, lowest)
    right = _bisect(value, lowest, top)
    outside = ndtr(shifts - right) + ndtr(left - shifts)
    return float(weights @ outside) - threshold * float(ndtr(-right) + ndtr(left))


def _bisect(function, low: float, high: float) -> float:
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return (low + high) / 2


def random_brute(seed: int, rows: int = 4, most: int = 7) -> Brute:
    """Columns of mean length from about 0.1 to 1.5."""
    rng = np.random.default_rng([seed, 61])
    n = int(rng.integers(3, most + 1))
    A = rng.uniform(0, 1, (rows, n)) * (0.15, 0.4, 0.8, 1.3)[seed % 4]
    return Brute(A, float(rng.choice([0.03, 0.15, 0.5, 0.9])), rng.uniform(0.2, 1, n))
