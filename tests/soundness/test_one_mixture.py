"""Claim: one mixture of Gaussians, or one row of C, is never given less than its exact delta."""

from __future__ import annotations

import math

import pytest
from cases.samples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import truth

import mmcc
from mmcc import sampling, strategies

VALUES = st.just(0.0) | st.floats(1e-3, 12)


@st.composite
def laws(draw):
    """Sensitivities, probabilities that sum to one, and sigma."""
    values = draw(st.lists(VALUES, min_size=1, max_size=5))
    weights = draw(st.lists(st.floats(1e-4, 1), min_size=len(values), max_size=len(values)))
    total = math.fsum(weights)
    return values, [w / total for w in weights], draw(st.floats(0.3, 20))


@given(law=laws(), epsilon=st.floats(0, 8))
@example(law=([0.0, 1.0], [0.99, 0.01], 0.3), epsilon=0.0)
@example(law=([0.0, 5.0], [0.999, 0.001], 20.0), epsilon=1e-4)
@example(law=([0.0, 0.0], [0.5, 0.5], 1.0), epsilon=0.5)
@example(law=([0.001, 12.0], [0.9999, 1e-4], 0.3), epsilon=8.0)
@settings(max_examples=examples(20), deadline=None)
def test_delta_of_a_mixture_is_never_below_the_closed_form(law, epsilon):
    found = mmcc.pld.mixture_of_gaussians(*law)
    for adjacency in truth.ADJACENCIES:
        exact = truth.mixture_delta(*law, epsilon, adjacency)
        assert found.delta(epsilon, adjacency=adjacency) >= exact


@given(law=laws(), log_delta=st.floats(-12, -1))
@settings(max_examples=examples(40), deadline=None)
def test_epsilon_of_a_mixture_is_never_below_the_closed_form(law, log_delta):
    delta = 10**log_delta
    found = mmcc.pld.mixture_of_gaussians(*law).epsilon(delta)
    assert truth.worst(truth.mixture_delta, *law, found) <= delta


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 4.0, 8.0])
def test_a_middle_sensitivity_may_have_the_largest_loss(epsilon):
    """A published accountant reports 0.0134 at epsilon = 2, where the truth is 0.1287."""
    law = ([0.0, 0.442, 2.059, 8.539], [0.4897, 0.0276, 0.4721, 0.0106], 1.0)
    found = mmcc.pld.mixture_of_gaussians(*law).delta(epsilon)
    exact = truth.worst(truth.mixture_delta, *law, epsilon)
    assert exact <= found <= 1.001 * exact


@given(
    values=st.lists(st.floats(1e-3, 4), min_size=1, max_size=6),
    probability=st.floats(0.01, 0.99),
    sigma=st.floats(0.3, 20),
    log_delta=st.floats(-9, -1),
    method=st.sampled_from(["tight", "mmcc", "unamplified"]),
)
@settings(max_examples=examples(15), deadline=None)
def test_epsilon_of_a_single_row_is_never_below_the_closed_form(
    values, probability, sigma, log_delta, method
):
    delta = 10**log_delta
    found = mmcc.epsilon(
        strategies.dense([values]),
        sampling.Poisson(probability),
        sigma=sigma,
        delta=delta,
        method=method,
    )
    row = (values, [probability] * len(values), sigma)
    assert truth.worst(truth.product_mixture_delta, *row, found.epsilon) <= delta


@given(
    values=st.lists(st.floats(1e-3, 4), min_size=1, max_size=6),
    probability=st.floats(0.01, 0.99),
    sigma=st.floats(0.3, 20),
    epsilon=st.floats(0, 5),
)
@settings(max_examples=examples(15), deadline=None)
def test_delta_of_a_single_row_is_never_below_the_closed_form(values, probability, sigma, epsilon):
    found = mmcc.delta(
        strategies.dense([values]), sampling.Poisson(probability), sigma=sigma, epsilon=epsilon
    )
    row = (values, [probability] * len(values), sigma)
    assert truth.worst(truth.product_mixture_delta, *row, epsilon) <= found.delta
