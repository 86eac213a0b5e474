"""Moments of the revealed likelihood ratio: powers of a transfer matrix.

In: a lattice.  Out: E_P~[Lhat^z] on the lattice for many z at once.
Rounding: errors are stated relative to the moment at the real part of z (`Moments.error`).

Every z has the same real part.  The matrix T_z has entries T_al e^{i phase}, T_al >= 0, so
|T_z^k| <= T_al^k entrywise, and a relative error e of each entry and g of each product add up to
|computed - T_z^k| <= ((1+e)^k (1+g)^k - 1) T_al^k: all rounding is measured by the positive matrix.
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import BoolArray, ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.chains.lattice import Lattice
from mmcc.accounting._bounds.reveal.inversion import ROUND, Moments
from mmcc.accounting._bounds.waves import powers, product

LEAST = 1e-250
"""Entries of the scaled positive powers stay above this, so no underflow goes unnoticed."""
BATCH_ENTRIES = 2**21
LOG2 = math.log(2.0)
LARGEST_ERROR = 0.1
"""Rounding may be at most this, relative to the real moment; otherwise nothing is certified."""
SILENT = 34.0


def moments(lattice: Lattice, chain: Chain, powers: ComplexArray) -> Moments | None:
    """E[Lhat^z] for z in `powers`, all with the real part of the first, which is real.

    None if the numbers leave the range of floats or rounding takes over.
    """
    entries = max(
        2 * lattice.logs.size,
        lattice.states.size**2,
        lattice.kernels.shape[0] * lattice.states.size,
    )
    size = max(1, BATCH_ENTRIES // entries)
    parts: list[ComplexArray] = []
    scale, error = 0.0, 0.0
    real = powers[:1]
    for start in range(0, powers.size, size):
        # The real power goes first in every batch: it sets the common scale.
        batch = powers[start : start + size]
        batch = batch if start == 0 else np.concatenate([real, batch])
        with np.errstate(over="ignore", invalid="ignore"):  # seen by `_least` and at the end
            found = _batch(lattice, chain, batch)
        if found is None:
            return None
        parts.append(found.values if start == 0 else found.values[1:])
        scale, error = found.log_scale, max(error, found.error)
    return Moments(np.concatenate(parts), scale, error)


def site(
    logs: FloatArray, masses: FloatArray, z: FloatArray | ComplexArray
) -> tuple[FloatArray | ComplexArray, float]:
    """sum_i masses[s, c, a, i] e^{z logs[s, i] - shift} for every z, s, c and a, and the shift."""
    shift = float(np.max(float(z[0].real) * logs))
    counts, crowd, states, _ = masses.shape
    masses = masses.reshape(counts, crowd * states, -1)
    mean: FloatArray | ComplexArray
    if np.iscomplexobj(z):
        mean = np.empty((z.size, counts, crowd * states), dtype=complex)
        for s in range(counts):
            factors = powers(logs[s], float(z[0].real), z.imag, shift)
            mean[:, s] = product(masses[s], factors).T
    else:
        sizes = np.exp(z[:, None, None] * logs - shift).transpose(1, 2, 0)
        mean = np.matmul(masses, sizes).transpose(2, 0, 1)
    exponent = _exponent(mean)
    mean = np.ldexp(1.0, -exponent) * mean
    return mean.reshape(z.size, counts, crowd, states), shift + exponent * LOG2


def site_rounding(logs: FloatArray, powers: ComplexArray) -> float:
    """The error of a site, relative to the site of the real power.

    Its exponents are at most twice `reach` in size, and it is a sum over outputs.
    """
    reach = float(np.abs(powers).max()) * float(np.abs(logs).max())
    return 8 * ROUND * (4 * reach + 100 + logs.size)


def blocks(
    lattice: Lattice, chain: Chain, z: FloatArray | ComplexArray
) -> tuple[FloatArray | ComplexArray, float]:
    """Weights [z, c, a] of a block with c participations from state a, and their shift.

    Step by step, weight_c <- sum_s weight_{c-s} site_s(c-s); more participations than the lattice
    has room for leave it.
    """
    mean, shift = site(lattice.logs, lattice.masses, z)
    counts = mean.shape[1]
    if chain.block == 1:
        return mean[:, :, 0], shift
    most = lattice.kernels.shape[0] - 1
    weights = np.zeros((z.size, most + 1, mean.shape[-1]), dtype=mean.dtype)
    weights[:, 0] = 1.0
    total = 0.0
    for _ in range(chain.block):
        after = mean[:, 0] * weights
        for s in range(1, counts):
            after[:, s:] += mean[:, s, : most + 1 - s] * weights[:, : most + 1 - s]
        exponent = _exponent(after)
        weights = np.ldexp(1.0, -exponent) * after
        total += shift + exponent * LOG2
    return weights, total


def _batch(lattice: Lattice, chain: Chain, powers: ComplexArray) -> Moments | None:
    """`moments` for as many powers as fit in memory, with every array scaled to size one.

    M(z) = entrance^T T_z^{m-1} e_z with T_z[a, b] = sum_c blocks_z[c, a] kernels[c, a, b] and
    e_z[a] = sum_c blocks_z[c, a], by repeated squaring.
    """
    z: FloatArray | ComplexArray = powers.real if not powers.imag.any() else powers
    mean, shift = blocks(lattice, chain, z)
    transfer = np.einsum("zca,cab->zab", mean, lattice.kernels)
    vector = mean.sum(axis=1)
    log_scale = shift * chain.blocks
    magnitude = abs(shift) * chain.blocks
    scale, least = 0.0, min(_least(vector), _least(transfer))
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
            keep = _relevant(transfer, left)
            if not keep.all():
                alive, transfer, vector = alive[keep], transfer[keep], vector[keep]
    values = np.zeros(z.size, dtype=complex)
    values[alive] = vector @ lattice.entrance
    entry = site_rounding(lattice.logs, powers)
    product = 8 * ROUND * (lattice.states.size + lattice.kernels.shape[0] + 8)
    steps = chain.steps * entry + chain.blocks * product
    total = math.expm1(min(steps * (1 + 2 / chain.blocks), 700.0)) + 2 * math.exp(-SILENT)
    fine = least > LEAST and total < LARGEST_ERROR and values[0].real > 0
    if not (fine and np.isfinite(values).all()):
        return None
    return Moments(values, log_scale + 128 * ROUND * magnitude, total)


def output_weights(lattice: Lattice, chain: Chain, power: float) -> FloatArray:
    """weights[s, i]: how much s and the cell i of outputs matter to the moment of this power.

    It is the mass of the cell between the left and right leading eigenvectors of the operator,
    without the cell's own factor, at the first step of a block; other steps are similar.
    """
    mean = blocks(lattice, chain, np.array([power]))[0][0]
    transfer = np.einsum("ca,cab->ab", mean, lattice.kernels)
    squared = transfer / transfer.max()
    for _ in range(12):
        squared = squared @ squared
        squared /= squared.max()
    left, right = squared.sum(axis=0), squared.sum(axis=1)
    counts = lattice.masses.shape[0]
    ahead = np.einsum("sab,b->sa", lattice.kernels[:counts], right)
    cells = lattice.places.size
    masses = lattice.masses[:, 0, :, :cells] + lattice.masses[:, 0, :, cells : 2 * cells]
    return np.asarray(np.einsum("a,sai,sa->si", left, masses, ahead))


def _relevant(transfer: FloatArray | ComplexArray, left: int) -> BoolArray:
    """Which powers z can still matter if T^(2^k) is applied `left` more times.

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
