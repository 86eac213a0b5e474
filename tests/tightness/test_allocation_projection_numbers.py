"""Claim: the projection's bracket under random allocation is as narrow as the docs say."""

from __future__ import annotations

import pytest

from mmcc import strategies
from mmcc.accounting._bounds.projection.bracket import ProjectionBracket
from mmcc.sampling import Allocation
from mmcc.strategies import Strategy

DELTA = 1e-5


def bands(count: int, steps: int) -> Strategy:
    return strategies.toeplitz(strategies.continual_counting(count).coefficients, steps)


def width(
    strategy: Strategy, epoch_steps: int, sigma: float, times: int = 1
) -> tuple[float, float]:
    """The lower end, and the upper one over it."""
    bracket = ProjectionBracket(strategy, Allocation(epoch_steps, times), sigma)
    low, high = bracket.lower_epsilon(DELTA).value, bracket.bound_epsilon(DELTA).value
    return low, high / low


@pytest.mark.parametrize(
    ("strategy", "sigma", "epsilon", "ratio"),
    [
        (strategies.continual_counting(80), 10.0, 1.2182, 1.001),
        (strategies.binary_tree(80), 8.0, 2.3841, 1.01),
        (bands(20, 80), 6.0, 1.3497, 1.01),
    ],
    ids=["counting", "tree", "bands"],
)
def test_few_epochs(strategy, sigma, epsilon, ratio):
    low, found = width(strategy, 20, sigma)
    assert low == pytest.approx(epsilon, rel=1e-3)
    assert 1 <= found <= ratio


@pytest.mark.parametrize(
    ("strategy", "times", "sigma", "epsilon", "ratio"),
    [
        (strategies.continual_counting(80), 2, 10.0, 2.6359, 1.001),
        (bands(20, 80), 5, 6.0, 8.5431, 1.016),
    ],
    ids=["counting", "bands"],
)
def test_several_participations_in_few_epochs(strategy, times, sigma, epsilon, ratio):
    """Draws that never repeat for two of twenty, draws with the same chances for five."""
    low, found = width(strategy, 20, sigma, times)
    assert low == pytest.approx(epsilon, rel=1e-3)
    assert 1 <= found <= ratio


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "epsilon", "poisson"), [(20.0, 1.9831, 2.0389), (10.38, 4.1711, 4.4402)]
)
def test_two_steps_of_every_epoch_are_below_poisson_sampling(sigma, epsilon, poisson):
    low, found = width(bands(100, 2000), 100, sigma, 2)
    assert low == pytest.approx(epsilon, rel=1e-4)
    assert 1 <= found <= 1.002
    assert low * found < poisson


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "epsilon", "ratio"),
    [
        (19.01, 0.9746, 1.001),
        (10.38, 1.9024, 1.002),
        (5.844, 3.6395, 1.006),
        (3.444, 6.7491, 1.02),
    ],
)
def test_a_hundred_bands_over_twenty_epochs(sigma, epsilon, ratio):
    low, found = width(bands(100, 2000), 100, sigma)
    assert low == pytest.approx(epsilon, rel=1e-4)
    assert 1 <= found <= ratio


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [112.0, 60.0, 32.5, 19.0])
def test_counting_over_twenty_epochs(sigma):
    """Epsilon from about .5 to 4."""
    low, found = width(strategies.continual_counting(2000), 100, sigma)
    assert 0.4 < low < 4.5
    assert 1 <= found <= 1.002
