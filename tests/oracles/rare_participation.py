"""Mechanisms in which examples rarely take part, and what is true of them; nothing here is mmcc's.

step_delta, step_epsilon   one subsampled Gaussian, closed form in 50 digits
tail_delta                 several: a lower bound, by whether any output lies above a threshold
chance                     of taking part at all, in 50 digits
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import mpmath
import numpy as np

from oracles import truth


@dataclass(frozen=True)
class Rare:
    """One step: probability, noise, and delta as a part of the largest one."""

    probability: float
    sigma: float
    part: float

    @property
    def delta(self) -> float:
        return float(step_delta(self.probability, self.sigma, 0.0)) * self.part


AXES = (1e-3, 1e-4, 1e-5, 1e-6), (0.3, 0.5, 2.0), (0.8, 0.1, 1e-3)
"""Probabilities, noise levels and parts."""


def step_delta(p: float, sigma: float, epsilon: float, side: str | None = None) -> mpmath.mpf:
    """Of one subsampled Gaussian: of one adjacency, or the larger one."""
    curve = partial(truth.mixture_delta, [0.0, 1.0], [1 - p, p], sigma, epsilon)
    return truth.worst(curve) if side is None else curve(side)


def step_epsilon(p: float, sigma: float, delta: float) -> float:
    """Of one subsampled Gaussian, at a delta."""
    return truth.smallest_epsilon(lambda epsilon: step_delta(p, sigma, epsilon), delta)


def tail_delta(steps: int, p: float, sigma: float, epsilon: float) -> mpmath.mpf:
    """P(A) - e^epsilon Q(A), A: some output lies above the best of many thresholds."""
    with mpmath.workdps(truth.DIGITS):
        p, shift = mpmath.mpf(p), 1 / mpmath.mpf(sigma)

        def gain(t: float) -> mpmath.mpf:
            idle = mpmath.ncdf(-t)
            mixed = (1 - p) * idle + p * mpmath.ncdf(shift - t)
            above = [1 - (1 - share) ** steps for share in (mixed, idle)]
            return above[0] - mpmath.exp(epsilon) * above[1]

        return max(gain(t) for t in np.linspace(-1, 12, 261))


def chance(p: float, rounds: int) -> mpmath.mpf:
    """1 - (1 - p)^rounds."""
    with mpmath.workdps(truth.DIGITS + 300):
        return 1 - (1 - mpmath.mpf(p)) ** rounds
