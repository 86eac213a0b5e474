"""Claim: errors, remainders and choices inside the projection bound are paid for, and not twice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from cases.projection import bracket_of
from oracles import truth
from oracles.brute import Brute, random_brute
from scipy.special import ndtr

from mmcc import sampling, strategies
from mmcc.accounting._bounds.projection.bins import BinsLine
from mmcc.accounting._bounds.projection.bracket import TOLERANCE, _solve
from mmcc.accounting._bounds.projection.high_orders import SERIES, HighOrders, S, _curvature
from mmcc.accounting._bounds.projection.line import Line
from mmcc.accounting._bounds.projection.lower import lower_epsilon, overlaps
from mmcc.accounting._bounds.projection.phases import leave_one_out
from mmcc.accounting._bounds.projection.quadratic import SUBSPACE, quadratic
from mmcc.accounting._bounds.projection.rest import BASIS, PoissonRest
from mmcc.accounting._bounds.projection.upper import (
    DEVIATIONS,
    KINDS,
    Projected,
    collinear,
    excess_by_law,
    excess_by_moments,
)
from mmcc.accounting._bounds.projection.upper_add import CELLS, SPACING, ProjectedAdd
from mmcc.accounting._bounds.projection.upper_add_moments import Deficit, NodesAround
from mmcc.strategies._gram import DenseGram, ForestGram


def gram_of(A: np.ndarray) -> DenseGram:
    return DenseGram(A.T @ A, 1.0, len(A))


def rest_of(A: np.ndarray, p: float, w: np.ndarray, t: list[float]) -> PoissonRest:
    gram = gram_of(A)
    line = Line(overlaps(gram, w), gram.counts, p)
    return PoissonRest(gram, line, line.weights(np.array(t)), w)


def column(a: float) -> DenseGram:
    """One column, nothing beside the direction: X_t = m(t) = 1 - p + p e^(ta - a^2/2)."""
    return DenseGram(np.array([[a * a]]), 1.0, 1)


# One direction.


@pytest.mark.parametrize("side", ["above", "below"])
@pytest.mark.parametrize(("p", "a"), [(1e-20, 20.0), (1e-12, 20.0), (1e-9, 12.0), (1e-4, 30.0)])
def test_tails_know_of_a_rare_column_far_away(p, a, side):
    """A copy of the tail a period away could hold all of that column."""
    line, sign = Line(np.array([a]), np.ones(1), p), 1 if side == "above" else -1
    with mpmath.workdps(40):
        for t in np.linspace(-2, a + 4, 14).tolist():
            exact = (1 - mpmath.mpf(p)) * mpmath.ncdf(-sign * t) + p * mpmath.ncdf(sign * (a - t))
            value, error = line.tail(t, side)
            assert abs(value - exact) <= error


@pytest.mark.parametrize("seed", range(4))
def test_tails_near_one_are_known_to_a_rounding(seed):
    brute = random_brute(seed)
    line = Line(brute.a, np.ones(brute.a.size), brute.p)
    assert line.tail(-12.0, "above")[1] <= 2.0**-51
    assert line.tail(brute.a.sum() + 12.0, "below")[1] <= 2.0**-51


@pytest.mark.parametrize(
    ("a", "many", "p", "t"),
    [(1e4, 1.0, 0.5, 5e3), (1e4, 1.0, 0.5, 4e3), (40.0, 1000.0, 1e-3, 38_000.0)],
)
@pytest.mark.parametrize("side", ["above", "below"])
def test_nothing_is_claimed_of_tails_beyond_floats(a, many, p, t, side):
    """Between two clusters thousands of deviations apart, and where a tail is e^-6000."""
    assert Line(np.array([a]), np.array([many]), p).tail(t, side)[1] == math.inf


@pytest.mark.parametrize("many", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("p", [0.01, 0.3])
def test_the_saddle_point_is_found_in_few_steps(monkeypatch, many, p):
    """Halving alone would need some thirty: theta + L'(theta) = t to nine digits."""
    line = Line(np.array([0.8, 0.3]), np.array([many, 2.0]), p)
    tilted, asked = Line.tilted, []
    monkeypatch.setattr(Line, "tilted", lambda *args: asked.append(1) or tilted(*args))
    for t in (-3.0, 1.0, 4.0, 0.4 * many):
        asked.clear()
        theta = float(line.saddle(np.array([t]))[0])
        assert len(asked) <= 20
        odds = p / (1 - p) * np.exp(theta * line.a)
        mean = float((line.a * line.counts) @ (odds / (1 + odds)))
        assert theta + mean == pytest.approx(t, abs=1e-7 * (1 + many))


