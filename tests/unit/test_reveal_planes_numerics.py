"""The numerics of planes against plain iteration: what is claimed about errors holds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.samples import first

from mmcc import sampling, strategies
from mmcc.accounting._bounds.reveal.chains.centring import Centring
from mmcc.accounting._bounds.reveal.chains.chain import Chain, binomial_prior
from mmcc.accounting._bounds.reveal.chains.exits import log_output_moment, log_state_moment
from mmcc.accounting._bounds.reveal.chains.operator import site
from mmcc.accounting._bounds.reveal.planes.lattice import PlaneLattice, lattice_for
from mmcc.accounting._bounds.reveal.planes.moments import moments
from mmcc.accounting._bounds.reveal.planes.operator import leading, spread
from mmcc.accounting._bounds.reveal.planes.plane import plane_of


def lattice_of(steps: int, adjacency: str, sigma: float = 2.0, members: int = 1) -> PlaneLattice:
    strategy = strategies.blt(steps, decay=[0.9, 0.4], scale=[0.15, 0.2])
    prior = binomial_prior(members, 0.03)
    plane = plane_of(strategy, sampling.Rounds(0.03, 1), sigma, prior)
    centring = Centring(np.zeros(1), np.full((members, 1), 0.02))
    return lattice_for(plane, centring, adjacency, 1e-7)


def iterated(lattice: PlaneLattice, powers: np.ndarray) -> tuple[np.ndarray, float]:
    """Moments step by step, and the logarithm of their scale."""
    mean, shift = site(lattice.logs, lattice.masses, powers)
    sites = spread(lattice, mean)
    fields, scale = sites.sum(axis=1), shift * lattice.steps
    for _ in range(lattice.steps - 1):
        fields = sum(
            sites[:, s] * (lattice.first[s] @ fields @ lattice.second[s].T)
            for s in range(len(lattice.first))
        )
        top = float(fields[0].real.max())
        fields, scale = fields / top, scale + math.log(top)
    return (fields * lattice.entrance).sum(axis=(1, 2)), scale


@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize(
    ("steps", "members"), first([(2, 1), (3, 1), (30, 2), (200, 1), (900, 1)], 4)
)
def test_moments_are_those_of_plain_iteration(adjacency, steps, members):
    lattice = lattice_of(steps, adjacency, members=members)
    real = 4.0 if adjacency == "remove" else -5.0
    powers = real + 1j * np.linspace(0, 60, 41) ** 2 / 20
    found = moments(lattice, powers, 0.9)
    exact, scale = iterated(lattice, powers)
    values = found.values * math.exp(found.log_scale - scale)
    assert found.error < 1e-5
    assert (np.abs(values - exact) <= 2 * found.error * exact[0].real).all()


def test_the_iteration_for_choices_finds_the_moment():
    lattice = lattice_of(900, "remove")
    exact, scale = iterated(lattice, np.array([4.0 + 0j]))
    found = leading(lattice, 4.0)
    assert abs(found.log_moment - math.log(exact[0].real) - scale) < 0.02


def test_long_runs_are_extrapolated_within_their_error():
    """Ten thousand steps: nobody iterates over all of them but this test."""
    lattice = lattice_of(10_000, "remove", sigma=6.0)
    powers = np.array([2.0, 2.0 + 1j, 2.0 + 30j])
    found = moments(lattice, powers, 0.9)
    exact, scale = iterated(lattice, powers)
    values = found.values * math.exp(found.log_scale - scale)
    assert (np.abs(values - exact) <= 2 * found.error * exact[0].real).all()


@pytest.mark.parametrize("rate", [0.3, 1.5, 4.0])
def test_exit_cumulants_of_both_coordinates_against_enumeration(rate):
    """All participations in four steps: q_1 + q_2 and the output of the first, driven by both."""
    prior = binomial_prior(1, 0.2)
    chains = [Chain(4, 1, 0.4, 0.9, 0.7, prior), Chain(4, 1, 0.9, 0.3, 0.7, prior)]
    later = np.array([sum(c.shared * c.decay**k for c in chains) for k in range(1, 4)])
    counts = np.array(list(itertools.product((0, 1), repeat=4)))
    weights = prior[counts].prod(axis=1)
    for moment, own, variance in ((log_state_moment, 0.0, 1.3), (log_output_moment, 2.0, 2.0)):
        pulls = np.array([own, *later])
        exact = math.log(weights @ np.exp(rate * counts @ pulls)) + rate**2 * variance / 2
        assert exact <= moment(chains, rate) <= exact * (1 + 1e-9)


def test_refuses_what_is_no_plane():
    prior, rounds = binomial_prior(1, 0.1), sampling.Rounds(0.1, 1)
    one = strategies.blt(50, decay=[0.9], scale=[0.1])
    bands = strategies.toeplitz([1.0, 0.5], 50)
    slow = strategies.blt(50, decay=[0.9999, 0.5], scale=[0.1, 0.1])
    for strategy in (one, bands, slow):
        assert plane_of(strategy, rounds, 1.0, prior) is None
