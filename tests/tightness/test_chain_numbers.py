"""Claim: the chain bound reaches the numbers it was made for, in about a second each.

n = 2000, p = 0.01, delta = 1e-5 unless said.  The true epsilons of eight bands (Monte Carlo) are
0.993, 1.976 and 4.005.
"""

from __future__ import annotations

import pytest
from cases import chain
from oracles import truth

from mmcc import sampling, strategies

POISSON = sampling.Poisson(0.01)
EIGHT_BANDS = strategies.toeplitz(strategies.continual_counting(8).coefficients, 2000)


@pytest.mark.parametrize(
    ("sigma", "lowest", "highest"), [(5.43, 0.99, 1.14), (3.03, 1.97, 2.29), (1.78, 4.0, 4.85)]
)
def test_eight_bands(sigma, lowest, highest):
    assert lowest <= chain.bound_epsilon(EIGHT_BANDS, POISSON, sigma, 1e-5).value <= highest


@pytest.mark.parametrize(
    ("sigma", "decay", "scale", "highest"),
    [
        (3.945, 0.859, 0.181, 1.0),
        (2.587, 0.899, 0.171, 1.98),
        (1.766, 0.940, 0.126, 3.80),
        (1.249, 0.958, 0.0995, 7.30),
    ],
)
def test_one_buffer(sigma, decay, scale, highest):
    strategy = strategies.blt(2000, decay=[decay], scale=[scale])
    assert chain.bound_epsilon(strategy, POISSON, sigma, 1e-5).value <= highest


def test_a_million_steps():
    strategy = strategies.blt(10**6, decay=[0.99], scale=[0.05])
    found = chain.bound_epsilon(strategy, sampling.Poisson(1e-4), 2.0, 1e-6)
    assert found.value <= 1.35


def test_bands_apart_are_composed_exactly():
    """Under cyclic Poisson with separation 8 nothing overlaps: 250 subsampled Gaussians."""
    found = chain.bound_epsilon(EIGHT_BANDS, sampling.CyclicPoisson(0.08, 8), 1.78, 1e-5)
    norm = float((EIGHT_BANDS.coefficients**2).sum() ** 0.5)
    for adjacency, bound in (("remove", found.remove), ("add", found.add)):
        exact = truth.smallest_epsilon(
            lambda epsilon, side=adjacency: truth.composed_subsampled_gaussian_delta(
                250, norm, 0.08, 1.78, epsilon, side
            )[0],
            1e-5,
        )
        assert exact <= bound <= exact * 1.002


def test_delta_at_an_epsilon():
    found = chain.bound_delta(EIGHT_BANDS, POISSON, 5.43, 1.14)
    assert found.value <= 1e-5