@pytest.mark.parametrize("bins", [3, 40, 400])
def test_errors_of_bins_cover_their_shares(bins):
    a = np.random.default_rng(bins).uniform(0, 2, bins)
    t = np.array([-4.0, 0.3, 5.0])
    weights = BinsLine(a).weights(t)
    with mpmath.workdps(40):
        for i, x in enumerate(t.tolist()):
            omega = [mpmath.exp(x * mpmath.mpf(r) - mpmath.mpf(r) ** 2 / 2) for r in a.tolist()]
            total = mpmath.fsum(omega)
            assert abs(weights.log_scale[i] - mpmath.log(total / bins)) <= weights.error[i]
            for found, o in zip(weights.single[i].tolist(), omega, strict=True):
                assert abs(found - o / total) <= weights.error[i] * found


def test_tails_of_bins_are_known_to_eleven_digits():
    line = BinsLine(np.random.default_rng(3).uniform(0, 3, 9))
    for t, side in itertools.product((-5.0, 0.0, 2.0, 9.0), ("above", "below")):
        value, error = line.tail(t, side)
        assert error <= 1e-11 * value


# Lower bounds.


@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize("a", [0.3, 3.0, 20.0])
def test_the_best_threshold_is_found_far_away(a, adjacency):
    """Certain participation is the Gaussian mechanism, and thresholds are optimal for it."""
    found = lower_epsilon(column(a), 1.0, 1e-6, adjacency).value
    assert truth.gaussian_delta(a, 1.0, found) >= 1e-6
    assert truth.gaussian_delta(a, 1.0, found * (1 + 1e-5)) < 1e-6


@pytest.mark.parametrize("p", [0.03, 0.6])
def test_one_step_loses_nothing(p):
    """The threshold where the ratio of the two laws is e^eps."""

    def delta(epsilon: float) -> float:
        t = 2 * math.log((math.exp(epsilon) - 1 + p) / p) + 0.25
        return float((1 - p) * ndtr(-t) + p * ndtr(0.5 - t) - math.exp(epsilon) * ndtr(-t))

    projection = bracket_of(strategies.identity(1), sampling.Poisson(p), 2.0)
    found = projection.lower_epsilon(1e-5).remove
    assert found > 0
    assert delta(found * (1 + 1e-4)) < 1e-5 <= delta(found)
    assert projection.lower_delta(0.1).remove == pytest.approx(delta(0.1), rel=1e-8)
    assert projection.lower_delta(0.1).remove <= delta(0.1)


# Pair sums.


def pair_sums(units: np.ndarray, unit: float, p: float, t: float) -> np.ndarray:
    """V_ij for overlaps that are whole multiples of a unit, through the law of a_S."""
    found: dict[tuple[int, ...], float] = {}
    V = np.empty((units.size, units.size))
    for i, j in itertools.product(range(units.size), repeat=2):
        both = sorted({i, j})
        kind = tuple(sorted(units[both].tolist()))
        if kind not in found:
            law = np.ones(1)
            for k in np.delete(units, both).tolist():
                without, within = np.append(law, np.zeros(k)), np.append(np.zeros(k), law)
                law = (1 - p) * without + p * within
            along = unit * (np.arange(law.size) + sum(kind))
            found[kind] = p ** len(both) * float(law @ np.exp(t * along - along**2 / 2))
        V[i, j] = found[kind]
    return V


