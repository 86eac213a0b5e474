r"""Choosing kappa and rho of the dominating chain.

In: a `Spectrum`, sigma.  Out: shapes worth trying, best guess first.
Rounding: none; every shape is valid, and its omega is certified when the chain is made.

With rare participation the second moment of the likelihood ratio is about 1 + n p^2 J,

    J = sum_k (e^{G^_k/sigma^2} - 1) = e^{(kappa + omega)/sigma^2} - 1
        + 2 sum_{m >= 1} (kappa/sigma^2)^m / m!  rho^m / (1 - rho^m).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy import optimize
from scipy.special import gammaln

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.chains.domination import (
    LEAST_WHITE,
    Shape,
    Spectrum,
    poisson_kernel,
)

STRENGTHS = (1.0, 0.7, 1.4)
"""Factors on sigma at which J is minimised, because higher moments count at little noise."""
ZOOMS = 6
DECAYS, PARTS = 15, 15
MOST_NODES = 1200
FEW_BANDS = 24
"""Most bands for which lags are raised as well, which is useful and fast there."""
MIXED_TURNS, MIXED_STEPS = 5, (-1.0, -0.5, 0.0, 0.5, 1.0)
TERMS = np.arange(1.0, 80.0)


def good_shapes(spectrum: Spectrum, sigma: float) -> Sequence[Shape]:
    """Shapes that minimise J at about this noise; only one if it loses nothing."""
    if spectrum.exact is not None:
        return (spectrum.exact,)
    search = _Search(spectrum)
    found = dict.fromkeys(search.best(sigma * strength) for strength in STRENGTHS)
    if spectrum.lags.size <= FEW_BANDS and not spectrum.decay:
        found[_mixed(spectrum, next(iter(found)), sigma)] = None
    return tuple(found)


class _Search:
    """A grid in (1 - rho, part), kappa = part f(0)/K(0), that is refined around the smallest J."""

    def __init__(self, spectrum: Spectrum) -> None:
        count = spectrum.nodes.size
        places = np.unique(np.geomspace(1, count, MOST_NODES).astype(int)) - 1
        places = np.union1d(places, np.linspace(0, count - 1, MOST_NODES).astype(int))
        self.nodes, self.heights = spectrum.nodes[places], spectrum.heights[places]
        self.lags = spectrum.lags.size

    def best(self, sigma: float) -> Shape:
        """The shape with the smallest J found."""
        least = 0.02 / self.lags if self.lags > 2 else 1e-4
        low, high = math.log(least), math.log(0.95)
        first, last = math.log(0.3), math.log(1.1)
        found = Shape(1.0, 0.5)
        for _ in range(ZOOMS):
            gaps = np.linspace(low, high, DECAYS)
            parts = np.linspace(first, last, PARTS)
            values = np.array([self._weights(1 - math.exp(gap), parts, sigma) for gap in gaps])
            row, column = np.unravel_index(int(np.argmin(values)), values.shape)
            decay = 1 - math.exp(float(gaps[row]))
            found = Shape(self._shared(decay, float(parts[column])), decay)
            low, high = _around(gaps, int(row))
            first, last = _around(parts, int(column))
        return found

    def _shared(self, decay: float, part: float) -> float:
        return math.exp(part) * float(self.heights[0]) * (1 - decay) / (1 + decay)

    def _weights(self, decay: float, parts: FloatArray, sigma: float) -> FloatArray:
        """The logarithm of J for each part."""
        shared = np.array([self._shared(decay, float(part)) for part in parts])
        kernel, _ = poisson_kernel(self.nodes, decay)
        white = np.max(self.heights - shared[:, None] * kernel, axis=1)
        white = np.maximum(white, LEAST_WHITE * shared)
        scaled = shared / sigma / sigma
        return log_weight(scaled, decay, white / sigma / sigma)


def log_weight(shared: FloatArray, decay: float, white: FloatArray) -> FloatArray:
    """The logarithm of J, with noise scaled to one."""
    series = TERMS * np.log(decay * shared[:, None]) - gammaln(TERMS + 1)
    tail = np.logaddexp.reduce(series - np.log1p(-(decay**TERMS)), axis=1)
    top = shared + white
    own = np.where(top < 30, np.log(np.expm1(np.minimum(top, 30.0))), top)
    return np.asarray(np.logaddexp(own, math.log(2) + tail))


def _mixed(spectrum: Spectrum, start: Shape, sigma: float) -> Shape:
    """A shape near `start` with lags raised so that omega, and hence J, is smallest.

    For each kappa and rho the smallest omega is a linear program in the lags.
    """
    bands = spectrum.lags.size
    count = min(3 * bands, spectrum.columns - 1)
    nodes = np.linspace(0, math.pi, max(12 * bands, 120))
    heights = np.interp(nodes, spectrum.nodes, spectrum.heights)
    waves = 2 * np.cos(np.multiply.outer(nodes, np.arange(1.0, count + 1)))
    table = np.concatenate([np.full((nodes.size, 1), -1.0), waves], axis=1)
    costs = np.concatenate([[1.0], np.zeros(count)])
    limits = [(None, None), *[(0.0, None)] * count]

    known: dict[tuple[float, float], tuple[float, Shape]] = {}  # grids of two turns overlap

    def tried(decay: float, shared: float) -> tuple[float, Shape]:
        place = (round(math.log1p(-decay), 9), round(math.log(shared), 9))
        if place not in known:
            known[place] = solved(decay, shared)
        return known[place]

    def solved(decay: float, shared: float) -> tuple[float, Shape]:
        kernel, _ = poisson_kernel(nodes, decay)
        found = optimize.linprog(costs, table, shared * kernel - heights, bounds=limits)
        if found.x is None:
            return math.inf, start
        white = max(float(found.x[0]), LEAST_WHITE * shared) / sigma / sigma
        scaled = np.array([shared / sigma / sigma])
        weight = float(log_weight(scaled, decay, np.array([white]))[0])
        return weight, Shape(shared, decay, tuple(np.maximum(found.x[1:], 0.0).tolist()))

    best = tried(start.decay, start.shared)
    for turn in range(MIXED_TURNS):
        base = best[1]
        for gap, part in product(MIXED_STEPS, MIXED_STEPS):
            decay = 1 - min((1 - base.decay) * math.exp(0.3 * gap / 2**turn), 0.99)
            shared = base.shared * (1 - decay) / (1 + decay) * (1 + base.decay) / (1 - base.decay)
            shared *= math.exp(0.1 * part / 2**turn)
            best = min(best, tried(decay, shared), key=lambda pair: pair[0])
    return best[1]


def _around(values: FloatArray, place: int) -> tuple[float, float]:
    """The neighbours of an entry in a sorted grid."""
    return float(values[max(place - 1, 0)]), float(values[min(place + 1, values.size - 1)])
