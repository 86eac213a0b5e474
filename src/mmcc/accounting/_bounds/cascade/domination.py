"""A Gaussian chain that dominates bins that do not form a tree.

In: overlaps H_rs = <m_r, m_s> of the bins, in units of sigma.  Out: `Links`, a covariance that is
at least H in every entry, so that delta is at least as large for both adjacencies (Kahane).
Rounding: the covariance is compared with H entry by entry, and raised until it is above.

    H^_rs = common + load_r load_s decay_r ... decay_(s-1) + own_r 1{r = s},     r <= s.

`common` is a factor of the whole likelihood ratio, the second part a Markov chain from bin to bin,
the third white.  For a given `common`, logarithms of loads and decays enter linearly, so the chain
with the least excess, weighted by e^H, is found by a linear programme; any loads and decays are
valid once they are raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray, own_arrays
from mmcc.errors import PrecisionError

WHITE = 0.1
"""At least this fraction of a bin's variance is white, as integrals over the chain need."""
SLOWEST = 0.04
"""The least -log(decay), because slower chains need finer lattices."""
NEGLIGIBLE = 2e-3
"""Overlaps below this fraction of the largest variance are raised to it."""
LIGHTEST = -12.0
"""The least logarithm of a weight, so that every pair of bins has one."""
ROUNDS = 2
"""How often the weights of the excess are recomputed."""
UP = 1 + 1e-10
"""Covers rounding in products of decays, as long as they do not underflow."""


@dataclass(frozen=True, eq=False, slots=True)
class Links:
    """The covariance of bins along a chain (formula above)."""

    common: float
    loads: FloatArray
    decays: FloatArray
    own: FloatArray

    def __post_init__(self) -> None:
        own_arrays(self, "loads", "decays", "own")

    @property
    def chain_part(self) -> FloatArray:
        """The covariance of the chain part alone, up to rounding."""
        way = np.concatenate([[0.0], np.cumsum(-np.log(self.decays))])
        falls = np.exp(-np.abs(np.subtract.outer(way, way)))
        return np.asarray(np.multiply.outer(self.loads, self.loads) * falls)

    @property
    def covariance(self) -> FloatArray:
        """The whole covariance, up to rounding."""
        return np.asarray(self.common + self.chain_part + np.diag(self.own))

    @property
    def curvatures(self) -> FloatArray:
        """1 / variance of the chain's state at each bin, given its neighbours and the outputs."""
        left = np.concatenate([[0.0], self.decays])
        right = np.concatenate([self.decays, [0.0]])
        noise = 1 / (1 - left**2) + right**2 / (1 - right**2)
        return np.asarray(noise + self.loads**2 / self.own)


def dominate(overlaps: FloatArray, common: float) -> Links:
    """A chain with this common part that dominates the non-negative `overlaps`."""
    logs = np.log(np.maximum(overlaps - common, NEGLIGIBLE * overlaps.max()))
    room = np.log(np.maximum((1 - WHITE) * np.diagonal(overlaps) - common, np.exp(logs.min())))
    guess = overlaps
    for _ in range(ROUNDS):
        loads, way = _least_excess(
            logs, room, np.exp(np.maximum(guess - guess.max(), LIGHTEST) + logs)
        )
        decays = np.exp(-np.maximum(np.diff(way), SLOWEST))
        links = _raise_above(overlaps, common, np.exp(loads), decays)
        guess = links.covariance
    return links


def _least_excess(
    logs: FloatArray, room: FloatArray, weights: FloatArray
) -> tuple[FloatArray, ...]:
    """Log loads and -log of products of decays that exceed `logs` for all pairs of bins.

    On the diagonal the square of the load is below `room`, or the excess is penalised.
    """
    from scipy import optimize, sparse  # take half a second to import

    bins = len(logs)
    near, far = np.triu_indices(bins, 1)
    rows, every, ones = np.arange(near.size), np.arange(bins), np.ones(near.size)
    at_near = sparse.csr_array((ones, (rows, near)), shape=(near.size, bins))
    at_far = sparse.csr_array((ones, (rows, far)), shape=(near.size, bins))
    unit = sparse.eye_array(bins, format="csr")
    none = sparse.csr_array((near.size, bins)), sparse.csr_array((bins, bins)), unit[:-1] * 0.0
    above: Any = sparse.vstack(
        [
            sparse.hstack([-at_near - at_far, at_far - at_near, none[0]]),
            sparse.hstack([2 * unit, none[1], -unit]),
            sparse.hstack([none[2], unit[:-1] - unit[1:], none[2]]),
        ]
    )
    limits = np.concatenate([-logs[near, far], room, np.full(bins - 1, -SLOWEST)])
    cost = weights[near, far]
    own = np.diagonal(weights)
    loads = np.bincount(near, cost, bins) + np.bincount(far, cost, bins)
    way = np.bincount(near, cost, bins) - np.bincount(far, cost, bins)
    price = np.concatenate([loads, way, own])
    free = [(None, None)] * bins + [(0.0, 0.0)] + [(None, None)] * (bins - 1) + [(0.0, None)] * bins
    found = optimize.linprog(price / price.max(), above, limits, bounds=free, method="highs")
    if found.x is None:
        raise PrecisionError("no chain was found that dominates the overlaps of the bins.")
    return found.x[every], found.x[bins + every]


def _raise_above(
    overlaps: FloatArray, common: float, loads: FloatArray, decays: FloatArray
) -> Links:
    """The same chain, raised until it is above `overlaps` in every entry."""
    own = np.diagonal(overlaps)
    chain_part = Links(common, loads, decays, np.ones(len(own))).chain_part
    if not chain_part.min() > np.finfo(float).tiny or not np.isfinite(loads).all():
        raise PrecisionError(
            "the chain that dominates the overlaps of the bins is beyond floating point."
        )
    excess = (overlaps - common) / chain_part
    np.fill_diagonal(excess, 0.0)
    # An entry is raised by the mean of what its two bins need, so at least by what it needs.
    loads = loads * np.sqrt(np.maximum(excess.max(axis=1), 1.0) * UP**2)
    least = WHITE * np.maximum(own, NEGLIGIBLE * own.max())
    white = np.maximum((own - common - loads**2) * UP + own * (UP - 1), least)
    return Links(common, loads, decays, white)
