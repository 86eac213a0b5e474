r"""The transfer operator of a plane, scaled so that errors have one norm.

In: a `PlaneLattice` and powers z with the same real part.  Out: an `Operator`.
Rounding: not paid for here; each application errs by a small multiple of S_al |v|, entrywise.

T_z v = sum_s site_{z,s} (K_1s x K_2s) v: one move along each axis.  With a positive vector u and a
number Lam let S_z = u^-1 T_z u / Lam, so that

    E[Lhat^z] = Lam^{n-1} l_0 . S_z^{n-1} (e_z / u),    l_0 = entrance u,  e_z = sum_s site_{z,s}.

With l_j = l_0 S_al^j (al the real power) and l >= l_j entrywise for all j < n, an error r made on
the way changes the result by at most

    |l_0 S_z^j r| <= l_0 S_al^j |r| = l_j |r| <= l |r|,

so l |r| is the norm in which all errors are counted.  u near the leading eigenvector makes l_j
settle: once l_{J+1} <= (1 + e) l_J, later ones are at most (1 + e)^{j-J} l_J.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.chains.operator import site
from mmcc.accounting._bounds.reveal.planes.lattice import PlaneLattice

Array = TypeVar("Array", FloatArray, ComplexArray)

SETTLED = 1e-3
"""How much the logarithm of a moment may still change when the iteration ends."""
ALLOWED = 0.5
"""l_j may still grow by e^ALLOWED afterwards, since only the norm of errors grows with it."""
OFTEN = 8
LEFT_STEPS = 150
"""Steps that suffice for a centring, which may be rough."""
LEAST = 1e-120
"""Entries of positive vectors stay above this, relatively, so no underflow goes unnoticed."""


@dataclass(frozen=True, eq=False, slots=True)
class Leading:
    """Roughly the leading eigenvector of T_al: u, Lam and the logarithm of the moment."""

    right: FloatArray
    growth: float
    log_moment: float


def real_sites(lattice: PlaneLattice, power: float) -> tuple[FloatArray, float]:
    """Sites by s and state for a real power, 0 outside, and their shift."""
    mean, shift = site(lattice.logs, lattice.masses, np.array([power]))
    return spread(lattice, mean.real)[0], shift


def spread(lattice: PlaneLattice, mean: Array) -> Array:
    """Sites [z, s, 0, mean], by state instead of mean, 0 outside."""
    return np.asarray(mean[:, :, 0][:, :, lattice.sums] * lattice.inside)


def step(lattice: PlaneLattice, weights: FloatArray, vector: FloatArray) -> FloatArray:
    """sum_s weights_s (K_1s x K_2s) vector for one real vector."""
    moved = np.matmul(lattice.first, np.matmul(vector, lattice.second.transpose(0, 2, 1)))
    return np.asarray((weights * moved).sum(axis=0))


def step_back(lattice: PlaneLattice, weights: FloatArray, vector: FloatArray) -> FloatArray:
    """The transpose of `step`."""
    moved = np.matmul(lattice.first.transpose(0, 2, 1), weights * vector)
    return np.asarray(np.matmul(moved, lattice.second).sum(axis=0))


@np.errstate(over="ignore", invalid="ignore")  # seen by the checks of `top` and `mass`
def leading(lattice: PlaneLattice, power: float) -> Leading | None:
    """The leading vector by power iteration from e_al; None if numbers are beyond floats."""
    weights, shift = real_sites(lattice, power)
    vector = weights.sum(axis=0)
    total, left = shift * lattice.steps, lattice.steps - 1
    growth = before = 1.0
    while True:
        top = float(vector.max())
        if not 0 < top < math.inf:
            return None
        vector, total = vector / top, total + math.log(top)
        if left == 0:
            break
        mass = float((lattice.entrance * vector).sum())
        vector, left = step(lattice, weights, vector), left - 1
        growth = float((lattice.entrance * vector).sum()) / mass
        if left % OFTEN == 0:
            if left * abs(growth / before - 1) <= SETTLED:
                total += left * math.log(growth)
                break
            before = growth
    mass = float((lattice.entrance * vector).sum())
    vector = vector / vector.max()
    if not (vector[lattice.inside].min() > LEAST and mass > 0):
        return None
    return Leading(vector, growth, total + math.log(mass))


def norm_of_errors(lattice: PlaneLattice, weights: FloatArray, right: FloatArray) -> FloatArray:
    """l, an upper bound on every l_j up to rounding; weights[s] are those of S_al."""
    vector = lattice.entrance * right
    most, left = vector, lattice.steps - 1
    while left:
        after = step_back(lattice, weights, vector) * right
        left -= 1
        most = np.maximum(most, after)
        if left % OFTEN == 0:
            grown = float((after[lattice.inside] / vector[lattice.inside]).max())
            if left * math.log(grown) <= ALLOWED:
                break
        vector = after
    return np.asarray(most * math.exp(ALLOWED))


@dataclass(frozen=True, eq=False, slots=True)
class Operator:
    """S_z for some powers z with the same real part."""

    lattice: PlaneLattice
    right: FloatArray
    weights: ComplexArray
    """weights[z, s]: site_{z,s} / (u Lam), 0 outside."""

    def __call__(self, fields: ComplexArray) -> ComplexArray:
        """S_z applied to fields[z], for each z."""
        count, rows, columns = fields.shape
        flat = fields * self.right
        # Real masses times complex numbers: real and imaginary parts in one product.
        parts = np.concatenate([flat.real, flat.imag]).reshape(-1, columns)
        total = np.zeros_like(fields)
        for s, first in enumerate(self.lattice.first):
            moved = np.matmul(first, (parts @ self.lattice.second[s].T).reshape(-1, rows, columns))
            total += (moved[:count] + 1j * moved[count:]) * self.weights[:, s]
        return total


def output_weights(lattice: PlaneLattice, power: float, lead: Leading) -> FloatArray:
    """weights[s, i]: how much s and the cell i of outputs matter to the moment of this power.

    It is the mass of the cell between the left and right leading eigenvectors, without its own
    factor.
    """
    sites, _ = real_sites(lattice, power)
    left = lattice.entrance
    for _ in range(min(lattice.steps, LEFT_STEPS)):
        left = step_back(lattice, sites, left)
        left = left / left.max()
    ahead = np.matmul(lattice.first, np.matmul(lead.right, lattice.second.transpose(0, 2, 1)))
    means = lattice.masses.shape[2]
    around = np.array(
        [np.bincount(lattice.sums.reshape(-1), (left * move).reshape(-1), means) for move in ahead]
    )
    cells = lattice.places.size
    masses = lattice.masses[:, 0, :, :cells] + lattice.masses[:, 0, :, cells : 2 * cells]
    return np.asarray(np.einsum("sm,smi->si", around, masses))
