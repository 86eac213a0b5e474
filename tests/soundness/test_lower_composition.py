"""Claim: where steps are independent, the lower bound never exceeds the composed truth."""

from __future__ import annotations

import math

import pytest
from oracles.truth import composed_mixture_delta, mixture_delta

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._bounds.mmcc.independent import lower_epsilon
from mmcc.accounting._losses.lower import TILTS, _lowest

CASES = [
    (128, 1 / 128, 1.0, 1e-6),
    (2000, 0.01, 1.25, 1e-5),
    (2000, 0.01, 4.0, 1e-9),
    (50, 0.3, 3.0, 1e-4),
    (10, 0.5, 0.7, 1e-8),
    (4, 0.9, 2.0, 1e-3),
    (1, 0.2, 1.0, 1e-5),
]


@pytest.mark.parametrize(("count", "p", "sigma", "delta"), CASES)
@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_lower_bound_lies_below_composed_subsampled_gaussians(count, p, sigma, delta, adjacency):
    strategy, scheme = strategies.identity(count), sampling.Poisson(p)
    upper = mmcc.epsilon(strategy, scheme, sigma=sigma, delta=delta, method="mmcc")
    about = upper.details[adjacency]
    found = lower_epsilon([(1 / sigma, count)], p, delta, adjacency, about)
    law = ([0.0, 1.0], [1 - p, p], sigma)
    assert found <= about
    if found > 0 and count == 1:
        assert mixture_delta(*law, found, adjacency) >= delta
    elif found > 0:
        _, most = composed_mixture_delta([(count, *law)], found, adjacency)
        assert most >= delta
    if adjacency == "remove":
        assert found >= 0.99 * about


def test_steps_of_two_kinds():
    steps, p, delta = [(0.5, 20), (1.0, 5)], 0.1, 1e-6
    parts = [(n, [0.0, a], [1 - p, p], 1.0) for a, n in steps]
    rough = lower_epsilon(steps, p, delta, "remove", 4.0)
    found = lower_epsilon(steps, p, delta, "remove", 1.1 * rough)
    assert 0.5 < rough <= found < 4.0
    low, high = composed_mixture_delta(parts, found, "remove")
    assert high >= delta
    assert low <= 1.01 * delta


def test_bracket_of_independent_noise_is_closed():
    found = mmcc.bracket(strategies.identity(300), sampling.Poisson(0.02), sigma=1.5, delta=1e-6)
    assert 1 <= found.ratio < 1.001


def test_bracket_of_bands_in_cyclic_sampling_is_closed():
    strategy, scheme = strategies.toeplitz([1, 0.5, 0.3], 90), sampling.CyclicPoisson(0.2, 4)
    assert 1 <= mmcc.bracket(strategy, scheme, sigma=2.0, delta=1e-6).ratio < 1.001


@pytest.mark.parametrize("place", [1e-3, 0.05, 0.7, 33.0, 2200.0, 5e5, 1e9])
def test_the_tilt_is_the_best_of_all_that_are_tried(place):
    def convex(tilt):
        return math.cosh(math.log(tilt / place)) if tilt > place else math.log(place / tilt)

    found = _lowest(convex)
    assert convex(found) == min(convex(float(tilt)) for tilt in TILTS)
