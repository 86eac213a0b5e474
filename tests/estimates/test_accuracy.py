"""Claim: estimates agree with enumeration and quadrature, by every route."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cases.samples import first
from oracles.enumeration import enumerated_delta
from oracles.plane import plane_epsilon
from oracles.truth import composed_subsampled_gaussian_delta

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation.estimate import Budget, simulate
from mmcc._simulation.one_example import Mechanism


def random_case(seed):
    rng = np.random.default_rng([seed, 11])
    columns = int(rng.integers(2, 8))
    matrix = np.tril(rng.random((columns, columns))) + 0.2 * np.eye(columns)
    probability = float(rng.choice([0.05, 0.2, 0.5]))
    sigma = float(rng.choice([0.8, 2.0, 5.0])) * np.linalg.norm(matrix, axis=0).max()
    return matrix, probability, sigma, float(rng.choice([1e-3, 1e-6]))


def check_against_enumeration(matrix, probability, sigma, delta, found):
    """One per cent below the estimate delta is exceeded, one per cent above it is not."""

    def largest(epsilon):
        both = [
            enumerated_delta(matrix, probability, sigma, epsilon, side, absolute=1e-4 * delta)
            for side in ("remove", "add")
        ]
        return max(both, key=lambda value: value.mean)

    assert found.low <= found.epsilon <= found.high
    below, above = largest(0.99 * found.epsilon), largest(1.01 * found.epsilon)
    assert below.mean + 4 * below.error >= delta
    assert above.mean - 4 * above.error <= delta


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 20))]
)
def test_random_matrices(seed):
    matrix, probability, sigma, delta = random_case(seed)
    scheme = sampling.Poisson(probability)
    found = mmcc.estimate(strategies.dense(matrix), scheme, sigma=sigma, delta=delta)
    assert "exact" in found.method
    check_against_enumeration(matrix, probability, sigma, delta, found)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 8))]
)
def test_random_matrices_by_sampled_sets(seed):
    matrix, probability, sigma, delta = random_case(seed)
    mechanism = Mechanism(strategies.dense(matrix), sampling.Poisson(probability), sigma)
    found = simulate(mechanism, delta, Budget(2**16, 0.01, 0.99, seed, exact=False))
    assert "sampled" in found.method
    check_against_enumeration(matrix, probability, sigma, delta, found)


def test_transfer_matrix_against_composition():
    found = mmcc.estimate(strategies.identity(40), sampling.Poisson(0.05), sigma=1.5, delta=1e-5)
    assert "transfer matrix with 1 states" in found.method
    brackets = [
        composed_subsampled_gaussian_delta(40, 1.0, 0.05, 1.5, share * found.epsilon, "remove")
        for share in (0.99, 1.01)
    ]
    assert brackets[0][1] >= 1e-5 >= brackets[1][0]


def test_transfer_matrix_and_sampled_sets_agree():
    mechanism = Mechanism(strategies.toeplitz([1.0, 0.5, 0.3], 24), sampling.Poisson(0.1), 3.0)
    chain, sampled = (
        simulate(mechanism, 1e-5, Budget(2**16, 0.02, 0.99, 0, exact=exact))
        for exact in (True, False)
    )
    assert "transfer matrix with 4 states" in chain.method
    assert "sampled" in sampled.method
    assert chain.low <= sampled.high
    assert sampled.low <= chain.high
    assert sampled.epsilon == pytest.approx(chain.epsilon, rel=0.02)


TWO_ROWS = np.array([[0.9, 0.3, 0.5, 0.1], [0.0, 0.8, 0.2, 1.1]])


SCHEMES = [
    sampling.MinSeparation(0.3, 2),
    sampling.Shuffle(2),
    sampling.BallsInBins(2),
    sampling.RandomAllocation(4, 2),
    sampling.CyclicPoisson(0.3, 2),
]


def sets_of(scheme):
    """All participation sets of four steps and their probabilities, written out."""
    if isinstance(scheme, sampling.Shuffle):
        return list(itertools.product((0, 1), (2, 3))), [0.25] * 4
    if isinstance(scheme, sampling.RandomAllocation):  # any two of the four steps
        return list(itertools.combinations(range(4), 2)), [1 / 6] * 6
    if isinstance(scheme, sampling.BallsInBins):
        return [(0, 2), (1, 3)], [0.5] * 2
    if isinstance(scheme, sampling.CyclicPoisson):  # the second group is the worse one
        p = scheme.probability
        return [(), (1,), (3,), (1, 3)], [(1 - p) ** 2, p * (1 - p), p * (1 - p), p * p]
    p, q = scheme.probability, 1 - scheme.probability  # MinSeparation(p, 2)
    return (
        [(), (0,), (1,), (2,), (3,), (0, 2), (0, 3), (1, 3)],
        [q**4, p * q * q, q * p * q, q * q * p, q**3 * p, p * p, p * q * p, q * p * p],
    )


@pytest.mark.parametrize(
    ("scheme", "exact"),
    [
        *((scheme, True) for scheme in SCHEMES),
        *first([(scheme, False) for scheme in SCHEMES], 2),
    ],
    ids=repr,
)
def test_every_scheme_against_the_plane(scheme, exact):
    sets, probabilities = sets_of(scheme)
    assert sum(probabilities) == pytest.approx(1.0)
    shifts = [TWO_ROWS[:, list(s)].sum(axis=1) / 0.8 for s in sets]
    truth = plane_epsilon(shifts, probabilities, 1e-4)
    strategy = strategies.dense(TWO_ROWS, adaptive=False)
    if exact:
        found = mmcc.estimate(strategy, scheme, sigma=0.8, delta=1e-4, seed=1)
    else:
        group = 1 if isinstance(scheme, sampling.CyclicPoisson) else 0
        mechanism = Mechanism(strategy, scheme, 0.8, group)
        found = simulate(mechanism, 1e-4, Budget(2**16, 0.01, 0.99, 1, exact=False))
    assert ("exact" in found.method) == exact
    assert found.epsilon == pytest.approx(truth, rel=0.01)
    assert found.low <= truth * (1 + 1e-4)
    assert found.high >= truth * (1 - 1e-4)


def test_one_pass_of_a_shuffle_is_balls_in_bins():
    tree = strategies.binary_tree(16)
    shuffled = mmcc.estimate(tree, sampling.Shuffle(), sigma=4.0, delta=1e-5)
    bins = mmcc.estimate(tree, sampling.BallsInBins(16), sigma=4.0, delta=1e-5)
    assert (shuffled.low, shuffled.high) == (bins.low, bins.high)
    assert shuffled.setting == sampling.Shuffle().setting
    assert shuffled.setting.startswith("the 0-1 setting")
    assert bins.setting == ""


@pytest.mark.parametrize(
    "scheme", [sampling.Poisson(1e-9), sampling.BallsInBins(20)], ids=["Poisson", "bins"]
)
def test_epsilon_is_zero_where_delta_exceeds_the_total_variation(scheme):
    delta = 1e-6 if isinstance(scheme, sampling.Poisson) else 0.3
    found = mmcc.estimate(strategies.identity(20), scheme, sigma=1.0, delta=delta)
    assert (found.low, found.epsilon, found.high) == (0.0, 0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ratio", "lower", "upper"), [(10, 0.1752, 0.1753), (5, 0.4078, 0.4085), (3, 0.8183, 0.823)]
)
def test_counting_inside_its_certified_bracket(ratio, lower, upper):
    strategy = strategies.continual_counting(2048)
    sigma = ratio * float(np.linalg.norm(strategy.coefficients))
    found = mmcc.estimate(strategy, sampling.Poisson(1 / 2048), sigma=sigma, delta=1e-6)
    assert found.low <= upper
    assert found.high >= lower
    assert 0.98 * lower <= found.epsilon <= 1.02 * upper
    assert found.high - found.low <= 0.02 * found.epsilon
