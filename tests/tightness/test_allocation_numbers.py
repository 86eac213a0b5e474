"""Claim: random allocation of independent noise is a bracket of half a per cent, below Poisson."""

from __future__ import annotations

import pytest
from cases.samples import first

import mmcc
from mmcc import sampling, strategies

NOISE = strategies.identity(2000)
EPOCHS = [(1.1495, 1.913), (1.8428, 0.976), (0.8226, 3.760), (0.6434, 7.478)]
"""Sigma, and epsilon of 20 epochs of 100 steps at delta 1e-5 by a prototype of our own."""


@pytest.mark.parametrize(("sigma", "epsilon"), first(EPOCHS, 1))
def test_twenty_epochs(sigma, epsilon):
    found = mmcc.bracket(NOISE, sampling.RandomAllocation(100), sigma=sigma, delta=1e-5)
    assert found.upper == pytest.approx(epsilon, rel=2e-3)
    assert found.upper <= 1.001 * found.lower
    poisson = mmcc.bracket(NOISE, sampling.Poisson(1 / 100), sigma=sigma, delta=1e-5)
    assert found.upper < poisson.lower


@pytest.mark.parametrize(("bins", "low", "high"), [(8, 3.711, 3.726), (64, 1.792, 1.806)])
def test_one_epoch_lies_in_the_published_bracket(bins, low, high):
    """Sigma 1, delta 1e-8; and it is balls-in-bins."""
    noise, scheme = strategies.identity(bins), sampling.RandomAllocation(bins)
    found = mmcc.bracket(noise, scheme, sigma=1.0, delta=1e-8)
    assert low <= found.lower <= found.upper <= high
    assert found.upper <= 1.0003 * found.lower
    same = mmcc.bracket(noise, sampling.BallsInBins(bins), sigma=1.0, delta=1e-8)
    assert (found.lower, found.upper) == (same.lower, same.upper)


def test_epochs_of_whole_trees_compose():
    """The same tree in every epoch: more than one pass, less than without sampling."""
    trees, scheme = strategies.tree_restart(16, 3), sampling.RandomAllocation(4)
    found = mmcc.bracket(trees, scheme, sigma=2.0, delta=1e-5)
    assert found.upper <= 1.001 * found.lower
    once = mmcc.bracket(strategies.binary_tree(4), scheme, sigma=2.0, delta=1e-5)
    plain = mmcc.epsilon(trees, scheme, sigma=2.0, delta=1e-5, method="unamplified")
    assert once.upper < found.lower
    assert found.upper < plain.epsilon


@pytest.mark.parametrize(
    ("length", "times", "ratio"), first([(50, 10, 1.02), (100, 2, 1.005), (8, 2, 1.12)], 1)
)
def test_several_participations(length, times, ratio):
    """By blocks, which are those of one participation in shorter epochs; and a test."""
    noise = strategies.identity(4 * length)
    scheme = sampling.RandomAllocation(length, times)
    found = mmcc.bracket(noise, scheme, sigma=2.0, delta=1e-5)
    assert 0 < found.upper <= ratio * found.lower
    shorter = sampling.RandomAllocation(length // times)
    block = mmcc.epsilon(noise, shorter, sigma=2.0, delta=1e-5)
    assert found.upper == pytest.approx(block.epsilon, rel=1e-9)


@pytest.mark.parametrize("times", [1, 3])
def test_many_epochs_keep_their_lower_end(times):
    found = mmcc.bracket(
        strategies.identity(12_000), sampling.RandomAllocation(12, times), sigma=4.0, delta=1e-6
    )
    assert 1 < found.upper <= 1.01 * found.lower
