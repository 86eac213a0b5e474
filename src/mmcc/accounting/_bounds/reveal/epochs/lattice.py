r"""The chain on a grid, for epochs with one random participation; all masses rounded up.

In: a `Chain`, the length of an epoch and a `Fineness`.  Out: an `EpochLattice`.
Rounding: every mass is rounded up; a larger positive measure gives a larger delta.

Forwards in time x = q + w - g_0/2 with w ~ N(0, omega), then q <- N(rho q, kappa (1 - rho^2)).  One
step s of an epoch is marked: it has weight e^x/t, and q falls by kappa after it.  The rest of the
epoch is not affected by the mark, so d steps later x = q + kappa rho^d + w - g_0/2.  The likelihood
ratio is the product of F = (1/t) sum e^x over the epochs.  Given marks and outputs, a state q has
the same curvature as in `chains.lattice`, and sums over the grid the same relative error.

*Outputs.*  All else fixed, t F = e^x + Y, and a cell of x is replaced by its two ends.  `add`:
(1/(a F) - E)_+ is convex in e^x, and the mean of e^x is kept: the upper end gets the share theta.
`remove`: let Y >= b, which the lowest outputs of the others add up to.  (1 - E/(a F))_+ is convex
and falling in 1/G, G = e^x + b, because 1/(G + Y - b) is concave and rising in 1/G.  The mean of
1/G is kept or lowered: E[1/G] >= 1/E[G] gives the share theta G_1/(G_0 + theta (G_1 - G_0)).

*Exits.*  One step of an epoch is marked, so what participations add to a state is never more than
kappa (1 + rho/(1 - rho^t)): under P~ upwards, under Q~ downwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray, own_arrays
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.chains.lattice import (
    FAR,
    MASS_ERROR,
    SPECIAL,
    TINY,
    Fineness,
    cell_law,
    grid_up,
    moves,
    state_step,
)
from mmcc.accounting._bounds.reveal.inversion import ROUND, UP

MAX_STATES, MAX_OUTPUTS = 200, 3000
FARTHEST = 30.0
"""Largest output, so that powers e^{20 x} are within floats."""
FINE = Fineness(trapezoid=1e-3, cell=0.05)
SPAN = 5.0
"""Standard deviations of x up to which cells are narrow on sides without an exit."""


@dataclass(frozen=True, eq=False, slots=True)
class EpochLattice:
    """Masses of states and moves, places of outputs, and the cost of leaving the lattice."""

    chain: Chain
    length: int
    remove: bool
    states: FloatArray
    """The states, q / sqrt(kappa)."""
    entrance: FloatArray
    move: FloatArray
    """move[a, b]: mass of the move from state a to b."""
    marked_move: FloatArray
    """marked_move[a, b]: mass of the move from state a to b after a marked step."""
    nodes: FloatArray
    """The outputs x at the ends of the cells, evenly spaced."""
    inflation: float
    """Logarithm of the factor that the sums over q may have lost."""
    exits: float
    """Bound on the mass, under the law that counts, of ever leaving the lattice."""

    def __post_init__(self) -> None:
        own_arrays(self, "states", "entrance", "move", "marked_move", "nodes")

    @property
    def parts(self) -> FloatArray:
        """e^x/t at the nodes, rounded to the side on which delta grows."""
        slip = 8 * ROUND * (2 + float(np.abs(self.nodes).max()))
        return np.asarray(np.exp(self.nodes) / self.length * (1 + (slip if self.remove else -slip)))

    def masses(self, later: int) -> FloatArray:
        """Masses [state, node] of an output `later` steps after the mark; 0 means no mark yet."""
        chain = self.chain
        kick = chain.shared * chain.decay**later if later else 0.0
        return self._masses(kick)

    def marked_masses(self) -> FloatArray:
        """Masses of the output of a marked step: those of N(q - g_0/2, omega) times e^x/t."""
        shared = self.chain.shared
        lift = math.sqrt(shared) * self.states - 0.5 * shared
        slip = 8 * ROUND * (2 + float(np.abs(lift).max()))
        weights = np.exp(lift) / self.length * (1 + slip)
        return weights[:, None] * self._masses(self.chain.white)

    def _masses(self, kick: float) -> FloatArray:
        """Upper masses of the nodes for x ~ N(q - g_0/2 + kick, omega).

        For `remove`, x moves up to the first node from below and leaves above the last.  For `add`,
        it moves down to the last node from above and leaves below the first.
        """
        chain, nodes = self.chain, self.nodes
        deviation = math.sqrt(chain.white)
        means = math.sqrt(chain.shared) * self.states + (kick - 0.5 * chain.diagonal)
        away = (nodes - means[:, None]) / deviation
        mass, share = self._cells(away)
        found = np.zeros(away.shape)
        found[:, :-1] += mass * (1 - share)
        found[:, 1:] += mass * share
        end, side = (0, 1) if self.remove else (-1, -1)
        found[:, end] += special.ndtr(side * away[:, end]) * (1 + MASS_ERROR) + TINY
        return found * (1 + 8 * ROUND)

    def _cells(self, away: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Masses of the cells, rounded up, and the shares of their upper ends.

        The share is rounded to the side on which delta grows: up for `remove`.
        """
        nodes, deviation = self.nodes, math.sqrt(self.chain.white)
        cell = float(nodes[-1] - nodes[0]) / (nodes.size - 1)
        width = cell / deviation
        mass, theta = cell_law(np.clip(away[:, :-1], -FAR, FAR), width, deviation)
        error = SPECIAL * (1 + 8 / width)
        slack = 4 * error / -math.expm1(-cell) + 4 * ROUND * float(np.abs(nodes).max()) / cell
        slack += 32 * ROUND
        theta = np.clip(theta + slack if self.remove else theta - slack, 0.0, 1.0)
        theta[np.abs(away[:, :-1]) >= FAR] = 1.0 if self.remove else 0.0
        if self.remove:
            ends = np.exp(nodes) + (self.length - 1) * math.exp(float(nodes[0])) * (1 - 2.0**-40)
            steep = ends[1:] / ends[:-1] * (1 + 2.0**-40)
            theta = np.minimum(theta * steep / (1 + theta * (steep - 1)) * (1 + 64 * ROUND), 1.0)
        return np.maximum(mass, TINY) * (1 + MASS_ERROR + 4 * error), theta