def test_residual_covers_what_interpolation_misses():
    """Overlaps so different that the basis is a bad one; one dimension beside the direction."""
    units = np.repeat([1, 2, 4, 8, 12, 16], 6)
    across = np.append(np.ones(units.size - 1), -1.0)
    w = np.append(np.ones(units.size - 1), units.size - 1.0)
    gram = gram_of(np.stack([0.25 * units, across]))
    line = Line(0.25 * units, gram.counts, 0.2)
    assert units.size > BASIS
    rest = PoissonRest(gram, line, line.weights(np.array([0.0, 4.0, 9.0, 15.0])), w)
    for i, t in enumerate(rest.weights.t):
        exact = pair_sums(units, 0.25, 0.2, t) / math.exp(rest.weights.log_scale[i])
        found = np.diag(rest.weights.spare[i]) + rest.basis @ rest.core[i] @ rest.basis.T
        assert abs(across @ (exact - found) @ across) / math.sqrt(2) <= rest.residual[i]
        norm = across @ exact @ across / math.sqrt(2)
        assert rest.lower_quadratic[i] <= norm**2 <= rest.quadratic[i]
        assert rest.residual[i] <= 1e-5 * norm


@pytest.mark.parametrize("scale", [1e-3, 1.0, 6.0])
def test_nothing_is_left_of_a_rest_with_as_many_dimensions_as_the_subspace(scale):
    rows = SUBSPACE + 1  # one of them is the direction
    A = scale * np.concatenate([np.eye(rows), np.eye(rows)[:, :11]], axis=1)
    w = np.random.default_rng(5).uniform(0.2, 1, A.shape[1])
    rest = rest_of(A, 0.1, w, [1.0])
    law = quadratic(rest, 0.1 * np.sqrt(rest.quadratic))
    assert np.all(law.left_quadratic <= 1e-8 * rest.quadratic)
    assert np.all(law.left_linear <= 1e-6 * rest.linear)


# Higher orders.


@pytest.mark.parametrize("x", [1e-9, 9e-4, 1e-3, 1.1e-3, 0.3, 5.0, 90.0, 699.0])
def test_curvature_is_rounded_up(x):
    with mpmath.workdps(40):
        exact = 2 * (mpmath.expm1(x) - x) / mpmath.mpf(x) ** 2
        assert exact <= _curvature(x) <= exact * (1 + max(1e-8, min(x, 1e-3)))


def test_curvature_beyond_floats_is_infinite():
    assert _curvature(701.0) == _curvature(1e6) == math.inf


@pytest.mark.parametrize("gap", [-1.0, 0.0, 1e-9, 1.0, 1e100, math.inf])
def test_unknown_moments_bound_nothing(gap):
    """A variance may be unknown, and all moments above it: no excess is ruled out."""
    unknown = np.full((S.size, 1), np.inf)
    assert excess_by_moments(unknown, np.array([gap]))[0] == math.inf
    known = np.append([[4.0]], unknown[1:], axis=0)
    if gap < math.inf:
        most = 2 / (math.sqrt(4 + gap**2) + gap)  # (sqrt(4 + gap^2) - gap) / 2
        assert excess_by_moments(known, np.array([gap]))[0] == pytest.approx(most, rel=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_second_order_of_small_sets_is_rounded_down(seed):
    """T_2 from all pairs of sets; little is lost where all sets are small enough."""
    brute = random_brute(seed)
    high = HighOrders(rest_of(brute.A, brute.p, brute.w, [-2.0, 1.0, 3.0]))
    for kmax in range(1, high.sizes + 1):
        found = high._lower_second(kmax)
        for i, t in enumerate(high.rest.weights.t):
            omega = brute.omega(t) / math.exp(high.rest.weights.log_scale[i])
            omega = np.where(brute.sizes <= kmax, omega, 0.0)
            exact = float(omega @ brute.inner**2 @ omega) / 2
            assert found[i] <= exact
            if kmax == high.sizes:
                assert found[i] >= exact * (1 - 1e-4) - 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_fourth_moment_of_poisson_counts(seed):
    """E (N^T G' N')^4 / 24 from the law of N, one node, so that its trace is exact."""
    rng = np.random.default_rng([seed, 71])
    A = rng.uniform(0, 1, (3, 3)) * (0.3, 1.0, 2.0, 0.7)[seed]
    rest = rest_of(A, (0.05, 0.3, 0.2, 0.6)[seed], rng.uniform(0.1, 1, 3), [1.5])
    u = rest.weights.tilted[0]
    counts = np.array(list(itertools.product(range(18), repeat=3)), dtype=float)
    factorials = np.array([math.factorial(k) for k in range(18)], dtype=float)
    law = np.exp(-u.sum()) * np.prod(u**counts / factorials[counts.astype(int)], axis=1)
    fourth = np.einsum("n,ni,nj,nk,nl->ijkl", law, *[counts] * 4, optimize=True)
    G = A.T @ A - np.outer(rest.line.a, rest.line.a)
    moved = np.einsum("ai,bj,ck,dl,ijkl->abcd", G, G, G, G, fourth, optimize=True)
    exact = float(np.sum(fourth * moved)) / 24
    assert exact <= HighOrders(rest).fourth[0] <= exact * (1 + 1e-7)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.99])
