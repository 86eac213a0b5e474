"""Claim: bounds for the reference matrix lie above quadrature, and not far above."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import truth

import mmcc
from mmcc import sampling, strategies

PAIR = np.array([[1.0, 0.0], [0.5, 1.0]])


@pytest.mark.parametrize(
    ("sigma", "delta", "exact"),
    [(1.0, 1e-5, 6.8836), (1.0, 1e-6, 7.8254), (4.0, 1e-5, 1.0096), (4.0, 1e-6, 1.1833)],
)
def test_epsilon_of_the_reference_matrix(sigma, delta, exact):
    """No sampling at all costs |C 1|; the bound may not exceed it."""
    found = mmcc.epsilon(strategies.dense(PAIR), sampling.Poisson(0.5), sigma=sigma, delta=delta)
    norm = float(np.hypot(1.0, 1.5))
    ceiling = truth.smallest_epsilon(lambda e: truth.gaussian_delta(norm, sigma, e), delta)
    assert exact - 5e-5 <= found.epsilon <= 1.0001 * ceiling


@pytest.mark.parametrize("delta", [1e-4, 1e-6])
def test_a_matrix_that_is_one_direction_is_nearly_exact(delta):
    """One row with all steps: no event is needed, so the bound is the product mixture itself."""
    row = [1.0, 0.7, 0.4, 0.2]
    found = mmcc.epsilon(strategies.dense([row]), sampling.Poisson(0.3), sigma=2.0, delta=delta)
    exact = truth.smallest_epsilon(
        lambda e: truth.worst(truth.product_mixture_delta, row, [0.3] * 4, 2.0, e), delta
    )
    assert exact <= found.epsilon <= 1.001 * exact


def test_tight_is_never_worse_than_the_other_methods():
    for sigma in (0.5, 8.0):
        mechanism = (strategies.continual_counting(3), sampling.Poisson(0.2))
        tight = mmcc.epsilon(*mechanism, sigma=sigma, delta=1e-6).epsilon
        for options in (
            {"method": "unamplified"},
            {"method": "mmcc", "order": "release"},
            {"method": "mmcc", "order": "reversed"},
            {"method": "mmcc", "order": "heavy"},
        ):
            other = mmcc.epsilon(*mechanism, sigma=sigma, delta=1e-6, **options).epsilon
            assert tight <= other * (1 + 1e-9)
