"""Claim: lower <= true <= upper, adjacency by adjacency, on random small mechanisms.

The truth sums over all participation sets (`oracles.enumeration`).  It is sampled, to a standard
error below 0.2 % of delta, and compared at four standard errors: delta at the certified upper
epsilon may not exceed the target, delta at the lower epsilon may not fall short of it.
"""

from __future__ import annotations

import math

import pytest
from cases.projection import BracketCase, bracket_case, bracket_of
from cases.samples import first
from oracles.enumeration import enumerated_delta
from oracles.truth import ADJACENCIES

from mmcc.accounting._bounds.projection.bracket import _bound_epsilon
from mmcc.accounting._bounds.projection.lower import lower_epsilon

ACCURACY = 0.002
QUICK = range(40)
ALL = range(400)


def true_delta(case: BracketCase, group: int, epsilon: float, adjacency: str, seed: int):
    """The truth in units of the target, and its standard error."""
    found = enumerated_delta(
        case.matrix,
        case.probability,
        case.sigma,
        epsilon,
        adjacency,
        columns=case.columns(group),
        relative=0.9 * ACCURACY,
        absolute=0.9 * ACCURACY * case.delta,
        seed=seed,
    )
    return found.mean / case.delta, found.error / case.delta


def check_bracket(case: BracketCase, seed: int, every_group: bool = True) -> None:
    separation = min(case.separation, case.strategy.steps)
    analysed = list(case.strategy.groups(separation))
    analysed = analysed if every_group else analysed[-1:]
    worst = {}
    for adjacency in ADJACENCIES:
        highest = 0.0
        for group in analysed:
            gram = case.strategy.gram(separation, group, case.sigma)
            low = lower_epsilon(gram, case.probability, case.delta, adjacency).value
            high = _bound_epsilon(gram, case.probability, case.delta, adjacency, enough=0.0)
            assert low <= high, (str(case), adjacency, group, low, high)
            if low > 0:
                mean, error = true_delta(case, group, low, adjacency, seed)
                assert mean >= 1 - 4 * error, (str(case), adjacency, group, low, mean, error)
            if math.isfinite(high):
                mean, error = true_delta(case, group, high, adjacency, seed)
                assert mean <= 1 + 4 * error, (str(case), adjacency, group, high, mean, error)
            highest = max(highest, high)
        others = set(range(separation)) - set(case.strategy.groups(separation))
        for group in others if math.isfinite(highest) else ():
            mean, error = true_delta(case, group, highest, adjacency, seed)
            assert mean <= 1 + 4 * error, (str(case), adjacency, group, highest, mean, error)
        worst[adjacency] = highest
    if every_group and seed % 5 == 0:
        found = bracket_of(case.strategy, case.scheme, case.sigma).bound_epsilon(case.delta)
        assert found.remove == pytest.approx(worst["remove"], rel=1e-4)
        # Below remove, add is not looked at closely.
        assert worst["add"] * (1 - 1e-4) <= found.add
        assert found.add <= max(worst["add"], found.remove) * (1 + 1e-4)


@pytest.mark.parametrize("seed", first(QUICK, 4))
def test_true_epsilon_lies_in_the_bracket(seed):
    check_bracket(bracket_case(seed, most=4), seed, every_group=False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_true_epsilon_lies_in_the_bracket_of_every_random_mechanism(seed):
    check_bracket(bracket_case(1000 + seed), seed)