def test_the_series_is_long_enough_or_infinite(share):
    """log E cosh(x Y_j), Y_j = sum_l G'_jl N_l, at x with x max G' up to SERIES + 1."""
    rng = np.random.default_rng(72)
    A = rng.uniform(0, 1, (3, 5))
    high = HighOrders(rest_of(A, 0.2, rng.uniform(0.1, 1, 5), [-1.0, 2.0]))
    G = A.T @ A - np.outer(high.rest.line.a, high.rest.line.a)
    x = share * (SERIES + 1) / high.rest.tops[0]
    found = high._log_series(np.array([x]))[0]
    for i, u in enumerate(high.rest.weights.tilted):
        both = np.stack([np.expm1(x * G) @ u, np.expm1(-x * G) @ u])
        exact = np.max(np.logaddexp(*both) - math.log(2))
        assert exact <= found[i] < math.inf
        assert found[i] <= np.max(np.expm1(x * np.abs(G)) @ u) / (1 - share) + exact
    beyond = high._log_series(np.array([x / share * 1.01]))
    assert np.all(beyond == math.inf)


def crowd(seed: int) -> tuple[np.ndarray, HighOrders]:
    """Many columns, each unlikely, with a direction that is far from their mean."""
    rng = np.random.default_rng([seed, 73])
    A = rng.uniform(0, 1, (3, 60)) * (0.1, 0.2, 0.4)[seed]
    w = np.where(A[0] > A[1], 1.0, 0.02)
    rest = rest_of(A, 0.1, w, [0.5, 2.0])
    return A.T @ A - np.outer(rest.line.a, rest.line.a), HighOrders(rest)


@pytest.mark.parametrize("seed", range(3))
def test_moments_of_many_participations(seed):
    """Under the law of S tilted by e^(s <1_S, h>): its mean, and even moments of G' 1_S."""
    G, high = crowd(seed)
    assert high._smooth_parts
    for s, (first, logs, moments) in high._smooth_parts.items():
        for i, u in enumerate(high.rest.weights.tilted):
            h = G @ u
            terms = np.log1p(u * np.expm1(s * h))
            assert logs[i] == pytest.approx(terms.sum(), rel=1e-11)
            with mpmath.workdps(30):
                left = mpmath.expm1(mpmath.fsum(terms)) - s * mpmath.fsum(u * h)
            assert first[i] == pytest.approx(float(left), rel=1e-9, abs=1e-12)
            tilted = u * np.exp(s * h - terms)
            exact = even_moments(G, tilted, 3) @ u / u.sum()
            exact /= [math.factorial(m) for m in (1, 2, 3)]
            assert np.all(moments[:3, i] >= exact)
            assert moments[0, i] <= 2 * exact[0]


def even_moments(G: np.ndarray, u: np.ndarray, most: int) -> np.ndarray:
    """E g_l^2m for m = 1 .. most and every l, g = G 1_S: one column more at a time."""
    moments = np.zeros((2 * most + 1, len(G)))
    moments[0] = 1.0
    for g, chance in zip(G.T, u, strict=True):
        more = [
            sum(math.comb(r, i) * g ** (r - i) * moments[i] for i in range(r + 1))
            for r in range(2 * most + 1)
        ]
        moments = (1 - chance) * moments + chance * np.array(more)
    return moments[2::2]


