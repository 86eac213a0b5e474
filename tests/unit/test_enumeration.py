"""Claim: the enumeration oracle agrees with exact values, and refuses rather than guesses."""

from __future__ import annotations

import numpy as np
import pytest
from cases.samples import first, in_turn
from oracles import enumeration, truth
from oracles.enumeration import UnreliableError, enumerated_delta
from oracles.truth import ADJACENCIES


def assert_agrees(found, exact, digits=0.0):
    assert found.mean > 0
    assert abs(found.mean - exact) <= 4 * found.error + digits * exact
    assert found.error <= 0.002 * exact * 1.01


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("p", [0.02, 0.3, 0.95])
@pytest.mark.parametrize(("sigma", "epsilon"), [(0.6, 0.02), (1.0, 0.015), (8.0, 0.01)])
def test_one_column_is_exact(p, sigma, epsilon, adjacency):
    exact = float(truth.mixture_delta([0, 1], [1 - p, p], sigma, epsilon, adjacency))
    found = enumerated_delta(np.ones((1, 1)), p, sigma, epsilon, adjacency)
    assert found.mean == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_two_equal_columns_are_one_scalar_mixture(adjacency):
    """No dimension is left beside d, though two outputs are released."""
    matrix = np.array([[0.6, 0.6], [0.8, 0.8]])
    exact = truth.product_mixture_delta([1, 1], [0.3, 0.3], 2.0, 0.6, adjacency)
    found = enumerated_delta(matrix, 0.3, 2.0, 0.6, adjacency)
    assert found.mean == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize(("seed", "adjacency"), in_turn(range(12), ADJACENCIES))
def test_two_rows_agree_with_quadrature(seed, adjacency):
    rng = np.random.default_rng([seed, 51])
    n = int(rng.integers(2, 7))
    matrix = rng.uniform(0, 1, (2, n)) * np.exp(rng.uniform(-1, 1))
    p, sigma = float(rng.uniform(0.02, 0.95)), float(np.exp(rng.uniform(np.log(0.5), np.log(30))))
    delta = 10.0 ** -(2 + 10 * seed / 11)

    def curve(epsilon):
        return max(truth.two_row_delta(matrix, p, sigma, epsilon, adjacency), 0.0)

    epsilon = 0.0
    for step in 8.0 / 2.0 ** np.arange(8):  # about where delta is reached: no root is needed
        while curve(epsilon + step) > delta:
            epsilon += step
    found = enumerated_delta(matrix, p, sigma, epsilon, adjacency, seed=seed)
    assert_agrees(found, curve(epsilon), digits=1e-6)


@pytest.mark.parametrize(
    ("steps", "p", "sigma", "epsilon", "adjacency"),
    [
        (5, 0.9, 0.85, 9.0, "remove"),
        (5, 0.9, 0.85, 10.0, "add"),
        (6, 0.5, 8.0, 0.87, "remove"),
        (9, 0.26, 8.0, 0.5, "add"),
        (4, 0.4, 4.4, 1.5, "remove"),
        (7, 0.41, 0.8, 12.0, "remove"),
    ],
)
def test_identity_agrees_with_composition(steps, p, sigma, epsilon, adjacency):
    low, high = truth.composed_subsampled_gaussian_delta(steps, 1.0, p, sigma, epsilon, adjacency)
    found = enumerated_delta(np.eye(steps), p, sigma, epsilon, adjacency)
    assert_agrees(found, (low + high) / 2, digits=(high - low) / low)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_certain_participation_is_one_gaussian(adjacency):
    matrix = np.tril(np.random.default_rng(0).uniform(0, 1, (5, 5)))
    length = float(np.linalg.norm(matrix.sum(axis=1)))
    for sigma, epsilon in ((0.7, 40.0), (3.0, 5.0), (20.0, 0.3)):
        exact = float(truth.gaussian_delta(length, sigma, epsilon))
        assert_agrees(enumerated_delta(matrix, 1.0, sigma, epsilon, adjacency), exact)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("seed", first(range(4), 2))
def test_all_directions_give_the_same_delta(seed, adjacency):
    rng = np.random.default_rng([seed, 54])
    matrix = np.tril(rng.uniform(0, 1, (5, 5)))
    p, sigma, epsilon = float(rng.uniform(0.1, 0.9)), 1.0 + seed, 3.0 / (1.0 + seed)
    found = [
        enumerated_delta(matrix, p, sigma, epsilon, adjacency, direction=w, seed=i)
        for i, w in enumerate([None, np.ones(5), rng.uniform(0.1, 1, 5)])
    ]
    for other in found[1:]:
        assert abs(other.mean - found[0].mean) <= 4 * np.hypot(other.error, found[0].error)


def test_add_with_heavy_sampling_is_not_lost():
    """The loss is large only where no set is likely: sparse, p = .87, sigma = .92."""
    rng = np.random.default_rng(9)
    matrix = np.tril(rng.random((5, 5)) * (rng.random((5, 5)) < 0.3)) + 0.5 * np.eye(5)
    found = enumerated_delta(matrix, 0.87, 0.92, 7.5, "add")
    other = enumerated_delta(matrix, 0.87, 0.92, 7.5, "add", direction=np.ones(5), seed=1)
    assert 1e-12 < found.mean < 1e-3
    assert abs(found.mean - other.mean) <= 4 * np.hypot(found.error, other.error)


def test_tiny_deltas_keep_their_relative_accuracy():
    matrix, p, sigma = np.array([[1.0, 0.4], [0.0, 0.9]]), 0.2, 1.5
    for epsilon, adjacency in ((7.0, "remove"), (0.44, "add")):
        exact = truth.two_row_delta(matrix, p, sigma, epsilon, adjacency)
        assert exact < 1e-11
        assert_agrees(enumerated_delta(matrix, p, sigma, epsilon, adjacency), exact, digits=1e-3)


def test_add_is_exactly_zero_beyond_the_largest_loss():
    assert enumerated_delta(np.eye(3), 0.5, 1.0, 3 * np.log(2) + 1e-9, "add").mean == 0.0


def test_groups_are_single_columns_of_the_matrix():
    matrix = np.tril(np.random.default_rng(1).uniform(0.2, 1, (6, 6)))
    found = enumerated_delta(matrix, 0.3, 1.0, 1.0, "remove", columns=[4])
    length = np.linalg.norm(matrix[:, 4])
    exact = truth.mixture_delta([0, length], [0.7, 0.3], 1.0, 1.0, "remove")
    assert found.mean == pytest.approx(float(exact), rel=1e-9)


def test_a_poor_sample_is_refused(monkeypatch):
    """With few points and a proposal that misses the integrand there is no answer."""
    monkeypatch.setattr(enumeration, "LAST", 2**6)
    monkeypatch.setattr(enumeration, "_fitted", lambda mixture, proposal, rng: proposal)
    far = enumeration._Proposal(np.ones(1), np.full((1, 5), -6.0), np.eye(5)[None])
    monkeypatch.setattr(enumeration, "_first_proposal", lambda *peaks: far)
    with pytest.raises(UnreliableError):
        enumerated_delta(np.eye(6), 0.05, 0.5, 12.0, "remove")
