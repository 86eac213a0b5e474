"""Delta of a banded Toeplitz encoder under Poisson sampling, by simulation of its exact likelihood.

Nothing here imports mmcc.  With b bands the output of a row depends on the last b participations,
so the likelihood ratio dP/dQ is a forward recursion over 2^(b-1) states.  Outputs are drawn from P
with a larger chance p' of taking part, dP'/dQ from the same recursion, and delta("remove") is the
mean under P' of (X - E)_+ / X' with X = dP/dQ, X' = dP'/dQ, E = e^epsilon.
"""

from __future__ import annotations

import math

import numpy as np


def log_ratios(outputs: np.ndarray, coefficients: np.ndarray, chances: list[float]) -> np.ndarray:
    """log dP/dQ for each row of outputs, in units of sigma, and each chance of taking part.

    Two bands or more.
    """
    bands = coefficients.size
    states = np.arange(2 ** (bands - 1))
    bits = (states[:, None] >> np.arange(bands - 1)) & 1  # bit k: took part k + 1 steps ago
    older = bits @ coefficients[1:]
    half = states.size // 2
    found = []
    for p in chances:
        weights = np.zeros((len(outputs), states.size))
        weights[:, 0] = 1.0
        logs = np.zeros(len(outputs))
        for y in outputs.T:
            new = np.zeros_like(weights)
            for now, chance in ((0, 1 - p), (1, p)):
                shift = older + now * coefficients[0]
                part = chance * weights * np.exp(np.outer(y, shift) - shift**2 / 2)
                # The oldest bit is forgotten, the rest move up, the new one comes first.
                new[:, now::2] = part[:, :half] + part[:, half:]
            total = new.sum(axis=1)
            logs += np.log(total)
            weights = new / total[:, None]
        found.append(logs)
    return np.array(found)


def simulated_delta(
    coefficients: np.ndarray,
    steps: int,
    probability: float,
    sigma: float,
    epsilon: float,
    *,
    samples: int,
    seed: int,
) -> tuple[float, float]:
    """Delta ("remove") at epsilon, and the standard error."""
    scaled = np.asarray(coefficients, dtype=float) / sigma
    rng = np.random.default_rng([seed, 11])
    tilted = _tilted(scaled, steps, probability, epsilon, rng)
    values = []
    for size in _batches(samples):
        outputs = _drawn(scaled, steps, tilted, size, rng)
        plain, drawn = log_ratios(outputs, scaled, [probability, tilted])
        gain = -np.expm1(np.minimum(epsilon - plain, 0.0))
        values.append(gain * np.exp(plain - drawn))
    every = np.concatenate(values)
    return float(every.mean()), float(every.std(ddof=1)) / math.sqrt(every.size)


def _batches(samples: int, most: int = 20_000) -> list[int]:
    return [most] * (samples // most) + ([samples % most] if samples % most else [])


def _drawn(scaled, steps, p, size, rng):
    took = (rng.random((size, steps)) < p).astype(float)
    outputs = rng.standard_normal((size, steps))
    for k, c in enumerate(scaled[:steps]):
        outputs[:, k:] += c * took[:, : steps - k]
    return outputs


def _tilted(scaled, steps, p, epsilon, rng):
    """A chance at which the median of log dP/dQ is about epsilon."""
    low, high = p, min(0.9, 20 * p)
    for _ in range(7):
        middle = math.sqrt(low * high)
        (logs,) = log_ratios(_drawn(scaled, steps, middle, 64, rng), scaled, [p])
        low, high = (middle, high) if np.median(logs) < epsilon else (low, middle)
    return math.sqrt(low * high)
