r"""Moments of Lhat with columns revealed in the order of the leaves: from the leaves to the root.

In: a `Walk`, the largest counts, powers s = real + i om.  Out: E_grid[Lhat^s; inside].
Rounding: errors are stated relative to the moment at the real part of s (`Moments.error`).

Lhat = prod_l F(x_l - m_l) e^{s_l m_l}, F(x) = 1 - p + p e^x.  With Psi_h(z, k) what a node of
height h with z_v = z and k participations contributes, K the Gaussian step of variance u,

    Psi_h(z, k) = sum_r Phi_{h-1}(z, r) Phi_{h-1}(z + r w_h - c_h, k - r) e^{s (k-r) c_h},
    Phi_h(z, k) = sum_z' K(z, z') Psi_h(z', k),   z' inside,
    Phi_0(z, j) = P(s_l = j) E[F(z + N(0, own) + (j - 1/2) G_ll)^s].

*Leaves.*  In units of the leaf's deviation, F has the exponents 0 and that deviation: the lattice
and its error are those of `tables` with half = deviation / 2, turn = deviation.  Beyond a point at
most |real| deviation away from the mean, g falls faster than a standard Gaussian: MARGIN farther
out it is below e^-39 times its integral.
*Errors.*  All weights are positive and |F^s| = F^real: errors of single operations add up, relative
to the real moment, over 2^H leaves and as many nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.inversion import UP, Moments
from mmcc.accounting._bounds.reveal.trees.leaf_order import Walk
from mmcc.accounting._bounds.reveal.trees.priors import ROUND
from mmcc.accounting._bounds.reveal.trees.tables import MARGIN, Parts, Power, step_for
from mmcc.accounting._bounds.waves import WAVE_ERROR, powers, product

LEAST = 1e-250
"""Entries of the real arrays stay above this, relatively, so no underflow goes unnoticed."""
FAR = 38.0
"""Standard deviations beyond which a normal density is below the smallest float."""
DIGITS = 30.0
BATCH = 96
LARGEST_LEAF_POINTS = 2**14
LARGEST_EXPONENT = 600.0
LARGEST_ERROR = 1e-3


def leaf_moments(
    walks: Sequence[tuple[Walk, int]], cuts: tuple[int, ...], real: float, frequencies: FloatArray
) -> Moments | None:
    """The product of the moments of all trees, with multiplicity, relative to the real one."""
    values = np.ones(frequencies.size, dtype=complex)
    scale, error = 0.0, 0.0
    for walk, count in walks:
        found = tree_moments(walk, cuts, real, frequencies)
        if found is None:
            return None
        start = float(found.values[0].real)
        values = values * (found.values / start) ** count
        scale += count * (found.log_scale + math.log(start))
        error += count * (math.log1p(found.error) + 64 * ROUND)
    if not (error < LARGEST_ERROR and np.isfinite(values).all()):
        return None
    return Moments(values, scale, math.expm1(error))


def rough_leaf_moment(
    walks: Sequence[tuple[Walk, int]], cuts: tuple[int, ...], real: float
) -> float:
    """The logarithm of the real moment, or infinity."""
    found = leaf_moments(walks, cuts, real, np.zeros(1))
    return math.inf if found is None else found.log_scale


def tree_moments(
    walk: Walk, cuts: tuple[int, ...], real: float, frequencies: FloatArray
) -> Moments | None:
    """The moments of one tree; the first frequency is 0.

    None if the numbers leave the range of floats or rounding dominates.
    """
    parts: list[ComplexArray] = []
    scale, error = 0.0, 0.0
    for start in range(0, frequencies.size, BATCH):
        # The real power goes first in every batch: it sets the common scale.
        batch = frequencies[start : start + BATCH]
        batch = batch if start == 0 else np.concatenate([frequencies[:1], batch])
        with np.errstate(over="ignore", invalid="ignore"):  # noticed by its result
            found = _batch(walk, cuts, Power(real, float(batch[-1]), DIGITS), batch)
        if found is None:
            return None
        scale = found.log_scale if start == 0 else scale
        values = found.values * math.exp(found.log_scale - scale)
        parts.append(values if start == 0 else values[1:])
        error = max(error, found.error)
    return Moments(np.concatenate(parts), scale, error)


def _batch(
    walk: Walk, cuts: tuple[int, ...], power: Power, frequencies: FloatArray
) -> Moments | None:
    """`tree_moments` for frequencies that fit in memory; arrays are [point, count, frequency]."""
    s = np.asarray(power.real + 1j * frequencies, dtype=np.complex128)
    leaves = _Leaves.on(walk, power, s)
    if leaves is None:
        return None
    log_scale, below = 0.0, np.zeros((0, 0, 0), dtype=complex)
    for height in range(1, walk.height + 1):
        points = walk.points[slice(*walk.inside[height])]
        centre, most = float(walk.centres[height]), cuts[height - 1]
        counts = np.arange(most + 1)
        lift = np.exp(counts[:, None] * (centre * s)[None, :])
        here = np.zeros((points.size, cuts[height] + 1, s.size), dtype=complex)
        right = _child(walk, leaves, below, height, points)
        for r in counts:
            left = _child(walk, leaves, below, height, points + (r * walk.shared(height) - centre))
            end = max(min(most, cuts[height] - int(r)) + 1, 0)
            here[:, r : r + end] += right[:, r : r + 1] * left[:, :end] * lift[:end]
        exponent = _exponent(here)
        if exponent is None:
            return None
        below = here * math.ldexp(1.0, -exponent)
        log_scale = 2 * log_scale + exponent * math.log(2.0)
    if walk.height:
        points = walk.points[slice(*walk.inside[walk.height])]
        values = _step(walk, np.zeros(1), points, below)[0].sum(axis=0)
    else:
        values = leaves.rows(np.zeros(1))[0].sum(axis=0)
    total = _error(walk, cuts, power, leaves)
    if not (total < 1 and values[0].real > 0 and np.isfinite(values).all()):
        return None
    return Moments(values, log_scale, math.expm1(total))


class _Leaves:
    """F^s on a lattice of outputs, for both values of the leaf's own participation."""

    def __init__(self, walk: Walk, outputs: FloatArray, step: float, s: ComplexArray) -> None:
        self.deviation = math.sqrt(walk.own)
        self.outputs, self.step = outputs, step
        half, p = 0.5 * walk.diagonal, walk.probability
        logs = [np.log1p(p * np.expm1(outputs + sign * half)) for sign in (-1.0, 1.0)]
        self.largest = max(float(np.abs(log).max()) for log in logs)
        self.powers = np.stack([powers(log, float(s[0].real), s.imag, 0.0) for log in logs], axis=1)
        self.powers *= np.array([1 - p, p])[None, :, None]

    @classmethod
    def on(cls, walk: Walk, power: Power, s: ComplexArray) -> _Leaves | None:
        """A lattice that covers all outputs at the leaves of this walk; None if it is too long."""
        deviation = math.sqrt(walk.own)
        two = Parts(np.full(2, 0.5), np.array([0.0, deviation]), np.zeros(2), False, 0.0)
        step = step_for(two, power)
        low, high = (float(walk.points[0]), float(walk.points[-1])) if walk.height else (0.0, 0.0)
        if walk.height:
            low, high = low - float(walk.centres[1]), high + walk.shared(1)
        # (log F)' grows, is at most 1, and at most `slope` up to the highest mean.
        odds = walk.probability * math.exp(min(high + walk.diagonal, 700.0))
        slope = min(odds / (1 - walk.probability) * UP, 1.0)
        low -= (MARGIN + max(-power.real, 0.0) * deviation * slope) * deviation
        high += (MARGIN + max(power.real, 0.0) * deviation) * deviation
        if not high - low <= LARGEST_LEAF_POINTS * step * deviation:
            return None
        first, last = math.floor(low / (step * deviation)), math.ceil(high / (step * deviation))
        if not max(power.real, 0.0) * (high + walk.diagonal) < LARGEST_EXPONENT:
            return None
        if not min(power.real, 0.0) * math.log1p(-walk.probability) < LARGEST_EXPONENT:
            return None
        return cls(walk, deviation * step * np.arange(first - 1.0, last + 2.0), step, s)

    def rows(self, points: FloatArray) -> ComplexArray:
        """Phi_0 at these points."""
        away = np.minimum(np.abs(self.outputs[None, :] - points[:, None]) / self.deviation, FAR + 1)
        weights = np.exp(-0.5 * away * away) * (self.step / math.sqrt(2 * math.pi))
        return product(weights, self.powers)