@pytest.mark.parametrize("length", [0.01, 0.1, 0.5])
def test_sets_left_out_cost_little_more_than_their_left_over_orders(length):
    """E(Y)_+ of centred Y is at most half a standard deviation; of sets with one member."""
    A = np.array([[1.0, 1.0], [length, -length]])
    high = HighOrders(rest_of(A, 1e-4, np.ones(2), [0.0]))
    z, h = np.linspace(-12, 12, 48_001, retstep=True)
    left = np.exp(length * z - length**2 / 2) - 1 - length * z
    each = h / math.sqrt(2 * math.pi) * float(np.exp(-(z**2) / 2) @ np.maximum(left, 0))
    exact = high.rest.weights.tilted[0].sum() * each
    assert exact * (1 - 1e-3) <= high.excluded(0)[0] <= 1.6 * exact


@pytest.mark.parametrize("u", [0.2, 0.6, 0.95, 1 - 1e-13])
def test_sizes_with_one_member_known_allow_for_errors_of_the_masses(u):
    """P(j in S, |S| = k) from masses with relative errors of up to 1e-10."""
    rng = np.random.default_rng(74)
    probs = np.array([u, 0.3, 0.97, 0.5, 0.05, u])
    sets = np.array(list(itertools.product((0, 1), repeat=probs.size)))
    with mpmath.workdps(40):
        factors = [[1 - mpmath.mpf(x), mpmath.mpf(x)] for x in probs.tolist()]
        law = np.array([mpmath.fprod(f[k] for f, k in zip(factors, s, strict=True)) for s in sets])
        sizes = sets.sum(axis=1)
        exact = np.array([sum(law[sizes == k]) for k in range(probs.size + 1)])
        for errors in (-np.ones(7), *rng.choice([-1.0, 1.0], (4, 7))):
            masses = np.array(exact * (1 + mpmath.mpf(0.99e-10) * errors), dtype=float)
            bounds = leave_one_out(probs, masses)
            for k, j in itertools.product(range(1, probs.size + 1), range(probs.size)):
                true = sum(law[(sizes == k) & (sets[:, j] == 1)])
                assert bounds[k - 1, j] >= true


# Choices: any is valid, the best one is made.


def planned(seed: int, epsilon: float) -> tuple[Brute, Projected]:
    brute = random_brute(seed, rows=2, most=6)
    t = np.linspace(-4, 60, 6401)
    mass = [math.log(brute.omega(x).sum()) for x in t]
    centre = float(t[np.searchsorted(mass, epsilon)])
    return brute, Projected(gram_of(brute.A), brute.p, brute.w, centre, 1e-6)


def choices(projected: Projected) -> list[tuple[int, int, int]]:
    """Places of limit and share, with one kind for each pair."""
    pairs = itertools.product(range(len(projected.limits)), range(len(projected.shares)))
    return [(i, j, (3 * i + j) % KINDS) for i, j in pairs]


@pytest.mark.parametrize("seed", range(4))
def test_every_choice_bounds_the_excess(seed):
    epsilon = 0.8
    brute, projected = planned(seed, epsilon)
    recipe, weights = projected.recipe(epsilon), projected.rest.weights
    nodes = np.arange(0, len(weights.t), 8)
    scale = np.exp(weights.log_scale[nodes])
    exact = np.array([brute.excess(t, math.exp(epsilon)) for t in weights.t[nodes]]) / scale
    for i, j, kind in choices(projected):
        recipe.moments = np.tile([[i], [j]], weights.t.size)
        recipe.fourier = np.tile([[i], [j], [kind]], weights.t.size)
        rounding = 1e-13 * (math.exp(epsilon) / scale + 1)
        assert np.all(recipe.bound_excess(epsilon)[nodes] >= exact - rounding)


