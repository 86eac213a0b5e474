"""Claim: the reveal bound of chains reaches the numbers it was made for, in about a second each.

n = 2000, p = 0.01, delta = 1e-5 unless said.  The true epsilons of eight bands (Monte Carlo) are
0.993, 1.976 and 4.005.
"""

from __future__ import annotations

import pytest
from cases import reveal
from cases.samples import first
from oracles import truth

from mmcc import sampling, strategies

POISSON = sampling.Poisson(0.01)


def bands(count: int) -> strategies.Toeplitz:
    return strategies.toeplitz(strategies.continual_counting(count).coefficients, 2000)


@pytest.mark.parametrize(
    ("count", "sigma", "lowest", "highest"),
    first(
        [
            (8, 5.43, 0.993, 1.005),
            (8, 3.03, 1.975, 2.01),
            (8, 1.78, 4.0, 4.16),
            (32, 10.82, 0.99, 1.006),
            (32, 5.905, 1.98, 2.03),
            (32, 3.324, 3.96, 4.18),
            (32, 1.958, 7.9, 9.35),
            (100, 10.38, 1.98, 2.03),
            (100, 5.844, 3.96, 4.13),
            (100, 3.444, 7.9, 8.72),
        ],
        3,
    ),
)
def test_bands(count, sigma, lowest, highest):
    assert lowest <= reveal.bound_epsilon(bands(count), POISSON, sigma, 1e-5).value <= highest


@pytest.mark.parametrize(
    ("decay", "scale", "sigma", "highest"),
    first(
        [
            (0.859, 0.181, 3.945, 0.9926),
            (0.899, 0.171, 2.587, 1.9552),
            (0.940, 0.126, 1.766, 3.694),
            (0.958, 0.0995, 1.249, 6.545),
            (0.9616, 0.131, 1.4064, 7.985),
        ],
        3,
    ),
)
def test_one_buffer(decay, scale, sigma, highest):
    strategy = strategies.blt(2000, decay=[decay], scale=[scale])
    assert reveal.bound_epsilon(strategy, POISSON, sigma, 1e-5).value <= highest


@pytest.mark.slow
def test_a_million_steps():
    strategy = strategies.blt(10**6, decay=[0.99], scale=[0.05])
    found = reveal.bound_epsilon(strategy, sampling.Poisson(1e-4), 2.0, 1e-6)
    assert found.value <= 1.3119
    assert found.add <= 1.2935


def test_bands_apart_are_composed_exactly():
    """Under cyclic Poisson with separation 8 nothing overlaps: 250 subsampled Gaussians."""
    found = reveal.bound_epsilon(bands(8), sampling.CyclicPoisson(0.08, 8), 1.78, 1e-5)
    norm = float((bands(8).coefficients ** 2).sum() ** 0.5)
    for adjacency, bound in (("remove", found.remove), ("add", found.add)):
        exact = truth.smallest_epsilon(
            lambda epsilon, side=adjacency: truth.composed_subsampled_gaussian_delta(
                250, norm, 0.08, 1.78, epsilon, side
            )[0],
            1e-5,
        )
        assert exact <= bound <= exact * 1.002


def test_delta_at_an_epsilon():
    assert reveal.bound_delta(bands(8), POISSON, 5.43, 1.0).value <= 1e-5
