"""Independent truth for whole mechanisms on the line: enumerated means, quadrature from below."""

from __future__ import annotations

import itertools
import math

import numpy as np


def line_delta(p: dict[float, float], q: dict[float, float], sigma: float, epsilon: float) -> float:
    """P(B) - e^epsilon Q(B) for two mixtures of N(mean, sigma^2), B a union of cells: from below.

    Cells in which the densities favour P at both ends are taken; the value of any such union is a
    lower bound on delta, up to round-off, and second order in the width of a cell.
    """
    means = [*p, *q]
    edges = np.linspace(min(means) - 12 * sigma, max(means) + 12 * sigma, 20_001)
    mass_p, mass_q = _mass(p, sigma, edges), _mass(q, sigma, edges)
    gain = mass_p - math.exp(epsilon) * mass_q
    return float(gain[gain > 0].sum()) - 1e-13


def _mass(mixture: dict[float, float], sigma: float, edges: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return sum(
        weight * (ndtr((edges[1:] - mean) / sigma) - ndtr((edges[:-1] - mean) / sigma))
        for mean, weight in mixture.items()
    )


def batch_sums(values: list[float], batch: int) -> dict[float, float]:
    """The law of the sum of a batch drawn without replacement."""
    batches = list(itertools.combinations(values, batch))
    return _collected((math.fsum(drawn), 1 / len(batches)) for drawn in batches)


def poisson_sums(values: list[float], probability: float, steps: int) -> dict[float, float]:
    """The law of the sum of all participations in all steps."""
    sums = {0.0: 1.0}
    for value in values:
        for _ in range(steps):
            pairs = [(s, w * (1 - probability)) for s, w in sums.items()]
            pairs += [(s + value, w * probability) for s, w in sums.items()]
            sums = _collected(pairs)
    return sums


def _collected(pairs) -> dict[float, float]:
    found: dict[float, float] = {}
    for value, weight in pairs:
        key = round(value, 9)
        found[key] = found.get(key, 0.0) + weight
    return found
