r"""The plane on a grid: finitely many states (q_1, q_2), finitely many outputs x, masses upper.

In: a `Plane` and how fine to be.  Out: a `PlaneLattice`.
Rounding: every mass is rounded up; a larger positive measure gives a larger delta.

Backwards in time x = q_1 + q_2 + w + s g_0 with w ~ N(0, omega), then each coordinate by itself
q_i <- N(rho_i (q_i + kappa_i s), kappa_i (1 - rho_i^2)).

*States.*  Given participations, outputs and all other coordinates, the joint density is in one q_i
a product of Gaussian factors with the curvature of a chain by itself (`Chain.growth`): the mixed
term q_1 q_2 / omega only turns the phase on the line Im q_i = a.  So sums replace integrals one
coordinate after the other, and with n steps

    (1 - eta_1)^n (1 - eta_2)^n  E  <=  E_grid  <=  (1 + eta_1)^n (1 + eta_2)^n  E.

Both steps are multiples of one unit, so q_1 + q_2 has few values, and outputs depend on it alone.
*Exits.*  `remove`: each coordinate has its levels, and q_1 + q_2 one that is much lower than the
sum of theirs: without it moments of high order would come from the corner.  `add`: each coordinate
has its levels; likelihood ratios are bounded there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import BoolArray, FloatArray, IntArray
from mmcc.accounting._bounds.reveal.chains.centring import Centring
from mmcc.accounting._bounds.reveal.chains.exits import ceiling, log_state_moment, passing
from mmcc.accounting._bounds.reveal.chains.lattice import (
    SIDES,
    Fineness,
    moves,
    output_masses,
    output_nodes,
    reach,
    trapezoid_error,
)
from mmcc.accounting._bounds.reveal.inversion import UP
from mmcc.accounting._bounds.reveal.planes.plane import Plane

MAX_STATES = 12000
FINE = Fineness(trapezoid=5e-4, cell=0.05)
ROOM = 0.15
"""Part of the budget for exits that goes to each coordinate by itself."""


@dataclass(frozen=True, eq=False, slots=True)
class PlaneLattice:
    """Masses of states, transitions and outputs; what leaving the lattice costs."""

    steps: int
    inside: BoolArray
    """Which pairs of coordinates are on the lattice: others have left."""
    entrance: FloatArray
    first: FloatArray
    """first[s, a, b]: mass of the move of q_1 from a to b when s participate."""
    second: FloatArray
    sums: IntArray
    """Where q_1 + q_2 stands among the means of outputs."""
    places: FloatArray
    logs: FloatArray
    masses: FloatArray
    """As in `chains.lattice.Lattice`, by mean instead of state."""
    inflation: float
    """Logarithm of (1 - eta_1)^-n (1 - eta_2)^-n: what the sums may have lost."""
    exits: float
    """Bound on the mass, under the law that counts, of ever leaving the lattice."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Multiples low, ..., high of a step h, in units of sqrt(kappa)."""

    h: float
    stride: int
    """The step in units common to both axes."""
    low: int
    high: int

    @property
    def numbers(self) -> IntArray:
        return np.arange(self.low, self.high + 1)


def lattice_for(
    plane: Plane, centring: Centring, adjacency: str, budget: float, fineness: Fineness = FINE
) -> PlaneLattice | None:
    """The lattice whose exits cost about `budget`; None if it needs too many states."""
    unit, strides = _steps(plane, fineness.trapezoid)
    axes, exits, eta = [], 0.0, 0.0
    lost = 0.0
    for chain, stride in zip(plane.coordinates, strides, strict=True):
        h = unit * stride / math.sqrt(chain.shared)
        beside = plane.shared - chain.shared
        low, high, cost = reach(chain, centring, adjacency, ROOM * budget, beside * UP)
        if not (high - low) / h <= MAX_STATES:
            return None
        axes.append(_Axis(h, stride, math.ceil(low / h), math.floor(high / h)))
        error = trapezoid_error(chain.growth, h)
        if not error < 0.1:
            return None
        exits, eta = exits + cost, eta + error
        lost -= plane.steps * math.log1p(-error) * UP
    level, cost = _roof(plane, adjacency, budget)
    nodes, leaving = output_nodes(plane.coordinates, adjacency, SIDES * budget, fineness)
    sums = np.add.outer(*(axis.stride * axis.numbers for axis in axes))
    if nodes is None or sums.size > MAX_STATES:
        return None
    inside = sums <= math.floor(min(level / unit, float(sums.max())))
    places = 0.5 * (nodes[1:] + nodes[:-1])
    most = int(sums[inside].max())
    means = unit * np.arange(float(sums.min()), most + 1.0)
    logs, masses = output_masses(
        plane.white, plane.diagonal, plane.prior, means[None], nodes, centring.at(places), adjacency
    )
    (begin, first), (begun, second) = (
        moves(chain, axis.h * axis.numbers, axis.h, chain.most)
        for chain, axis in zip(plane.coordinates, axes, strict=True)
    )
    # Exits happen on the grid: (1 + eta_1)^n (1 + eta_2)^n times what they cost on the line.
    grown = (exits + cost + leaving) * math.exp(plane.steps * eta) * UP
    return PlaneLattice(
        steps=plane.steps,
        inside=inside,
        entrance=np.multiply.outer(begin, begun) * UP * inside,
        first=first,
        second=second,
        sums=np.minimum(sums, most) - int(sums.min()),
        places=places,
        logs=logs,
        masses=masses,
        inflation=lost,
        exits=grown,
    )


def _steps(plane: Plane, trapezoid: float) -> tuple[float, tuple[int, int]]:
    """A unit, and the steps of both coordinates in it, so that n (eta_1 + eta_2) is as wanted.

    One step is the unit, the other a multiple; the ratio is rounded to whichever side loses less.
    """
    share = math.log(4 * plane.steps / trapezoid)
    steps = [
        math.pi * math.sqrt(2 * chain.shared / (chain.growth * share))
        for chain in plane.coordinates
    ]
    fine, coarse = min(steps), max(steps)
    ratio = coarse / fine
    below = math.floor(ratio)
    times = below if ratio / below <= (below + 1) / ratio else below + 1
    unit = min(fine, coarse / times)
    return unit, (1, times) if steps[0] <= steps[1] else (times, 1)


def _roof(plane: Plane, adjacency: str, budget: float) -> tuple[float, float]:
    """The level of q_1 + q_2 beyond which states have left, and what that costs."""
    if adjacency == "add":
        return math.inf, 0.0

    def moment(rate: float) -> float:
        return log_state_moment(plane.coordinates, rate)

    roof = ceiling(moment, math.sqrt(plane.shared), budget / plane.steps)
    return roof.level, plane.steps * passing(moment, roof.level, roof.rate) * UP
