"""Noise by simulation, where no certificate of amplification exists.  Not a proof.

In: a mechanism and a target.  Out: a sigma at which the upper end of a Monte Carlo interval is at
or below the target epsilon.
"""

from __future__ import annotations

import math

from mmcc._simulation.estimate import estimate
from mmcc.accounting._calibrate import next_sigma
from mmcc.accounting._parallel import Progress
from mmcc.errors import PrecisionError
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

TURNS = 10
NEAR = 0.02
"""The upper end may be this much (relative) below the target: intervals are no narrower."""
WIDTH = 0.02
SAMPLES = 2**15


def estimated_sigma(
    strategy: Strategy,
    scheme: Scheme,
    epsilon: float,
    delta: float,
    progress: Progress | None = None,
) -> tuple[float, str]:
    """A noise level for the target, and how it was estimated."""
    sigma = 0.3 * scheme.sensitivity(strategy)
    points: list[tuple[float, float]] = []
    safe: tuple[float, str] | None = None
    for _ in range(TURNS):
        found = estimate(
            strategy,
            scheme,
            sigma=sigma,
            delta=delta,
            samples=SAMPLES,
            width=WIDTH,
            progress=progress,
        )
        if found.high <= epsilon and (safe is None or sigma < safe[0]):
            safe = sigma, f"Monte Carlo ({found.method}), confidence {found.confidence:g}"
        if epsilon * (1 - NEAR) <= found.high <= epsilon:
            break
        points.append((math.log(sigma), math.log(max(found.high, 1e-12) / epsilon)))
        sigma = next_sigma(points, -0.5 * NEAR)
    if safe is None:
        raise PrecisionError(
            f"no noise level was found whose estimate lies below epsilon = {epsilon:g}; look at "
            "mmcc.estimate at a few sigmas."
        )
    return safe
