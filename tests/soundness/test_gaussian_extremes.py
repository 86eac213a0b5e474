"""Claim: one Gaussian row is right, from above and within 1 %, down to delta = 1e-15."""

from __future__ import annotations

import pytest
from oracles import truth

import mmcc
from mmcc import sampling, strategies

SIGMAS = [0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e3, 1e4]
DELTAS = [1e-15, 1e-12, 1e-9, 1e-6, 1e-3]


def check(epsilon: float, sensitivity: float, sigma: float, delta: float) -> None:
    assert truth.gaussian_delta(sensitivity, sigma, epsilon) <= delta
    exact = truth.smallest_epsilon(lambda e: truth.gaussian_delta(sensitivity, sigma, e), delta)
    assert epsilon <= 1.01 * exact


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sigma", SIGMAS)
def test_distribution_of_one_gaussian(sigma, delta):
    gaussian = mmcc.pld.mixture_of_gaussians([1.0], [1.0], sigma)
    for adjacency in ("remove", "add", "both"):
        check(gaussian.epsilon(delta, adjacency=adjacency), 1.0, sigma, delta)


@pytest.mark.parametrize("method", ["tight", "mmcc", "unamplified"])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_strategy_of_one_step_that_everybody_takes(sigma, method):
    found = mmcc.epsilon(
        strategies.dense([[1.5]]), sampling.Poisson(1.0), sigma=sigma, delta=1e-15, method=method
    )
    check(found.epsilon, 1.5, sigma, 1e-15)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 10.0, 1e4])
def test_delta_of_one_gaussian_is_never_below_the_closed_form(sigma):
    gaussian = mmcc.pld.mixture_of_gaussians([1.0], [1.0], sigma)
    for delta in DELTAS:
        epsilon = truth.smallest_epsilon(lambda e: truth.gaussian_delta(1.0, sigma, e), delta)
        exact = truth.gaussian_delta(1.0, sigma, epsilon)
        assert exact <= gaussian.delta(epsilon) <= 1.05 * exact
