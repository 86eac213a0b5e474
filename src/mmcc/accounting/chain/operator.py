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

from mmcc.accounting.chain.domination import ROUND
from mmcc.accounting.chain.lattice import Lattice
from mmcc.arrays import ComplexArray, FloatArray

LEAST = 1e-250
"""Entries of the scaled positive powers stay above this, so that nothing underflows unseen."""
BATCH_ENTRIES = 2**21
LOG2 = math.log(2.0)
LARGEST_ERROR = 0.1


@dataclass(frozen=True, eq=False, slots=True)
class Factors:
    """log X on the lattice: `entry[a]` once, `step[a, i]` a step, `move[a, b]` a transition."""

    entry: FloatArray
    step: FloatArray
    move: FloatArray

    def largest(self) -> float:
        """The largest size of an exponent per unit of z."""
        return float(np.abs(self.entry).max() + np.abs(self.step).max() + np.abs(self.move).max())


@dataclass(frozen=True, eq=False, slots=True)
class Moments:
    """e^log_scale values[k] = E[X^{z_k}] up to error e^log_scale values[0], z_0 real."""

    values: ComplexArray
    log_scale: float
    error: float


def moments(lattice: Lattice, factors: Factors, steps: int, powers: ComplexArray) -> Moments | None:
    """E[X^z] for z in `powers`, all with the real part of the first, which is real.

    M(z) = entrance^T e^{z entry} (D_z K_z)^{n-1} D_z 1, D_z the mean of e^{z step} over outputs,
    K_z = kernel e^{z move}, by repeated squaring.  None if the numbers leave the range of floats.
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
        found = _batch(lattice, factors, steps, batch)
        if found is None:
            return None
        parts.append(found.values if start == 0 else found.values[1:])
        scale, error = found.log_scale, max(error, found.error)
    return Moments(np.concatenate(parts), scale, error)


def _batch(lattice: Lattice, factors: Factors, steps: int, powers: ComplexArray) -> Moments | None:
    real = float(powers[0].real)
    z: FloatArray | ComplexArray = powers.real if not powers.imag.any() else powers
    shift = float(np.max(real * factors.step))
    move_shift = float(np.max(real * factors.move))
    entry_shift = float(np.max(real * factors.entry))
    mean = np.einsum("zai,ai->za", np.exp(z[:, None, None] * factors.step - shift), lattice.masses)
    transfer = np.exp(z[:, None, None] * factors.move - move_shift)
    transfer *= lattice.kernel
    transfer *= mean[:, :, None]
    start = lattice.entrance * np.exp(z[:, None] * factors.entry - entry_shift)
    log_scale = entry_shift + shift * steps + move_shift * (steps - 1)
    magnitude = abs(entry_shift) + (abs(shift) + abs(move_shift)) * steps
    vector, scale = mean, 0.0
    least = _least(mean)
    left = steps - 1
    while left:
        if left & 1:
            vector = np.matmul(transfer, vector[:, :, None])[:, :, 0]
            exponent = _exponent(vector)
            vector, log_scale = np.ldexp(1.0, -exponent) * vector, log_scale + exponent * LOG2
            log_scale += scale
            magnitude += abs(scale) + abs(exponent)
            least = min(least, _least(vector))
        left >>= 1
        if left:
            transfer = np.matmul(transfer, transfer)
            exponent = _exponent(transfer)
            transfer *= np.ldexp(1.0, -exponent)
            scale = 2 * scale + exponent * LOG2
            least = min(least, _least(transfer))
    values = np.einsum("za,za->z", start, vector)
    reach = float(np.abs(powers).max()) * factors.largest()
    entry = 8 * ROUND * (reach + lattice.logs.size + 16)
    product = 8 * ROUND * (lattice.states.size + 8)
    total = math.expm1(min((steps + 2) * (entry + product), 700.0))
    fine = least > LEAST and total < LARGEST_ERROR and values[0].real > 0
    if not (fine and np.isfinite(values).all()):
        return None
    return Moments(values.astype(complex), log_scale + 128 * ROUND * magnitude, total)


def _exponent(array: FloatArray | ComplexArray) -> int:
    """The binary exponent of the largest entry of the real power's array."""
    return math.frexp(float(array[0].real.max()))[1]


def _least(array: FloatArray | ComplexArray) -> float:
    """The smallest entry of the real power's array over the largest; 0 if any is not a number."""
    first = array[0].real
    top = float(first.max())
    return float(first.min()) / top if 0 < top < math.inf else 0.0
