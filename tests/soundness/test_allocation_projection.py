"""Claim: under random allocation the projection's bracket holds the truth, side by side.

The truth sums over all participation sets (`oracles.allocation`), sampled to a standard error of
.2 % of delta at the most and compared at four standard errors.
"""

from __future__ import annotations

import math

import pytest
from cases.projection import AllocationCase, allocation_case, several_case
from oracles.allocation import allocation_delta
from oracles.truth import ADJACENCIES

from mmcc import strategies
from mmcc.accounting._bounds.projection import epochs
from mmcc.accounting._bounds.projection.bracket import (
    ProjectionBracket,
    _bound_delta,
    _bound_epsilon,
)
from mmcc.accounting._bounds.projection.lower import lower_delta, lower_epsilon
from mmcc.errors import MethodError
from mmcc.sampling import Allocation, Rounds

ACCURACY = 0.002
LARGEST = 700.0
"""Exponents of the oracle end there, so larger epsilons are not compared."""
ALL = range(300)
QUICK = range(6)
SEVERAL = (0, 1, 2, 3, 4, 10)


def true_delta(case: AllocationCase, epsilon: float, adjacency: str, seed: int, near: float):
    """The truth and its standard error, in units of `near`."""
    found = allocation_delta(
        case.matrix,
        case.epoch_steps,
        case.times,
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
    law = Allocation(case.epoch_steps, case.times)
    low = lower_epsilon(gram, law, case.delta, adjacency)
    high = _bound_epsilon(gram, law, case.delta, adjacency, low, enough=0.0)
    assert low.value <= high, (str(case), adjacency)
    if 0 < low.value < LARGEST:
        mean, error = true_delta(case, low.value, adjacency, seed, case.delta)
        assert mean >= 1 - 4 * error, (str(case), adjacency, low.value, mean, error)
    if high < LARGEST:
        mean, error = true_delta(case, high, adjacency, seed, case.delta)
        assert mean <= 1 + 4 * error, (str(case), adjacency, high, mean, error)
    return low.value, high


def check_delta(case: AllocationCase, adjacency: str, epsilon: float, seed: int) -> None:
    gram = case.strategy.bins_gram(case.strategy.steps, case.sigma)
    law = Allocation(case.epoch_steps, case.times)
    low = lower_delta(gram, law, epsilon, adjacency)
    high = _bound_delta(gram, law, epsilon, adjacency, low, 0.0)
    mean, error = true_delta(case, epsilon, adjacency, seed, case.delta)
    assert low.value / case.delta <= mean + 4 * error, (str(case), adjacency, epsilon)
    assert high / case.delta >= mean - 4 * error, (str(case), adjacency, epsilon)


def check(case: AllocationCase, seed: int) -> None:
    for adjacency in ADJACENCIES:
        low, high = check_epsilon(case, adjacency, seed)
        if high < LARGEST and seed % 3 == 0:
            check_delta(case, adjacency, 0.5 * (low + high), seed)


@pytest.mark.parametrize("seed", QUICK)
def test_true_epsilon_lies_in_the_bracket(seed):
    case = allocation_case(seed, most=2)
    adjacency = ADJACENCIES[seed // 2 % 2]
    low, high = check_epsilon(case, adjacency, seed)
    if math.isfinite(high) and seed % 6 == 0:
        check_delta(case, adjacency, 0.5 * (low + high), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_true_epsilon_lies_in_the_bracket_of_every_random_mechanism(seed):
    check(allocation_case(1000 + seed), seed)


@pytest.mark.parametrize("seed", SEVERAL)
def test_true_epsilon_of_several_participations_lies_in_the_bracket(seed):
    case = several_case(seed, most=4)
    adjacency = ADJACENCIES[seed // 2 % 2]
    low, high = check_epsilon(case, adjacency, seed)
    if math.isfinite(high) and seed % 6 == 0:
        check_delta(case, adjacency, 0.5 * (low + high), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_several_participations_in_every_random_mechanism(seed):
    check(several_case(1000 + seed), seed)


def test_one_epoch_is_one_of_as_many_bins():
    """And all steps of every epoch are every step."""
    strategy = strategies.continual_counting(8)
    for sampled, alike in (
        (Allocation(8), 8),
        (Allocation(1), Rounds(1.0, 1)),
        (Allocation(4, 4), Rounds(1.0, 1)),
    ):
        one, other = (ProjectionBracket(strategy, law, 4.0) for law in (sampled, alike))
        for ask in ("lower_epsilon", "bound_epsilon"):
            found, known = getattr(one, ask)(1e-5), getattr(other, ask)(1e-5)
            assert found.remove == pytest.approx(known.remove, rel=1e-9)
            assert found.add == pytest.approx(known.add, rel=1e-9)


def test_more_points_than_memory_holds_are_refused(monkeypatch):
    monkeypatch.setattr(epochs, "MOST_POINTS", 5)
    bracket = ProjectionBracket(strategies.continual_counting(8), Allocation(4), 4.0)
    with pytest.raises(MethodError, match="at most"):
        bracket.bound_epsilon(1e-5)
    assert bracket.lower_epsilon(1e-5).value > 0
