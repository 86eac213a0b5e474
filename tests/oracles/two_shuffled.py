"""Two examples, two steps, batches of one, a random order: the counterexample for shuffling.

C = I.  Ours contributes -1 and the other one +1, in whichever step each of them has; ours is zeroed
in the neighbouring data set.  With s = (y_1 + y_2) / sqrt 2 and d = (y_1 - y_2) / sqrt 2 both laws
are products, and a test at fixed d is a threshold for s: one dimension is exact and the other a
trapezoid sum of an analytic function.  Imports nothing from mmcc.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

ROOT = np.sqrt(2.0)
SHUFFLED = ((0.0, ROOT), (1 / ROOT, 1 / ROOT))
"""With ours and without: the mean of s, and that of d up to a random sign."""
FIXED_PAIR = ((-1 / ROOT, 1 / ROOT), (0.0, 0.0))
"""Where the other example contributes nothing, which is what the 0-1 setting assumes."""


def delta_of(first, second, epsilon, sigma=1.0):
    """P(A) - e^epsilon Q(A) for the best A."""
    (s, d), (t, e) = (np.asarray(pair) / sigma for pair in (first, second))
    grid, step = np.linspace(-12 - d - e, 12 + d + e, 4001, retstep=True)
    ours, theirs = _log_density(grid, d), _log_density(grid, e) + epsilon
    # ours + log phi(x - s) > theirs + log phi(x - t): x on one side of a threshold.
    threshold = (theirs - ours) / (s - t) + (s + t) / 2
    side = np.sign(s - t)
    inside = np.exp(ours) * ndtr(side * (s - threshold)) - np.exp(
        theirs + log_ndtr(side * (t - threshold))
    )
    return float(step * inside.sum())


def _log_density(grid, mean):
    """Of a normal law around plus or minus the mean, each with chance 1/2."""
    both = np.stack([grid - mean, grid + mean])
    return logsumexp(-0.5 * both**2, axis=0) - np.log(2 * np.sqrt(2 * np.pi))


def both_deltas(pair, epsilon, sigma=1.0):
    """Remove and add."""
    with_it, without = pair
    return delta_of(with_it, without, epsilon, sigma), delta_of(without, with_it, epsilon, sigma)
