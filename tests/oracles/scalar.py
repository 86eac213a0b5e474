"""Delta of mixtures of Gaussians on a line, in plain floats: many small mechanisms, quickly.

Nothing here imports mmcc.  A matrix of one row and any law of participation sets make the mixture
sum_S pi(S) N(c_S, sigma^2) against N(0, sigma^2); the ratio of densities rises with the output, so
that one root and normal distribution functions are all there is.  `truth.mixture_delta` is the same
in 50 digits.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

FAR = 60.0


def scalar_delta(
    shifts: np.ndarray, chances: np.ndarray, sigma: float, epsilon: float, adjacency: str
) -> float:
    """Delta at epsilon; relative errors of about 1e-10 where delta is not tiny."""
    a, q = np.asarray(shifts, float) / sigma, np.asarray(chances, float)
    level = epsilon if adjacency == "remove" else -epsilon

    def excess(y: float) -> float:
        return math.log(q @ np.exp(a * y - a * a / 2)) - level

    if not excess(-FAR) < 0 < excess(FAR):
        return 0.0
    root = brentq(excess, -FAR, FAR, xtol=1e-13, rtol=1e-13)
    if adjacency == "remove":
        return float(q @ ndtr(a - root) - np.exp(epsilon) * ndtr(-root))
    return float(ndtr(root) - np.exp(epsilon) * (q @ ndtr(root - a)))


def scalar_epsilon(
    shifts: np.ndarray, chances: np.ndarray, sigma: float, delta: float
) -> tuple[float, str]:
    """The larger epsilon of the two adjacencies at delta, and which it is; 0 if delta is large."""
    found = []
    for adjacency in ("remove", "add"):

        def excess(epsilon: float, adjacency: str = adjacency) -> float:
            return scalar_delta(shifts, chances, sigma, epsilon, adjacency) - delta

        root = brentq(excess, 0.0, FAR, xtol=1e-12) if excess(0.0) > 0 else 0.0
        found.append((root, adjacency))
    return max(found)
