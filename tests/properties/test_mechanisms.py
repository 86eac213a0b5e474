"""Claim: bounds for mechanisms move in the direction that the exact quantity moves in."""

from __future__ import annotations

import numpy as np
from cases.samples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.mechanisms import random_case

import mmcc
from mmcc import sampling, strategies

SETTINGS = settings(max_examples=examples(20), deadline=None)
ROWS = st.lists(st.floats(0.05, 3), min_size=1, max_size=5)


def row_epsilon(row, probability, sigma, delta=1e-6):
    return mmcc.epsilon(
        strategies.dense([row]), sampling.Poisson(probability), sigma=sigma, delta=delta
    ).epsilon


@given(row=ROWS, probability=st.floats(0.01, 1), sigmas=st.tuples(*[st.floats(0.3, 20)] * 2))
@SETTINGS
def test_one_row_is_monotone_in_sigma(row, probability, sigmas):
    less = row_epsilon(row, probability, min(sigmas))
    assert row_epsilon(row, probability, max(sigmas)) <= less * (1 + 1e-4) + 1e-9


@given(row=ROWS, probabilities=st.tuples(*[st.floats(0.01, 1)] * 2), sigma=st.floats(0.3, 20))
@SETTINGS
def test_one_row_is_monotone_in_the_probability(row, probabilities, sigma):
    more = row_epsilon(row, max(probabilities), sigma)
    assert row_epsilon(row, min(probabilities), sigma) <= more * (1 + 1e-4) + 1e-9


@given(row=ROWS, factor=st.floats(1, 3), place=st.integers(0, 4), sigma=st.floats(0.3, 20))
@SETTINGS
def test_one_row_is_monotone_in_every_entry(row, factor, place, sigma):
    larger = list(row)
    larger[place % len(row)] *= factor
    assert row_epsilon(row, 0.2, sigma) <= row_epsilon(larger, 0.2, sigma) * (1 + 1e-4) + 1e-9


@given(seed=st.integers(0, 500), factor=st.floats(1, 4))
@SETTINGS
def test_unamplified_is_monotone_in_sigma_for_any_matrix(seed, factor):
    case = random_case(seed)
    first, second = (
        mmcc.epsilon(
            strategies.dense(case.matrix),
            sampling.Poisson(case.probability),
            sigma=sigma,
            delta=case.delta,
            method="unamplified",
        ).epsilon
        for sigma in (case.sigma, factor * case.sigma)
    )
    assert second <= first * (1 + 1e-9)


@given(seed=st.integers(0, 500), scale=st.floats(0.1, 10))
@SETTINGS
def test_only_the_ratio_of_matrix_and_sigma_matters(seed, scale):
    case = random_case(seed)
    first, second = (
        mmcc.epsilon(
            strategies.dense(factor * case.matrix),
            sampling.Poisson(case.probability),
            sigma=factor * case.sigma,
            delta=case.delta,
            method="mmcc",
        ).epsilon
        for factor in (1.0, scale)
    )
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-9)


@given(seed=st.integers(0, 500))
@settings(max_examples=examples(8), deadline=None)
def test_sigma_gives_back_at_most_the_epsilon_asked_for(seed):
    case = random_case(seed)
    mechanism = (strategies.dense(case.matrix), sampling.Poisson(case.probability))
    found = mmcc.sigma(*mechanism, epsilon=1.0, delta=1e-5)
    again = mmcc.epsilon(*mechanism, sigma=found.sigma, delta=1e-5)
    assert again.epsilon <= 1.0


@given(seed=st.integers(0, 500))
@settings(max_examples=examples(15), deadline=None)
def test_a_guarantee_repeats_what_was_asked(seed):
    case = random_case(seed)
    mechanism = (strategies.dense(case.matrix), sampling.Poisson(case.probability))
    found = mmcc.epsilon(*mechanism, sigma=case.sigma, delta=case.delta, method="mmcc")
    assert (found.sigma, found.delta) == (case.sigma, case.delta)
    back = mmcc.delta(*mechanism, sigma=case.sigma, epsilon=found.epsilon, method="mmcc")
    assert (back.sigma, back.epsilon) == (case.sigma, found.epsilon)
    assert found.method.startswith("mmcc")
