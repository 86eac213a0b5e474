"""Certified epsilons and deltas of BLTs with two buffers under independent rounds.

In: strategy, rounds, the law of participations at a step, sigma.  Out: `Answer`.
Rounding: results are upper bounds.

The steps are those for chains, with a state of two coordinates.  A dominating chain with one
coordinate shows which order and centring are about right.  If its moments alone look better, its
own curve is computed too, and the better one is used.  Proofs: docs/theory-reveal-planes.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.chains.centring import Centring, best_centring
from mmcc.accounting._bounds.reveal.chains.curve import (
    BLUR,
    EXIT_SHARE,
    MAX_NODES,
    Setting,
    curve_near,
    line_near,
    powers,
    renyi_epsilon,
    saddle,
)
from mmcc.accounting._bounds.reveal.chains.domination import Shape, spectrum_of
from mmcc.accounting._bounds.reveal.chains.lattice import COARSE
from mmcc.accounting._bounds.reveal.chains.upper import ChainProblem
from mmcc.accounting._bounds.reveal.inversion import HOPELESS, Curve, Inversion
from mmcc.accounting._bounds.reveal.planes.lattice import lattice_for
from mmcc.accounting._bounds.reveal.planes.moments import moments
from mmcc.accounting._bounds.reveal.planes.operator import leading, output_weights
from mmcc.accounting._bounds.reveal.planes.plane import Plane, plane_of
from mmcc.accounting._parallel import Progress
from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

TURNS = 3
WORK, FEWEST_NODES = 2 * 10**6, 200
"""Roughly the number of states times nodes that is computed, and the fewest nodes."""


@dataclass(frozen=True, eq=False, slots=True)
class PlaneProblem(ChainProblem):
    """The problem of a two-buffer BLT: a chain can dominate it, but a plane has its Gram matrix."""

    plane: Plane | None = None

    def outlook(self, shape: Shape, delta: float) -> float:
        """0, unknown, for a plane: the chain that dominates it says too little."""
        return super().outlook(shape, delta) if self.plane is None else 0.0

    def _curves(self, shape: Shape, adjacency: str, delta: float) -> Iterator[Curve]:
        setting = self.setting(shape, adjacency, delta)
        if setting is None:
            return
        of_plane = None if self.plane is None else plane_curve(self.plane, setting, delta)
        if of_plane is not None:
            yield of_plane
            if of_plane.near < setting.epsilon:
                return
        of_chain = curve_near(setting, delta)
        if of_chain is not None:
            yield of_chain


def plane_curve(plane: Plane, setting: Setting, delta: float) -> Curve | None:
    """A curve that is tight near delta; `setting` is good for a chain that dominates the plane."""
    adjacency = setting.adjacency
    if not setting.epsilon < HOPELESS:
        return None
    centring = _centring(plane, setting, delta)
    lattice = lattice_for(plane, centring, adjacency, EXIT_SHARE * delta)
    if lattice is None:
        return None

    def log_moment(order: float) -> float:
        found = leading(lattice, float(powers(adjacency, np.array([order]))[0]))
        return HOPELESS if found is None else found.log_moment

    order, deviation = saddle(log_moment, setting.order, delta)
    rough = renyi_epsilon(log_moment(order), order, delta)
    states = int(lattice.inside.sum())
    most = min(max(WORK // states, FEWEST_NODES), MAX_NODES)
    line = line_near(order, deviation, delta, BLUR * max(rough, deviation), most)
    decay = max(chain.decay for chain in plane.coordinates)
    found = None if line is None else moments(lattice, powers(adjacency, line.nodes()), decay)
    if line is None or found is None:
        return None
    notes = {
        "kappa": [chain.shared for chain in plane.coordinates],
        "rho": [chain.decay for chain in plane.coordinates],
        "omega": plane.white,
        "order": order,
        "exits": lattice.exits,
        "states": states,
        "nodes": line.count,
    }
    return Curve(Inversion(line, found), lattice.exits, lattice.inflation, rough, notes)


def _centring(plane: Plane, setting: Setting, delta: float) -> Centring:
    """The chain's centring, improved for the plane at the same order while that helps."""
    adjacency, order = setting.adjacency, setting.order
    power = float(powers(adjacency, np.array([order]))[0])
    best = centring = setting.centring
    least = HOPELESS
    for _ in range(TURNS):
        lattice = lattice_for(plane, centring, adjacency, EXIT_SHARE * delta, COARSE)
        lead = None if lattice is None else leading(lattice, power)
        if lattice is None or lead is None:
            break
        epsilon = renyi_epsilon(lead.log_moment, order, delta)
        if not epsilon < least * (1 - 1e-4):
            break
        best, least = centring, epsilon
        weights = output_weights(lattice, power, lead)
        better = best_centring(
            plane.prior, plane.diagonal, lattice.places, weights, adjacency, order
        )
        if better is None:
            break
        centring = better
    return best


def problem_for(
    strategy: Toeplitz,
    rounds: Rounds,
    prior: FloatArray,
    sigma: float,
    progress: Progress | None = None,
) -> ChainProblem:
    """The mechanism as a plane if it has two buffers, else as a chain."""
    spectrum = spectrum_of(strategy, rounds)
    plane = plane_of(strategy, rounds, sigma, prior)
    if plane is None:
        return ChainProblem(spectrum, prior, sigma, progress)
    return PlaneProblem(spectrum, prior, sigma, progress, plane=plane)