@pytest.mark.parametrize("seed", range(2))
def test_the_choice_made_is_best(seed):
    """Of all limits and shares, and for the law of the first two orders of all shares and kinds."""
    epsilon = 0.8
    _, projected = planned(seed, epsilon)
    recipe = projected.recipe(epsilon)
    best = recipe.bound_excess(epsilon) * (1 - 1e-12)
    moments, fourier = recipe.moments.copy(), recipe.fourier.copy()
    for i, j, kind in choices(projected):
        recipe.moments, recipe.fourier = np.tile([[i], [j]], best.size), fourier
        assert np.all(recipe.bound_excess(epsilon) >= best)
        recipe.moments = moments
        recipe.fourier = np.array([fourier[0], np.full(best.size, j), np.full(best.size, kind)])
        assert np.all(recipe.bound_excess(epsilon) >= best)


@pytest.mark.parametrize("seed", range(3))
def test_prices_use_the_best_kind_for_every_node(seed):
    brute = random_brute(seed, rows=2, most=5)
    epsilon = min(0.3, -0.5 * brute.A.shape[1] * math.log1p(-brute.p))
    deficit = Deficit(NodesAround(gram_of(brute.A), brute.p, brute.w, -2.0, 1e-6), epsilon)
    prices, limits = deficit.bound_prices(epsilon), deficit.fourier[0]
    nodes = np.arange(len(prices))
    scale = np.exp(epsilon + deficit.projected.rest.weights.log_scale)
    for kind in range(KINDS):
        found = deficit._by_fourier(limits, np.full(nodes.size, kind), deficit._gaps(epsilon))
        assert np.all(prices <= scale * (found + deficit._costs[limits, nodes]) * (1 + 1e-9))


def test_sets_of_more_than_one_are_left_out_of_prices_where_that_is_best():
    """Columns so long that even pairs of them have immense moments."""
    A = 2 * np.random.default_rng(12).uniform(0, 1, (3, 12))
    epsilon = 0.3
    deficit = Deficit(NodesAround(gram_of(A), 0.3, np.ones(12), 0.0, 1e-6), epsilon)
    gaps = deficit._gaps(epsilon)
    made = deficit._by_fourier(*deficit.fourier, gaps)
    made += deficit._costs[deficit.fourier[0], np.arange(gaps.size)]
    for place, kind in itertools.product((0, 1), range(KINDS)):
        places, kinds = np.full(gaps.size, place), np.full(gaps.size, kind)
        found = deficit._by_fourier(places, kinds, gaps) + deficit._costs[place]
        assert np.all(made <= found * (1 + 1e-12))
    assert np.any(deficit.fourier[0] == 0)


def test_orders_that_hardly_matter_cost_no_more_than_some_of_their_deviations():
    """E(Y + Y' - x)_+ <= E(Y - x + tau)_+ + E(Y' - tau)_+ <= E(Y - x)_+ + tau + deviation / 2."""
    A = np.random.default_rng(75).uniform(0, 1, (3, 6))
    rest = rest_of(A, 0.2, np.ones(6), [0.0, 1.5])
    gap = np.array([0.2, 0.5])
    law = quadratic(rest, gap)
    norms = np.full((S.size, 2), 1e-10)
    deviation = np.sqrt(norms[0] + law.left_linear + law.left_quadratic)
    for kind, d in enumerate(DEVIATIONS):
        found = excess_by_law(law, norms, gap, np.full(2, kind))
        assert np.all(found >= law.bound_excess(gap))
        assert np.all(found <= law.bound_excess(gap) + (d + 0.5) * deviation * (1 + 1e-6))


@pytest.mark.parametrize("margin", [-2.0, 0.5, 1.5, 4.0])
@pytest.mark.parametrize("seed", [2, 3])
def test_what_is_set_aside_for_large_sets_is_near_a_normal_excess(seed, margin):
    """E(r xi - half + q)_+ = r (phi(x) - x Phi(-x)), x = (half - q) / r, beside the collinear part.

    phi(x) - x Phi(-x) >= phi(x) / (x^2 + 3), and at least 1/12.1 below one.
    """
    brute, projected = planned(seed, 1.0)
    high, limit = projected.high, 1
    here = np.ones(len(projected.mass), np.bool_)
    lengths = np.sqrt(high.rest.square_length(np.arange(2.0, high.sizes + 1)))
    masses = np.empty((len(here), lengths.size))
    for i, u in enumerate(high.rest.weights.tilted):
        law = np.prod(np.where(brute.sets == 1, u, 1 - u), axis=1)
        masses[i] = [law[brute.sizes == k].sum() for k in range(2, high.sizes + 1)]
    r, q = masses @ lengths, masses @ lengths**2 / 2
    half = np.maximum(q + margin * r, 1e-3 * r)
    x = (half - q) / r
    exact = r * (np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi) - x * ndtr(-x))
    found = projected.excess_of_large(limit, 2 * half, here) - collinear(masses, lengths, half)
    room = 1e-8 * masses.sum(axis=1)  # masses are rounded up
    assert np.all(found >= exact * (1 - 1e-6) - room)
    factor = np.where(x >= 1, math.sqrt(2 * math.pi) * (x**2 + 3), 12.1)
    assert np.all(found <= factor * exact + room)


