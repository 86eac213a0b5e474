"""Poisson sampling with a pause after each participation: sets written out, likelihoods simulated.

Nothing here imports mmcc.  A participation blocks the next gap - 1 steps; in an open step the
example takes part with chance p.  `warm`: the countdown of blocked steps starts in its stationary
law, found here by running it until it no longer moves.
"""

from __future__ import annotations

import math

import numpy as np


def stationary(probability: float, gap: int) -> np.ndarray:
    """Chances that 0, 1, ..., gap - 1 steps are blocked, from the countdown's transition matrix."""
    moves = np.zeros((gap, gap))
    moves[0, 0] = 1 - probability
    moves[0, gap - 1] += probability
    for left in range(1, gap):
        moves[left, left - 1] = 1.0
    system = np.vstack([moves.T - np.eye(gap), np.ones(gap)])
    return np.linalg.lstsq(system, np.append(np.zeros(gap), 1.0), rcond=None)[0]


def law_of_sets(
    steps: int, probability: float, gap: int, warm: bool
) -> dict[tuple[int, ...], float]:
    """Every participation set with its chance."""
    starts = enumerate(stationary(probability, gap)) if warm else [(0, 1.0)]
    now = {((), left): float(chance) for left, chance in starts}
    for step in range(steps):
        new: dict[tuple[tuple[int, ...], int], float] = {}
        for (members, left), chance in now.items():
            if left:
                branches = [((members, left - 1), 1.0)]
            else:
                branches = [
                    ((members, 0), 1 - probability),
                    (((*members, step), gap - 1), probability),
                ]
            for state, share in branches:
                if share:
                    new[state] = new.get(state, 0.0) + chance * share
        now = new
    law: dict[tuple[int, ...], float] = {}
    for (members, _), chance in now.items():
        law[members] = law.get(members, 0.0) + chance
    return law


def components(
    matrix: np.ndarray, probability: float, gap: int, sigma: float, warm: bool
) -> tuple[np.ndarray, np.ndarray]:
    """C 1_S / sigma for every set S, one a row, and the chances of the sets."""
    law = law_of_sets(matrix.shape[1], probability, gap, warm)
    marks = np.zeros((len(law), matrix.shape[1]))
    for row, members in enumerate(law):
        marks[row, list(members)] = 1.0
    return marks @ matrix.T / sigma, np.array(list(law.values()))


def log_ratios(
    outputs: np.ndarray, coefficients: np.ndarray, chances: list[float], gap: int, warm: bool
) -> np.ndarray:
    """log dP/dQ for each row of outputs, for each chance of taking part in an open step.

    No more bands than the gap, so that a row knows of one participation: its state is the number of
    steps since then, or `gap` if the step is open; countdowns from before the start show nothing.
    """
    shown = np.zeros(gap + 1)
    shown[: coefficients.size] = coefficients
    found = []
    for p in chances:
        weights, hidden = np.zeros((len(outputs), gap + 1)), np.zeros((len(outputs), gap))
        first = stationary(p, gap) if warm else np.eye(gap)[0]
        weights[:, gap], hidden[:, 1:] = first[0], first[1:]
        logs = np.zeros(len(outputs))
        for y in outputs.T:
            new, ahead = np.zeros_like(weights), np.zeros_like(hidden)
            new[:, 1:gap] = weights[:, : gap - 1]
            new[:, gap] = weights[:, gap] * (1 - p)
            new[:, 0] = weights[:, gap] * p
            new *= np.exp(np.outer(y, shown) - shown**2 / 2)
            ahead[:, :-1] = hidden[:, 1:]
            # Whoever was blocked for the last time is open at the next step.
            new[:, gap] += new[:, gap - 1] + ahead[:, 0]
            new[:, gap - 1] = ahead[:, 0] = 0.0
            total = new.sum(axis=1) + ahead.sum(axis=1)
            logs += np.log(total)
            weights, hidden = new / total[:, None], ahead / total[:, None]
        found.append(logs)
    return np.array(found)


def drawn_outputs(
    coefficients: np.ndarray,
    steps: int,
    probability: float,
    gap: int,
    warm: bool,
    size: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Outputs in units of sigma, an example in each row."""
    left = rng.choice(gap, size, p=stationary(probability, gap)) if warm else np.zeros(size, int)
    took = np.zeros((size, steps))
    for step in range(steps):
        now = (left == 0) & (rng.random(size) < probability)
        took[now, step] = 1.0
        left = np.where(now, gap - 1, np.maximum(left - 1, 0))
    outputs = rng.standard_normal((size, steps))
    for k, c in enumerate(coefficients[:steps]):
        outputs[:, k:] += c * took[:, : steps - k]
    return outputs


def simulated_delta(
    coefficients: np.ndarray,
    steps: int,
    probability: float,
    gap: int,
    warm: bool,
    sigma: float,
    epsilon: float,
    *,
    samples: int,
    seed: int,
) -> tuple[float, float]:
    """Delta ("remove") at epsilon, and the standard error: outputs drawn with a larger chance."""
    scaled = np.asarray(coefficients, dtype=float) / sigma
    rng = np.random.default_rng([seed, 13])
    low, high = probability, min(0.9, 20 * probability)
    for _ in range(7):
        middle = math.sqrt(low * high)
        pilot = drawn_outputs(scaled, steps, middle, gap, warm, 64, rng)
        (logs,) = log_ratios(pilot, scaled, [probability], gap, warm)
        low, high = (middle, high) if np.median(logs) < epsilon else (low, middle)
    tilted = math.sqrt(low * high)
    outputs = drawn_outputs(scaled, steps, tilted, gap, warm, samples, rng)
    plain, drawn = log_ratios(outputs, scaled, [probability, tilted], gap, warm)
    values = -np.expm1(np.minimum(epsilon - plain, 0.0)) * np.exp(plain - drawn)
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(samples)
