"""Truth for two rows: P and Q integrated on a fine grid of the plane.  Nothing imports mmcc."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq


def plane_delta(shifts, probabilities, epsilon, adjacency, spacing=0.01):
    """Delta of sum_k probabilities_k N(shifts_k, I) against N(0, I) in the plane."""
    shifts = np.asarray(shifts, dtype=float)
    low, high = shifts.min(axis=0).clip(max=0) - 7.5, shifts.max(axis=0).clip(min=0) + 7.5
    x, y = (np.arange(a, b, spacing) for a, b in zip(low, high, strict=True))

    def density(centre):
        parts = (np.exp(-((v - c) ** 2) / 2) for v, c in zip((x, y), centre, strict=True))
        return np.multiply.outer(*parts) / (2 * math.pi)

    p = sum(q * density(s) for q, s in zip(probabilities, shifts, strict=True))
    q = density(np.zeros(2))
    p, q = (p, q) if adjacency == "remove" else (q, p)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) * spacing**2


def plane_epsilon(shifts, probabilities, delta, spacing=0.02):
    """The larger epsilon of both adjacencies at delta."""

    def one(adjacency):
        def excess(epsilon):
            found = plane_delta(shifts, probabilities, epsilon, adjacency, spacing)
            return math.log(max(found, 1e-300) / delta)

        return float(brentq(excess, 0.0, 20.0, xtol=1e-6)) if excess(0.0) > 0 else 0.0

    return max(one("remove"), one("add"))
