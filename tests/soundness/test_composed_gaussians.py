"""Claim: composed Gaussians are never below the one Gaussian they equal, down to delta = 1e-12."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from cases.samples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import truth
from oracles.mechanisms import random_case

import mmcc
from mmcc import sampling, strategies

DELTAS = [1e-3, 1e-6, 1e-9, 1e-12]


def exact_epsilon(sensitivity: object, sigma: float, delta: float) -> float:
    return truth.smallest_epsilon(lambda e: truth.gaussian_delta(sensitivity, sigma, e), delta)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("count", "sigma"), [(2, 0.5), (2, 5), (64, 2), (64, 40), (1000, 30)])
def test_count_gaussians_are_one_with_the_root_of_count(count, sigma, delta):
    composed = mmcc.pld.mixture_of_gaussians([1.0], [1.0], sigma).self_compose(count)
    found = composed.epsilon(delta)
    assert truth.gaussian_delta(mpmath.sqrt(count), sigma, found) <= delta
    assert found <= 1.001 * exact_epsilon(mpmath.sqrt(count), sigma, delta)


@pytest.mark.parametrize("delta", DELTAS)
def test_identity_with_everybody_in_every_step(delta):
    found = mmcc.epsilon(
        strategies.identity(64), sampling.Poisson(1.0), sigma=20.0, delta=delta, method="mmcc"
    )
    assert truth.gaussian_delta(8, 20, found.epsilon) <= delta
    assert found.epsilon <= 1.001 * exact_epsilon(8, 20, delta)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 6.0])
def test_delta_of_composed_gaussians(epsilon):
    composed = mmcc.pld.mixture_of_gaussians([1.0], [1.0], 12.0).self_compose(64)
    assert composed.delta(epsilon) >= truth.gaussian_delta(8, 12, epsilon)


@given(
    parts=st.lists(
        st.tuples(st.integers(1, 5), st.floats(0.05, 3), st.floats(0.5, 10)),
        min_size=2,
        max_size=4,
    ),
    log_delta=st.floats(-12, -1),
)
@settings(max_examples=examples(30), deadline=None)
def test_gaussians_of_different_size_add_in_squares(parts, log_delta):
    whole, square = None, mpmath.mpf(0)
    for count, value, sigma in parts:
        part = mmcc.pld.mixture_of_gaussians([value], [1.0], sigma).self_compose(count)
        whole = part if whole is None else whole.compose(part)
        square += count * (mpmath.mpf(value) / mpmath.mpf(sigma)) ** 2
    delta = 10**log_delta
    found = whole.epsilon(delta)
    assert truth.gaussian_delta(mpmath.sqrt(square), 1, found) <= delta
    assert found <= 1.001 * exact_epsilon(mpmath.sqrt(square), 1, delta) + 1e-9


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method", ["tight", "mmcc", "unamplified"])
def test_any_matrix_with_everybody_in_every_step(seed, method):
    """Probability one: a single Gaussian whose sensitivity is the norm of the row sums."""
    matrix = random_case(seed).matrix
    norm = mpmath.norm(mpmath.matrix(matrix.tolist()) * mpmath.ones(matrix.shape[1], 1))
    sigma, delta = 2.0 * math.sqrt(matrix.shape[1]), 1e-10
    found = mmcc.epsilon(
        strategies.dense(matrix), sampling.Poisson(1.0), sigma=sigma, delta=delta, method=method
    )
    assert truth.gaussian_delta(norm, sigma, found.epsilon) <= delta


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("method", ["tight", "mmcc", "unamplified"])
def test_any_matrix_with_one_fixed_pass(seed, method):
    """One participation at a fixed step: the largest column norm decides."""
    matrix = random_case(seed).matrix
    norm = max(mpmath.norm(mpmath.matrix(column.tolist())) for column in matrix.T)
    found = mmcc.epsilon(
        strategies.dense(matrix),
        sampling.CyclicPoisson(1.0, matrix.shape[1]),
        sigma=1.5,
        delta=1e-8,
        method=method,
    )
    assert truth.gaussian_delta(norm, 1.5, found.epsilon) <= 1e-8
    if method != "mmcc":
        assert found.epsilon <= 1.001 * exact_epsilon(norm, 1.5, 1e-8)


def test_sigma_of_one_gaussian_is_never_too_small():
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-9), (8.0, 1e-5)):
        found = mmcc.sigma(
            strategies.dense(np.ones((1, 1))), sampling.Poisson(1.0), epsilon=epsilon, delta=delta
        )
        assert truth.gaussian_delta(1, found.sigma, epsilon) <= delta
        assert truth.gaussian_delta(1, 0.99 * found.sigma, epsilon) > delta
