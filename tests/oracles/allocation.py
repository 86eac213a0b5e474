"""Random allocation by brute force: every participation set of a small mechanism, any matrix.

Nothing here imports mmcc.  In each epoch of t steps an example takes part in k of them, all
C(t, k)^E choices equally likely, so P is the even mixture of N(A 1_S, I), A = C / sigma, and Q is
N(0, I).  Delta is the integral of `oracles.enumeration`.
"""

from __future__ import annotations

import itertools

import numpy as np

from oracles.enumeration import Estimate, mixture_delta


def allocation_sets(epoch_steps: int, times: int, epochs: int) -> np.ndarray:
    """Every participation set as a row of zeros and ones, one column a step."""
    chosen = list(itertools.combinations(range(epoch_steps), times))
    epoch = np.zeros((len(chosen), epoch_steps))
    for row, places in zip(epoch, chosen, strict=True):
        row[list(places)] = 1
    return np.array([np.concatenate(parts) for parts in itertools.product(epoch, repeat=epochs)])


def allocation_delta(
    matrix: np.ndarray,
    epoch_steps: int,
    times: int,
    sigma: float,
    epsilon: float,
    adjacency: str,
    *,
    relative: float = 0.002,
    absolute: float = 0.0,
    seed: int = 0,
) -> Estimate:
    """Delta at epsilon of C >= 0 under random allocation, with its standard error."""
    scaled = np.asarray(matrix, dtype=float) / sigma
    sets = allocation_sets(epoch_steps, times, scaled.shape[1] // epoch_steps)
    return mixture_delta(
        sets @ scaled.T,
        np.full(len(sets), 1 / len(sets)),
        epsilon,
        adjacency,
        relative=relative,
        absolute=absolute,
        seed=seed,
    )


def allocation_sensitivity(matrix: np.ndarray, epoch_steps: int, times: int) -> float:
    """The largest |C 1_S|."""
    matrix = np.asarray(matrix, dtype=float)
    sets = allocation_sets(epoch_steps, times, matrix.shape[1] // epoch_steps)
    return float(np.linalg.norm(sets @ matrix.T, axis=1).max())
