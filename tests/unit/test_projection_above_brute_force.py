"""Claim: every part of the projection bound agrees with, or lies above, its brute-force value."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from cases.projection import forest_matrix
from cases.samples import first
from oracles.brute import Brute, convex_excess, random_brute
from scipy.special import expit, log_ndtr, ndtr

from mmcc import strategies
from mmcc.accounting._bounds.projection.high_orders import HighOrders, S
from mmcc.accounting._bounds.projection.line import Line
from mmcc.accounting._bounds.projection.lower import overlaps
from mmcc.accounting._bounds.projection.rest import BASIS, PoissonRest
from mmcc.accounting._bounds.projection.upper import (
    HIGHEST,
    LOWEST,
    NARROW,
    Projected,
    chord_weights,
    collinear,
    crossing,
)
from mmcc.strategies._gram import DenseGram, ForestGram

SEEDS = first(range(8), 4)


def gram_of(brute: Brute) -> DenseGram:
    return DenseGram(brute.A.T @ brute.A, 1.0, len(brute.A))


def rest_of(brute: Brute, t: np.ndarray) -> PoissonRest:
    gram = gram_of(brute)
    line = Line(overlaps(gram, brute.w), gram.counts, brute.p)
    return PoissonRest(gram, line, line.weights(t), brute.w)


def times(brute: Brute) -> np.ndarray:
    return np.array([-3.0, 0.0, 1.7, 4.0, 4.5 + 0.7 * brute.a.sum()])


# One direction.


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_are_sums_over_all_sets(seed):
    brute = random_brute(seed)
    rest = rest_of(brute, times(brute))
    weights = rest.weights
    for i, t in enumerate(weights.t):
        Z, omega = math.exp(weights.log_scale[i]), brute.omega(t)
        assert Z * weights.mass[i] == pytest.approx(omega.sum(), rel=1e-12)
        assert Z * weights.single[i] == pytest.approx(omega @ brute.sets, rel=1e-11)
        pairs = np.diag(weights.spare[i]) + rest.basis @ rest.core[i] @ rest.basis.T
        exact = (brute.sets.T * omega) @ brute.sets
        assert Z * pairs == pytest.approx(exact, rel=1e-10)
        phi = -t * t / 2 + weights.log_scale[i]
        assert weights.exponent[i] == pytest.approx(phi, abs=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
def test_tilted_law_lies_above_the_weights(seed):
    brute = random_brute(seed)
    weights = rest_of(brute, times(brute)).weights
    for i, t in enumerate(weights.t):
        u = weights.tilted[i]
        law = np.prod(np.where(brute.sets == 1, u, 1 - u), axis=1)
        assert np.all(brute.omega(t) <= math.exp(weights.log_scale[i]) * law * (1 + 1e-12))


@pytest.mark.parametrize("seed", SEEDS)
def test_tail_error_covers_the_exact_tail(seed):
    brute = random_brute(seed, most=10)
    line = Line(brute.a, np.ones(brute.a.size), brute.p)
    along = brute.sets @ brute.a
    for t in np.linspace(-9, 12 + brute.a.sum(), 23):
        for side, sign in (("above", 1.0), ("below", -1.0)):
            exact = brute.prior @ np.exp(log_ndtr(sign * (along - t)))
            value, error = line.tail(float(t), side)
            assert abs(value - exact) <= error + 1e-13 * exact
            if exact < 0.9:
                assert error <= 1e-9 * exact


def test_classes_are_columns_with_equal_overlaps():
    lumped = Line(np.array([0.7, 0.2]), np.array([3.0, 2.0]), 0.3)
    plain = Line(np.array([0.7, 0.7, 0.7, 0.2, 0.2]), np.ones(5), 0.3)
    t = np.array([-2.0, 1.0, 5.0])
    one, other = lumped.weights(t), plain.weights(t)
    assert one.log_scale == pytest.approx(other.log_scale, abs=1e-12)
    assert one.mass == pytest.approx(other.mass, rel=1e-12)
    assert one.single == pytest.approx(other.single[:, [0, 3]], rel=1e-12)
    assert lumped.tail(2.0, "above")[0] == pytest.approx(plain.tail(2.0, "above")[0], rel=1e-12)


# The rest beside it: the first two orders.


@pytest.mark.parametrize("seed", SEEDS)
def test_first_two_orders_are_rounded_up(seed):
    brute = random_brute(seed)
    rest = rest_of(brute, times(brute))
    inner = brute.inner
    for i, t in enumerate(rest.weights.t):
        omega = brute.omega(t) / math.exp(rest.weights.log_scale[i])
        first = float(np.sum((brute.rest @ (omega @ brute.sets)) ** 2))
        second = float(omega @ inner**2 @ omega) / 2
        trace = float(omega @ np.diag(inner))
        for found, exact in (
            (rest.linear[i], first),
            (rest.quadratic[i], second),
            (rest.trace[i], trace),
        ):
            assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-4) + 1e-9
        assert rest.lower_quadratic[i] <= second <= rest.lower_quadratic[i] * (1 + 1e-4) + 1e-9


def grouped_orders(A: np.ndarray, many: int, p: float, w: np.ndarray, t: float):
    """omega by how many columns of each kind take part; its mass, v, T_1, T_2 and trace."""
    mean = A @ (many * w)
    a = A.T @ mean / np.linalg.norm(mean)
    rest = A - np.outer(mean, a) / np.linalg.norm(mean)
    kinds = A.shape[1]
    counts = np.stack(np.meshgrid(*[np.arange(many + 1.0)] * kinds, indexing="ij"), -1)
    counts = counts.reshape(-1, kinds)
    logs = np.array([math.log(math.comb(many, k)) for k in range(many + 1)])
    logs = logs[counts.astype(int)].sum(1) + counts.sum(1) * math.log(p)
    logs += (kinds * many - counts.sum(1)) * math.log1p(-p)
    along, across = counts @ a, counts @ rest.T
    omega = np.exp(logs + t * along - along**2 / 2)
    second = (across.T * omega) @ across
    linear = float(np.sum((omega @ across) ** 2))
    return omega.sum(), linear, float(np.sum(second**2)) / 2, float(np.trace(second))


@pytest.mark.parametrize("seed", range(4))
def test_interpolated_orders_of_many_columns_are_rounded_up(seed):
    """More columns than the basis has points: columns of three kinds, summed by their counts."""
    rng = np.random.default_rng([seed, 62])
    many = BASIS // 3 + 3
    A = rng.uniform(0, 1, (3, 3)) * (0.1, 0.3, 0.5, 0.9)[seed]
    p, w = float(rng.uniform(0.02, 0.5)), rng.uniform(0.3, 1, 3)
    full = Brute(np.repeat(A, many, axis=1), p, np.repeat(w, many))
    assert full.A.shape[1] > BASIS
    rest = rest_of(full, np.array([-1.0, 2.0, 5.0]))
    for i, t in enumerate(rest.weights.t):
        Z = math.exp(rest.weights.log_scale[i])
        mass, first, second, trace = grouped_orders(A, many, p, w, t)
        assert Z * rest.weights.mass[i] == pytest.approx(mass, rel=1e-11)
        for found, exact in (
            (rest.linear[i], first / Z**2),
            (rest.quadratic[i], second / Z**2),
            (rest.trace[i], trace / Z),
        ):
            assert exact * (1 - 1e-11) <= found <= exact * (1 + 1e-3) + 1e-8
        assert rest.lower_quadratic[i] <= second / Z**2


@pytest.mark.parametrize("seed", SEEDS)
def test_square_lengths_cover_every_set(seed):
    brute = random_brute(seed)
    rest = rest_of(brute, np.array([1.0]))
    assert np.all(np.diag(brute.inner) <= rest.square_length(brute.sizes) * (1 + 1e-12))


# Higher orders.


def crowded(seed: int) -> Brute:
    """Likely participation: the bound for many participations is in use."""
    rng = np.random.default_rng([seed, 63])
    return Brute(rng.uniform(0, 1, (4, 7)) * (0.06, 0.18, 0.4)[seed % 3], 0.9, np.ones(7))


BRUTES = [*map(random_brute, range(4)), *map(crowded, range(3)), *map(random_brute, range(4, 8))]


@pytest.mark.parametrize("brute", first(BRUTES, 4))
def test_totals_lie_above_the_sum_over_all_pairs_of_sets(brute):
    high = HighOrders(rest_of(brute, times(brute)))
    limits = sorted({1, 2, 4, high.sizes})
    from_two, from_three = high.totals(limits)
    tight = 0
    for i, t in enumerate(high.rest.weights.t):
        Z2 = math.exp(2 * high.rest.weights.log_scale[i])
        for j, kmax in enumerate(limits):
            for k in range(0, S.size, 3):
                if S[k] * brute.inner.max() > 600:
                    continue
                two = brute.chaos(t, S[k], 2, kmax) / Z2
                three = brute.chaos(t, S[k], 3, kmax) / Z2
                assert from_two[j, k, i] >= two * (1 - 1e-9)
                assert from_three[j, k, i] >= three * (1 - 1e-9)
                tight += from_two[j, k, i] < 3 * two + 1e-20
    assert tight > 0  # it is a bound and no mere infinity


def test_crowded_cases_use_the_bound_for_many_participations():
    assert HighOrders(rest_of(crowded(0), np.array([2.0])))._smooth_parts


@pytest.mark.parametrize("seed", SEEDS)
def test_sizes_of_sets_have_the_tilted_law(seed):
    brute = random_brute(seed)
    high = HighOrders(rest_of(brute, times(brute)))
    for i, u in enumerate(high.rest.weights.tilted):
        law = np.prod(np.where(brute.sets == 1, u, 1 - u), axis=1)
        for k in range(high.sizes + 1):
            exact = law[brute.sizes == k].sum()
            assert exact * (1 - 1e-13) <= high.masses[i, k] <= exact * (1 + 1e-8)


def left_over(x: float, orders: int) -> float:
    """E (exp(g - x/2) less its orders below `orders`)_+, g ~ N(0, x)."""
    h = 5e-4
    n = np.arange(-14, 14 + math.sqrt(x), h)
    g = math.sqrt(x) * n
    value = np.exp(g - x / 2) - 1 - g - ((g**2 - x) / 2 if orders == 3 else 0.0)
    return h / math.sqrt(2 * math.pi) * float(np.exp(-(n**2) / 2) @ np.maximum(value, 0))


@pytest.mark.parametrize("seed", SEEDS)
def test_excluded_sets_cost_at_least_their_left_over_orders(seed):
    brute = random_brute(seed, most=6)
    high = HighOrders(rest_of(brute, times(brute)))
    lengths = np.diag(brute.inner)
    for orders in (2, 3):
        each = np.array([left_over(max(x, 1e-12), orders) for x in lengths])
        for kmax in range(1, brute.A.shape[1]):
            cost = high.excluded(kmax)
            for i, t in enumerate(high.rest.weights.t):
                out = brute.sizes > kmax
                exact = brute.omega(t)[out] @ each[out] / math.exp(high.rest.weights.log_scale[i])
                assert cost[i] >= exact * (1 - 1e-6)


def planned(seed: int, epsilon: float, delta: float = 1e-6):
    """A two-row mechanism, its bound near epsilon, and where e^epsilon is crossed."""
    brute = random_brute(seed, rows=2, most=6)
    t = np.linspace(-4, 60, 6401)
    mass = [math.log(brute.omega(x).sum()) for x in t]
    centre = float(t[np.searchsorted(mass, epsilon)])
    return brute, Projected(gram_of(brute), brute.p, brute.w, centre, delta)


@pytest.mark.parametrize("seed", SEEDS)
def test_excess_of_large_sets_covers_what_is_set_aside(seed):
    epsilon = 1.0
    brute, projected = planned(seed, epsilon)
    here = np.ones(len(projected.mass), np.bool_)
    z, h = np.linspace(-14, 20, 20001, retstep=True)
    density = h / math.sqrt(2 * math.pi) * np.exp(-(z**2) / 2)
    shifts = brute.across
    for limit in (1, 2):
        aside = 0.1 * projected.thresholds(epsilon)
        cost = projected.excess_of_large(limit, aside, here)
        for i in range(0, len(here), 9):
            t, Z = projected.rest.weights.t[i], math.exp(projected.rest.weights.log_scale[i])
            out = brute.sizes > limit
            omega, c = brute.omega(t)[out] / Z, shifts[out]
            large = omega @ (
                np.exp(np.multiply.outer(c, z) - c[:, None] ** 2 / 2)
                - 1
                - np.multiply.outer(c, z)
                - np.multiply.outer(c**2, z**2 - 1) / 2
            )
            exact = density @ np.maximum(large - aside[i], 0)
            assert cost[i] >= exact * (1 - 1e-5)


@pytest.mark.parametrize("epsilon", [0.05, 0.8, 3.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_excess_at_every_node_is_bounded(seed, epsilon):
    brute, projected = planned(seed, epsilon)
    recipe = projected.recipe(epsilon)
    for asked in (epsilon, 1.1 * epsilon, 0.7 * epsilon):  # a recipe is valid at any epsilon
        bounds = recipe.bound_excess(asked)
        for i in range(0, len(bounds), 5):
            t, Z = projected.rest.weights.t[i], math.exp(projected.rest.weights.log_scale[i])
            exact = brute.excess(t, math.exp(asked)) / Z
            rounding = 1e-13 * (brute.omega(t).sum() + math.exp(asked)) / Z
            assert bounds[i] >= exact - rounding, (t, bounds[i], exact)


# Quadrature.


def test_collinear_bound_is_the_excess_of_a_scalar_mixture():
    rng = np.random.default_rng(64)
    lengths = np.concatenate([[0.0], np.sort(rng.uniform(0.01, 2.5, 6))])
    weights = rng.dirichlet(np.ones(7), 12)
    thresholds = np.exp(np.linspace(-4, 9, 12))
    found = collinear(weights, lengths, thresholds)
    for w, threshold, bound in zip(weights, thresholds, found, strict=True):
        exact = convex_excess(w, lengths, threshold)
        slack = 1e-14 * (1 + threshold)
        assert exact - slack <= bound
        if threshold > 1:  # the root is within reach
            assert bound <= exact * (1 + 1e-7) + 1e-10 * (1 + threshold)


def test_collinear_bound_beyond_the_search_range_is_still_above():
    """Thresholds below all values and far above them; lengths far beyond the range of the root."""
    weights, lengths = np.array([[0.4, 0.6], [0.4, 0.6], [0.4, 0.6]]), np.array([0.0, 90.0])
    thresholds = np.array([0.3, 1.0, 1e100])
    found = collinear(weights, lengths, thresholds)
    assert found[0] >= 0.7
    assert np.all(found[1:] >= 0.6 * ndtr(90.0 - 60.0) * (1 - 1e-9))


def test_crossings_are_between_their_ends():
    """Straight lines, flat ones, exponentials and steps; levels on both sides and out of reach."""
    roots = np.array([-39.9, -1.0, 0.0, 17.3, 59.9, -70.0, 80.0, 3.0])
    steep = np.array([1.0, 1e-4, 30.0, 2.0, 0.1, 1.0, 1.0, 0.0])

    def straight(g):
        return steep * (g - roots), steep

    def bent(g):
        return np.logaddexp(0.0, steep * (g - roots)), steep * expit(steep * (g - roots))

    def jump(g):
        return np.where(g > roots, 1.0, -1.0), np.zeros(len(g))

    for rising in (straight, bent, jump):
        level = rising(roots)[0]
        low, high = crossing(rising, level)
        inside = (roots > LOWEST) & (roots < HIGHEST) & ((steep > 0) | (rising is jump))
        assert np.all(high - low <= 1.01 * NARROW)
        assert np.all((rising(low)[0] <= level)[inside])
        assert np.all((rising(high)[0] > level)[inside])
        assert low[5] == LOWEST
        assert high[6] == HIGHEST


def test_chord_weights_are_integrals_of_hats():
    t = np.concatenate([np.linspace(-6, 0, 7), np.linspace(0.1, 12, 9), [37.0]])
    left, right = chord_weights(t)
    found = np.append(left, 0.0) + np.append(0.0, right)
    with mpmath.workdps(40):
        for i, node in enumerate(t):
            exact = mpmath.mpf(0)
            for other in ([t[i - 1]] if i else []) + ([t[i + 1]] if i + 1 < len(t) else []):
                if abs(other - node) > 3:
                    continue
                width = mpmath.mpf(abs(other - node))
                sign = 1 if other > node else -1
                exact += mpmath.quad(
                    lambda s, n=node, w=width, g=sign: (
                        mpmath.exp(-g * mpmath.mpf(n) * s - s * s / 2) * (1 - s / w)
                    ),
                    mpmath.linspace(0, width, 8),
                )
            if i < len(t) - 2:
                assert float(exact) <= found[i] <= float(exact) * (1 + 1e-11)


# Gram matrices.


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 13, 20])
def test_forest_is_the_dense_gram_matrix_of_its_tree(steps):
    tree = strategies.binary_tree(steps)
    forest = tree.gram(1, 0, 1.5)
    assert isinstance(forest, ForestGram)
    matrix = forest_matrix(steps) / 1.5
    dense = DenseGram(matrix.T @ matrix, 1.0, steps)
    classes = np.repeat(np.arange(forest.counts.size), forest.counts.astype(int))
    assert classes.size == steps
    w = np.linspace(1, 2, forest.counts.size)
    a, full = overlaps(forest, w), overlaps(dense, w[classes])
    assert a[classes] == pytest.approx(full, rel=1e-12)
    vectors = np.random.default_rng(steps).uniform(0, 1, (forest.counts.size, 3))
    orders = [1, 2, 3, 4, 7]
    pairs = [
        (forest.product(vectors), dense.product(vectors[classes])),
        (forest.rest_product(a, vectors), dense.rest_product(full, vectors[classes])),
        (forest.absolute_sums(a, vectors), dense.absolute_sums(full, vectors[classes])),
        (forest.diagonal(), dense.diagonal()),
    ]
    for found, exact in pairs:
        assert found[classes] == pytest.approx(exact, rel=1e-11, abs=1e-12)
    sums = forest.power_sums(a, vectors, orders)
    exact = dense.power_sums(full, vectors[classes], orders)
    assert sums[:, classes] == pytest.approx(exact, rel=1e-10, abs=1e-12)
    assert forest.top_sums(a, 9) == pytest.approx(dense.top_sums(full, 9), rel=1e-11, abs=1e-13)
    assert forest.top_sums(a, 99) == pytest.approx(dense.top_sums(full, 99), rel=1e-11, abs=1e-13)
    lumped = np.linalg.eigvalsh(
        np.diag(np.sqrt(forest.counts)) @ small_matrix(forest) / np.sqrt(forest.counts)
    )
    free = [e.value for e in forest.free for _ in range(e.multiplicity)]
    every = np.sort(np.concatenate([lumped, free]))
    assert every == pytest.approx(np.linalg.eigvalsh(matrix.T @ matrix), abs=1e-10)


def small_matrix(gram) -> np.ndarray:
    """G on vectors that are constant on classes."""
    return gram.product(np.eye(gram.counts.size))


def test_free_eigenvalues_belong_to_their_class():
    """sum_l G_jl^2 over the columns of one class, from the spectrum of that class."""
    forest = strategies.binary_tree(13).gram(1, 0, 1.0)
    matrix = forest_matrix(13)
    gram, start = matrix.T @ matrix, 0
    for index, count in enumerate(forest.counts.astype(int)):
        block = gram[start : start + count, start : start + count]
        free = [e for e in forest.free if e.index == index]
        mean = forest.product(np.eye(forest.counts.size))[index, index]
        total = mean**2 + sum(e.multiplicity * e.value**2 for e in free)
        assert total == pytest.approx(float(np.sum(block**2)))
        start += count