def _child(
    walk: Walk, leaves: _Leaves, below: ComplexArray, height: int, points: FloatArray
) -> ComplexArray:
    """Phi_{height - 1} at these points."""
    if height == 1:
        return leaves.rows(points)
    return _step(walk, points, walk.points[slice(*walk.inside[height - 1])], below)


def _step(walk: Walk, start: FloatArray, end: FloatArray, values: ComplexArray) -> ComplexArray:
    """The mean of the values at `end` after a Gaussian step of variance u from `start`."""
    deviation = math.sqrt(walk.unit)
    away = np.minimum(np.abs(end[None, :] - start[:, None]) / deviation, FAR + 1)
    weights = np.exp(-0.5 * away * away) * (walk.step / deviation / math.sqrt(2 * math.pi))
    return product(weights, values)


def _exponent(array: ComplexArray) -> int | None:
    """The binary exponent of the largest real moment; None if any is too small or too large."""
    real = array[:, :, 0].real
    top = float(real.max())
    if not (0 < top < math.inf and float(real.min()) > LEAST * top):
        return None
    return math.frexp(top)[1]


def _error(walk: Walk, cuts: tuple[int, ...], power: Power, leaves: _Leaves) -> float:
    """Log of 1 + e, where e is what leaves and nodes may have lost, relative to the real moment."""
    widest = float(np.abs(leaves.outputs).max()) + walk.diagonal
    reach = MARGIN + abs(power.real) * leaves.deviation
    leaf = math.exp(-power.digits) + math.exp(-39.0)
    # 1 - p + p e^x is computed as 1 + p (e^x - 1), which may cancel if p is near 1.
    leaf += power.size * ROUND * 8 * (widest + leaves.largest + 1 / (1 - walk.probability))
    leaf += WAVE_ERROR * (1 + power.size * leaves.largest)
    leaf += ROUND * (leaves.outputs.size + 8 * reach * (widest / leaves.deviation + reach) + 64)
    shift = (max(cuts) + 1) * walk.unit * (walk.height + 1) / math.sqrt(walk.unit)
    lift = power.size * max(cuts) * float(walk.centres.max()) + max(cuts)
    node = ROUND * (4 * FAR * (2 * shift + FAR) + walk.points.size + 8 * lift + 8 * max(cuts) + 64)
    return 1.001 * ((1 << walk.height) * (leaf + node))
