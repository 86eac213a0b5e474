"""Claim: no bound lies below two-dimensional quadrature, without any tolerance."""

from __future__ import annotations

import numpy as np
import pytest
from cases.samples import examples, sampled
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import truth

import mmcc
from mmcc import sampling, strategies

METHODS = [
    ("tight", {}),
    ("unamplified", {}),
    ("mmcc", {"order": "release"}),
    ("mmcc", {"order": "reversed"}),
    ("mmcc", {"order": "heavy"}),
]
PAIR = np.array([[1.0, 0.0], [0.5, 1.0]])
ENTRIES = st.floats(0.01, 4)


def exact_delta(matrix, probability, sigma, epsilon):
    """The quadrature's lower end, worse adjacency."""
    return max(
        truth.two_row_bracket(matrix, probability, sigma, epsilon, adjacency)[0]
        for adjacency in truth.ADJACENCIES
    )


@pytest.mark.parametrize(
    ("sigma", "delta", "method", "options"),
    sampled([0.5, 1.0, 4.0, 16.0], [1e-2, 1e-5, 1e-6, 1e-9], METHODS, strength=1),
)
def test_epsilon_of_the_reference_matrix(sigma, delta, method, options):
    found = mmcc.epsilon(
        strategies.dense(PAIR),
        sampling.Poisson(0.5),
        sigma=sigma,
        delta=delta,
        method=method,
        **options,
    )
    assert exact_delta(PAIR, 0.5, sigma, found.epsilon) <= delta


@pytest.mark.parametrize(
    ("epsilon", "method", "options"), sampled([0.0, 0.3, 1.0, 3.0], METHODS, strength=1)
)
def test_delta_of_the_reference_matrix(epsilon, method, options):
    found = mmcc.delta(
        strategies.dense(PAIR),
        sampling.Poisson(0.5),
        sigma=2.0,
        epsilon=epsilon,
        method=method,
        **options,
    )
    assert exact_delta(PAIR, 0.5, 2.0, epsilon) <= found.delta


@pytest.mark.parametrize("method", ["tight", "mmcc"])
def test_sigma_of_the_reference_matrix_is_enough(method):
    found = mmcc.sigma(
        strategies.dense(PAIR), sampling.Poisson(0.5), epsilon=1.0, delta=1e-6, method=method
    )
    assert exact_delta(PAIR, 0.5, found.sigma, 1.0) <= 1e-6


@given(
    diagonal=st.tuples(ENTRIES, ENTRIES),
    corner=st.just(0.0) | ENTRIES,
    probability=st.floats(0.01, 0.99),
    sigma=st.floats(0.3, 20),
    log_delta=st.floats(-9, -1),
    method=st.sampled_from(METHODS),
)
@settings(max_examples=examples(30), deadline=None)
def test_epsilon_of_any_two_steps(diagonal, corner, probability, sigma, log_delta, method):
    matrix = np.array([[diagonal[0], 0.0], [corner, diagonal[1]]])
    found = mmcc.epsilon(
        strategies.dense(matrix),
        sampling.Poisson(probability),
        sigma=sigma,
        delta=10**log_delta,
        method=method[0],
        **method[1],
    )
    assert exact_delta(matrix, probability, sigma, found.epsilon) <= 10**log_delta


@given(
    rows=st.lists(st.tuples(ENTRIES, ENTRIES), min_size=2, max_size=4),
    first=ENTRIES,
    probability=st.floats(0.01, 0.99),
    sigma=st.floats(0.5, 20),
    log_delta=st.floats(-7, -1),
    method=st.sampled_from(METHODS),
)
@settings(max_examples=examples(20), deadline=None)
def test_epsilon_of_two_steps_and_many_rows(rows, first, probability, sigma, log_delta, method):
    matrix = np.array([(first, 0.0), *rows])
    found = mmcc.epsilon(
        strategies.dense(matrix),
        sampling.Poisson(probability),
        sigma=sigma,
        delta=10**log_delta,
        method=method[0],
        **method[1],
    )
    assert exact_delta(matrix, probability, sigma, found.epsilon) <= 10**log_delta


@given(
    rows=st.tuples(*[st.lists(ENTRIES, min_size=5, max_size=5)] * 2),
    shared=st.integers(0, 4),
    probability=st.floats(0.01, 0.99),
    sigma=st.floats(0.5, 20),
    epsilon=st.floats(0.01, 4),
    method=st.sampled_from(METHODS),
)
@settings(max_examples=examples(25), deadline=None)
def test_delta_of_two_rows_and_five_steps(rows, shared, probability, sigma, epsilon, method):
    matrix = np.array(rows)
    matrix[0, shared + 1 :] = 0.0
    found = mmcc.delta(
        strategies.dense(matrix),
        sampling.Poisson(probability),
        sigma=sigma,
        epsilon=epsilon,
        method=method[0],
        **method[1],
    )
    assert exact_delta(matrix, probability, sigma, epsilon) <= found.delta


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_cyclic_groups_of_two_steps(method, options):
    """Four steps, separation two: the worse of two pairs of columns decides."""
    matrix = np.tril(np.array([[0.9], [0.4], [1.3], [0.2]]) * np.array([1.0, 0.5, 0.7, 2.0]))
    found = mmcc.epsilon(
        strategies.dense(matrix),
        sampling.CyclicPoisson(0.3, 2),
        sigma=2.0,
        delta=1e-6,
        method=method,
        **options,
    )
    for group in (matrix[:, ::2], matrix[:, 1::2]):
        assert exact_delta(group, 0.3, 2.0, found.epsilon) <= 1e-6
