"""The reveal bound, asked with a scheme, and mechanisms to ask it about."""

from __future__ import annotations

import numpy as np

from mmcc import strategies
from mmcc.accounting import Answer, Problem
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.sampling import Poisson, Scheme
from mmcc.strategies import Strategy, Toeplitz


def applies(strategy: Strategy) -> bool:
    return Reveal().refusal(Problem(strategy, Poisson(0.5), 1.0)) is None


def bound_epsilon(strategy: Strategy, scheme: Scheme, sigma: float, delta: float) -> Answer:
    return Reveal().epsilon(Problem(strategy, scheme, sigma), delta)


def bound_delta(strategy: Strategy, scheme: Scheme, sigma: float, epsilon: float) -> Answer:
    return Reveal().delta(Problem(strategy, scheme, sigma), epsilon)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def random_toeplitz(rng: np.random.Generator, steps: int) -> Toeplitz:
    """One-buffer BLTs, several buffers, banded inverses, bands that need not fall."""
    kind = rng.random()
    if kind < 0.35:
        decay = rng.uniform(0.05, 0.99)
        return strategies.blt(steps, decay=[decay], scale=[decay * rng.uniform(0.01, 1)])
    if kind < 0.6:
        count = int(rng.integers(2, 4))
        decays = np.sort(rng.uniform(0.05, 0.99, count))
        scales = decays * rng.uniform(0.02, 0.99, count) / count
        return strategies.blt(steps, decay=list(decays), scale=list(scales))
    if kind < 0.7:
        return strategies.banded_inverse(steps, min(int(rng.integers(1, 4)), steps))
    later = rng.random(int(rng.integers(0, 5))) * 1.5
    later = np.sort(later)[::-1] if rng.random() < 0.7 else later
    return strategies.toeplitz(np.concatenate([[1.0], later]), steps)


def counting_bands(bands: int, steps: int) -> Toeplitz:
    return strategies.toeplitz(strategies.continual_counting(bands).coefficients, steps)
