"""Numerical pieces of the reveal bound under random allocation, against sums written out."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from mmcc import sampling, strategies
from mmcc.accounting._bounds import Problem
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.accounting._bounds.reveal.chains.chain import Chain, binomial_prior
from mmcc.accounting._bounds.reveal.epochs.kernels import laplace, powers
from mmcc.accounting._bounds.reveal.epochs.lattice import (
    EpochLattice,
    Fineness,
    epoch_lattice,
    largest_kick,
)
from mmcc.accounting._bounds.reveal.epochs.moments import Ray, alias_error, taylor, transform

ADJACENCIES = ("remove", "add")


def small_lattice(shared: float, length: int, adjacency: str) -> EpochLattice:
    chain = Chain(2 * length, 1, shared, 0.6 if shared else 0.0, 0.2, binomial_prior(1, 1 / length))
    lattice = epoch_lattice(chain, length, adjacency, 1e-4, Fineness(1e-1, 1.0))
    assert lattice is not None
    return lattice


@pytest.mark.parametrize("order", [0.5, 1.4, -0.4, -0.6, -1.3])
@pytest.mark.parametrize("frequency", [0.0, 3.0, 20.0])
def test_a_sum_over_a_ray_is_a_power_up_to_its_aliases(order, frequency):
    """All nodes, many digits: the error is below the bound, and near it."""
    ray = Ray(1.2, 0.4, 0.0, 1)
    zeta = mpmath.mpc(order, frequency)
    bound = float(alias_error(np.array([complex(order, frequency)]), ray)[0])
    terms = max(0, math.ceil(-order))
    errors = []
    with mpmath.workdps(60):
        for value in (0.3, 1.0, 7.3):
            total = mpmath.mpf(0)
            for n in range(-150, 60):
                lam = mpmath.exp(mpmath.mpc(ray.step * n, ray.angle))
                taken = sum((-lam * value) ** k / mpmath.factorial(k) for k in range(terms))
                total += ray.step * lam**zeta * (mpmath.exp(-lam * value) - taken)
            for k in range(terms):  # from the last node on, in closed form
                rate = zeta + k
                lam = mpmath.exp(mpmath.mpc(ray.step * 60, ray.angle))
                tail = ray.step * lam**rate / mpmath.expm1(rate * ray.step)
                total += (-mpmath.mpf(value)) ** k / mpmath.factorial(k) * tail
            found = total / mpmath.gamma(zeta) * mpmath.mpf(value) ** zeta
            errors.append(float(abs(found - 1)))
    assert max(errors) <= bound
    assert max(errors) >= 0.02 * bound


def written_out(lattice: EpochLattice, function) -> np.ndarray:
    """The matrix of an epoch: all marks, all outputs, all states between."""
    length, states = lattice.length, lattice.states.size
    total = np.zeros((states, states))
    for mark in range(length):
        for outputs in itertools.product(range(lattice.nodes.size), repeat=length):
            path = np.eye(states)
            for place, node in enumerate(outputs):
                if place == mark:
                    mass, move = lattice.marked_masses(), lattice.marked_move
                else:
                    mass, move = lattice.masses(max(place - mark, 0)), lattice.move
                path = path @ (mass[:, node, None] * move)
            total += function(float(lattice.parts[list(outputs)].sum())) * path
    return total


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_an_epoch_is_the_sum_over_marks_outputs_and_states(adjacency):
    lattice = small_lattice(0.05, 2, adjacency)
    for rate in (0.0, 0.7, 5.0):
        exact = written_out(lattice, lambda value, rate=rate: math.exp(-rate * value))
        assert laplace(lattice, np.array([rate]))[0] == pytest.approx(exact, rel=1e-11)
    third = written_out(lattice, lambda value: value**3 / 6)
    assert powers(lattice, 5)[3] == pytest.approx(third, rel=1e-11)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("alpha", [1.4, -0.4])
def test_powers_come_out_of_laplace_transforms_within_the_errors_claimed(adjacency, alpha):
    """Independent noise, two steps: F has finitely many values, and each error is made visible."""
    lattice = small_lattice(0.0, 2, adjacency)
    ahead, marked = lattice.masses(0)[0], lattice.marked_masses()[0]
    values = np.add.outer(lattice.parts, lattice.parts)
    masses = np.outer(marked, lattice.masses(1)[0]) + np.outer(ahead, marked)
    zeta = alpha + 1j * np.array([0.0, 2.0, 9.0, 25.0])
    exact = np.array([(masses * values**-z).sum() for z in zeta])
    series = taylor(lattice)
    start, claimed = math.log(3 / float(values.max())), 0
    for ray in (
        Ray(1.2, 0.1, start, 140),  # fine
        Ray(1.2, 0.2, start, 70),  # aliases
        Ray(1.2, 0.1, start + 0.8, 130),  # a Taylor polynomial too far
        Ray(1.2, 0.1, start, 75),  # a ray too short
    ):
        found = transform(lattice, series, ray)
        real = np.abs(found.matrices(zeta[:1])[0])
        errors = found.errors(zeta, real)
        wrong = np.abs(found.matrices(zeta)[:, 0, 0] - exact) / exact[0].real
        if errors[0] < 0.01:  # else nothing is claimed
            assert (wrong <= errors).all()
            claimed += 1
    assert claimed >= 2


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_cells_move_outputs_to_the_safe_side(adjacency):
    """Remove: the mean of 1/(e^x + b) is not raised; add: that of e^x is not either."""
    lattice = small_lattice(0.05, 3, adjacency)
    chain, nodes = lattice.chain, lattice.nodes
    least = 2 * math.exp(float(nodes[0]))
    fine = np.linspace(float(nodes[0]), float(nodes[-1]), 200001)
    for state, masses in zip(lattice.states, lattice.masses(1), strict=True):
        mean = math.sqrt(chain.shared) * state + chain.shared * chain.decay - chain.diagonal / 2
        density = np.exp(-((fine - mean) ** 2) / (2 * chain.white))
        density /= math.sqrt(2 * math.pi * chain.white)
        inside = np.trapezoid(density, fine)
        end, sign = (0, -1) if lattice.remove else (-1, 1)
        moved = 0.5 * math.erfc(sign * (float(nodes[end]) - mean) / math.sqrt(2 * chain.white))
        assert masses.sum() >= (inside + moved) * (1 - 1e-9)
        if lattice.remove:
            at, true = 1 / (np.exp(nodes) + least), density / (np.exp(fine) + least)
        else:
            at, true = np.exp(nodes), density * np.exp(fine)
        assert masses @ at - moved * at[end] <= np.trapezoid(true, fine) * (1 + 1e-7)


def test_no_marks_push_a_state_further_than_the_kick():
    rng = np.random.default_rng(5)
    for _ in range(200):
        length, epochs = int(rng.integers(1, 6)), 6
        chain = Chain(30, 1, 0.7, float(rng.uniform(0.01, 0.99)), 0.1, binomial_prior(1, 0.5))
        marks = length * np.arange(epochs) + rng.integers(length, size=epochs)
        for step in range(length * epochs):
            ahead = marks[step // length :]
            before = marks[marks <= step]
            for chosen in (ahead, before):
                pushed = chain.shared * (chain.decay ** np.abs(chosen - step)).sum()
                assert pushed <= largest_kick(chain, length) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("strategy", "scheme", "size", "words"),
    [
        (strategies.binary_tree(8), sampling.RandomAllocation(4), 1, "Toeplitz"),
        (strategies.identity(8), sampling.RandomAllocation(4, 2), 1, "one participation"),
        (strategies.identity(8), sampling.RandomAllocation(4), 2, "one example"),
    ],
)
def test_what_is_not_proven_is_refused(strategy, scheme, size, words):
    assert words in str(Reveal().refusal(Problem(strategy, scheme, 1.0, group_size=size)))
