"""Claim: numbers for truncated Poisson sampling hold for whole data sets, the others included.

The truth sums over all batches of all steps of 4 examples; 4 standard errors of simulation are the
only tolerance.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from oracles.mechanisms import random_matrix
from oracles.whole_data_sets import both_deltas

import mmcc
from mmcc import sampling, strategies
from mmcc.sampling._truncated_poisson import bound_binomial_tail

SHAPES = ("lower", "tree", "banded", "spiky", "one_row", "blocks")
METHODS = ("mmcc", "mmcc", "projection", "unamplified")
EXAMPLES, STEPS = 4, 3
PRECISE = 0.002
"""Standard error in units of delta, of the long loops."""


def binomial_tail(trials, probability, least):
    """P[Bin(m, p) >= k] term by term, each from the one before, in 40 digits."""
    if least <= 0 or least > trials:
        return mpmath.mpf(least <= 0)
    with mpmath.workdps(40):
        p = mpmath.mpf(probability)
        term = mpmath.binomial(trials, least) * p**least * (1 - p) ** (trials - least)
        total = term
        for k in range(least, trials):
            term *= p * (trials - k) / ((1 - p) * (k + 1))
            total += term
        return min(total, mpmath.mpf(1))


def random_mechanism(seed):
    """Gram matrix, contributions of everybody, and a scheme."""
    rng = np.random.default_rng([seed, 47])
    matrix = random_matrix(rng, SHAPES[seed % len(SHAPES)], STEPS)
    sigma = float(np.linalg.norm(matrix, axis=0).max() * math.exp(rng.uniform(-0.7, 1.0)))
    values = rng.integers(-1, 2, (EXAMPLES, STEPS))
    values[0] = 1
    if seed % 3:
        values[1:] = [0, -1, 1][seed % 3]  # nothing to hide behind, or what is cut is missed most
    p = float(math.exp(rng.uniform(math.log(0.02), math.log(0.9))))
    scheme = sampling.TruncatedPoisson(p, int(rng.integers(1, EXAMPLES + 1)), EXAMPLES)
    return matrix, sigma, values, scheme, float(rng.uniform(0.0, 2.0))


def precise_deltas(matrix, sigma, values, members, scheme, epsilon, relative):
    """Both adjacencies, with a standard error of this part of delta, or 1e-6."""
    gram = matrix.T @ matrix / sigma**2
    p, most = scheme.probability, scheme.largest_batch
    for points in (2**9, 2**11, 2**13, 2**15, 2**17):
        found = both_deltas(gram, values, members, p, most, epsilon, points=points)
        if all(error <= relative * delta + 1e-6 for delta, error in found):
            return found
    raise AssertionError(f"the simulation is not precise enough: {found}")


def check_whole_data_set(seed, members, method, relative=0.01):
    matrix, sigma, values, scheme, epsilon = random_mechanism(seed)
    values[list(members)] = 1
    group = {"group_size": len(members)}
    found = mmcc.delta(
        strategies.dense(matrix), scheme, sigma=sigma, epsilon=epsilon, method=method, **group
    )
    truth = precise_deltas(matrix, sigma, values, members, scheme, epsilon, relative)
    for side, (delta, error) in zip(("remove", "add"), truth, strict=True):
        assert delta - 4 * error <= found.details.get(side, found.delta)


def check_reduction(seed, members, relative=0.01):
    """The inequality itself, without what else our bounds lose."""
    matrix, sigma, values, scheme, epsilon = random_mechanism(seed)
    values[list(members)] = 1
    cut = precise_deltas(matrix, sigma, values, members, scheme, epsilon, relative)
    alone = np.zeros_like(values)
    alone[list(members)] = 1
    poisson = sampling.TruncatedPoisson(scheme.probability, EXAMPLES, EXAMPLES)
    whole = precise_deltas(matrix, sigma, alone, members, poisson, epsilon, relative)
    chance = scheme.relaxed(STEPS, len(members)).chance
    for (delta, error), (ours, our_error) in zip(cut, whole, strict=True):
        assert delta - 4 * error <= ours + 4 * our_error + chance


CASES = [
    (seed, members, METHODS[seed % len(METHODS)])
    for seed in range(300)
    for members in [(0, 3) if seed % 5 == 0 else (0,)]
]


@pytest.mark.parametrize(("seed", "members", "method"), CASES[:12])
def test_delta_is_above_that_of_every_whole_data_set(seed, members, method):
    check_whole_data_set(seed, members, method)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "members", "method"), CASES[12:])
def test_delta_is_above_that_of_every_whole_data_set_many(seed, members, method):
    check_whole_data_set(seed, members, method, PRECISE)


@pytest.mark.parametrize("seed", range(6))
def test_the_reduction_holds(seed):
    check_reduction(seed, (0,) if seed % 3 else (0, 3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 300))
def test_the_reduction_holds_many(seed):
    check_reduction(seed, (0,) if seed % 3 else (0, 3), PRECISE)


def test_the_chance_is_needed():
    """Poisson's own delta does not hold where an example may take the place of others.

    One of those whose coins came up takes part, and the others contribute the opposite.
    """
    scheme = sampling.TruncatedPoisson(0.2, 1, 4)
    values = np.array([[1, 1, 1], *[[-1, -1, -1]] * 3])
    (truth, error), _ = precise_deltas(np.eye(3), 1.0, values, (0,), scheme, 2.0, 0.01)
    asked = {"sigma": 1.0, "epsilon": 2.0, "method": "mmcc"}
    poisson = mmcc.delta(strategies.identity(3), sampling.Poisson(0.2), **asked)
    assert truth - 4 * error > poisson.delta
    assert truth - 4 * error <= mmcc.delta(strategies.identity(3), scheme, **asked).delta


def test_epsilon_leaves_room_for_the_chance():
    scheme = sampling.TruncatedPoisson(0.05, 3, 4)
    chance = float(STEPS * 0.05 * binomial_tail(3, 0.05, 3))
    asked = {"sigma": 1.0, "method": "mmcc"}
    strategy = strategies.identity(3)
    found = mmcc.epsilon(strategy, scheme, delta=1e-3, **asked)
    poisson = mmcc.epsilon(strategy, sampling.Poisson(0.05), delta=1e-3 - chance, **asked)
    assert 0 <= found.epsilon / poisson.epsilon - 1 < 1e-9
    assert (
        found.epsilon > mmcc.epsilon(strategy, sampling.Poisson(0.05), delta=1e-3, **asked).epsilon
    )
    again = mmcc.delta(strategy, scheme, epsilon=found.epsilon, **asked)
    assert again.delta <= 1e-3 * (1 + 1e-9)


@pytest.mark.parametrize("trials", [1, 2, 3, 10, 300])
def test_the_tail_is_bounded_from_above(trials):
    rng = np.random.default_rng(trials)
    for p in (1e-300, 1e-9, 0.01, 0.3, 0.5, 1 - 2.0**-53, *rng.random(3)):
        for least in {
            0,
            1,
            2,
            trials // 2,
            trials - 1,
            trials,
            trials + 1,
            *rng.integers(1, trials + 1, 5),
        }:
            found = bound_binomial_tail(trials, float(p), int(least))
            assert found >= binomial_tail(trials, float(p), int(least))
            assert found <= 1


@pytest.mark.parametrize(
    ("trials", "p", "least"), [(60_000, 256 / 60_000, 400), (10**6, 1e-4, 200)]
)
def test_the_tail_of_a_large_data_set(trials, p, least):
    with mpmath.workdps(60):
        exact = mpmath.betainc(least, trials - least + 1, 0, mpmath.mpf(p), regularized=True)
    assert exact <= bound_binomial_tail(trials, p, least) <= 1.02 * exact


def test_the_chance_of_groups_and_steps():
    """n (1 - (1-p)^k) P[Bin(N - k, p) > L - k], written out."""
    for members in (1, 2, 5):
        scheme = sampling.TruncatedPoisson(0.1, 9, 20)
        exact = (
            7 * (1 - mpmath.mpf(0.9) ** members) * binomial_tail(20 - members, 0.1, 10 - members)
        )
        assert exact <= scheme.relaxed(7, members).chance
