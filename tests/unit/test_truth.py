"""The oracles of tests/oracles/truth.py agree with each other and with published numbers."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from cases.samples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import truth
from oracles.mechanisms import counting_matrix, random_case, tree_matrix

PAIR = np.array([[1.0, 0.0], [0.5, 1.0]])
ADJACENCIES = pytest.mark.parametrize("adjacency", truth.ADJACENCIES)


def test_gaussian_delta_is_the_area_between_the_densities():
    with mpmath.workdps(30):
        area = mpmath.quad(
            lambda y: mpmath.npdf(y, 1, 2) - mpmath.e * mpmath.npdf(y, 0, 2), [4.5, 12, 30, 80]
        )  # the densities cross at sensitivity / 2 + epsilon sigma^2 / sensitivity = 4.5
        assert mpmath.almosteq(area, truth.gaussian_delta(1, 2, 1), 1e-20)


@ADJACENCIES
@given(
    values=st.lists(st.just(0.0) | st.floats(0.01, 6), min_size=1, max_size=4),
    weights=st.lists(st.floats(0.01, 1), min_size=4, max_size=4),
    epsilon=st.floats(0, 6),
)
@settings(max_examples=examples(30), deadline=None)
def test_mixture_delta_is_the_area_where_p_exceeds_e_epsilon_q(values, weights, epsilon, adjacency):
    probabilities = np.array(weights[: len(values)]) / sum(weights[: len(values)])
    y = np.linspace(-12, 25, 200_001)
    mixed = sum(q * np.exp(-((y - s) ** 2) / 2) for s, q in zip(values, probabilities, strict=True))
    idle = np.exp(-(y**2) / 2)
    p, q = (mixed, idle) if adjacency == "remove" else (idle, mixed)
    area = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (y[1] - y[0]) / math.sqrt(2 * math.pi)
    exact = truth.mixture_delta(values, probabilities, 1.0, epsilon, adjacency)
    assert float(exact) == pytest.approx(area, rel=1e-6, abs=1e-9)


def test_a_middle_sensitivity_can_matter_most():
    exact = truth.mixture_delta(
        [0, 0.442, 2.059, 8.539], [0.4897, 0.0276, 0.4721, 0.0106], 1.0, 2.0, "remove"
    )
    assert float(exact) == pytest.approx(0.1287, abs=5e-5)


@ADJACENCIES
def test_a_product_mixture_of_equal_values_is_a_binomial_mixture(adjacency):
    p, n = 0.3, 6
    binomial = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    scalar = truth.mixture_delta([0.7 * k for k in range(n + 1)], binomial, 1.3, 0.6, adjacency)
    product = truth.product_mixture_delta([0.7] * n, [p] * n, 1.3, 0.6, adjacency)
    assert float(product) == pytest.approx(float(scalar), rel=1e-13)


@pytest.mark.parametrize(
    ("sigma", "delta", "remove", "add"),
    [
        (1.0, 1e-5, 6.8836, 1.3154),
        (1.0, 1e-6, 7.8254, 1.3402),
        (4.0, 1e-5, 1.0096, 0.6474),
        (4.0, 1e-6, 1.1833, 0.7184),
    ],
)
def test_quadrature_gives_the_reference_epsilons_of_the_two_step_matrix(sigma, delta, remove, add):
    for adjacency, reference in (("remove", remove), ("add", add)):
        found = truth.smallest_epsilon(
            lambda e, a=adjacency: truth.two_row_delta(PAIR, 0.5, sigma, e, a), delta
        )
        assert found == pytest.approx(reference, abs=6e-5)


@ADJACENCIES
@pytest.mark.parametrize("sigma", [0.5, 1.0, 6.0])
def test_quadrature_depends_on_the_gram_matrix_only(adjacency, sigma):
    matrix = np.array([[1.0, 0.2, 0.0], [0.5, 1.0, 0.7]])
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0][:, :2]
    plain = truth.two_row_delta(matrix, 0.3, sigma, 0.4, adjacency)
    assert truth.two_row_delta(matrix[::-1], 0.3, sigma, 0.4, adjacency) == pytest.approx(
        plain, rel=1e-11
    )
    assert truth.two_row_delta(turn @ matrix, 0.3, sigma, 0.4, adjacency) == pytest.approx(
        plain, rel=1e-11
    )


@ADJACENCIES
def test_quadrature_of_the_identity_is_a_composition(adjacency):
    low, high = truth.composed_subsampled_gaussian_delta(2, 1.0, 0.4, 1.2, 0.7, adjacency)
    assert low <= truth.two_row_delta(np.eye(2), 0.4, 1.2, 0.7, adjacency) <= high


@ADJACENCIES
def test_quadrature_of_a_single_direction_is_the_closed_form(adjacency):
    row = np.array([0.4, 1.1, 0.9])
    for matrix in (np.outer([0.6, 0.8], row), row[None], np.outer([0.36, 0.48, 0.8], row)):
        found = truth.two_row_delta(matrix, 0.25, 0.8, 0.5, adjacency)
        exact = truth.product_mixture_delta(row, [0.25] * 3, 0.8, 0.5, adjacency)
        assert found == pytest.approx(float(exact), rel=1e-11)


@ADJACENCIES
@pytest.mark.parametrize(
    ("count", "sigma", "epsilon"), [(1, 1.0, 1.0), (64, 20.0, 2.5), (5, 0.3, 60)]
)
def test_mellin_inversion_brackets_composed_gaussians(count, sigma, epsilon, adjacency):
    low, high = truth.composed_subsampled_gaussian_delta(count, 1.0, 1.0, sigma, epsilon, adjacency)
    assert low < truth.gaussian_delta(mpmath.sqrt(count), sigma, epsilon) < high < low * (1 + 1e-8)


@ADJACENCIES
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_mellin_inversion_brackets_one_mixture(epsilon, adjacency):
    low, high = truth.composed_mixture_delta(
        [(1, [0.5, 1, 2], [0.2, 0.6, 0.2], 1.5)], epsilon, adjacency
    )
    exact = truth.mixture_delta([0.5, 1, 2], [0.2, 0.6, 0.2], 1.5, epsilon, adjacency)
    assert low < exact < high


@ADJACENCIES
def test_mellin_inversion_lies_just_above_binned_outputs(adjacency):
    parts = [(1, [0, 1, 2], [0.2, 0.6, 0.2], 1.0), (1, [0, 2, 3], [0.33, 0.34, 0.33], 2.0)]
    low, high = truth.composed_mixture_delta(parts, 0.5, adjacency)
    binned = truth.binned_lower_delta(parts, 0.5, adjacency, 1500)
    assert binned <= high
    assert binned >= low * (1 - 1e-4)


def test_mellin_inversion_gives_the_reference_epsilons():
    mixtures = [(3, [0, 1, 2], [0.2, 0.6, 0.2], 1.0), (2, [0, 2, 3], [0.33, 0.34, 0.33], 2.0)]
    assert _mellin_epsilon(mixtures, 1e-6, "remove") == pytest.approx(17.1931, abs=6e-5)
    sgd = [(128, [0.0, 1.0], [127 / 128, 1 / 128], 1.0)]
    assert _mellin_epsilon(sgd, 1e-6, "remove") == pytest.approx(0.8064, abs=6e-5)


def _mellin_epsilon(parts, delta, adjacency):
    return truth.smallest_epsilon(
        lambda e: truth.composed_mixture_delta(parts, e, adjacency)[0], delta
    )


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0, 20.0])
def test_enumeration_agrees_with_quadrature(sigma, adjacency):
    for epsilon in (0.01, 0.1, 1.0, 4.0):
        exact = truth.two_row_delta(PAIR, 0.2, sigma, epsilon, adjacency)
        mean, error = truth.enumerated_delta(PAIR, 0.2, sigma, epsilon, adjacency, samples=4000)
        if exact > 1e-9:
            assert abs(mean - exact) <= 4 * error <= 0.3 * exact


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_enumeration_agrees_with_composition_over_ten_steps(adjacency):
    for sigma, epsilon in ((0.8, 1.5), (2.0, 0.4), (6.0, 0.08)):
        low, high = truth.composed_subsampled_gaussian_delta(10, 1, 0.2, sigma, epsilon, adjacency)
        mean, error = truth.enumerated_delta(
            np.eye(10), 0.2, sigma, epsilon, adjacency, samples=4000
        )
        assert low - 4 * error <= mean <= high + 4 * error
        assert error <= 0.1 * mean


def test_enumeration_of_some_columns_is_enumeration_of_the_submatrix():
    case = random_case(3)
    columns = list(range(0, case.matrix.shape[1], 2))
    one = truth.enumerated_delta(case.matrix, 0.3, 2.0, 0.3, "remove", columns=columns)
    two = truth.enumerated_delta(case.matrix[:, columns], 0.3, 2.0, 0.3, "remove")
    assert one == two


@pytest.mark.parametrize(
    ("matrix", "sigma", "epsilon"),
    [
        (tree_matrix(8), 10.0, 0.722),
        (counting_matrix(8), 10 * np.linalg.norm(counting_matrix(8)[:, 0]), 0.272),
    ],
)
def test_enumeration_gives_the_reference_epsilons_for_eight_steps(matrix, sigma, epsilon):
    above, error = truth.enumerated_delta(
        matrix, 1 / 8, sigma, epsilon - 6e-4, "remove", samples=20_000, seed=1
    )
    assert above + 4 * error >= 1e-6
    below, error = truth.enumerated_delta(
        matrix, 1 / 8, sigma, epsilon + 6e-4, "remove", samples=20_000, seed=2
    )
    assert below - 4 * error <= 1e-6
    assert error <= 0.05 * below
