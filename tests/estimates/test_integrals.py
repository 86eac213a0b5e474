"""Claim: the likelihood ratio and its integrals over t agree with direct sums and quadrature."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad

from mmcc import sampling, strategies
from mmcc._simulation import set_mixtures as kernels
from mmcc._simulation.batches import Direction, limits, prepare
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.set_lists import all_sets, draw_sets, join
from mmcc._simulation.transfer_matrix import chain_of

BANDED = strategies.toeplitz([1.0, 0.6, 0.3], 9)


def members(sets, columns):
    found = np.zeros((len(sets), columns))
    found[np.repeat(np.arange(len(sets)), np.diff(sets.edges)), sets.columns] = 1.0
    return found


@pytest.mark.parametrize(
    "scheme",
    [
        sampling.Poisson(0.2),
        sampling.CyclicPoisson(0.4, 2),
        sampling.MinSeparation(0.3, 2),
        sampling.MinSeparation(0.3, 5),
    ],
    ids=repr,
)
def test_transfer_matrix_is_the_sum_over_all_sets(scheme):
    mechanism = Mechanism(BANDED, scheme, 0.7)
    chain = chain_of(mechanism)
    sets = all_sets(mechanism)
    u = 3 * np.random.default_rng(1).standard_normal((20, mechanism.columns))
    exponents = u @ members(sets, mechanism.columns).T + sets.logs - sets.squares / 2
    expected = np.logaddexp.reduce(exponents, axis=1)
    assert chain.log_ratios(u, np.array([scheme.probability]))[:, 0] == pytest.approx(expected)
    large = chain.log_ratios(u + 400.0, np.array([scheme.probability]))[:, 0]
    shifted = exponents + 400.0 * np.diff(sets.edges)
    assert large == pytest.approx(np.logaddexp.reduce(shifted, axis=1))


def by_quadrature(exponents, slopes, epsilon, remove):
    """The integral over t of phi (X - E)_+ or phi (1 - E X)_+."""

    def ratio(t):
        return np.exp(exponents + t * slopes - slopes**2 / 2).sum()

    def height(t):
        x = ratio(t)
        gain = x - math.exp(epsilon) if remove else 1 - math.exp(epsilon) * x
        return max(gain, 0.0) * math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

    edges = np.linspace(-12, 12 + slopes.max(), 400)
    pieces = itertools.pairwise(edges)
    return sum(quad(height, a, b, epsabs=0, epsrel=1e-8, limit=50)[0] for a, b in pieces)


def direction_of(mechanism, weights):
    image = mechanism.encode(weights[None])
    length = float(np.linalg.norm(image))
    return Direction(weights, length, mechanism.adjoint(image)[0] / length, 0.0)


@pytest.mark.parametrize("remove", [True, False], ids=["remove", "add"])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
def test_integral_over_t(remove, epsilon):
    mechanism = Mechanism(BANDED, sampling.Poisson(0.2), 1.1)
    rng = np.random.default_rng(2)
    direction = direction_of(mechanism, rng.random(9))
    sets = all_sets(mechanism)
    prepared = prepare(sets, len(sets), direction)
    u = mechanism.adjoint(rng.standard_normal((5, 9)))
    u -= np.outer(u @ direction.weights / direction.length, direction.overlaps)
    values, _ = kernels.slices(
        u, sets.columns, sets.edges, sets.logs, prepared.rests, prepared.classes,
        prepared.residuals, prepared.centres, len(sets), prepared.drawn, np.zeros(1), np.ones(1),
        np.array([epsilon]), remove, *limits(remove, prepared.slopes.max()), 0.0,
    )  # fmt: skip
    exponents = u @ members(sets, 9).T + sets.logs - prepared.rests / 2
    expected = [by_quadrature(e, prepared.slopes, epsilon, remove) for e in exponents]
    assert values[:, 0, 0] == pytest.approx(expected, rel=1e-5, abs=1e-12)
    if not remove:
        found = chain_of(mechanism).integrals(u, direction.overlaps, 0.0, np.array([epsilon]))
        assert found[:, 0] == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_one_list_tested_on_another_is_a_fixed_test():
    """U is the value of each list's own best test; L that of the other's: never larger."""
    mechanism = Mechanism(strategies.continual_counting(30), sampling.Poisson(0.05), 2.0)
    rng = np.random.default_rng(4)
    first, second = (draw_sets(mechanism, 40, [0.05], rng) for _ in range(2))
    direction = direction_of(mechanism, np.ones(30))
    prepared = prepare(join(first, second), len(first), direction)
    u = mechanism.adjoint(rng.standard_normal((200, 30)))
    u -= np.outer(u @ direction.weights / direction.length, direction.overlaps)
    sets = prepared.sets
    values, _ = kernels.slices(
        u, sets.columns, sets.edges, sets.logs, prepared.rests, prepared.classes,
        prepared.residuals, prepared.centres, len(first), prepared.drawn, np.zeros(1), np.ones(1),
        np.array([0.3]), True, *limits(True, prepared.slopes.max()), 0.0,
    )  # fmt: skip
    own, other = values[:, 0, [1, 0]], values[:, 0, 2:]
    assert (other <= own * (1 + 1e-6) + 1e-12).all()
    assert (other < own * 0.9).any()
