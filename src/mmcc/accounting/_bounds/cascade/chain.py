"""Bins along a chain: the law of the likelihood ratio, bin by bin.

In: overlaps of the bins.  Out: upper bounds on delta at epsilon, and on epsilon, both adjacencies.

With the covariance of `Links` the likelihood ratio under Q is X = e^(a xi - a^2/2) Y, a^2 the
common part, Y = (1/b) sum_r e^(load_r v_r - load_r^2/2) L_r, v a Markov chain of unit normals and
L_r independent lognormals.  There are three steps, each rounded up (proofs: docs/theory-bins.md,
section 6):

    lattice  v_r on h Z: given outputs and neighbours v_r is Gaussian with a known curvature, so
             means of non-negative functions of the outputs change by a factor 1 +- tiny;
    law      sums of bins so far, for each v_r, with values moved to ends of cells, the mean kept
             (larger in convex order), as for trees; what is cut above is added to delta;
    common   e^(a xi - a^2/2) in closed form: a call (remove) or a put (add) on each value of Y.

Rounding: all sums have non-negative terms, which are pushed up by more than their rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._bounds.base import Answer
from mmcc.accounting._bounds.cascade.domination import Links, dominate
from mmcc.accounting._bounds.cascade.law import (
    LEAST,
    SMALL,
    UNIT,
    WIDEST,
    Law,
    lognormal,
    solve,
)
from mmcc.errors import PrecisionError

LATTICE = 1e-6
"""The fraction by which the lattice may change delta."""
CUT = 1e-5
"""The mass outside the lattice and above the last cell, as a fraction of delta."""
MOST_STATES = 600
SHARES = (0.02, 0.3, 0.6, 0.8, 1.0)
"""Common parts to try, in units of the median overlap."""
POOR = 1.5
"""Chains with a larger variance, relative to the largest true one, are not tried."""
LEAST_COMMON = 1e-3
"""The least common part, relative to the largest variance, because prices need one."""
NORMAL = 1e-11
"""Relative margin for normal distribution functions in the prices."""
STEEPEST = 400.0
"""The largest exponent of a single bin; kernels of the chain underflow far beyond it."""
FORGET = 1e-16
"""Masses that matter less than this fraction of delta are moved to the unfavourable side."""
DROPPED = 1e-100
"""More than everything that underflow can remove."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Relative widths of the cells, and of a lognormal's cells in its standard deviations."""

    cells: float
    factor: float


ROUGH, FINE = Resolution(0.06, 0.4), Resolution(0.02, 0.2)


@dataclass(eq=False)
class ChainBracket:
    """Upper bounds for bins with given overlaps; laws are computed once for each adjacency."""

    overlaps: FloatArray
    """Upper bounds on <m_r, m_s> >= 0 in units of sigma^2."""
    delta: float
    """Roughly the delta of interest."""
    _laws: dict[Adjacency, ChainLaw] = field(default_factory=dict)

    def bound_epsilon(self, delta: float) -> Answer:
        """Certified epsilon at delta."""
        return Answer(
            self._law("remove").bound_epsilon(delta), self._law("add").bound_epsilon(delta)
        )

    def bound_delta(self, epsilon: float) -> Answer:
        """Certified delta at epsilon."""
        return Answer(
            min(self._law("remove").bound_delta(epsilon), 1.0),
            min(self._law("add").bound_delta(epsilon), 1.0),
        )

    def _law(self, adjacency: Adjacency) -> ChainLaw:
        if adjacency not in self._laws:
            self._laws[adjacency] = chain_law(self.links, self.delta, adjacency, FINE)
        return self._laws[adjacency]

    @cached_property
    def links(self) -> Links:
        """Of the chains that dominate the overlaps, the one with the least rough epsilon."""
        bins = len(self.overlaps)
        median = float(np.median(self.overlaps[np.triu_indices(bins, 1)]))
        least = LEAST_COMMON * float(np.max(self.overlaps))
        best, found = math.inf, None
        for common in sorted({max(share * median, least) for share in SHARES}):
            try:
                links = dominate(self.overlaps, common)
                if np.max(links.loads) ** 2 > POOR * np.max(self.overlaps):
                    continue
                epsilon = chain_law(links, self.delta, "remove", ROUGH).bound_epsilon(self.delta)
            except PrecisionError:
                continue
            if epsilon < best:
                best, found = epsilon, links
        if found is None:
            raise PrecisionError(
                "no chain that dominates the overlaps of the bins certifies anything."
            )
        return found


