"""Claim: no participation that is allowed has a larger loss than the certificate of Unsampled.

The truth is the worst of all sets in fractions, and the Gaussian mechanism in 50 digits.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from cases.bins import SHAPES, build
from oracles.allowed_sets import exact_blt, exact_matrix, longest_squared
from oracles.truth import gaussian_delta

import mmcc
from mmcc import sampling, strategies

MECHANISMS = 300
KINDS = (*SHAPES, "blt", "repeated rows")


def mechanism(seed: int):
    """A strategy, its matrix in fractions, and the limits."""
    rng = np.random.default_rng([seed, 21])
    kind = KINDS[seed % len(KINDS)]
    steps = int(rng.integers(1, 11))
    separation = int(rng.integers(1, steps + 2))
    at_most = int(rng.integers(1, 7))
    if kind == "blt":
        buffers = int(rng.integers(1, 4))
        decay = rng.uniform(0.05, 0.999, buffers)
        scale = decay * rng.dirichlet(np.ones(buffers + 1))[:buffers]
        strategy = strategies.blt(steps, decay=decay, scale=scale)
        return strategy, exact_blt(steps, decay, scale), separation, at_most
    if kind == "repeated rows":
        once = np.tril(rng.choice([0.0, 0.5, 2.0], (steps, steps)))
        np.fill_diagonal(once, 1.0)
        matrix = np.repeat(once, 2, axis=0)
        return strategies.dense(matrix), exact_matrix(matrix), separation, at_most
    strategy, matrix = build(rng, kind, steps)
    return strategy, exact_matrix(matrix), separation, at_most


SEEDS = [
    pytest.param(seed, marks=() if seed < len(KINDS) else (pytest.mark.slow,))
    for seed in range(MECHANISMS)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_allowed_set_is_longer_and_one_is_as_long_as_said(seed):
    strategy, matrix, separation, at_most = mechanism(seed)
    scheme = sampling.Unsampled(separation, at_most)
    longest = longest_squared(matrix, separation, at_most)
    assert Fraction(scheme.sensitivity(strategy)) ** 2 >= longest
    assert Fraction(scheme.reached(strategy)) ** 2 <= longest


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gaussian_mechanism_lies_between_the_ends(seed):
    strategy, matrix, separation, at_most = mechanism(seed)
    scheme = sampling.Unsampled(separation, at_most)
    rng = np.random.default_rng([seed, 22])
    exact = longest_squared(matrix, separation, at_most)
    with mpmath.workdps(60):
        length = mpmath.sqrt(mpmath.mpf(exact.numerator) / exact.denominator)
    sigma = float(length) * float(np.exp(rng.uniform(-3, 3)))
    delta = float(10 ** rng.uniform(-12, -1))
    found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta)
    assert gaussian_delta(length, sigma, found.upper) <= delta
    if found.lower > 0:
        assert gaussian_delta(length, sigma, found.lower) >= delta
    epsilon = float(rng.uniform(0, 8))
    asked = mmcc.delta(strategy, scheme, sigma=sigma, epsilon=epsilon)
    truth = gaussian_delta(length, sigma, epsilon)
    assert asked.details.get("delta_lower", 0.0) <= truth <= asked.delta
    least = mmcc.sigma(strategy, scheme, epsilon=epsilon + 0.01, delta=delta)
    assert gaussian_delta(length, least.sigma, epsilon + 0.01) <= delta


def test_of_a_group_everyone_may_take_part_in_the_worst_steps():
    strategy, matrix, separation, at_most = mechanism(0)
    scheme = sampling.Unsampled(separation, at_most)
    exact = longest_squared(matrix, separation, at_most)
    with mpmath.workdps(60):
        length = 3 * mpmath.sqrt(mpmath.mpf(exact.numerator) / exact.denominator)
    found = mmcc.bracket(strategy, scheme, sigma=20.0, delta=1e-5, group_size=3)
    assert gaussian_delta(length, 20.0, found.upper) <= 1e-5
    assert gaussian_delta(length, 20.0, found.lower) >= 1e-5
