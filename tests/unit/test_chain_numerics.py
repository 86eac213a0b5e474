"""Claim: each numerical piece of the chain bound is as exact as it says, against 30 digits."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from oracles import truth

from mmcc.accounting._bounds.chain import exits
from mmcc.accounting._bounds.chain.domination import Chain
from mmcc.accounting._bounds.chain.factors import Tangent, remove_factors
from mmcc.accounting._bounds.chain.lattice import (
    COARSE,
    FINE,
    SPECIAL,
    Lattice,
    cell_law,
    lattice_for,
    state_step,
)
from mmcc.accounting._bounds.chain.operator import Moments, moments
from mmcc.accounting._bounds.reveal.inversion import Inversion, Line, line_for

CHAINS = [
    Chain(blocks=7, block=1, probability=0.1, diagonal=0.3, share=0.6, decay=0.8),
    Chain(blocks=4, block=2, probability=0.4, diagonal=1.5, share=0.3, decay=0.5),
    Chain(blocks=9, block=1, probability=0.02, diagonal=5.0, share=0.9, decay=0.3),
]


@pytest.mark.parametrize("tilt", [1e-5, 0.2, 1.5, 5.0])
@pytest.mark.parametrize("width", [0.08, 0.4])
@pytest.mark.parametrize("low", [-37.0, -9.3, -1.0, -0.03, 0.0, 0.7, 4.0, 12.0, 36.5])
def test_cells_against_many_digits(low, width, tilt):
    mass, share = (float(part[0]) for part in cell_law(np.array([low]), width, tilt))
    with mpmath.workdps(60):
        a, w, t = (mpmath.mpf(x) for x in (low, width, tilt))

        def between(shift: mpmath.mpf) -> mpmath.mpf:
            ends = sorted((abs(a - shift), abs(a + w - shift)))
            if (a - shift) * (a + w - shift) < 0:
                return 1 - mpmath.ncdf(-ends[0]) - mpmath.ncdf(-ends[1])
            return mpmath.ncdf(-ends[0]) - mpmath.ncdf(-ends[1])

        plain = between(mpmath.mpf(0))
        tilted = mpmath.exp(t * (t / 2 - a)) * between(t)
        exact = (tilted / plain - 1) / mpmath.expm1(t * w)
    error = SPECIAL * (1 + 8 / width)
    assert abs(mass / float(plain) - 1) <= error + 1e-12
    assert abs(share - float(exact)) <= 4 * error / -math.expm1(-tilt * width)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_output_masses_keep_what_they_must(chain, adjacency):
    """Totals are at least the truth; the mean of e^u moves to the safe side, and hardly."""
    lattice = lattice_for(chain, adjacency, 1e-7, FINE)
    middle = np.abs(lattice.states) < 4
    totals = lattice.masses.sum(axis=1)[middle]
    edge = lattice.logs[-1] if adjacency == "remove" else -lattice.logs[1]
    sign = 1 if adjacency == "remove" else -1
    centre = math.sqrt(chain.common) * lattice.states[middle]
    outside = truth.ndtr((sign * centre - edge) / math.sqrt(chain.white))
    assert (totals >= 1 - outside).all()
    assert (totals <= 1 + 1e-9).all()
    x = np.exp(lattice.logs)
    means = (lattice.masses @ x)[middle]
    exact = np.exp(math.sqrt(chain.common) * lattice.states[middle] + chain.white / 2)
    if adjacency == "add":
        assert (means <= exact * (1 + 1e-9)).all()
    below = np.minimum(x[None, :], 1.0) * lattice.masses  # concave: spreading lowers it
    centre = math.sqrt(chain.common) * lattice.states[middle]
    deviation = math.sqrt(chain.white)
    kept = truth.ndtr(centre / deviation) + np.exp(centre + chain.white / 2) * truth.ndtr(
        -centre / deviation - deviation
    )
    assert (below.sum(axis=1)[middle] <= kept * (1 + 1e-9)).all()
    assert (below.sum(axis=1)[middle] >= kept * (1 - 2e-3 * max(1, chain.diagonal))).all()


@pytest.mark.parametrize("chain", CHAINS)
def test_the_state_grid_has_the_stated_relative_error(chain):
    """One v between two neighbours and its outputs, at many offsets: all within kappa."""
    for wanted in (1e-1, 1e-3):
        h, kappa = state_step(chain, wanted)
        assert kappa <= wanted / chain.blocks * 1.01
        rng = np.random.default_rng(3)
        variance = 1 - chain.decay**2
        for _ in range(50):
            left, right = rng.normal(0, 3, 2)
            outputs = rng.normal(0, 3, chain.block)
            grid = h * np.arange(-4000, 4001)
            logs = -((grid - chain.decay * left) ** 2) / (2 * variance)
            logs -= (right - chain.decay * grid) ** 2 / (2 * variance)
            for u in outputs:
                logs -= (u - math.sqrt(chain.share) * grid) ** 2 / (2 * (1 - chain.share))
            # The exact integral of a Gaussian from its three coefficients.
            square = (1 + chain.decay**2) / variance + chain.block * chain.share / (1 - chain.share)
            linear = chain.decay * (left + right) / variance
            linear += math.sqrt(chain.share) * outputs.sum() / (1 - chain.share)
            constant = (chain.decay**2 * left**2 + right**2) / variance
            constant += (outputs**2).sum() / (1 - chain.share)
            exact = math.sqrt(2 * math.pi / square) * math.exp(
                linear**2 / (2 * square) - constant / 2
            )
            assert abs(h * np.exp(logs).sum() / exact - 1) <= kappa * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("rate", [0.3, 1.5, 4.0])
def test_exit_cumulants_against_enumeration(chain, rate):
    place = np.arange(chain.steps) // chain.block
    near = chain.decay ** np.abs(place[:, None] - place)
    gram = chain.diagonal * (chain.share * near + (1 - chain.share) * np.eye(chain.steps))
    p = chain.probability
    for moment, pulls, spread in (
        (exits.log_state_moment, rate * math.sqrt(chain.common) * near, 0.5 * rate**2),
        (exits.log_output_moment, rate * gram, 0.5 * rate**2 * chain.diagonal),
    ):
        exact = np.log1p(p * np.expm1(pulls)).sum(axis=1).max() + spread
        assert exact <= moment(chain, rate) <= exact + 2 * p * pulls.max() * chain.steps


def brute_force(lattice: Lattice, factors, chain: Chain, z: complex) -> complex:
    """The sum over all paths of states, outputs summed step by step."""
    total = 0j
    mean = (lattice.masses * np.exp(z * factors.step)).sum(axis=1) ** chain.block
    for path in itertools.product(range(lattice.states.size), repeat=chain.blocks):
        term = lattice.entrance[path[0]] * np.exp(z * factors.entry[path[0]]) * mean[path[0]]
        for a, b in itertools.pairwise(path):
            term *= lattice.kernel[a, b] * np.exp(z * factors.move[a, b]) * mean[b]
        total += term
    return total


@pytest.mark.parametrize("chain", CHAINS)
def test_moments_are_sums_over_paths(chain):
    short = Chain(5, chain.block, chain.probability, chain.diagonal, chain.share, chain.decay)
    full = lattice_for(short, "remove", 1e-3, COARSE)
    some = slice(None, None, max(1, full.states.size // 4))
    lattice = Lattice(
        full.states[some],
        full.entrance[some],
        full.kernel[some, some],
        full.logs,
        full.masses[some],
        0.0,
        0.0,
    )
    tangent = Tangent(lattice.states, np.linspace(0.1, 0.5, lattice.states.size), 0.3)
    factors = remove_factors(short, lattice, tangent)
    powers = 2.5 + 1j * np.array([0.0, 0.7, 5.0, 40.0])
    found = moments(lattice, factors, short, powers)
    scale = math.exp(found.log_scale)
    for value, z in zip(found.values, powers, strict=True):
        exact = brute_force(lattice, factors, short, z)
        assert abs(scale * value - exact) <= 2 * found.error * scale * found.values[0].real


@pytest.mark.parametrize("variance", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("period", [3.0, 6.0, 12.0])
def test_inversion_of_a_lognormal_is_the_gaussian_mechanism_from_above(variance, epsilon, period):
    """X = e^{sqrt(g) y - g/2} has M(z) = e^{g z(z-1)/2}: any line gives an upper bound."""
    order = 1.5 + epsilon / variance
    line = line_for(order, period * math.sqrt(variance) + 9 / (order - 1), 1e-3 * variance, 9.0)
    z = line.nodes()
    inside = variance * (z * (z - 1)) / 2
    log_scale = float(inside[0].real)
    found = Inversion(line, Moments(np.exp(inside - log_scale), log_scale, 1e-14))
    exact = float(truth.gaussian_delta(math.sqrt(variance), 1.0, epsilon))
    assert exact <= found.excess(epsilon) <= exact * 1.02 + 1e-15


def test_a_poor_line_is_loose_but_never_low():
    for step, count in itertools.product([0.3, 3.0, 30.0], [2, 5, 50]):
        line = Line(order=4.0, step=step, count=count, smoothing=1e-3)
        z = line.nodes()
        values = np.exp(0.5 * (z * (z - 1) - 12))
        found = Inversion(line, Moments(values, 6.0, 1e-14))
        for epsilon in (0.0, 1.0, 3.0):
            assert found.excess(epsilon) >= float(truth.gaussian_delta(1.0, 1.0, epsilon))
