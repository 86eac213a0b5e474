"""Claim: a bound from elsewhere takes part in `tight` once it is registered, under its own name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles.rare_participation import step_delta

import mmcc
from extending.all_or_nothing import AllOrNothing
from mmcc import accounting, sampling, strategies
from mmcc.errors import MethodError

TREE, SEPARATED = strategies.binary_tree(8), sampling.MinSeparation(1e-3, 3)
ASKED = {"sigma": 2.0, "delta": 1e-6}


@pytest.fixture
def bound():
    ours = AllOrNothing()
    accounting.register(ours)
    yield ours
    accounting.unregister(ours)


def test_without_it_nothing_is_proven():
    with pytest.raises(MethodError, match="no amplification is proven"):
        mmcc.epsilon(TREE, SEPARATED, **ASKED)


def test_it_gives_the_smallest_number_where_nothing_else_is_proven(bound):
    found = mmcc.epsilon(TREE, SEPARATED, **ASKED)
    plain = mmcc.epsilon(TREE, SEPARATED, method="unamplified", **ASKED)
    assert found.bound == bound.name
    assert found.epsilon < 0.9 * plain.epsilon
    assert found.epsilon >= mmcc.estimate(TREE, SEPARATED, sigma=2.0, delta=1e-6).low
    assert mmcc.epsilon(TREE, SEPARATED, method=bound.name, **ASKED).epsilon == found.epsilon
    assert mmcc.bracket(TREE, SEPARATED, **ASKED).upper == found.epsilon


def test_it_calibrates_noise(bound):
    found = mmcc.sigma(TREE, SEPARATED, epsilon=1.0, delta=1e-6)
    plain = mmcc.sigma(TREE, SEPARATED, epsilon=1.0, delta=1e-6, method="unamplified")
    assert found.epsilon <= 1.0
    assert found.sigma < 0.95 * plain.sigma


def test_other_bounds_win_where_they_are_smaller(bound):
    scheme = sampling.Poisson(1 / 8)
    alone = mmcc.epsilon(TREE, scheme, method=bound.name, **ASKED)
    found = mmcc.epsilon(TREE, scheme, **ASKED)
    assert found.epsilon < alone.epsilon
    assert found.bound != bound.name


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("chance", [1e-3, 0.2, 0.9])
def test_it_is_above_the_truth_of_one_step(bound, chance, sigma):
    """No tolerance: many digits, both adjacencies."""
    one, scheme = strategies.identity(1), sampling.Poisson(chance)
    for delta in (1e-6, 1e-3):
        if delta < chance:
            found = mmcc.epsilon(one, scheme, sigma=sigma, delta=delta, method=bound.name)
            assert step_delta(chance, sigma, found.epsilon) <= delta
    for epsilon in np.geomspace(1e-3, 20, 5).tolist():
        found = mmcc.delta(one, scheme, sigma=sigma, epsilon=epsilon, method=bound.name)
        assert step_delta(chance, sigma, epsilon) <= found.delta


def test_a_name_is_given_once(bound):
    with pytest.raises(MethodError, match="already"):
        accounting.register(AllOrNothing())
    with pytest.raises(MethodError, match="subclass"):
        accounting.register(math.inf)


def test_afterwards_it_is_gone():
    ours = AllOrNothing()
    accounting.register(ours)
    accounting.unregister(ours)
    with pytest.raises(MethodError, match="unknown method"):
        mmcc.epsilon(TREE, SEPARATED, method=ours.name, **ASKED)
