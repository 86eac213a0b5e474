"""Claim: a row's sigma is enough for its target, and a win is one whatever DP-SGD's accounting.

Against quadrature in the plane and against composed subsampled Gaussians; no tolerance.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases.samples import first
from oracles.truth import (
    ADJACENCIES,
    bins_bracket,
    composed_subsampled_gaussian_delta,
    two_row_bracket,
)

import mmcc
from mmcc import sampling, strategies

DELTA = 1e-5


def dense_rmse(strategy, sigma):
    """sigma |A C^-1|_F / sqrt(n), by a general inverse."""
    n = strategy.steps
    error = np.tril(np.ones((n, n))) @ np.linalg.inv(strategy.to_dense())
    return sigma * np.linalg.norm(error) / math.sqrt(n)


@pytest.mark.parametrize("epsilon", first([1.0, 5.0], 1))
def test_two_steps_against_quadrature(epsilon):
    encoder = strategies.toeplitz([1.0, 0.4], 2)
    schemes = [sampling.Poisson(0.5), sampling.BallsInBins(2)]
    table = mmcc.compare({"two bands": encoder}, schemes, epsilon=epsilon, delta=DELTA)
    poisson, bins = table.rows
    base = table.baseline[0]
    matrix = encoder.to_dense()
    for side in ADJACENCIES:
        assert two_row_bracket(matrix, 0.5, poisson.sigma, epsilon, side)[1] <= DELTA
        assert bins_bracket(matrix.T / bins.sigma, epsilon, side)[1] <= DELTA
        assert two_row_bracket(np.eye(2), 0.5, base.sigma, epsilon, side)[1] <= DELTA
    impossible = [
        two_row_bracket(np.eye(2), 0.5, base.sigma_lower, epsilon, s) for s in ADJACENCIES
    ]
    assert max(lower for lower, _ in impossible) >= DELTA
    for row in table.rows:
        assert row.certified
        assert row.rmse == pytest.approx(dense_rmse(encoder, row.sigma), rel=1e-12)
        if row.wins:
            assert dense_rmse(encoder, row.sigma) < dense_rmse(
                strategies.identity(2), base.sigma_lower
            )


def test_the_best_separation_against_composed_gaussians():
    steps, epsilon = 24, 3.0
    encoder = strategies.toeplitz([1.0, 0.5, 0.375], steps)
    family = [sampling.CyclicPoisson(b / 12, b) for b in (3, 4, 6, 8)]
    table = mmcc.compare({"three bands": encoder}, [family], epsilon=epsilon, delta=DELTA)
    (row,) = table.rows
    norm = math.sqrt(1 + 0.25 + 0.375**2)
    needed = {}
    for scheme in family:  # every separation here is at least the number of bands
        rounds = steps // scheme.separation
        worst = [
            composed_subsampled_gaussian_delta(
                rounds, norm, scheme.probability, row.sigma * (1 - 1e-3), epsilon, side
            )
            for side in ADJACENCIES
        ]
        needed[repr(scheme)] = max(lower for lower, _ in worst)
        if repr(scheme) == row.sampling:
            there = [
                composed_subsampled_gaussian_delta(
                    rounds, norm, scheme.probability, row.sigma, epsilon, side
                )
                for side in ADJACENCIES
            ]
            assert max(upper for _, upper in there) <= DELTA
    # Tightness: with a thousandth less noise none of them would do, so this one is the best.
    assert min(needed.values()) > DELTA
    assert row.skipped == 3
