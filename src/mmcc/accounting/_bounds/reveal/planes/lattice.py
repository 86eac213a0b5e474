r"""The plane on a grid: finitely many states (q_1, q_2) and outputs x, masses rounded up.

In: a `Plane` and a `Fineness`.  Out: a `PlaneLattice`.
Rounding: every mass is rounded up; a larger positive measure gives a larger delta.

Backwards in time x = q_1 + q_2 + w + s g_0 with w ~ N(0, omega), then each coordinate by itself
q_i <- N(rho_i (q_i + kappa_i s), kappa_i (1 - rho_i^2)).

*States.*  Given participations, outputs and all other coordinates, the joint density is in one q_i
a product of Gaussian factors with the curvature of a single chain (`Chain.growth`): the mixed
term q_1 q_2 / omega only turns the phase on the line Im q_i = a.  So sums replace integrals one
coordinate after the other, and with n steps

    (1 - eta_1)^n (1 - eta_2)^n  E  <=  E_grid  <=  (1 + eta_1)^n (1 + eta_2)^n  E.

Both steps are multiples of one unit, so q_1 + q_2, on which outputs depend, has few values.
*Exits.*  For `remove`, each coordinate has its own levels, and q_1 + q_2 has one that is much lower
than their sum: without it moments of high order would come from the corner.  For `add`, each
coordinate has its own levels, and likelihood ratios are bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import BoolArray, FloatArray, IntArray
from mmcc.accounting._bounds.reveal.chains.centring import Centring
from mmcc.accounting._bounds.reveal.chains.chain import Chain
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

MAX_STATES, MAX_MASSES = 12000, 2**22
FINE = Fineness(trapezoid=5e-4, cell=0.05)
ROOM = 0.15
"""The fraction of the budget for exits that goes to each coordinate."""


@dataclass(frozen=True, eq=False, slots=True)
class PlaneLattice:
    """Masses of states, transitions and outputs, and the cost of leaving the lattice."""

    steps: int
    axes: tuple[FloatArray, FloatArray]
    """The values of q_1 and of q_2."""
    inside: BoolArray
    """Which pairs of coordinates are on the lattice."""
    entrance: FloatArray
    first: FloatArray
    """first[s, a, b]: mass of the move of q_1 from a to b with s participations."""
    second: FloatArray
    sums: IntArray
    """The index of q_1 + q_2 among the means of outputs."""
    places: FloatArray
    logs: FloatArray
    masses: FloatArray
    """Masses as in `chains.lattice.Lattice`, by mean instead of state."""
    inflation: float
    """Logarithm of (1 - eta_1)^-n (1 - eta_2)^-n, which the sums may have lost."""
    exits: float
    """Bound on the mass, under the law that counts, of ever leaving the lattice."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """The points of one coordinate: multiples `low` to `high` of a step."""

    chain: Chain
    unit: float
    stride: int
    """The step in the unit that both axes share."""
    low: int
    high: int
    exits: float
    """The cost of leaving this axis, on the line."""

    @property
    def places(self) -> FloatArray:
        """The points, in units."""
        return self.stride * np.arange(float(self.low), self.high + 1.0)

    @property
    def h(self) -> float:
        """The step, in units of sqrt(kappa)."""
        return self.unit * self.stride / math.sqrt(self.chain.shared)

    @property
    def error(self) -> float:
        """Eta."""
        return trapezoid_error(self.chain.growth, self.h)

    @property
    def moves(self) -> tuple[FloatArray, FloatArray]:
        """Masses of the first state and of moves."""
        states = self.unit / math.sqrt(self.chain.shared) * self.places
        return moves(self.chain, states, self.h, self.chain.most)


def lattice_for(
    plane: Plane, centring: Centring, adjacency: str, budget: float, fineness: Fineness = FINE
) -> PlaneLattice | None:
    """The lattice whose exits cost about `budget`; None if it needs too many states."""
    axes = _axes(plane, centring, adjacency, budget, fineness)
    nodes, leaving = output_nodes(plane.coordinates, adjacency, SIDES * budget, fineness)
    if axes is None or nodes is None:
        return None
    level, cost = _roof(plane, adjacency, budget)
    unit, sums = axes[0].unit, np.add.outer(axes[0].places, axes[1].places)
    inside = sums <= math.floor(min(level / unit, float(sums.max())))
    least, most = float(sums.min()), float(sums[inside].max())
    if (most - least) * nodes.size > MAX_MASSES:
        return None
    places = 0.5 * (nodes[1:] + nodes[:-1])
    means = unit * np.arange(least, most + 1)[None]
    logs, masses = output_masses(
        plane.white, plane.diagonal, plane.prior, means, nodes, centring.at(places), adjacency
    )
    (begin, first), (begun, second) = (axis.moves for axis in axes)
    # Exits happen on the grid, at (1 + eta_1)^n (1 + eta_2)^n times their cost on the line.
    grown = math.exp(plane.steps * math.fsum(axis.error for axis in axes)) * UP
    return PlaneLattice(
        steps=plane.steps,
        axes=(unit * axes[0].places, unit * axes[1].places),
        inside=inside,
        entrance=np.multiply.outer(begin, begun) * UP * inside,
        first=first,
        second=second,
        sums=(np.minimum(sums, most) - least).astype(np.int64),
        places=places,
        logs=logs,
        masses=masses,
        inflation=-plane.steps * math.fsum(math.log1p(-axis.error) for axis in axes) * UP,
        exits=(axes[0].exits + axes[1].exits + cost + leaving) * grown,
    )


def _axes(
    plane: Plane, centring: Centring, adjacency: str, budget: float, fineness: Fineness
) -> tuple[_Axis, _Axis] | None:
    """The points of both coordinates; None if there are too many."""
    unit, strides = _steps(plane, fineness.trapezoid)
    found = []
    for chain, stride in zip(plane.coordinates, strides, strict=True):
        beside = (plane.shared - chain.shared) * UP
        low, high, exits = reach(chain, centring, adjacency, ROOM * budget, beside)
        h = unit * stride / math.sqrt(chain.shared)
        if not (high - low) / h <= MAX_STATES:
            return None
        # The cost was counted beyond the first points that are left out.
        found.append(_Axis(chain, unit, stride, math.ceil(low / h), math.floor(high / h), exits))
    first, second = found
    few = first.places.size * second.places.size <= MAX_STATES
    return (first, second) if few and max(first.error, second.error) < 0.1 else None


def _steps(plane: Plane, trapezoid: float) -> tuple[float, tuple[int, int]]:
    """A unit, and the steps of both coordinates in it, such that n (eta_1 + eta_2) is as wanted.

    One step is the unit, the other a multiple of it; the ratio is rounded to the side that loses
    less.
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
    """The level of q_1 + q_2 beyond which states have left, and the cost of that."""
    if adjacency == "add":
        return math.inf, 0.0

    def moment(rate: float) -> float:
        return log_state_moment(plane.coordinates, rate)

    roof = ceiling(moment, math.sqrt(plane.shared), budget / plane.steps)
    return roof.level, plane.steps * passing(moment, roof.level, roof.rate) * UP
