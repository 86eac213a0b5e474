"""Claim: on random small mechanisms no method goes below enumeration of all participations.

Shapes alternate with the seed, so that each of the seven is there twice by default; 210
mechanisms and more are slow.

The truth is sampled, so it is compared with its own limit of four standard errors.  At equal delta
every epsilon is at least the smallest one, so the exact curve is needed there only.
"""

from __future__ import annotations

import pytest
from cases.samples import first
from oracles import truth
from oracles.mechanisms import Case, random_case

import mmcc
from mmcc import sampling, strategies

METHODS = {
    "tight": {"method": "tight"},
    "unamplified": {"method": "unamplified"},
    "release": {"method": "mmcc", "order": "release"},
    "reversed": {"method": "mmcc", "order": "reversed"},
    "heavy": {"method": "mmcc", "order": "heavy"},
}


def mechanism(case: Case):
    if case.separation == 1:
        return strategies.dense(case.matrix), sampling.Poisson(case.probability)
    scheme = sampling.CyclicPoisson(case.probability, case.separation)
    return strategies.dense(case.matrix), scheme


def lower_limit(case: Case, epsilon: float, seed: int, samples: int) -> float:
    """Delta at epsilon, worst group and adjacency, less four standard errors."""
    found = [
        truth.enumerated_delta(
            case.matrix,
            case.probability,
            case.sigma,
            epsilon,
            adjacency,
            samples=samples,
            seed=seed,
            columns=group,
        )
        for group in case.groups()
        for adjacency in truth.ADJACENCIES
    ]
    return max(mean - 4 * error for mean, error in found)


@pytest.mark.parametrize("seed", first(range(210), 6))
def test_epsilon_is_never_below_enumeration(seed):
    case = random_case(seed)
    found = {
        name: mmcc.epsilon(*mechanism(case), sigma=case.sigma, delta=case.delta, **options).epsilon
        for name, options in METHODS.items()
    }
    lowest = min(found, key=found.__getitem__)
    limit = lower_limit(case, found[lowest], seed, samples=10_000)
    assert limit <= case.delta, (lowest, found)


@pytest.mark.parametrize("seed", first(range(0, 210, 10), 2))
def test_delta_is_never_below_enumeration(seed):
    case = random_case(seed)
    epsilon = mmcc.epsilon(*mechanism(case), sigma=case.sigma, delta=case.delta).epsilon / 2
    found = {
        name: mmcc.delta(*mechanism(case), sigma=case.sigma, epsilon=epsilon, **options).delta
        for name, options in METHODS.items()
    }
    lowest = min(found, key=found.__getitem__)
    assert lower_limit(case, epsilon, seed, samples=10_000) <= found[lowest], (lowest, found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_epsilon_is_never_below_long_enumeration(seed):
    case = random_case(seed)
    lowest = min(
        mmcc.epsilon(*mechanism(case), sigma=case.sigma, delta=case.delta, **options).epsilon
        for options in METHODS.values()
    )
    assert lower_limit(case, lowest, seed, samples=50_000) <= case.delta
