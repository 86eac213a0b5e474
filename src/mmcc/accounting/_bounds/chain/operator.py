"""Moments of the bounding likelihood ratio: powers of a transfer matrix.

In: a lattice and the factors of one step.  Out: E[X^z] on the lattice for many z at once.
Rounding: errors are stated relative to the moment at the real part of z (`Moments.error`).

Every z has the same real part.  The matrix T_z has entries T_al e^{i phase}, T_al >= 0, so
|T_z^k| <= T_al^k entrywise, and a relative error e of each entry and g of each product add up to
|computed - T_z^k| <= ((1+e)^k (1+g)^k - 1) T_al^k: all rounding is measured by the positive matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import BoolArray, ComplexArray, FloatArray
from mmcc.accounting._bounds.chain.domination import ROUND, Chain
from mmcc.accounting._bounds.chain.lattice import Lattice
from mmcc.accounting._bounds.reveal.inversion import Moments

LEAST = 1e-250
"""Entries of the scaled positive powers stay above this, so that nothing underflows unseen."""
BATCH_ENTRIES = 2**21
LOG2 = math.log(2.0)
LARGEST_ERROR = 0.1
"""Rounding may be at most this, relative to the real moment; else nothing is certified."""
SILENT = 34.0


@dataclass(frozen=True, eq=False, slots=True)
class Factors:
    """Parts of log X: `entry[a]` once, `step[a, i]` a step, `move[a, b]` from block to block."""

    entry: FloatArray
    step: FloatArray
    move: FloatArray

    def largest(self) -> float:
        """The largest size of an exponent per unit of z."""
        return float(np.abs(self.entry).max() + np.abs(self.step).max() + np.abs(self.move).max())


def moments(
    lattice: Lattice, factors: Factors, chain: Chain, powers: ComplexArray
) -> Moments | None:
    """E[X^z] for z in `powers`, all with the real part of the first, which is real.

    M(z) = entrance^T e^{z entry} (D_z K_z)^{m-1} D_z 1 with m blocks of L steps, D_z the L-th
    power of the mean of e^{z step} over outputs, K_z = kernel e^{z move}, by repeated squaring.
    None if the numbers leave the range of floats or rounding takes over.
    """
    size = max(1, BATCH_ENTRIES // (lattice.states.size * factors.step.shape[1]))
    size = min(size, max(1, BATCH_ENTRIES // lattice.states.size**2))
    parts: list[ComplexArray] = []
    scale, error = 0.0, 0.0
    real = powers[:1]
    for start in range(0, powers.size, size):
        # The real power goes first in every batch: it sets the common scale.
        batch = powers[start : start + size]
        batch = batch if start == 0 else np.concatenate([real, batch])
        found = _batch(lattice, factors, chain, batch)
        if found is None:
            return None
        parts.append(found.values if start == 0 else found.values[1:])
        scale, error = found.log_scale, max(error, found.error)
    return Moments(np.concatenate(parts), scale, error)


def _batch(
    lattice: Lattice, factors: Factors, chain: Chain, powers: ComplexArray
) -> Moments | None:
    """The same for as many powers as fit in memory; every array is scaled to size one."""
    real = float(powers[0].real)
    z: FloatArray | ComplexArray = powers.real if not powers.imag.any() else powers
    with np.errstate(divide="ignore"):
        weights = np.log(lattice.masses)
    shift = float(np.max(real * factors.step + weights))
    move_shift = float(np.max(real * factors.move))
    entry_shift = float(np.max(real * factors.entry))
    mean = np.exp(z[:, None, None] * factors.step + (weights - shift)).sum(axis=2)
    exponent = _exponent(mean)
    mean = (np.ldexp(1.0, -exponent) * mean) ** chain.block
    shift += exponent * LOG2
    transfer = np.exp(z[:, None, None] * factors.move - move_shift)
    transfer *= lattice.kernel
    transfer *= mean[:, :, None]
    start = lattice.entrance * np.exp(z[:, None] * factors.entry - entry_shift)
    log_scale = entry_shift + shift * chain.steps + move_shift * (chain.blocks - 1)
    magnitude = abs(entry_shift) + abs(shift) * chain.steps + abs(move_shift) * chain.blocks
    vector, scale = mean, 0.0
    least = min(_least(mean), _least(transfer))
    alive = np.arange(z.size)
    left = chain.blocks - 1
    while left:
        if left & 1:
            vector = np.matmul(transfer, vector[:, :, None])[:, :, 0]
            exponent = _exponent(vector)
            vector = np.ldexp(1.0, -exponent) * vector
            log_scale += scale + exponent * LOG2
            magnitude += abs(scale) + abs(exponent)
            least = min(least, _least(vector))
        left >>= 1
        if left:
            transfer = np.matmul(transfer, transfer)
            exponent = _exponent(transfer)
            transfer *= np.ldexp(1.0, -exponent)
            scale = 2 * scale + exponent * LOG2
            least = min(least, _least(transfer))
            keep = _audible(transfer, left)
            alive, transfer, vector = alive[keep], transfer[keep], vector[keep]
    values = np.zeros(z.size, dtype=complex)
    values[alive] = np.einsum("za,za->z", start[alive], vector)
    reach = float(np.abs(powers).max()) * factors.largest()
    # An exponent is at most reach, 745 for a mass that is not 0, and the shift, in size.
    entry = 8 * ROUND * (2 * reach + 1500 + lattice.logs.size)
    product = 8 * ROUND * (lattice.states.size + 8)
    total = math.expm1(min((chain.steps + 2) * (entry + product), 700.0)) + 2 * math.exp(-SILENT)
    fine = least > LEAST and total < LARGEST_ERROR and values[0].real > 0
    if not (fine and np.isfinite(values).all()):
        return None
    return Moments(values, log_scale + 128 * ROUND * magnitude, total)


def _audible(transfer: FloatArray | ComplexArray, left: int) -> BoolArray:
    """Which powers z can still matter when T^(2^k) is to be applied `left` times more.

    If |T_z^(2^k)| <= ratio T_al^(2^k) entrywise then |M(z)| <= ratio^left M(al).  Those below
    e^-SILENT are set to 0, which `Moments.error` pays for.
    """
    if not np.iscomplexobj(transfer):
        return np.ones(len(transfer), dtype=bool)
    ratio = (np.abs(transfer) / transfer[0].real).max(axis=(1, 2))
    keep = np.asarray(ratio >= math.exp(-SILENT / left))
    keep[0] = True
    return keep


def _exponent(array: FloatArray | ComplexArray) -> int:
    """The binary exponent of the largest entry of the real power's array."""
    return math.frexp(float(array[0].real.max()))[1]


def _least(array: FloatArray | ComplexArray) -> float:
    """The smallest entry of the real power's array over the largest; 0 if any is not a number."""
    first = array[0].real
    top = float(first.max())
    return float(first.min()) / top if 0 < top < math.inf else 0.0
