"""Claim: the bound for two-buffer BLTs never goes below the truth, nor does a step of its proof.

Truths: enumeration of all participation sets (sampled outputs, four standard errors), the Gram
matrix written out, and simulated paths of the two-dimensional state.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases.reveal import log_uniform
from cases.samples import first
from oracles.enumeration import enumerated_delta

from mmcc import sampling, strategies
from mmcc.accounting._bounds.reveal.chains.centring import Centring
from mmcc.accounting._bounds.reveal.chains.chain import binomial_prior
from mmcc.accounting._bounds.reveal.inversion import Curve
from mmcc.accounting._bounds.reveal.planes.lattice import lattice_for
from mmcc.accounting._bounds.reveal.planes.moments import moments
from mmcc.accounting._bounds.reveal.planes.plane import Plane, plane_of
from mmcc.accounting._bounds.reveal.planes.upper import PlaneProblem, plane_curve, problem_for


def random_blt(rng: np.random.Generator, steps: int) -> strategies.BufferedToeplitz:
    decay = np.sort(rng.uniform(0.1, 0.97, 2))[::-1]
    parts = rng.dirichlet([1, 1, 1])[:2] * rng.uniform(0.2, 1)
    return strategies.blt(steps, decay=list(decay), scale=list(decay * parts))


def scheme_of(probability: float, separation: int) -> sampling.Scheme:
    if separation == 1:
        return sampling.Poisson(probability)
    return sampling.CyclicPoisson(probability, separation)


def curve_of(strategy, scheme, sigma, adjacency, delta) -> Curve | None:
    """The plane's own curve, not that of the chain beside it."""
    rounds = scheme.rounds(strategy.steps)
    problem = problem_for(strategy, rounds, binomial_prior(1, rounds.probability), sigma)
    if not isinstance(problem, PlaneProblem):
        pytest.skip("too little white noise for a plane")
    setting = problem.setting(problem.best_shape(delta), adjacency, delta)
    return plane_curve(problem.plane, setting, delta)


def some_plane(rng: np.random.Generator, steps: int) -> Plane:
    while True:
        strategy, sigma = random_blt(rng, steps), log_uniform(rng, 0.7, 4)
        rounds = sampling.Poisson(log_uniform(rng, 0.02, 0.3)).rounds(steps)
        plane = plane_of(strategy, rounds, sigma, binomial_prior(1, rounds.probability))
        if plane is not None:
            return plane


def check_against_enumeration(seed: int, relative: float) -> None:
    rng = np.random.default_rng([seed, 5])
    separation = int(rng.integers(1, 3))
    steps = separation * int(rng.integers(2, 8))
    strategy, sigma = random_blt(rng, steps), log_uniform(rng, 0.6, 4)
    probability, delta = log_uniform(rng, 0.05, 0.6), log_uniform(rng, 1e-7, 0.03)
    for adjacency in ("remove", "add"):
        scheme = scheme_of(probability, separation)
        curve = curve_of(strategy, scheme, sigma, adjacency, delta)
        truth = enumerated_delta(
            strategy.to_dense(),
            probability,
            sigma,
            curve.epsilon(delta),
            adjacency,
            columns=range(0, steps, separation),
            relative=relative,
            absolute=relative * delta,
        )
        assert truth.mean - 4 * truth.error <= delta


@pytest.mark.parametrize("seed", first(range(8), 4))
def test_epsilon_is_never_below_enumeration(seed):
    check_against_enumeration(seed, relative=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 150))
def test_epsilon_is_never_below_enumeration_many(seed):
    check_against_enumeration(seed, relative=0.002)


@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_delta_is_never_below_enumeration(adjacency):
    strategy = strategies.blt(6, decay=[0.9, 0.5], scale=[0.2, 0.2])
    curve = curve_of(strategy, sampling.Poisson(0.2), 2.0, adjacency, 1e-3)
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        truth = enumerated_delta(strategy.to_dense(), 0.2, 2.0, epsilon, adjacency)
        assert curve.delta(epsilon) >= truth.mean - 4 * truth.error