def largest_kick(chain: Chain, length: int) -> float:
    """The most that participations add to a state, or take from it."""
    return chain.shared * (1 + chain.decay / -math.expm1(length * math.log(chain.decay))) * UP


def epoch_lattice(
    chain: Chain, length: int, adjacency: str, budget: float, fineness: Fineness = FINE
) -> EpochLattice | None:
    """The lattice whose exits cost about `budget`; None if it would be too large.

    Leaving is charged under the law whose excess is measured: P~ for `remove`, Q~ for `add`.  The
    chance that N(0, 1) passes f is at most e^{-f^2/2}, Chernoff's bound, which holds on the grid.
    """
    remove = adjacency == "remove"
    sites = chain.steps + 1  # the last epoch is followed by a move as well
    free = grid_up(math.sqrt(2 * math.log(3 * sites / budget)))
    exits = 3 * sites * math.exp(-0.5 * free * free) * UP
    eta, kick = 0.0, 0.0
    states, entrance = np.zeros(1), np.ones(1)
    kernels = np.ones((2, 1, 1))
    if chain.shared > 0:
        h, eta = state_step(chain, fineness.trapezoid)
        kick = largest_kick(chain, length)
        far = free + grid_up(kick / math.sqrt(chain.shared))
        low, high = (-free, far) if remove else (-far, free)
        if not high - low <= (MAX_STATES - 2) * h:
            return None
        count = math.ceil((high - low) / h) - 1
        states = high - h * np.arange(float(max(count, 1)), 0.0, -1.0)
        # Moves of -q, which grows by kappa at a mark.
        entrance, kernels = moves(chain, -states, h, 1)
    nodes = _nodes(chain, kick, free, remove, fineness)
    if nodes is None:
        return None
    grown = exits * math.exp(sites * eta) * UP
    lost = -sites * math.log1p(-eta) * UP
    return EpochLattice(
        chain, length, remove, states, entrance, kernels[0], kernels[1], nodes, lost, grown
    )


def _nodes(
    chain: Chain, kick: float, free: float, remove: bool, fineness: Fineness
) -> FloatArray | None:
    """The ends of the cells of x; one side is an exit, at the other outputs are moved."""
    deviation, middle = math.sqrt(chain.diagonal), -0.5 * chain.diagonal
    near = SPAN * deviation
    if remove:
        low, high = middle - near, middle + free * deviation + kick + chain.white
    else:
        low, high = middle - free * deviation - kick, middle + near + chain.diagonal
    low, high = low - ROUND * abs(low), high + ROUND * abs(high)
    count = math.ceil((high - low) / (fineness.cell * deviation))
    fits = count <= MAX_OUTPUTS and max(-low, high) <= FARTHEST
    return np.linspace(low, high, count + 1) if fits else None
