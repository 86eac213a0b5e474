"""Claim: composed subsampled Gaussians and mixtures are never below an independent inversion."""

from __future__ import annotations

import pytest
from cases.samples import examples, in_turn
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import truth

import mmcc
from mmcc import sampling, strategies

RUNS = [  # count, probability, sigma, epsilon: deltas from 0.5 down to 1e-19
    (16, 0.5, 0.7, 4.0),
    (64, 0.9, 2.0, 5.0),
    (100, 0.01, 0.6, 1.0),
    (128, 1 / 128, 1.0, 0.2),
    (1000, 0.01, 1.0, 1.0),
    (1000, 0.01, 1.0, 6.0),
    (10_000, 0.001, 1.0, 0.3),
    (400, 0.2, 8.0, 0.5),
    (400, 0.2, 8.0, 3.0),
]


def subsampled(count, probability, sigma):
    one = mmcc.pld.mixture_of_gaussians([0.0, 1.0], [1 - probability, probability], sigma)
    return one.self_compose(count)


def exact(adjacency, count, probability, sigma, epsilon):
    """The lower end of the oracle's bracket."""
    return truth.composed_subsampled_gaussian_delta(
        count, 1.0, probability, sigma, epsilon, adjacency
    )[0]


@pytest.mark.parametrize(("run", "adjacency"), in_turn(RUNS, truth.ADJACENCIES))
def test_delta_of_composed_subsampled_gaussians(run, adjacency):
    *mechanism, epsilon = run
    try:
        low = exact(adjacency, *run)
    except ArithmeticError as error:
        pytest.skip(str(error))
    assert subsampled(*mechanism).delta(epsilon, adjacency=adjacency) >= low


@pytest.mark.parametrize(
    ("delta", "mechanism"),
    in_turn([1e-3, 1e-6, 1e-9, 1e-12], [(128, 1 / 128, 1.0), (1000, 0.01, 1.0), (64, 0.5, 4.0)]),
)
def test_epsilon_of_composed_subsampled_gaussians(mechanism, delta):
    found = subsampled(*mechanism).epsilon(delta)
    assert exact("remove", *mechanism, found) <= delta
    assert exact("remove", *mechanism, found / 1.001) > delta  # and within 0.1 %


@pytest.mark.parametrize("method", ["tight", "mmcc"])
@pytest.mark.parametrize("mechanism", [(128, 1 / 128, 1.0), (64, 0.3, 3.0)])
def test_identity_strategy_is_a_composition(mechanism, method):
    count, probability, sigma = mechanism
    found = mmcc.epsilon(
        strategies.identity(count),
        sampling.Poisson(probability),
        sigma=sigma,
        delta=1e-6,
        method=method,
    )
    assert exact("remove", *mechanism, found.epsilon) <= 1e-6
    assert exact("remove", *mechanism, found.epsilon / 1.001) > 1e-6


@given(
    values=st.lists(st.floats(0.1, 3), min_size=1, max_size=3),
    weights=st.lists(st.floats(0.05, 1), min_size=4, max_size=4),
    sigma=st.floats(0.8, 8),
    counts=st.tuples(st.integers(4, 40), st.integers(4, 40)),
    epsilon=st.floats(0.05, 6),
)
@settings(max_examples=examples(25), deadline=None)
def test_composed_mixtures_are_never_below_the_inversion(values, weights, sigma, counts, epsilon):
    sensitivities = [0.0, *values]
    weights = weights[: len(sensitivities)]
    probabilities = [w / sum(weights) for w in weights]
    parts = [
        (counts[0], sensitivities, probabilities, sigma),
        (counts[1], [0.0, 1.0], [0.8, 0.2], 1.5 * sigma),
    ]
    found = mmcc.pld.mixture_of_gaussians(sensitivities, probabilities, sigma)
    found = found.self_compose(counts[0]).compose(subsampled(counts[1], 0.2, 1.5 * sigma))
    for adjacency in truth.ADJACENCIES:
        try:
            low, _ = truth.composed_mixture_delta(parts, epsilon, adjacency)
        except ArithmeticError:
            assume(adjacency == "add")
            continue
        if low > 1e-200:
            assert found.delta(epsilon, adjacency=adjacency) >= low


@pytest.mark.parametrize(
    ("epsilon", "mechanism"),
    in_turn([0.0, 0.5, 2.0, 8.0], [(2, 0.01, 0.3), (3, 0.5, 0.3), (3, 0.1, 0.5)]),
)
def test_few_steps_with_little_noise(mechanism, epsilon):
    """Where the inversion does not converge: outputs in bins, itself a proven lower bound."""
    count, probability, sigma = mechanism
    part = (count, [0.0, 1.0], [1 - probability, probability], sigma)
    for adjacency in truth.ADJACENCIES:
        low = truth.binned_lower_delta([part], epsilon, adjacency, 1200 if count == 2 else 120)
        assert subsampled(*mechanism).delta(epsilon, adjacency=adjacency) >= low
