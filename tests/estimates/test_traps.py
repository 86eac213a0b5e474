"""Claim: estimates meet the certified bracket where a careless simulation would miss a part."""

from __future__ import annotations

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc.errors import PrecisionError, StrategyError

UNEQUAL = strategies.dense(np.diag([3.0, 2.0, 2.0, 2.0]))
LESS = strategies.dense(np.diag([3.0, 2.0, 1.0, 1.0]))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("strategy", "scheme", "sigma", "delta"),
    [
        (UNEQUAL, sampling.BallsInBins(4), 0.62, 1.8e-4),
        (LESS, sampling.BallsInBins(4), 1.107, 0.015),
        (strategies.toeplitz([1, 0.9], 8), sampling.BallsInBins(8), 0.15, 0.2),
        (strategies.identity(6), sampling.Poisson(0.3), 0.1, 0.2),
    ],
    ids=str,
)
def test_bins_far_from_the_threshold_are_seen(strategy, scheme, sigma, delta, seed):
    found = mmcc.estimate(strategy, scheme, sigma=sigma, delta=delta, seed=seed, width=0.03)
    ends = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta)
    assert found.low <= ends.upper
    assert found.high >= ends.lower


def test_the_worst_of_few_groups_is_found():
    """Even columns lie along one row, which any projection sees; odd ones are orthogonal."""
    matrix = np.zeros((7, 12))
    matrix[0, 0::2] = 0.316
    matrix[1 + np.arange(6), 1 + 2 * np.arange(6)] = 1.0
    strategy = strategies.dense(matrix, adaptive=False)
    given = {"sigma": 1.0, "delta": 1e-4}
    found = mmcc.estimate(strategy, sampling.CyclicPoisson(0.1, 2), **given, width=0.03)
    alone = mmcc.bracket(strategies.identity(6), sampling.Poisson(0.1), **given)
    assert "group 1" in found.method
    assert found.low <= alone.upper
    assert found.high >= alone.lower


@pytest.mark.parametrize("probability", [1e-300, 1e-20, 1e-7])
def test_who_hardly_ever_takes_part_shows_nothing(probability):
    scheme = sampling.Poisson(probability)
    found = mmcc.estimate(strategies.identity(16), scheme, sigma=2.0, delta=1e-5)
    assert (found.low, found.epsilon, found.high) == (0.0, 0.0, 0.0)


def test_what_cannot_be_simulated_is_refused():
    with pytest.raises(StrategyError, match="too large to simulate"):
        mmcc.estimate(
            strategies.identity(10**9), sampling.BallsInBins(10**6), sigma=2.0, delta=1e-5
        )


def test_strong_signals_do_not_look_like_blocked_steps():
    """exp(-|A_j|^2 / 2) underflows: the transfer matrix is not used."""
    strategy, scheme = strategies.toeplitz([1, 0.9], 14), sampling.Poisson(0.05)
    found = mmcc.estimate(strategy, scheme, sigma=0.04, delta=0.2, samples=4000, width=0.1)
    assert "sampled" in found.method
    assert found.high > mmcc.bracket(strategy, scheme, sigma=0.04, delta=0.2).lower


@pytest.mark.parametrize(
    ("probability", "delta", "truth"),
    [
        # One step, sigma 1: closed form, 40 digits by mpmath.
        (1e-6, 1e-9, 2.207292818963208e-05),
        (1e-6, 1e-12, 1.3148757522856482e-04),
        (1e-3, 1e-6, 2.183308589031925e-02),
        (0.1, 1e-12, 4.608247988231536),
    ],
)
def test_tiny_epsilons_are_not_read_off_a_coarse_grid(probability, delta, truth):
    scheme = sampling.Poisson(probability)
    found = mmcc.estimate(strategies.identity(1), scheme, sigma=1.0, delta=delta, seed=1)
    assert found.low <= truth <= found.high
    assert found.high - found.low <= 1e-3 * truth


@pytest.mark.parametrize("delta", [1e-12, 1e-15])
def test_an_epsilon_below_rounding_is_refused(delta):
    with pytest.raises(PrecisionError, match="epsilon"):
        mmcc.estimate(strategies.identity(1), sampling.Poisson(1e-9), sigma=1.0, delta=delta)