# Add, with one column.


def price(a: float, p: float, epsilon: float, t: np.ndarray) -> np.ndarray:
    return np.maximum(1 - math.exp(epsilon) * (1 - p + p * np.exp(t * a - a**2 / 2)), 0.0)


def exact_add(a: float, p: float, epsilon: float) -> float:
    """Q(t <= t*) - e^eps P(t <= t*) where the ratio is e^-eps."""
    t = math.log((math.exp(-epsilon) - 1 + p) / p) / a + a / 2
    return float(ndtr(t) - math.exp(epsilon) * ((1 - p) * ndtr(t) + p * ndtr(t - a)))


@pytest.mark.parametrize("centre", [-5.0, -1.0])
@pytest.mark.parametrize(("a", "p"), [(1.0, 0.5), (2.5, 0.8), (0.2, 0.3)])
def test_what_lies_above_the_last_node_of_add_is_paid_for(a, p, centre):
    """Nodes that end far below the threshold still bound delta, by at most one."""
    epsilon = 0.02
    exact = exact_add(a, p, epsilon)
    around = NodesAround(column(a), p, np.ones(1), centre, 1e-6)
    last = centre + 1.9
    most = float(ndtr(-last) * price(a, p, epsilon, np.array([last]))[0] + ndtr(last))
    for curve in (Deficit(around, epsilon), ProjectedAdd(column(a), p, np.ones(1), centre)):
        assert exact <= curve.bound_delta(epsilon) <= most * (1 + 1e-6)


def test_above_the_last_cell_only_what_is_left_of_the_normal_law_is_paid():
    put = ProjectedAdd(column(4.0), 1.0, np.ones(1), -1.2)
    exact = 2 * ndtr(2.0) - 1
    assert exact <= put.bound_delta(0.0) <= exact + ndtr(-1.8)


def test_above_the_last_cell_its_last_price_is_paid():
    put = ProjectedAdd(column(0.5), 1.0, np.ones(1), -6.0)
    last = float(put.rest.weights.t[-1]) + SPACING
    end = price(0.5, 1.0, 0.0, np.array([last - SPACING / CELLS]))[0]
    assert exact_add(0.5, 1.0, 0.0) <= put.bound_delta(0.0)
    assert put.bound_delta(0.0) <= (ndtr(last) + ndtr(-last) * end) * (1 + 1e-6)


