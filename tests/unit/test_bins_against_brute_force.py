"""Claim: every part of the bounds for balls-in-bins agrees with, or lies beyond, brute force."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from cases.bins import SHAPES, build, folded
from cases.samples import first, in_turn, sampled
from oracles.brute import random_brute
from oracles.enumeration import enumerated_delta
from scipy.special import ndtr

from mmcc import strategies
from mmcc.accounting._bounds.cascade.law import TreeBracket, _Builder, combine
from mmcc.accounting._bounds.projection.bins import BinsLine, BinsRest
from mmcc.accounting._bounds.projection.high_orders import S
from mmcc.accounting._bounds.projection.lower import overlaps
from mmcc.accounting._bounds.projection.quadratic import quadratic
from mmcc.accounting._bounds.projection.upper_add_moments import (
    BinsNodesAround,
    Deficit,
    NodesAround,
)
from mmcc.strategies._gram import DenseGram
from mmcc.strategies._hierarchy import Node

SEEDS = range(6)


# Inner products of the bins.


def divisors(steps: int) -> list[int]:
    return [d for d in range(1, steps + 1) if steps % d == 0]


@pytest.mark.parametrize("steps", [1, 5, 8, 12, 24])
@pytest.mark.parametrize("shape", SHAPES)
def test_bins_are_sums_of_columns(shape, steps):
    strategy, matrix = build(np.random.default_rng([steps, 7]), shape, steps)
    for bins in divisors(steps):
        components = folded(matrix, bins)
        exact = components.T @ components / 1.7**2
        gram = strategy.bins_gram(bins, 1.7)
        assert gram.matrix * gram.scale == pytest.approx(exact, rel=1e-13, abs=1e-300)
        hierarchy = strategy.hierarchy(bins)
        shared = np.count_nonzero(exact) > bins
        if hierarchy is None:
            assert shared or shape not in ("identity", "diagonal")
            complete = bins & (bins - 1) == 0 or bins == steps
            assert not (shape in ("tree", "restarted") and complete)
        else:
            implied = implied_gram(hierarchy) / 1.7**2
            if shape == "diagonal":  # bins of equal length are put together
                implied = np.diag(np.sort(np.diag(implied)))
                exact = np.diag(np.sort(np.diag(exact)))
            assert implied == pytest.approx(exact, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("bands", [1, 2, 5, 9])
def test_many_epochs_of_few_bands_fold_like_their_matrix(bands):
    c = np.random.default_rng(bands).uniform(0.1, 1, bands)
    for bins, epochs in ((1, 40), (2, 30), (3, 20), (7, 9), (12, 5)):
        strategy = strategies.toeplitz(c, bins * epochs)
        components = folded(strategy.to_dense(), bins)
        found = strategy.bins_gram(bins, 1.0)
        assert found.matrix == pytest.approx(components.T @ components, rel=1e-13, abs=1e-300)
    huge = strategies.toeplitz(c, 10**9).bins_gram(1000, 1.0)
    assert huge.error < 1e-11
    most = float(c @ c) * 10**6
    assert np.diag(huge.matrix) == pytest.approx(np.full(1000, most), rel=1e-5)


def implied_gram(node: Node) -> np.ndarray:
    """Leaves share the variances of all nodes above both."""
    blocks = [implied_gram(child) for count, child in node.children for _ in range(count)]
    if not blocks:
        return np.array([[node.variance]])
    size = sum(len(block) for block in blocks)
    gram, start = np.full((size, size), node.variance), 0
    for block in blocks:
        gram[start : start + len(block), start : start + len(block)] += block
        start += len(block)
    return gram


def test_the_blt_folds_like_its_matrix():
    strategy = strategies.blt(24)
    components = folded(strategy.to_dense(), 6)
    gram = strategy.bins_gram(6, 1.0)
    assert gram.matrix == pytest.approx(components.T @ components, rel=1e-12)
    assert strategy.hierarchy(6) is None


# The cascade.


def atoms(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.sort(np.exp(rng.normal(0, 1.5, size))), rng.dirichlet(np.ones(size))


def shares(share: float) -> tuple[float, float]:
    """Weights of a mean; none for a product."""
    return (share, 1 - share) if share >= 0 else (0.0, 0.0)


def excess(values, masses, k) -> float:
    return math.fsum(m * max(float(v) - k, 0.0) for v, m in zip(values, masses, strict=True))


def shortfall(values, masses, k) -> float:
    return math.fsum(m * max(k - float(v), 0.0) for v, m in zip(values, masses, strict=True))


@pytest.mark.parametrize("share", [-1.0, 0.5, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_cells_keep_mass_and_mean_and_move_in_convex_order(seed, share):
    rng = np.random.default_rng([seed, 31])
    first, p = atoms(rng, 5)
    second, q = atoms(rng, 7)
    pairs = np.multiply.outer(first, second)
    if share >= 0:
        pairs = np.add.outer(share * first, (1 - share) * second)
    values, masses = pairs.ravel(), np.multiply.outer(p, q).ravel()
    mean = math.fsum(values * masses)
    edges = np.exp(0.37 * np.arange(-6, 7.0))  # some pairs lie beyond both ends
    thresholds = np.exp(np.linspace(-4, 4, 41))

    got, _, cut = combine(first, p, second, q, *shares(share), edges, True, 0.0)
    ends = np.concatenate([[0.0], edges])
    assert math.fsum(got) == pytest.approx(1.0, rel=1e-13)
    assert math.fsum(got * ends) + cut == pytest.approx(mean, rel=1e-13)
    for k in thresholds:
        exact = excess(values, masses, k)
        assert excess(ends, got, k) + cut >= exact * (1 - 1e-13)
        assert shortfall(ends, got, k) >= shortfall(values, masses, k) * (1 - 1e-13)

    got, moments, cut = combine(first, p, second, q, *shares(share), edges, False, 0.0)
    assert cut == 0.0
    assert math.fsum(got) == pytest.approx(1.0, rel=1e-13)
    assert math.fsum(moments) == pytest.approx(mean, rel=1e-13)
    kept = got > 0
    for k in thresholds:
        means = moments[kept] / got[kept]
        assert excess(means, got[kept], k) <= excess(values, masses, k) * (1 + 1e-13) + 1e-15
        assert shortfall(means, got[kept], k) <= shortfall(values, masses, k) * (1 + 1e-13) + 1e-15


@pytest.mark.parametrize("nudge", [1e-3, -1e-3])
def test_nudges_move_the_mean_to_their_side(nudge):
    rng = np.random.default_rng(5)
    first, p = atoms(rng, 6)
    edges = np.exp(0.3 * np.arange(-30, 30.0))
    ends = np.concatenate([[0.0], edges])
    plain = combine(first, p, first, p, 0.5, 0.5, edges, True, 0.0)[0]
    moved = combine(first, p, first, p, 0.5, 0.5, edges, True, nudge)[0]
    assert (math.fsum(moved * ends) - math.fsum(plain * ends)) * nudge > 0
    for k in np.exp(np.linspace(-3, 3, 13)):
        assert (excess(ends, moved, k) - excess(ends, plain, k)) * nudge >= -1e-15


def test_masses_that_underflow_are_paid_for_or_left_out():
    values, tiny = np.array([1.0, 1e100]), np.array([1.0, 1e-200])
    edges = np.exp(np.arange(-2, 400.0))
    masses, _, cut = combine(values, tiny, values, tiny, 0.0, 0.0, edges, True, 0.0)
    assert masses[-1] == 0.0
    assert cut > 1e-324 * 1e200
    masses, moments, _ = combine(values, tiny, values, tiny, 0.0, 0.0, edges, False, 0.0)
    assert masses[-1] == moments[-1] == 0.0


def lognormal_excess(s, k):
    """E(e^(s xi - s^2/2) - k)_+ with 40 digits."""
    d = (mpmath.log(k) + s * s / 2) / s
    return mpmath.ncdf(s - d) - k * mpmath.ncdf(-d)


@pytest.mark.parametrize(
    ("variance", "adjacency"), in_turn([1e-6, 0.01, 1.0, 30.0, 150.0], ["remove", "add"])
)
def test_factors_lie_on_both_sides_of_the_lognormal_law(variance, adjacency):
    """No tolerance: mass, mean and every E(X - k)_+, or E(k - X)_+ for add."""
    cascade = TreeBracket(Node(0.0, ((1, Node(variance)), (1, Node(1.0)))), 1.0, 1e-9)
    upper = _Builder(cascade, "upper", adjacency)._factor(variance)
    lower = _Builder(cascade, "lower", adjacency)._factor(variance)
    with mpmath.workdps(40):
        s = mpmath.sqrt(mpmath.mpf(variance))

        def exact_sum(values, masses, k):
            parts = (
                mpmath.mpf(float(m)) * max(mpmath.mpf(float(v)) - k, 0)
                if adjacency == "remove"
                else mpmath.mpf(float(m)) * max(k - mpmath.mpf(float(v)), 0)
                for v, m in zip(values, masses, strict=True)
            )
            return mpmath.fsum(parts)

        assert mpmath.fsum(map(float, upper.masses)) >= 1
        assert mpmath.fsum(map(float, lower.masses)) <= 1
        reach = float(s) * 6 + 0.01
        for x in np.linspace(-reach, reach, 25):
            k = mpmath.exp(mpmath.mpf(float(x)))
            exact = lognormal_excess(s, k)
            if adjacency == "add":
                exact = k - 1 + exact
            above = exact_sum(upper.values, upper.masses, k)
            if adjacency == "remove":
                above += mpmath.mpf(float(upper.lost))
            assert exact_sum(lower.values, lower.masses, k) <= exact <= above


# Beside the direction.


def components_of(seed: int, scale: float) -> np.ndarray:
    """One component a row, lengths about `scale`."""
    rng = np.random.default_rng([seed, 77])
    bins = int(rng.integers(2, 9))
    return rng.uniform(0, 1, (bins, 4)) * (rng.random((bins, 4)) < 0.8) * scale + 0.05 * scale


def rest_of(components: np.ndarray, w: np.ndarray, t: np.ndarray) -> BinsRest:
    gram = DenseGram(components @ components.T, 1.0, components.shape[1])
    line = BinsLine(overlaps(gram, w))
    return BinsRest(gram, line, line.weights(t), w)


class Exact:
    """Overlaps, rest and weights with 40 digits."""

    def __init__(self, components: np.ndarray, w: np.ndarray) -> None:
        rows = [[mpmath.mpf(float(x)) for x in row] for row in components]
        size, self.bins = len(rows[0]), len(rows)
        mean = [
            mpmath.fsum(float(w[r]) * rows[r][i] for r in range(self.bins)) for i in range(size)
        ]
        length = mpmath.sqrt(mpmath.fsum(x * x for x in mean))
        d = [x / length for x in mean]
        self.a = [mpmath.fsum(x * y for x, y in zip(row, d, strict=True)) for row in rows]
        self.beside = [
            [x - a * y for x, y in zip(row, d, strict=True)]
            for row, a in zip(rows, self.a, strict=True)
        ]

    def weights(self, t: float) -> tuple[mpmath.mpf, list[mpmath.mpf]]:
        omega = [mpmath.exp(t * a - a * a / 2) / self.bins for a in self.a]
        return mpmath.fsum(omega), [o / mpmath.fsum(omega) for o in omega]

    def inner(self, r: int, s: int) -> mpmath.mpf:
        return mpmath.fsum(x * y for x, y in zip(self.beside[r], self.beside[s], strict=True))

    def pairs(self, t: float, function) -> mpmath.mpf:
        _, share = self.weights(t)
        both = [(r, s) for r in range(self.bins) for s in range(self.bins)]
        return mpmath.fsum(share[r] * share[s] * function(self.inner(r, s)) for r, s in both)


TIMES = np.array([-3.0, 0.5, 4.0])


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_chaos_sums_are_rounded_up(seed, scale):
    """Both without tolerance from below; close from above where that is not rounding."""
    components = components_of(seed, scale)
    w = np.random.default_rng(seed).uniform(0.2, 1, len(components))
    rest = rest_of(components, w, TIMES)
    with mpmath.workdps(40):
        exact = Exact(components, w)
        for i, t in enumerate(TIMES):
            total, share = exact.weights(t)
            assert rest.weights.log_scale[i] == pytest.approx(float(mpmath.log(total)), abs=1e-12)
            assert rest.weights.single[i] == pytest.approx([float(x) for x in share], rel=1e-12)
            for s in (1.0, 3.0, 12.0):
                sums = exact.pairs(t, lambda x, s=s: mpmath.exp(s * x) - 1 - s * x)
                assert rest.higher(s)[i] >= sums
                assert rest.higher(s)[i] <= sums * (1 + 1e-6) + 1e-11 * (s * scale**2) ** 2 + 1e-20
            second = exact.pairs(t, lambda x: x * x / 2)
            assert rest.lower_quadratic[i] <= second <= rest.quadratic[i]
            assert rest.linear[i] >= exact.pairs(t, lambda x: x)
            trace = mpmath.fsum(share[r] * exact.inner(r, r) for r in range(exact.bins))
            assert rest.trace[i] >= trace


@pytest.mark.parametrize("side", ["above", "below"])
@pytest.mark.parametrize("seed", SEEDS)
def test_tails_of_the_line_are_known_with_their_error(seed, side):
    a = np.random.default_rng([seed, 3]).uniform(0, 3, 9)
    line = BinsLine(a)
    for t in np.linspace(-12, 14, 14):
        sign = 1 if side == "above" else -1
        exact = mpmath.fsum(mpmath.ncdf(sign * (float(x) - float(t))) for x in a) / 9
        value, error = line.tail(float(t), side)
        assert abs(value - exact) <= error


# The law of the first two orders, for -Y.


@pytest.mark.parametrize(
    ("seed", "scale", "sign"), sampled(SEEDS, [0.2, 1.0], [1.0, -1.0], strength=1)
)
def test_the_law_of_two_orders_lies_above_samples(seed, scale, sign):
    """E(+-Y - x)_+, Y = <b, z> + (z^T B z - tr B)/2: Gauss-Hermite in three dimensions."""
    components = components_of(seed, scale)
    w = np.random.default_rng(seed).uniform(0.2, 1, len(components))
    rest = rest_of(components, w, TIMES)
    d = w @ components / np.linalg.norm(w @ components)
    beside = components - np.outer(components @ d, d)
    basis = np.linalg.svd(beside)[2][:3].T
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    z = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    mass = np.einsum("i,j,k->ijk", weights, weights, weights).ravel() / (2 * math.pi) ** 1.5
    for gap in (-0.3, 0.1, 0.5):
        law = quadratic(rest, np.full(len(TIMES), gap * scale), sign=sign)
        found = law.bound_excess(np.full(len(TIMES), gap * scale))
        for i in range(len(TIMES)):
            share = rest.weights.single[i]
            b = share @ beside @ basis
            B = basis.T @ (beside.T * share) @ beside @ basis
            y = z @ b + 0.5 * (np.einsum("ni,ij,nj->n", z, B, z) - np.trace(B))
            exact = float(mass @ np.maximum(sign * y - gap * scale, 0.0))
            left = math.sqrt(law.left_linear[i] + law.left_quadratic[i])
            room = 0.01 * exact + 1e-4 * scale  # the kink makes Gauss-Hermite this inaccurate
            assert exact - room <= found[i] + left
            assert gap < 0 or found[i] <= exact + room


# Add by moments.


def put_by_quadrature(omega: np.ndarray, beside: np.ndarray, strike: float) -> float:
    """E_z (strike - sum_k omega_k e^(<z, c_k> - |c_k|^2/2))_+ for z in one dimension."""
    z = np.linspace(-12, 12, 48_001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    x = np.exp(np.multiply.outer(z, beside) - beside**2 / 2) @ omega
    return float(density @ np.maximum(strike - x, 0.0))


@pytest.mark.parametrize(("seed", "epsilon"), sampled(SEEDS, [0.05, 0.5, 2.0], strength=1))
def test_prices_of_bins_lie_above_quadrature(seed, epsilon):
    components = components_of(seed, (0.3, 1.0, 2.5)[seed % 3])[:, :2]
    w = np.random.default_rng(seed).uniform(0.2, 1, len(components))
    gram = DenseGram(components @ components.T, 1.0, 2)
    d = w @ components / np.linalg.norm(w @ components)
    a, across = components @ d, components @ np.array([-d[1], d[0]])
    centre = -epsilon / a.mean()
    deficit = Deficit(BinsNodesAround(gram, None, w, centre, 1e-6), epsilon)
    t = deficit.projected.rest.weights.t
    for at in (epsilon, 1.02 * epsilon):  # made for one, asked at another
        prices = deficit.bound_prices(at)
        for i in range(0, len(t), 9):
            omega = np.exp(t[i] * a - a**2 / 2) / len(a)
            exact = math.exp(at) * put_by_quadrature(omega, across, math.exp(-at))
            assert prices[i] >= exact * (1 - 1e-6) - 1e-12
        assert np.all(prices <= 1.0)


@pytest.mark.parametrize(("seed", "epsilon"), sampled(SEEDS, [0.05, 0.3, 1.0], strength=1))
def test_prices_of_poisson_sampling_lie_above_quadrature(seed, epsilon):
    brute = random_brute(seed, rows=2, most=5)
    gram = DenseGram(brute.A.T @ brute.A, 1.0, 2)
    along = brute.sets @ brute.a
    centre = -epsilon / max(float(brute.prior @ along), 0.05)
    deficit = Deficit(NodesAround(gram, brute.p, brute.w, max(centre, -8.0), 1e-6), epsilon)
    if (1 - brute.p) ** brute.A.shape[1] >= math.exp(-epsilon):
        assert deficit.bound_delta(epsilon) == 0.0
        return
    prices, t = deficit.bound_prices(epsilon), deficit.projected.rest.weights.t
    for i in range(0, len(t), 9):
        exact = put_by_quadrature(brute.omega(t[i]), brute.across, math.exp(-epsilon))
        assert prices[i] >= math.exp(epsilon) * exact * (1 - 1e-6) - 1e-12


@pytest.mark.parametrize("seed", first(range(8), 4))
def test_add_by_moments_lies_above_enumeration(seed):
    brute = random_brute(seed, most=5)
    gram = DenseGram(brute.A.T @ brute.A, 1.0, 4)
    for centre in (-2.0, -4.0):
        along = brute.sets @ brute.a
        epsilon = -math.log(float(brute.prior @ np.exp(centre * along - along**2 / 2)))
        deficit = Deficit(NodesAround(gram, brute.p, brute.w, centre, 1e-6), epsilon)
        exact = enumerated_delta(brute.A, brute.p, 1.0, epsilon, "add", relative=0.004)
        assert deficit.bound_delta(epsilon) >= exact.mean - 4 * exact.error


@pytest.mark.parametrize("length", [30.0, 100.0, 300.0, 1000.0])
def test_thresholds_beyond_floats_are_not_taken_for_small(length):
    """Two equal bins: W(t) = (1 - e^eps m)_+ exactly, with m far below and far above e^-eps."""
    components = np.array([[length, 0.0], [length, 0.0]])
    gram = DenseGram(components @ components.T, 1.0, 1)
    for centre in (-3.0, -6.0):
        epsilon = length**2 / 2 - centre * length
        around = BinsNodesAround(gram, None, np.ones(2), centre, 1e-6)
        deficit = Deficit(around, epsilon)
        t = around.rest.weights.t
        exact = -np.expm1(np.minimum(epsilon + t * length - length**2 / 2, 0.0))
        assert np.all(deficit.bound_prices(epsilon) >= exact * (1 - 1e-12))
        assert deficit.bound_delta(epsilon) >= 0.9 * ndtr(centre - 1 / length)


def test_orders_start_at_the_variance():
    assert S[0] == 1.0
