r"""Moments of the revealed likelihood ratio on a plane.

In: a `PlaneLattice`.  Out: E_P~[Lhat^z] on the lattice for many z with the same real part.
Rounding: errors are stated relative to the moment at the real part of z (`Moments.error`).

Few z matter.  From some node of the line on, |S_z| <= S^ entrywise for all z, where S^ has the
largest modulus of each site: |l_0 S_z^N (e_z/u)| <= l S^^k y^, y^ >= |e_z|/u, for every k <= N, and
where S^ y <= lam y entrywise the rest is at most lam^{N-k}.  Those z are set to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.chains.operator import LARGEST_ERROR, site, site_rounding
from mmcc.accounting._bounds.reveal.inversion import ROUND, Moments
from mmcc.accounting._bounds.reveal.planes.krylov import Power
from mmcc.accounting._bounds.reveal.planes.lattice import PlaneLattice
from mmcc.accounting._bounds.reveal.planes.operator import (
    Leading,
    Operator,
    leading,
    norm_of_errors,
    real_sites,
    spread,
    step,
)

BATCH = 24
SITES = 128
SILENT = 1e-11
"""Rough size, relative to the real moment, below which z are set to 0."""
FIRST_CUT = 6
OFTEN = 8
FEWEST_STEPS, MOST_STEPS = 60, 2000
"""The range of steps after which an envelope may be given up."""
PATIENCE = 0.06
"""The number of steps in one application of A, times 1 - rho."""
MOST_STRIDE = 24
SHORT = 40
"""Runs of fewer steps are computed step by step."""


@dataclass(frozen=True, eq=False, slots=True)
class _Frame:
    """What S_z has in common for all z: u, 1/u, Lam, and the norm of errors."""

    lattice: PlaneLattice
    right: FloatArray
    inverse: FloatArray
    growth: float
    norm: FloatArray
    """The norm's weights l / sum l."""
    functional: FloatArray
    """The functional l_0 / sum l."""
    log_scale: float
    """Logarithm of sum l."""
    size: float
    """The norm of e_al / u."""


def moments(lattice: PlaneLattice, powers: ComplexArray, decay: float) -> Moments | None:
    """E[Lhat^z] for z in `powers`, all with the real part of the first, which is real.

    `decay` is the slower one, a hint for the iteration.  None if numbers leave the range of floats.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        lead = leading(lattice, float(powers[0].real))
        if lead is None:
            return None
        frame = _frame(lattice, float(powers[0].real), lead)
        mean, shift = _sites(lattice, powers)
        slip = site_rounding(lattice.logs, powers)
        slip += 8 * ROUND * (sum(lattice.inside.shape) + len(lattice.first) + 16)  # per application
        count, silent = _silent(frame, np.abs(mean))
        values = np.zeros(powers.size, dtype=complex)
        error = 0.0
        for start in range(0, count, BATCH):
            part = slice(start, min(start + BATCH, count))
            values[part], errors = _powered(frame, mean[part], slip, decay)
            error = max(error, float(errors.max()))
    real = float(values[0].real)
    if not real > 0:  # an underflow, or not a number
        return None
    # l itself was rounded, step by step, and so was the start.
    grown = math.exp(min(2 * lattice.steps * slip, 700.0))
    error = (max(error, silent) + 4 * slip * frame.size) * grown / real
    if not (np.isfinite(values).all() and 0 <= error < LARGEST_ERROR):
        return None
    magnitude = abs(shift) * lattice.steps + abs(math.log(frame.growth)) * lattice.steps
    scale = frame.log_scale + shift * lattice.steps + (lattice.steps - 1) * math.log(frame.growth)
    return Moments(values, scale + 128 * ROUND * (magnitude + abs(frame.log_scale)), error)


def _frame(lattice: PlaneLattice, power: float, lead: Leading) -> _Frame:
    weights, _ = real_sites(lattice, power)
    inverse = np.zeros_like(lead.right)
    inverse[lattice.inside] = 1 / lead.right[lattice.inside]
    norm = norm_of_errors(lattice, weights * (inverse / lead.growth), lead.right)
    total = float(norm.sum())
    norm = norm / total
    size = math.sqrt(float((norm * (weights.sum(axis=0) * inverse) ** 2).sum()))
    functional = lattice.entrance * lead.right / total
    return _Frame(
        lattice, lead.right, inverse, lead.growth, norm, functional, math.log(total), size
    )


def _sites(lattice: PlaneLattice, powers: ComplexArray) -> tuple[ComplexArray, float]:
    """sum_i masses e^{z logs - shift} by z, s and mean, some z at a time, and the shift."""
    parts, shift = [], 0.0
    for start in range(0, powers.size, SITES):
        # The real power goes first in every batch, since it sets the common scale.
        batch = np.concatenate([powers[:1], powers[start : start + SITES]])
        found, shift = site(lattice.logs, lattice.masses, batch)
        parts.append(found[1:])
    return np.concatenate(parts), shift


def _silent(frame: _Frame, moduli: FloatArray) -> tuple[int, float]:
    """The node from which on all moments are negligible, and a bound on them in units of sum l."""
    cut = FIRST_CUT
    while cut < len(moduli):
        bound = _envelope(frame, moduli[cut:].max(axis=0))
        if bound <= SILENT * frame.size:
            return cut, bound
        cut = cut + max(cut // 3, 1)
    return len(moduli), 0.0


def _envelope(frame: _Frame, largest: FloatArray) -> float:
    """Upper bound on l S^^N y^, for sites by s and mean; infinite if it is not small in time."""
    lattice = frame.lattice
    weights = spread(lattice, largest[None])[0] * frame.inverse
    vector = weights.sum(axis=0)
    weights = weights / frame.growth
    before = math.inf
    for done in range(lattice.steps):
        size, left = float((frame.norm * vector).sum()), lattice.steps - 1 - done
        needed = math.log(SILENT * frame.size / size) if size > 0 else math.inf
        if left == 0 or needed >= 0:
            return size
        after = step(lattice, weights, vector * frame.right)
        if done % OFTEN == 0:
            rate = math.log(float((after[lattice.inside] / vector[lattice.inside]).max()))
            if left * rate <= needed:
                return size * math.exp(left * rate)
            hopeless = left / OFTEN * math.log(size / before) > needed if done else False
            if done >= MOST_STEPS or (hopeless and done > FEWEST_STEPS):
                return math.inf
            before = size
        vector = after
    return math.inf


def _powered(
    frame: _Frame, mean: ComplexArray, slip: float, decay: float
) -> tuple[ComplexArray, FloatArray]:
    """l_0 . S_z^{n-1} (e_z/u) in units of sum l, and bounds on the errors."""
    lattice = frame.lattice
    weights = spread(lattice, mean)
    fields = weights.sum(axis=1) * frame.inverse
    operator = Operator(lattice, frame.right, weights * (frame.inverse / frame.growth))
    steps = lattice.steps - 1
    stride = min(max(round(PATIENCE / (1 - decay)), 1), MOST_STRIDE) if steps > SHORT else 1
    for _ in range(steps % stride):
        fields = operator(fields)
    norm, functional = frame.norm.reshape(-1), frame.functional.reshape(-1)
    power = Power(operator, stride, steps // stride, norm, functional, slip, frame.size)
    values, errors = power(fields)
    return values, errors + 2 * (steps % stride) * slip * frame.size
