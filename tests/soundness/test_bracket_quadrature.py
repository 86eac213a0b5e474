"""Claim: where delta is known to many digits, the bracket holds it without any tolerance.

Two rows or two columns: two-dimensional quadrature.  One column, one row, certain participation:
closed forms in 50 digits.  Independent rows: inversion of the moment generating function.  Each
oracle comes with its own error (about 1e-13 of the value, 1e-10 for the last), which is all that is
allowed for.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.projection import bracket_of
from cases.samples import first
from oracles import truth
from oracles.truth import ADJACENCIES

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._bounds.projection.bracket import _bound_epsilon
from mmcc.accounting._bounds.projection.lower import lower_delta, lower_epsilon

SIGMAS = (0.5, 0.9, 1.7, 4.0, 11.0, 30.0)
DELTAS = (1e-3, 1e-5, 1e-7, 1e-10)
PAIRED = list(zip(SIGMAS, itertools.cycle(DELTAS)))


def assert_bracketed(strategy, p: float, sigma: float, delta: float, bracket) -> None:
    """`bracket(epsilon, adjacency)` is a pair of numbers around the true delta."""
    gram = strategy.gram(1, 0, sigma)
    for adjacency in ADJACENCIES:
        low = lower_epsilon(gram, p, delta, adjacency).value
        high = _bound_epsilon(gram, p, delta, adjacency)
        assert low <= high
        if low > 0:
            assert bracket(low, adjacency)[1] >= delta, (adjacency, low, high)
        if math.isfinite(high):
            assert bracket(high, adjacency)[0] <= delta, (adjacency, low, high)
        at = 0.5 * (max(low, 0.0) + min(high, 2 * max(low, 0.1)))
        assert lower_delta(gram, p, at, adjacency).value <= bracket(at, adjacency)[1]


def two_rows(seed: int) -> tuple[np.ndarray, float]:
    """A matrix with two rows or two columns, and a sampling probability."""
    rng = np.random.default_rng([seed, 52])
    if seed % 4 == 3:
        matrix = np.tril(rng.uniform(0, 1, (2 + seed % 5, 2))) + np.eye(2 + seed % 5, 2) / 4
    else:
        n = int(rng.integers(2, 9))
        matrix = rng.uniform(0, 1, (2, n)) * (rng.random((2, n)) < (1.0, 0.6, 0.8)[seed % 4])
        matrix[1] += 0.05
        matrix[0, 0], matrix[0, 1] = rng.uniform(0.2, 1, 2)
    return matrix, float(np.exp(rng.uniform(np.log(0.02), np.log(0.95))))


def check_two_rows(seed: int) -> None:
    matrix, p = two_rows(seed)
    sigma, delta = SIGMAS[seed % len(SIGMAS)], DELTAS[seed // 2 % len(DELTAS)]

    def bracket(epsilon, adjacency):
        return truth.two_row_bracket(matrix, p, sigma, epsilon, adjacency)

    assert_bracketed(strategies.dense(matrix, adaptive=False), p, sigma, delta, bracket)


@pytest.mark.parametrize("seed", first(range(10), 3))
def test_two_rows_or_columns_lie_in_the_bracket(seed):
    check_two_rows(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_two_rows_or_columns_lie_in_the_bracket(seed):
    check_two_rows(seed)


def check_one_column(p: float, sigma: float, delta: float) -> None:
    def bracket(epsilon, adjacency):
        exact = truth.mixture_delta([0, 1], [1 - p, p], sigma, epsilon, adjacency)
        return float(exact) * (1 - 1e-15), float(exact) * (1 + 1e-15)

    assert_bracketed(strategies.dense(np.array([[0.6], [0.8]])), p, sigma, delta, bracket)


@pytest.mark.parametrize(
    ("p", "sigma", "delta"),
    [(0.02, 4.0, 1e-7), (0.4, 0.5, 1e-10), (0.95, 30.0, 1e-3), (0.2, 0.9, 1e-5)],
)
def test_one_column_lies_in_the_bracket(p, sigma, delta):
    check_one_column(p, sigma, delta)


@pytest.mark.slow
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("p", [0.02, 0.4, 0.95])
def test_one_column_always_lies_in_the_bracket(p, sigma, delta):
    check_one_column(p, sigma, delta)


@pytest.mark.parametrize(("sigma", "delta"), first(PAIRED[::2] + PAIRED[1::2], 3))
def test_one_row_lies_in_the_bracket(sigma, delta):
    row, p = np.array([[0.3, 1.0, 0.05, 0.7, 0.7]]), 0.2

    def bracket(epsilon, adjacency):
        exact = truth.product_mixture_delta(row[0], [p] * 5, sigma, epsilon, adjacency)
        return float(exact) * (1 - 1e-15), float(exact) * (1 + 1e-15)

    assert_bracketed(strategies.dense(row, adaptive=False), p, sigma, delta, bracket)


@pytest.mark.parametrize(
    ("steps", "p", "sigma", "delta"),
    [
        (4, 0.5, 2.0, 1e-6),
        (16, 0.1, 3.0, 1e-5),
        pytest.param(7, 0.3, 4.0, 1e-9, marks=pytest.mark.slow),
        pytest.param(40, 0.9, 20.0, 1e-4, marks=pytest.mark.slow),
        pytest.param(64, 0.05, 1.5, 1e-6, marks=pytest.mark.slow),
        pytest.param(200, 0.02, 2.0, 1e-8, marks=pytest.mark.slow),
        pytest.param(200, 0.3, 25.0, 1e-6, marks=pytest.mark.slow),
    ],
)
def test_composed_gaussians_lie_in_the_bracket(steps, p, sigma, delta):
    def bracket(epsilon, adjacency):
        return truth.composed_subsampled_gaussian_delta(steps, 1.0, p, sigma, epsilon, adjacency)

    assert_bracketed(strategies.identity(steps), p, sigma, delta, bracket)


def check_composed_rows(seed: int) -> None:
    """Rows with no column in common: independent scalar mixtures."""
    rng = np.random.default_rng([seed, 53])
    widths = rng.integers(1, 5, int(rng.integers(2, 6)))
    matrix = np.zeros((len(widths), int(widths.sum())))
    p, sigma = float(rng.uniform(0.05, 0.6)), float(np.exp(rng.uniform(np.log(1.5), np.log(12))))
    parts, start = [], 0
    for i, width in enumerate(widths):
        values = rng.uniform(0.2, 1.2, width)
        matrix[i, start : start + width] = values
        sets, logs = truth.participation_sets(int(width), p)
        parts.append((1, sets @ values, np.exp(logs), sigma))
        start += width

    def bracket(epsilon, adjacency):
        return truth.composed_mixture_delta(parts, epsilon, adjacency)

    assert_bracketed(strategies.dense(matrix), p, sigma, 10.0 ** -(3 + seed % 8), bracket)


@pytest.mark.parametrize("seed", range(2))
def test_composed_rows_lie_in_the_bracket(seed):
    check_composed_rows(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_more_composed_rows_lie_in_the_bracket(seed):
    check_composed_rows(seed)


@pytest.mark.parametrize(("sigma", "delta"), PAIRED)
def test_certain_participation_is_one_gaussian(sigma, delta):
    """Lower and upper are the same number but for rounding, and the truth lies between."""
    matrix = np.tril(np.random.default_rng(5).uniform(0, 1, (4, 4))) + np.eye(4)
    for separation in (1, 2):
        scheme = sampling.CyclicPoisson(1.0, separation)
        found = bracket_of(strategies.dense(matrix), scheme, sigma)
        length = max(
            np.linalg.norm(matrix[:, g::separation].sum(axis=1)) for g in range(separation)
        )
        low, high = found.lower_epsilon(delta), found.bound_epsilon(delta)
        for adjacency in ADJACENCIES:
            below, above = getattr(low, adjacency), getattr(high, adjacency)
            assert truth.gaussian_delta(length, sigma, above) <= delta
            assert truth.gaussian_delta(length, sigma, below) >= delta or below == 0
            assert below <= above
            assert below == pytest.approx(above, rel=1e-6, abs=1e-9)


def test_public_bracket_holds_the_truth():
    matrix, p = two_rows(1)
    found = mmcc.bracket(
        strategies.dense(matrix, adaptive=False), sampling.Poisson(p), sigma=2.0, delta=1e-6
    )

    def worst(epsilon, end):
        return max(truth.two_row_bracket(matrix, p, 2.0, epsilon, a)[end] for a in ADJACENCIES)

    assert worst(found.lower, 1) >= 1e-6
    assert worst(found.upper, 0) <= 1e-6