@pytest.mark.parametrize("way", [*itertools.product((-1, 0, 1), repeat=2)])
@pytest.mark.parametrize(("a", "p"), [(3.0, 0.3), (0.5, 0.6), (6.0, 0.9)])
def test_put_prices_hold_for_sums_anywhere_within_their_errors(a, p, way):
    """Mass and participation off by all that the error allows, at every cell of every node."""
    put = ProjectedAdd(column(a), p, np.ones(1), 1.0)
    rest, epsilon = put.rest, 0.1
    weights = rest.weights
    error = np.full(weights.t.size, 1e-3)
    moved = error[:, None] * weights.tilted
    off = replace(
        weights,
        error=error,
        mass=weights.mass + way[0] * error,
        single=weights.single + way[1] * moved,
    )
    put.rest = PoissonRest(rest.gram, rest.line, off, rest.direction)
    t = weights.t[:, None] + SPACING * np.arange(CELLS) / CELLS
    exact = price(a, p, epsilon, t)
    for log_empty in (-math.inf, put.log_empty):
        assert np.all(put._prices(epsilon, log_empty, CELLS) >= exact * (1 - 1e-9) - 1e-12)
    assert np.any(put._prices(epsilon, -math.inf, CELLS) < exact + 0.1)


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_a_mass_below_its_error_is_not_taken_for_a_gap(epsilon):
    """Two clusters far apart: between them m is nothing in units of Z."""
    a, p = 20.0, 0.4
    around = NodesAround(column(a), p, np.ones(1), 10.0, 1e-6)
    weights = around.rest.weights
    assert np.any(weights.mass < weights.error)
    deficit = Deficit(around, epsilon)
    with mpmath.workdps(40):
        for i, t in enumerate(weights.t.tolist()):
            mass = 1 - mpmath.mpf(p) + p * mpmath.exp(t * a - a**2 / 2)
            gap = (mass - mpmath.exp(-epsilon)) / mpmath.exp(weights.log_scale[i])
            assert deficit._gaps(epsilon)[i] <= gap
    exact = price(a, p, epsilon, weights.t)
    assert np.all(deficit.bound_prices(epsilon) >= exact * (1 - 1e-9))


def area_above(mass: Callable[[np.ndarray], np.ndarray], t: np.ndarray) -> np.ndarray:
    """Between chord and mass on each interval, against the normal density."""
    x, weights = np.polynomial.legendre.leggauss(12)
    share = 0.5 * (x + 1)
    inside = t[:-1, None] * (1 - share) + t[1:, None] * share
    chord = mass(t[:-1, None]) * (1 - share) + mass(t[1:, None]) * share
    density = np.exp(-(inside**2) / 2) / math.sqrt(2 * math.pi)
    return 0.5 * np.diff(t) * ((density * (chord - mass(inside))) @ weights)


@pytest.mark.parametrize(("a", "p", "centre"), [(1.0, 0.5, 0.0), (2.0, 0.1, -1.0)])
def test_bend_is_the_area_between_chord_and_mass(a, p, centre):
    """At most 3/2 of it for a parabola."""
    epsilon = 0.1
    deficit = Deficit(NodesAround(column(a), p, np.ones(1), centre, 1e-6), epsilon)
    t = deficit.projected.rest.weights.t

    def mass(t: np.ndarray) -> np.ndarray:
        return math.exp(epsilon) * (1 - p + p * np.exp(t * a - a**2 / 2))

    exact = area_above(mass, t)
    assert np.all(exact <= deficit._bend(epsilon))
    assert np.all(deficit._bend(epsilon) <= 1.7 * exact)


@pytest.mark.parametrize(("many", "scale", "p"), [(5, 4.0, 0.2), (40, 30.0, 0.1)])
def test_bend_counts_every_column_of_a_class(many, scale, p):
    """Trees of one leaf are orthogonal columns: m is a sum over how many of them take part."""
    epsilon = 0.1
    gram = ForestGram([(0, many)], scale)
    deficit = Deficit(NodesAround(gram, p, np.ones(1), 1.0, 1e-6), epsilon)
    t = deficit.projected.rest.weights.t
    k = np.arange(many + 1)
    law = np.array([math.comb(many, i) * p**i * (1 - p) ** (many - i) for i in range(many + 1)])
    along = k * math.sqrt(scale / many)

    def mass(t: np.ndarray) -> np.ndarray:
        return math.exp(epsilon) * (np.exp(np.multiply.outer(t, along) - along**2 / 2) @ law)

    exact = area_above(mass, t)
    assert np.all(exact <= deficit._bend(epsilon))
    assert np.all(deficit._bend(epsilon) <= 1.7 * exact)


# The search for epsilon.


@pytest.mark.parametrize("guess", [0.02, 0.9, 1.0, 1.3, 40.0])
@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_epsilon_is_found_to_the_tolerance(power, guess):
    """delta(eps) = e^(-3 eps^power), which is e^-3 at one."""

    class Falling:
        def bound_delta(self, epsilon: float) -> float:
            return math.exp(-3 * epsilon**power)

    found = _solve(Falling(), math.exp(-3), guess)
    assert 1 - 1e-15 <= found <= 1 + 1.01 * TOLERANCE
