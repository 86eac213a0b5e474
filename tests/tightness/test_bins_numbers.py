"""Claim: for balls-in-bins upper and lower bounds are close, and shuffled trees stay cheap."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.samples import first

import mmcc
from mmcc import sampling, strategies

DELTA = 1e-5


def ratio(strategy, scheme, sigma: float) -> tuple[float, float]:
    """Upper over lower, and the lower end."""
    found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=DELTA)
    return found.upper / found.lower, found.lower


@pytest.mark.parametrize(
    ("bins", "epochs", "sigma", "about", "most"),
    [
        (64, 1, 2.8, 1.0, 1.02),
        (100, 20, 127.0, 0.5, 1.003),
        (100, 20, 66.0, 1.0, 1.003),
        pytest.param(100, 20, 35.0, 2.0, 1.003, marks=pytest.mark.slow),
        pytest.param(100, 20, 19.3, 4.0, 1.003, marks=pytest.mark.slow),
        pytest.param(100, 20, 11.0, 8.0, 1.003, marks=pytest.mark.slow),
    ],
)
def test_counting_brackets_are_narrow(bins, epochs, sigma, about, most):
    counting = strategies.continual_counting(bins * epochs)
    found, lower = ratio(counting, sampling.BallsInBins(bins), sigma)
    assert lower == pytest.approx(about, rel=0.25)
    assert found <= most


@pytest.mark.parametrize(
    ("sigma", "most"), [(1.114, 3.69), pytest.param(0.7184, 6.95, marks=pytest.mark.slow)]
)
def test_one_epoch_of_counting_with_little_noise(sigma, most):
    """The projection alone: 4.000 and 8.000; simulation: 3.47 to 3.50 and 6.71 to 6.77."""
    counting = strategies.continual_counting(64)
    scheme = sampling.BallsInBins(64)
    assert mmcc.epsilon(counting, scheme, sigma=sigma, delta=DELTA).epsilon <= most


@pytest.mark.parametrize("sigma", [2.0, pytest.param(10.0, marks=pytest.mark.slow)])
def test_shuffled_trees_are_almost_exact(sigma):
    assert ratio(strategies.binary_tree(2**16), sampling.Shuffle(), sigma)[0] <= 1.002


@pytest.mark.parametrize(
    ("sigma", "sizes"),
    first([(2.0, (4, 16, 28)), (2.0, (4, 8, 12, 16)), (10.0, (4, 8, 12, 16))], 1),
)
def test_shuffled_trees_grow_ever_more_slowly(sigma, sizes):
    """With as many levels more each time: increments shrink, where without amplification
    epsilon grows like the square root of the number of levels, or faster.
    """
    shuffled, plain = [], []
    for levels in sizes:
        tree = strategies.binary_tree(2**levels)
        found = mmcc.bracket(tree, sampling.Shuffle(), sigma=sigma, delta=DELTA)
        alone = mmcc.epsilon(
            tree, sampling.Shuffle(), sigma=sigma, delta=DELTA, method="unamplified"
        )
        shuffled.append((found.lower, found.upper))
        plain.append(alone.epsilon)
    low, high = np.array(shuffled).T
    assert low[1] > high[0]
    assert np.all(high[1:] >= low[:-1])  # it grows
    most = high[1:] - low[:-1]
    assert np.all(most[1:] < 0.8 * most[:-1])  # less and less
    for k, (few, many) in enumerate(itertools.pairwise(sizes)):
        assert plain[k + 1] / plain[k] >= 0.99 * math.sqrt((many + 1) / (few + 1))
    assert high[-1] / low[0] < plain[-1] / plain[0]
