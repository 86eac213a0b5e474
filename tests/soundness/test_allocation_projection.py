"""Claim: under random allocation the projection's bracket holds the truth, side by side.

The truth sums over all participation sets (`oracles.allocation`), sampled to a standard error of
.2 % of delta at the most and compared at four standard errors.
"""

from __future__ import annotations

import math

import pytest
from cases.projection import AllocationCase, allocation_case
from oracles.allocation import allocation_delta
from oracles.truth import ADJACENCIES

from mmcc.accounting._bounds.projection.bracket import (
    _bound_delta,
    _bound_epsilon,
)
from mmcc.accounting._bounds.projection.lower import lower_delta, lower_epsilon
from mmcc.sampling import Allocation

ACCURACY = 0.002
ALL = range(300)
QUICK = range(12)


def true_delta(case: AllocationCase, epsilon: float, adjacency: str, seed: int, near: float):
    """The truth and its standard error, in units of `near`."""
    found = allocation_delta(
        case.matrix,
        case.epoch_steps,
        1,
        case.sigma,
        epsilon,
        adjacency,
        relative=0.9 * ACCURACY,
        absolute=0.9 * ACCURACY * near,
        seed=seed,
    )
    return found.mean / near, found.error / near


def check_epsilon(case: AllocationCase, adjacency: str, seed: int) -> tuple[float, float]:
    gram = case.strategy.bins_gram(case.strategy.steps, case.sigma)
    law = Allocation(case.epoch_steps)
    low = lower_epsilon(gram, law, case.delta, adjacency)
    high = _bound_epsilon(gram, law, case.delta, adjacency, low, enough=0.0)
    assert low.value <= high, (str(case), adjacency)
    if low.value > 0:
        mean, error = true_delta(case, low.value, adjacency, seed, case.delta)
        assert mean >= 1 - 4 * error, (str(case), adjacency, low.value, mean, error)
    if math.isfinite(high):
        mean, error = true_delta(case, high, adjacency, seed, case.delta)
        assert mean <= 1 + 4 * error, (str(case), adjacency, high, mean, error)
    return low.value, high


def check_delta(case: AllocationCase, adjacency: str, epsilon: float, seed: int) -> None:
    gram = case.strategy.bins_gram(case.strategy.steps, case.sigma)
    law = Allocation(case.epoch_steps)
    low = lower_delta(gram, law, epsilon, adjacency)
    high = _bound_delta(gram, law, epsilon, adjacency, low, 0.0)
    mean, error = true_delta(case, epsilon, adjacency, seed, case.delta)
    assert low.value / case.delta <= mean + 4 * error, (str(case), adjacency, epsilon)
    assert high / case.delta >= mean - 4 * error, (str(case), adjacency, epsilon)


def check(case: AllocationCase, seed: int) -> None:
    for adjacency in ADJACENCIES:
        low, high = check_epsilon(case, adjacency, seed)
        if math.isfinite(high) and seed % 3 == 0:
            check_delta(case, adjacency, 0.5 * (low + high), seed)


@pytest.mark.parametrize("seed", QUICK)
def test_true_epsilon_lies_in_the_bracket(seed):
    check(allocation_case(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_true_epsilon_lies_in_the_bracket_of_every_random_mechanism(seed):
    check(allocation_case(1000 + seed), seed)