@dataclass(frozen=True, eq=False, slots=True)
class ChainLaw:
    """A law of Y above the true one in convex order, and what must be added to delta."""

    adjacency: Adjacency
    common: float
    law: Law
    growth: float
    """What rounding and the lattice may have removed, as a factor."""
    outside: float
    """The mass outside the lattice."""

    def bound_epsilon(self, delta: float) -> float:
        """Certified epsilon at delta."""
        return solve(lambda epsilon: not self.bound_delta(epsilon) <= delta, "upper")

    def bound_delta(self, epsilon: float) -> float:
        """Upper bound on delta: the mean of calls, or puts, on the values of Y."""
        if epsilon > WIDEST:
            return math.inf
        y, level, a = self.law.values, math.exp(epsilon), math.sqrt(self.common)
        with np.errstate(divide="ignore"):
            high = (np.log(y) + (-epsilon if self.adjacency == "remove" else epsilon)) / a + a / 2
        if self.adjacency == "remove":
            gain, loss = y * special.ndtr(high), level * special.ndtr(high - a)
        else:
            gain, loss = special.ndtr(a - high), level * y * special.ndtr(-high)
        room = NORMAL + 1e-13 * (epsilon + 1) / a  # the argument's rounding, times 40 deviations
        prices = np.maximum(gain - loss, 0.0) + room * gain
        total = float(prices @ self.law.masses)
        if self.adjacency == "remove":  # for add, cutting values costs nothing
            total += self.law.lost
        return total * self.growth * (1 + 1e-12) + self.outside + DROPPED


def chain_law(links: Links, delta: float, adjacency: Adjacency, resolution: Resolution) -> ChainLaw:
    """Add the bins one by one, keeping the law of the sum for each state of the chain."""
    lattice = _Lattice(links, delta, adjacency)
    edges = _edges(links, delta, adjacency, resolution.cells)
    values = np.concatenate([[0.0], edges])
    bins, states = links.loads.size, lattice.states
    masses = np.zeros((states.size, values.size))
    masses[:, 0] = lattice.start
    # Rounding of a value relative to the width of its cell, mostly from exponents of the scales.
    exponents = float(np.max(links.loads)) * float(np.max(np.abs(states)))
    if exponents > STEEPEST:
        raise PrecisionError("the noise is too small against the overlaps of the bins.")
    nudge = (64 + 8 * exponents) * UNIT / resolution.cells
    nudge *= 1.0 if adjacency == "remove" else -1.0
    lost, growth = 0.0, lattice.growth
    widths = np.diff(values)
    least = FORGET * delta / (float(edges[-1]) if adjacency == "remove" else 1.0)
    deviations = _deviations(delta)
    for r in range(bins):
        if r:
            masses = lattice.step(r - 1).T @ masses
        spread = math.sqrt(links.own[r]) * (1 + 1e-12)
        factor = lognormal(spread, resolution.factor * spread, deviations, "upper")
        scales = np.exp(links.loads[r] * states - 0.5 * links.loads[r] ** 2) / bins
        lost += factor.lost * float(scales @ masses.sum(axis=1))
        gather(masses, least, adjacency == "remove")
        masses, cut = add_bin(values, widths, masses, scales, factor.values, factor.masses, nudge)
        lost += cut
        growth *= 1 + UNIT * (factor.values.size * values.size + states.size + 64) + 1e-11
    law = Law(values, masses.sum(axis=0), lost)
    return ChainLaw(adjacency, links.common, law, growth, lattice.outside)


