"""Claim: distributions behave as privacy curves must, for any mixtures."""

from __future__ import annotations

import math
from fractions import Fraction

from cases.samples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mmcc
from mmcc.accounting._losses.gridded import put_on_grid

SETTINGS = settings(max_examples=examples(20), deadline=None)


@st.composite
def laws(draw):
    values = draw(st.lists(st.just(0.0) | st.floats(0.05, 4), min_size=1, max_size=4))
    weights = draw(st.lists(st.floats(0.01, 1), min_size=len(values), max_size=len(values)))
    total = math.fsum(weights)
    return values, [w / total for w in weights]


def distribution(law, sigma):
    return mmcc.pld.mixture_of_gaussians(*law, sigma)


@given(law=laws(), sigma=st.floats(0.5, 10), epsilons=st.tuples(*[st.floats(0, 6)] * 2))
@SETTINGS
def test_delta_never_grows_with_epsilon(law, sigma, epsilons):
    found = distribution(law, sigma).self_compose(3)
    assert found.delta(max(epsilons)) <= found.delta(min(epsilons)) * (1 + 1e-6) + 1e-300


@given(law=laws(), sigma=st.floats(0.5, 10), exponents=st.tuples(*[st.floats(-10, -1)] * 2))
@SETTINGS
def test_epsilon_never_grows_with_delta(law, sigma, exponents):
    found = distribution(law, sigma).self_compose(3)
    large, small = 10 ** max(exponents), 10 ** min(exponents)
    assert found.epsilon(large) <= found.epsilon(small) * (1 + 1e-4) + 1e-9


@given(law=laws(), sigmas=st.tuples(*[st.floats(0.5, 10)] * 2), log_delta=st.floats(-10, -1))
@SETTINGS
def test_epsilon_never_grows_with_sigma(law, sigmas, log_delta):
    """The exact curve is monotone; the bound is, up to the accuracy of its grid."""
    less = distribution(law, min(sigmas)).epsilon(10**log_delta)
    assert distribution(law, max(sigmas)).epsilon(10**log_delta) <= less * (1 + 1e-4) + 1e-9


@given(law=laws(), sigma=st.floats(0.5, 10), log_delta=st.floats(-10, -1))
@SETTINGS
def test_composing_never_lowers_epsilon(law, sigma, log_delta):
    one = distribution(law, sigma)
    single, double = one.epsilon(10**log_delta), one.compose(one).epsilon(10**log_delta)
    assert double >= single * (1 - 1e-4)


@given(
    three=st.tuples(laws(), laws(), laws()), sigma=st.floats(0.5, 10), log_delta=st.floats(-10, -2)
)
@SETTINGS
def test_composition_does_not_depend_on_the_order(three, sigma, log_delta):
    a, b, c = (distribution(law, sigma) for law in three)
    delta = 10**log_delta
    first, second = a.compose(b).compose(c).epsilon(delta), c.compose(b.compose(a)).epsilon(delta)
    assert math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)


@given(law=laws(), sigma=st.floats(0.5, 10), count=st.integers(1, 6), log_delta=st.floats(-10, -2))
@SETTINGS
def test_self_composition_is_repeated_composition(law, sigma, count, log_delta):
    one = distribution(law, sigma)
    step_by_step = one
    for _ in range(count - 1):
        step_by_step = step_by_step.compose(one)
    first, second = (
        step_by_step.epsilon(10**log_delta),
        one.self_compose(count).epsilon(10**log_delta),
    )
    assert math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)


@given(law=laws(), sigma=st.floats(0.5, 10), epsilon=st.floats(0.01, 6))
@SETTINGS
def test_epsilon_and_delta_undo_each_other(law, sigma, epsilon):
    """Up to the accuracy of the two grids, which are chosen for two different questions."""
    found = distribution(law, sigma).self_compose(2)
    delta = found.delta(epsilon)
    if 1e-12 < delta < 0.1:
        assert found.epsilon(delta) <= epsilon * (1 + 1e-2) + 1e-6


@given(law=laws(), sigma=st.floats(0.5, 10), epsilon=st.floats(0, 6))
@SETTINGS
def test_delta_is_the_larger_of_the_two_adjacencies(law, sigma, epsilon):
    found = distribution(law, sigma)
    sides = [found.delta(epsilon, adjacency=side) for side in ("remove", "add")]
    assert math.isclose(found.delta(epsilon), max(sides), rel_tol=1e-6, abs_tol=1e-12)


@given(law=laws(), sigma=st.floats(0.5, 10), scale=st.floats(0.1, 10), log_delta=st.floats(-10, -2))
@SETTINGS
def test_only_the_ratio_of_sensitivity_and_sigma_matters(law, sigma, scale, log_delta):
    values, probabilities = law
    first = mmcc.pld.mixture_of_gaussians(values, probabilities, sigma).epsilon(10**log_delta)
    scaled = [scale * v for v in values]
    second = mmcc.pld.mixture_of_gaussians(scaled, probabilities, scale * sigma)
    assert math.isclose(first, second.epsilon(10**log_delta), rel_tol=1e-6, abs_tol=1e-9)


@given(
    slacks=st.lists(st.floats(0, 0.3), min_size=1, max_size=4),
    count=st.integers(1, 10**6),
    gridded=st.booleans(),
)
@example(slacks=[0.1, 0.2], count=1, gridded=False)
@example(slacks=[1e-7], count=3, gridded=True)
@SETTINGS
def test_bad_events_are_never_less_likely_than_their_exact_sum(slacks, count, gridded):
    """A delta hardly above it has nothing but the last bit left."""
    one = distribution(([0.0, 1.0], [0.5, 0.5]), 1.0)
    parts = [mmcc.pld.conditional_composition([one], slack) for slack in slacks]
    whole = put_on_grid(parts[0], 0.1) if gridded else parts[0]
    exact = Fraction(slacks[0])
    for part, slack in zip(parts[1:], slacks[1:], strict=True):
        whole, exact = whole.compose(part), exact + Fraction(slack)
    whole = whole.self_compose(count)
    assert min(exact * count, 1) <= whole.slack <= min(exact * count, 1) * (1 + Fraction(1, 10**15))