@pytest.mark.parametrize("seed", range(30))
def test_the_plane_dominates_the_gram_matrix(seed):
    rng = np.random.default_rng(seed)
    steps, separation = int(rng.integers(4, 40)), int(rng.integers(1, 4))
    strategy, sigma = random_blt(rng, steps), log_uniform(rng, 0.5, 30)
    rounds = scheme_of(0.1, separation).rounds(steps)
    plane = plane_of(strategy, rounds, sigma, binomial_prior(1, rounds.probability))
    if plane is None:
        pytest.skip("too little white noise for a plane")
    for group in range(separation):
        columns = strategy.to_dense()[:, group::separation] / sigma
        count = columns.shape[1]
        away = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
        above = plane.white * np.eye(count)
        for chain in plane.coordinates:
            above += chain.shared * chain.decay**away
        assert (above >= columns.T @ columns).all()


def paths(plane: Plane, centring: Centring, adjacency: str, count: int, rng):
    """States (q_1, q_2) of simulated paths, by path, step and coordinate: P~ or Q~."""
    steps, prior = plane.steps, plane.prior
    kappa, rho = (
        np.array([getattr(c, name) for c in plane.coordinates]) for name in ("shared", "decay")
    )
    gauss = np.empty((count, steps, 2))
    gauss[:, 0] = rng.normal(size=(count, 2)) * np.sqrt(kappa)
    for k in range(1, steps):
        fresh = rng.normal(size=(count, 2)) * np.sqrt(kappa * (1 - rho**2))
        gauss[:, k] = rho * gauss[:, k - 1] + fresh
    moved = np.zeros((count, 2))
    states = np.empty_like(gauss)
    for k in range(steps):  # backwards in time under P~, forwards under Q~
        if adjacency == "remove":
            states[:, k] = gauss[:, k] + moved
            drawn = rng.choice(prior.size, size=count, p=prior)
            moved = rho * (moved + kappa * drawn[:, None])
        else:
            before = gauss[:, k] - moved
            x = before.sum(axis=1) + rng.normal(size=count) * math.sqrt(plane.white)
            odds = prior[1] / prior[0] * np.exp(x - plane.diagonal / 2 - centring.at(x)[1])
            drawn = rng.random(count) < odds / (1 + odds)
            states[:, k] = before - kappa * drawn[:, None]
            moved = rho * (moved + kappa * drawn[:, None])
    return states


@pytest.mark.parametrize("seed", first(range(8), 3))
@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_leaving_the_lattice_costs_no_less_than_simulated_paths_say(seed, adjacency):
    rng = np.random.default_rng(seed)
    plane = some_plane(rng, int(rng.integers(2, 30)))
    centring = Centring(np.zeros(1), np.full((1, 1), rng.uniform(-1, 1)))
    lattice = lattice_for(plane, centring, adjacency, 0.2)
    states = paths(plane, centring, adjacency, 20_000, rng)
    staying = np.ones(len(states), dtype=bool)
    steps = [float(axis[1] - axis[0]) for axis in lattice.axes]
    for coordinate, axis, step in zip(np.moveaxis(states, 2, 0), lattice.axes, steps, strict=True):
        within = (coordinate > axis[0] - step) & (coordinate < axis[-1] + step)
        staying &= within.all(axis=1)
    highest = np.add.outer(*lattice.axes)[lattice.inside].max() + min(steps)
    staying &= (states.sum(axis=2) < highest).all(axis=1)
    left = 1 - staying.mean()
    assert left <= lattice.exits + 4 * math.sqrt(lattice.exits / len(states))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_the_lattice_keeps_the_whole_mass(seed, adjacency):
    """E_P~[1] (remove) and E_Q~[1] = E_P~[1/Lhat] (add) are 1, but for what left."""
    rng = np.random.default_rng(seed)
    plane = some_plane(rng, int(rng.integers(2, 200)))
    centring = Centring(np.zeros(1), np.full((1, 1), rng.uniform(-0.5, 0.5)))
    lattice = lattice_for(plane, centring, adjacency, 1e-6)
    power = 0.0 if adjacency == "remove" else -1.0
    found = moments(lattice, np.array([complex(power)]), 0.9)
    value = float(found.values[0].real) * math.exp(found.log_scale)
    whole = (value * (1 + found.error) + lattice.exits) * math.exp(lattice.inflation)
    assert whole >= 1
    assert value <= 1.01