@dataclass(eq=False)
class _Lattice:
    """Points of the chain's state, and the weights of the transitions between them."""

    links: Links
    delta: float
    adjacency: Adjacency

    @cached_property
    def spacing(self) -> float:
        """With q = exp(-2 pi^2 / (B h^2)) a sum over h Z is within 2 q / (1 - q) of an integral."""
        curvature = float(np.max(self.links.curvatures)) * (1 + 1e-9)
        return math.sqrt(
            2 * math.pi**2 / (curvature * math.log(4 * self.links.loads.size / LATTICE))
        )

    @property
    def growth(self) -> float:
        """What the lattice may have removed, as a factor."""
        return (1 + LATTICE / self.links.loads.size) ** self.links.loads.size

    @cached_property
    def _reach(self) -> float:
        return float(-special.ndtri(CUT * self.delta / (8 * self.links.loads.size)))

    @cached_property
    def states(self) -> FloatArray:
        """Points from below the means under Q to above those under P, which are `loads` higher."""
        h = self.spacing
        above = float(np.max(self.links.loads)) if self.adjacency == "remove" else 0.0
        first, last = math.ceil(self._reach / h) + 1, math.ceil((self._reach + above) / h) + 1
        if first + last > MOST_STATES:
            raise PrecisionError(
                "the chain of bins has too little independent noise for a lattice."
            )
        return np.asarray(h * np.arange(-first, last + 1))

    @property
    def outside(self) -> float:
        """Delta of all paths that leave the lattice; sums of falling terms are below integrals."""
        ways = 2 * self.links.loads.size * float(special.ndtr(-self._reach))
        return ways * self.growth * (1 + 1e-9)

    @cached_property
    def start(self) -> FloatArray:
        """Weights of the first state."""
        return self._normal(self.states, 1.0)

    def step(self, r: int) -> FloatArray:
        """Weights of the transitions from bin r to the next: one row per state."""
        decay = float(self.links.decays[r])
        variance = -math.expm1(2 * math.log(decay))
        return self._normal(self.states - decay * self.states[:, None], variance)

    def _normal(self, away: FloatArray, variance: float) -> FloatArray:
        with np.errstate(under="ignore"):
            density = np.exp(-0.5 * away**2 / variance)
        return np.asarray(density * (self.spacing / math.sqrt(2 * math.pi * variance)))


def _deviations(delta: float) -> float:
    """The number of standard deviations beyond which mass is negligible against delta."""
    return 1 - float(special.ndtri(CUT * delta))


def _edges(links: Links, delta: float, adjacency: Adjacency, width: float) -> FloatArray:
    """Edges spaced in proportion to their size, up to the reach of the largest lognormal."""
    spread = math.sqrt(float(np.max(links.loads**2 + links.own)))
    reach = 0.5 * spread**2 + _deviations(delta) * spread
    if reach > WIDEST:
        raise PrecisionError("the noise is too small against the overlaps of the bins.")
    if adjacency == "remove":
        least, most = 0.25, math.exp(reach)
    else:
        least, most = math.exp(-0.5 * spread**2 - 4 * spread), 20.0
    count = math.ceil(math.log1p(most / least) / math.log1p(width))
    return np.asarray(least * np.expm1(math.log1p(width) * np.arange(1, count + 1)))


@compiled
def gather(masses: FloatArray, least: float, up: bool) -> None:
    """Move masses below `least` to the next value that has more, or to the last one."""
    size = masses.shape[1]
    for i in range(masses.shape[0]):
        for j in range(size - 1):
            k, beside = (j, j + 1) if up else (size - 1 - j, size - 2 - j)
            if masses[i, k] < least:
                masses[i, beside] += masses[i, k]
                masses[i, k] = 0.0


@compiled
def add_bin(
    values: FloatArray,
    widths: FloatArray,
    masses: FloatArray,
    scales: FloatArray,
    factor: FloatArray,
    factor_masses: FloatArray,
    nudge: float,
) -> tuple[FloatArray, float]:
    """The laws of Y + scale L for each state (a row of `masses`), on the same values.

    Mass between two values is split so that the mean is kept; what lies above the last value is cut
    to it.  The second result is the mean that is cut, with what underflow may have removed.
    """
    last = values.size - 1
    moved = np.zeros_like(masses)
    inverse = 1.0 / widths
    cut = 0.0
    for i in range(scales.size):
        first = 0
        for j in range(factor.size):
            more = scales[i] * factor[j]
            while first < last and more >= values[first + 1]:
                first += 1
            cell = first
            for k in range(last + 1):
                if masses[i, k] == 0.0:
                    continue
                mass = masses[i, k] * factor_masses[j]
                value = values[k] + more
                while cell < last and value >= values[cell + 1]:
                    cell += 1
                if mass < SMALL:
                    cut += LEAST * value
                if cell == last:
                    moved[i, last] += mass
                    cut += mass * (value - values[last])
                else:
                    part = min(max((value - values[cell]) * inverse[cell] + nudge, 0.0), 1.0)
                    moved[i, cell] += mass * (1.0 - part)
                    moved[i, cell + 1] += mass * part
    return moved, cut
