r"""An error of prefix sums that no matrix can go below, at a guarantee.

In: a scheme, a number of steps, a target.  Out: a lower bound on the error of every strategy.
Rounding: each test is a lower bound on delta wherever its threshold is; what is left is floating
point, as in all errors.  The bound is not a certificate, and no certificate rests on it.

Let (C, sigma) be (epsilon, delta)-differentially private, B a decoder, BC = I, and v_t = sigma^2
|row t of AB|^2 the variance of its t-th prefix sum.  Take the example whose clipped gradient is the
same unit vector whenever it takes part, among examples whose gradients are zero.  Along that vector
ABy in row t is N_t + N(0, v_t), N_t being the number of participations in the first t steps, and
N(0, v_t) without the example.  This is computed from what is released, so that these two are
(epsilon, delta)-indistinguishable, whatever C is: v_t >= v*_t, the least variance for which they
are.  Smaller variances are worse, since noise can be added afterwards.

The likelihood ratio sum_k P[N = k] e^{(k s - k^2/2) / v} increases in s, so that the worst sets are
half lines; on them N_t + w is larger the larger t is, so v*_t never falls.  docs/optimise.md has a
table.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.sampling import Scheme

POINTS = 256
"""Numbers of rounds at which the least variance is computed; between two it is the first one's."""
WORK = 2**30
"""States times counts times rounds of the law of participations, at most."""
TAIL = 12.0
"""Standard deviations of a count beyond which participations are not counted one by one."""
TURNS, THRESHOLD_TURNS = 40, 60
LEAST_NOISE = 1e-3


def least_error(
    scheme: Scheme, steps: int, epsilon: float, delta: float, objective: str = "mean"
) -> float | None:
    """Every strategy has at least this error of prefix sums; None where the law is not known."""
    chances = scheme.chances(steps) if scheme.relaxed(steps) is None else None
    if chances is None:
        return None
    columns, stride = scheme.columns(steps), scheme.stride(steps)
    expected = float(chances.rates(columns).sum())
    most = min(columns, math.ceil(expected + TAIL * math.sqrt(expected) + TAIL))
    if chances.states * (most + 1) * columns > WORK:
        return None
    laws = chances.counts(columns, most)
    rounds = np.unique(np.linspace(1, columns, min(POINTS, columns)).astype(np.int64))
    noise = least_noise(laws[rounds], epsilon, delta)
    seen = -(-np.arange(1, steps + 1) // stride)
    variances = np.square(noise[np.searchsorted(rounds, seen, side="right") - 1])
    return float(np.sqrt(variances.mean() if objective == "mean" else variances[-1]))


def least_noise(laws: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """For each law of counts, a row, a deviation with which delta is still too large; 0 if none."""
    low = np.full(len(laws), LEAST_NOISE)
    high = np.full(len(laws), 1e3 * laws.shape[1] * max(1.0, 1 / epsilon))
    needed = shown_delta(laws, low, epsilon) > delta
    for _ in range(TURNS):
        middle = np.sqrt(low * high)
        too_little = shown_delta(laws, middle, epsilon) > delta
        low, high = np.where(too_little, middle, low), np.where(too_little, high, middle)
    return np.where(needed, low, 0.0)


def shown_delta(laws: FloatArray, noise: FloatArray, epsilon: float) -> FloatArray:
    """Delta of a count with Gaussian noise, beside the noise alone, at the least: by half lines."""
    counts = np.arange(laws.shape[1])
    with np.errstate(divide="ignore"):
        logs = np.log(laws)
    variances = np.square(noise)
    largest = np.max(logs[:, 1:], axis=1, initial=-700.0)
    farthest = variances * (epsilon - largest) + laws.shape[1]

    def threshold(level: float, low: FloatArray) -> FloatArray:
        """Where the log of the likelihood ratio is about this."""
        high = farthest
        for _ in range(THRESHOLD_TURNS):
            middle = 0.5 * (low + high)
            powers = (counts * middle[:, None] - counts**2 / 2) / variances[:, None]
            above = special.logsumexp(logs + powers, axis=1) > level
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return low

    def log_tail(place: FloatArray, sign: float) -> FloatArray:
        """Log of the chance that the noisy count is below a place (sign 1) or above it (-1)."""
        distances = sign * (place[:, None] - counts) / noise[:, None]
        return np.asarray(special.logsumexp(logs + special.log_ndtr(distances), axis=1))

    place = threshold(epsilon, np.zeros(len(laws)))
    remove = _excess(log_tail(place, -1.0), special.log_ndtr(-place / noise), epsilon)
    place = threshold(-epsilon, -variances * (epsilon + 60) - 60 * noise - laws.shape[1])
    add = _excess(special.log_ndtr(place / noise), log_tail(place, 1.0), epsilon)
    return np.maximum(remove, add)


def _excess(log_chance: FloatArray, log_other: FloatArray, epsilon: float) -> FloatArray:
    """The first chance less e^epsilon times the other."""
    return np.asarray(np.exp(log_chance) - np.exp(np.minimum(epsilon + log_other, 1.0)))
