"""Claim: guarantees in other units are close to the truth, not only above it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import attacks, truth

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._curve_points import Point, likely_mu

P, SIGMA, STEPS = 0.05, 0.9, 12


@pytest.fixture(scope="module")
def found():
    identity, scheme = strategies.identity(STEPS), sampling.Poisson(P)
    return mmcc.epsilon(identity, scheme, sigma=SIGMA, delta=1e-6, method="mmcc")


def test_mu_of_dp_sgd_is_close_to_what_the_true_curve_needs(found):
    """A few points of the true curve, where mu is decided: near the floor."""
    floor = 1e-9
    epsilons = np.linspace(0.7, 0.98, 8) * found.epsilon_at(floor)
    least = 0.0
    for epsilon in epsilons:
        low, _ = truth.composed_subsampled_gaussian_delta(
            STEPS, 1.0, P, SIGMA, float(epsilon), "remove"
        )
        least = max(least, likely_mu(Point(float(epsilon), low), floor))
    assert found.gdp(floor) <= 1.006 * least


def test_rates_of_dp_sgd_are_close_to_those_of_a_real_test(found):
    above, _ = attacks.rounded_loss_rates(P, SIGMA, STEPS, spacing=2e-3)
    for asked in (1e-4, 1e-3, 1e-2, 0.1):
        rate, power = above[:, np.searchsorted(above[0], asked)]
        assert found.true_positive_rate(float(rate)) <= 1.005 * power
    assert found.advantage() <= 1.002 * float(np.max(above[1] - above[0]))


@pytest.mark.slow
def test_mu_of_many_steps_is_near_the_central_limit():
    """p sqrt(n (e^(1/sigma^2) - 1)), with a floor that leaves the far tail out."""
    steps, p, sigma = 10_000, 0.002, 1.0
    identity, scheme = strategies.identity(steps), sampling.Poisson(p)
    found = mmcc.epsilon(identity, scheme, sigma=sigma, delta=1e-5, method="mmcc")
    limit = p * math.sqrt(steps * math.expm1(1 / sigma**2))
    assert limit * 0.98 <= found.gdp(1e-3) <= limit * 1.01
