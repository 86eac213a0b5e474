"""Claim: the places at which prototypes of the projection went wrong are handled.

Each test puts the package in one such place and compares it with a value found by other means.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from cases.projection import bracket_of
from oracles import truth
from oracles.brute import Brute, random_brute
from oracles.truth import ADJACENCIES

from mmcc import sampling, strategies
from mmcc.accounting._bounds.projection.bracket import _bound_epsilon
from mmcc.accounting._bounds.projection.high_orders import HighOrders, S
from mmcc.accounting._bounds.projection.line import Line
from mmcc.accounting._bounds.projection.lower import lower_delta, lower_epsilon, overlaps
from mmcc.accounting._bounds.projection.phases import leave_one_out, poisson_binomial
from mmcc.accounting._bounds.projection.quadratic import quadratic
from mmcc.accounting._bounds.projection.rest import PoissonRest
from mmcc.errors import PrecisionError
from mmcc.strategies._gram import DenseGram


def one_column(sigma: float):
    return strategies.dense(np.ones((1, 1))).gram(1, 0, sigma)


def rest_of(brute: Brute, t: list[float]) -> PoissonRest:
    gram = DenseGram(brute.A.T @ brute.A, 1.0, len(brute.A))
    line = Line(overlaps(gram, brute.w), gram.counts, brute.p)
    return PoissonRest(gram, line, line.weights(np.array(t)), brute.w)


# Sums over the kink of (X - E)_+ may exceed the integral.


@pytest.mark.parametrize("epsilon", [0.3, 0.31, 0.32, 0.33, 1.0, 1.01, 1.02])
def test_lower_bounds_do_not_sum_over_the_kink(epsilon):
    """One column: the lower bound is the truth but for rounding, where a Riemann sum is above."""
    p, sigma = 0.3, 0.8
    for adjacency in ADJACENCIES:
        exact = float(truth.mixture_delta([0, 1], [1 - p, p], sigma, epsilon, adjacency))
        found = lower_delta(one_column(sigma), p, epsilon, adjacency).value
        assert found <= exact
        if exact > 1e-6:
            assert found >= exact * (1 - 1e-6)


def test_a_riemann_sum_over_the_kink_is_no_lower_bound():
    p, a, h = 0.3, 1 / 0.8, 0.05
    y = np.arange(-12, 14, h)
    density = h / math.sqrt(2 * math.pi) * np.exp(-(y**2) / 2)
    above = 0
    for epsilon in np.linspace(0.3, 1.0, 29):
        ratio = 1 - p + p * np.exp(a * y - a * a / 2)
        found = density @ np.maximum(ratio - math.exp(epsilon), 0)
        above += found > truth.mixture_delta([0, 1], [1 - p, p], 0.8, float(epsilon), "remove")
    assert above > 5


# Leave-one-out laws: by division they are unstable, and without them there is no bound.


def exact_members(u: np.ndarray, j: int) -> list[mpmath.mpf]:
    """P(j in S, |S| = k), k = 1, 2, ..., in 50 digits."""
    with mpmath.workdps(50):
        law = [mpmath.mpf(1)]
        for i, x in enumerate(u):
            if i != j:
                x = mpmath.mpf(float(x))
                law = [
                    (law[k] if k < len(law) else 0) * (1 - x) + (law[k - 1] if k else 0) * x
                    for k in range(len(law) + 1)
                ]
        return [mpmath.mpf(float(u[j])) * q for q in law]


LAWS = {
    "small": np.linspace(0.001, 0.05, 12),
    "half": np.full(60, 0.5),
    "large": np.linspace(0.6, 0.89, 50),
    "near one": 1 - np.geomspace(1e-16, 0.3, 12),
    "one": np.array([1.0, 1.0, 0.3, 0.999]),
    "mixed": np.concatenate([np.geomspace(1e-12, 0.5, 15), 1 - np.geomspace(1e-12, 0.5, 15)]),
}


@pytest.mark.parametrize("name", LAWS)
def test_members_of_sets_of_each_size_are_bounded_from_above(name):
    u = LAWS[name]
    masses = poisson_binomial(u, u.size)
    found = leave_one_out(u, masses)
    for j in range(0, u.size, 3):
        for k, exact in enumerate(exact_members(u, j)):
            assert found[k, j] >= exact * (1 - mpmath.mpf(2) ** -40)
            assert found[k, j] <= masses[k + 1] * (1 + 1e-9)


def test_leave_one_out_is_sharp_where_division_is_stable():
    u = LAWS["small"]
    found = leave_one_out(u, poisson_binomial(u, u.size))
    for j in range(u.size):
        for k, exact in enumerate(exact_members(u, j)[:5]):
            assert found[k, j] <= exact * (1 + 1e-7)


def test_division_alone_would_be_wrong_and_the_plain_law_too_small():
    u = LAWS["large"]
    masses = poisson_binomial(u, u.size)
    exact = exact_members(u, 49)
    before, wrong = 0.0, 0
    for k in range(u.size):
        before = (masses[k] - u[49] * before) / (1 - u[49])
        wrong += abs(u[49] * before - exact[k]) > 0.01 * exact[k]
    assert wrong > 0
    assert any(u[49] * masses[k] < 0.9 * exact[k] for k in range(u.size))


# Hermite series for m fail for large a_S.


@pytest.mark.parametrize("scale", [2.0, 6.0, 12.0])
def test_weights_are_right_for_large_overlaps(scale):
    a, p = scale * np.array([1.0, 0.7, 0.4]), 0.1
    line = Line(a, np.ones(3), p)
    t = np.array([-4.0, 0.5, scale, 2 * scale, 2.1 * scale + 5])
    weights = line.weights(t)
    with mpmath.workdps(60):
        for i, x in enumerate(t):
            mass, single = mpmath.mpf(0), [mpmath.mpf(0)] * 3
            for s in itertools.product((0, 1), repeat=3):
                along = mpmath.fsum(mpmath.mpf(float(b)) * k for b, k in zip(a, s, strict=True))
                omega = mpmath.mpf(p) ** sum(s) * (1 - mpmath.mpf(p)) ** (3 - sum(s))
                omega *= mpmath.exp(mpmath.mpf(float(x)) * along - along**2 / 2)
                mass += omega
                single = [v + omega * k for v, k in zip(single, s, strict=True)]
            Z = mpmath.exp(mpmath.mpf(float(weights.log_scale[i])))
            assert float(weights.mass[i] * Z / mass) == pytest.approx(1, abs=1e-11)
            for j in range(3):
                error = abs(weights.single[i, j] * Z - single[j])
                assert error <= 1e-12 * weights.tilted[i, j] * Z


# Exponents must not be clipped: too large is infinite.


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("sigma", "p"),
    [
        pytest.param(s, p, marks=() if (s, p) in {(0.02, 0.02), (0.1, 0.999)} else pytest.mark.slow)
        for s, p in itertools.product((0.001, 0.01, 0.02, 0.05, 0.1, 0.2), (1e-6, 0.02, 0.5, 0.999))
    ],
)
def test_tiny_noise_gives_no_number_that_is_too_small(sigma, p, adjacency):
    """One column: the upper epsilon is infinite or true, the lower one true."""
    gram, delta = one_column(sigma), 1e-6
    low = lower_epsilon(gram, p, delta, adjacency).value
    high = _bound_epsilon(gram, p, delta, adjacency)
    assert low <= high

    def exact(epsilon):
        return truth.mixture_delta([0, 1], [1 - p, p], sigma, epsilon, adjacency)

    if math.isfinite(high):
        assert exact(high) <= delta
    if low > 0:
        assert exact(low) >= delta


TINY = {
    "identity": np.eye(3),
    "prefix": np.tril(np.ones((3, 3))),
    "unequal": np.diag([1.0, 40.0]),
}


@pytest.mark.parametrize(
    ("name", "sigma"),
    [
        ("identity", 0.1),
        pytest.param("identity", 0.005, marks=pytest.mark.slow),
        pytest.param("prefix", 0.03, marks=pytest.mark.slow),
        pytest.param("unequal", 0.1, marks=pytest.mark.slow),
        ("unequal", 0.005),
    ],
)
def test_tiny_noise_never_turns_the_bracket_around(name, sigma):
    matrix = TINY[name]
    strategy = strategies.dense(matrix)
    for p in (0.01, 0.6):
        found = bracket_of(strategy, sampling.Poisson(p), sigma)
        try:
            low, high = found.lower_epsilon(1e-5), found.bound_epsilon(1e-5)
        except PrecisionError:  # a refusal is no wrong number
            continue
        assert 0 <= low.remove <= high.remove
        assert 0 <= low.add <= high.add
        # One column alone is a post-processing of what is released.
        heaviest = float(np.linalg.norm(matrix, axis=0).max())
        if math.isfinite(high.remove):
            pair = [0, heaviest], [1 - p, p], sigma
            assert truth.mixture_delta(*pair, high.remove, "remove") <= 1e-5


@pytest.mark.parametrize(("epsilon", "sigma"), [(50, 0.3), (400, 0.05), (800, 0.05), (5000, 0.05)])
def test_huge_epsilon_keeps_delta_between_its_bounds(epsilon, sigma):
    """exp(epsilon) overflows from 710 on."""
    p = 0.2
    found = bracket_of(strategies.dense(np.ones((1, 1))), sampling.Poisson(p), sigma)
    lows, highs = found.lower_delta(epsilon), found.bound_delta(epsilon)
    for adjacency in ADJACENCIES:
        exact = truth.mixture_delta([0, 1], [1 - p, p], sigma, epsilon, adjacency)
        assert getattr(lows, adjacency) <= exact <= getattr(highs, adjacency) <= 1


def test_overflowing_chaos_sums_are_infinite():
    brute = Brute(np.diag([30.0, 25.0, 20.0]), 0.3, np.ones(3))
    rest = rest_of(brute, [0.0, 8.0])
    from_two, from_three = HighOrders(rest).totals([1, 2, 3])
    inner = brute.inner
    along = brute.sets @ brute.a
    for i, t in enumerate(rest.weights.t):
        weights = np.log(brute.prior) + t * along - along**2 / 2 - rest.weights.log_scale[i]
        for k, s in enumerate(S):
            for j, kmax in enumerate((1, 2, 3)):
                kept = brute.sizes <= kmax
                logs = s * np.diag(inner) + 2 * weights
                if logs[kept].max() > 690:  # e^709 is the largest number
                    assert from_two[j, k, i] > 1e290
                    assert from_three[j, k, i] > 1e290


# Signed numerical laws: a tail that is lost in rounding is no evidence.


@pytest.mark.parametrize("seed", range(4))
def test_tails_below_rounding_are_covered_by_their_error(seed):
    brute = random_brute(seed, most=8)
    line = Line(brute.a, np.ones(brute.a.size), brute.p)
    along = brute.sets @ brute.a
    for t in (-30.0, -12.0, along.max() + 12.0, along.max() + 30.0):
        for side, sign in (("above", 1), ("below", -1)):
            with mpmath.workdps(40):
                exact = mpmath.fsum(
                    mpmath.mpf(w) * mpmath.ncdf(sign * (mpmath.mpf(s) - t))
                    for w, s in zip(brute.prior, along, strict=True)
                )
            value, error = line.tail(t, side)
            assert value - error <= exact * (1 + 1e-13)
            assert exact * (1 - 1e-13) <= value + error


@pytest.mark.parametrize("delta", [1e-9, 1e-14, 1e-20, 1e-40])
def test_lower_bounds_at_tiny_delta_stay_below_the_truth(delta):
    p, row = 0.3, [1.0, 0.6, 0.2]
    gram = strategies.dense(np.array([row]), adaptive=False).gram(1, 0, 1.3)
    for adjacency in ADJACENCIES:
        low = lower_epsilon(gram, p, delta, adjacency).value
        if low > 0:
            assert truth.product_mixture_delta(row, [p] * 3, 1.3, low, adjacency) >= delta


# Declared slack: the Fourier sum, and T_1.


def quadratic_excess(b: float, lam: float, x: float) -> mpmath.mpf:
    """E (b z + lam (z^2 - 1)/2 - x)_+ in 50 digits."""
    with mpmath.workdps(50):
        b, lam, x = mpmath.mpf(b), mpmath.mpf(lam), mpmath.mpf(x)
        inside = b**2 + lam * (lam + 2 * x)
        if inside <= 0:
            return -x
        root = mpmath.sqrt(inside)
        low, high = (-b - root) / lam, (-b + root) / lam
        tails = mpmath.ncdf(low) + mpmath.ncdf(-high)
        second = tails + high * mpmath.npdf(high) - low * mpmath.npdf(low)
        linear = b * (mpmath.npdf(high) - mpmath.npdf(low))
        return linear + lam * (second - tails) / 2 - x * tails


@pytest.mark.parametrize("seed", range(8))
def test_fourier_sum_lies_above_the_excess_of_the_first_two_orders(seed):
    brute = random_brute(seed, rows=2, most=6)
    rest = rest_of(brute, [-1.0, 1.0, 2.5, 4.0])
    size = np.sqrt(rest.linear + rest.quadratic)
    for planned in (0.5, 6.0):
        law = quadratic(rest, planned * size)
        for x in (-3.0, -0.5, 0.0, 0.5, 2.0, 5.0, 9.0):
            found = law.bound_excess(x * size)
            for i, t in enumerate(rest.weights.t):
                omega = brute.omega(t) / math.exp(rest.weights.log_scale[i])
                b, lam = omega @ brute.across, omega @ brute.across**2
                exact = quadratic_excess(b, lam, x * size[i])
                assert found[i] >= exact * (1 - mpmath.mpf(10) ** -10)
                if x == planned:
                    assert found[i] <= exact * 2 + 1e-9 * size[i]


@pytest.mark.parametrize("angle", [1.0, 1e-2, 1e-4, 1e-6, 1e-8])
def test_first_order_survives_cancellation(angle):
    """Columns within a small angle: |A'v|^2 is far smaller than the terms of v^T G' v."""
    turns = angle * np.array([-1.0, -0.3, 0.2, 0.5, 1.1])
    lengths = np.array([0.9, 1.1, 0.7, 1.3, 0.8])
    A = lengths * np.stack([np.cos(turns + 0.7), np.sin(turns + 0.7)])
    brute = Brute(A, 0.2, np.array([1.0, 0.4, 0.8, 0.6, 0.9]))
    rest = rest_of(brute, [-1.0, 1.5, 4.0])
    with mpmath.workdps(60):
        columns = [[mpmath.mpf(float(x)) for x in column] for column in A.T]
        mean = [
            mpmath.fsum(float(w) * c[i] for w, c in zip(brute.w, columns, strict=True))
            for i in (0, 1)
        ]
        norm = mpmath.sqrt(mean[0] ** 2 + mean[1] ** 2)
        d = [x / norm for x in mean]
        along = [c[0] * d[0] + c[1] * d[1] for c in columns]
        across = [c[1] * d[0] - c[0] * d[1] for c in columns]
        for i, t in enumerate(rest.weights.t):
            total = mass = mpmath.mpf(0)
            for s in itertools.product((0, 1), repeat=5):
                a = mpmath.fsum(x for x, k in zip(along, s, strict=True) if k)
                omega = mpmath.mpf(0.2) ** sum(s) * (1 - mpmath.mpf(0.2)) ** (5 - sum(s))
                omega *= mpmath.exp(mpmath.mpf(float(t)) * a - a**2 / 2)
                mass += omega
                total += omega * mpmath.fsum(x for x, k in zip(across, s, strict=True) if k)
            Z = mpmath.exp(mpmath.mpf(float(rest.weights.log_scale[i])))
            exact = (total / Z) ** 2
            assert rest.linear[i] >= exact
            assert rest.linear[i] <= exact * (1 + 1e-4) + 1e-9 * (mass / Z) ** 2
