"""Claim: every statement of docs/theory.md is true of random small mechanisms.

Both sides of each statement are computed here from first principles: all 2^n participation sets are
enumerated and one-dimensional Gaussian integrals are taken exactly between the roots of the
integrand.  Nothing is imported from mmcc.  Inequalities are strict or allow for the rounding of the
sums on either side, nothing else.  Section numbers are those of docs/theory.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

SEEDS = range(4)
FAR = 30.0  # standard deviations; Phi(-30) is 5e-198
ROUNDING = 1e-13  # of sums of order one


def phi(z):
    return np.exp(-np.square(z) / 2) / math.sqrt(2 * math.pi)


def bisect(function, low, high):
    """Roots, elementwise, of a function that is negative at low and positive at high."""
    for _ in range(60):
        middle = (low + high) / 2
        below = function(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def call(weights, shifts, strike):
    """E (sum_k w_k exp(c_k z - c_k^2/2) - strike)_+ for z ~ N(0,1): convex in z, so exact."""
    weights, shifts = np.broadcast_arrays(weights, shifts)

    def terms(z):
        return weights * np.exp(shifts * z[..., None] - shifts**2 / 2)

    ends = np.full(weights.shape[:-1], FAR)
    lowest = bisect(lambda z: (terms(z) * shifts).sum(-1), -ends, ends)
    left = bisect(lambda z: strike - terms(z).sum(-1), -ends, lowest)
    right = bisect(lambda z: terms(z).sum(-1) - strike, lowest, ends)
    outside = ndtr(shifts - right[..., None]) + ndtr(left[..., None] - shifts)
    return (weights * outside).sum(-1) - strike * (ndtr(-right) + ndtr(left))


@dataclass(frozen=True)
class Mechanism:
    """The fixed pair of section 1, sigma = 1, and its projection on A w (section 4)."""

    A: np.ndarray
    p: float
    w: np.ndarray

    @cached_property
    def n(self):
        return self.A.shape[1]

    @cached_property
    def sets(self):
        return np.array(list(itertools.product((0.0, 1.0), repeat=self.n)))

    @cached_property
    def sizes(self):
        return self.sets.sum(1)

    @cached_property
    def prior(self):
        return self.p**self.sizes * (1 - self.p) ** (self.n - self.sizes)

    @cached_property
    def a(self):
        mean = self.A @ self.w
        return self.A.T @ mean / np.linalg.norm(mean)

    @cached_property
    def rest(self):
        """A', the columns without their part along d."""
        mean = self.A @ self.w
        return self.A - np.outer(mean, self.a) / np.linalg.norm(mean)

    @cached_property
    def gram(self):
        return self.rest.T @ self.rest

    def omega(self, t):
        along = self.sets @ self.a
        return self.prior * np.exp(np.multiply.outer(t, along) - along**2 / 2)

    @cached_property
    def shifts(self):
        """<z, A'_S> for two rows, where z has one dimension."""
        mean = self.A @ self.w
        across = np.array([-mean[1], mean[0]]) / np.linalg.norm(mean)
        return self.sets @ (across @ self.A)

    def inner(self, t, strike):
        """U(t) = E_z (X_t - strike)_+."""
        return call(self.omega(t), self.shifts, strike)

    def remove(self, threshold, step=0.1):
        """A bracket of E_t U(t): U is convex, so chords and the extended chords to their left."""
        t = np.arange(-9, self.a.sum() + 9, step)
        U = self.inner(t, threshold)
        slope, mass, mean = np.diff(U) / step, np.diff(ndtr(t)), -np.diff(phi(t))
        above = self.prior @ ndtr(self.sets @ self.a - t[-1]) + ndtr(t[0]) * U[0]
        chords = np.sum((U - np.append(slope, 0) * t)[:-1] * mass + slope * mean)
        under = np.sum((U[1:-1] - slope[:-1] * t[1:-1]) * mass[1:] + slope[:-1] * mean[1:])
        return under - ROUNDING, chords + above + ROUNDING

    def add(self, threshold, step=0.1):
        low, high = self.remove(1 / threshold, step)
        return 1 - threshold + threshold * low, 1 - threshold + threshold * high

    # The contour and the tangent weights at real theta (sections 5 and 6).

    def cumulant(self, zeta):
        return np.log1p(self.p * np.expm1(np.multiply.outer(zeta, self.a))).sum(-1)

    def saddle(self, t):
        u = self.tilted
        return brentq(lambda theta: theta + u(theta) @ self.a - t, t - self.a.sum() - 1, t + 1)

    def tilted(self, zeta):
        e = self.p * np.exp(np.multiply.outer(zeta, self.a))
        return e / (1 - self.p + e)

    def tangent(self, t, theta):
        """Z, u and the law B(S)."""
        u = self.tilted(theta)
        Z = math.exp((t - theta) ** 2 / 2 + self.cumulant(theta))
        return Z, u, np.prod(np.where(self.sets == 1, u, 1 - u), axis=1)


def mechanism(seed, rows=2, largest=8, scales=(0.3, 0.7, 1.2)):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, largest + 1))
    A = rng.uniform(0, 1, (rows, n)) * scales[seed % 3]
    return Mechanism(A, float(rng.uniform(0.03, 0.4)), rng.uniform(0.2, 1, n))


def times(m):
    """A few t on both sides of where the loss is decided."""
    return [-0.7, 1.2, 0.5 * m.a.sum() + 2]


# Sections 1 and 2: the adaptive mechanism against the fixed pair.

ENCODER = np.array([[0.9, 0.0], [0.6, 0.8]])
PAIRS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=float)
ADVERSARIES = {
    "ones": np.ones_like,
    "opposite": lambda y: -np.ones_like(y),
    "late": lambda y: (y > 0.5).astype(float),
    "early": lambda y: (y < 0.5).astype(float),
    "sign": lambda y: np.where(y < 0.7, -1.0, 1.0),
    "smooth": lambda y: np.tanh(2 * y),
}


def two_step_remove(second, threshold, p=0.3):
    """Row 2's input is second(y_1), in [-1, 1]; exact in y_2, midpoints in y_1."""
    y = np.arange(-9, 11, 0.01) + 0.005
    prior = p ** PAIRS.sum(1) * (1 - p) ** (2 - PAIRS.sum(1))
    first = PAIRS @ [ENCODER[0, 0], 0]
    weights = prior * np.exp(np.multiply.outer(y, first) - first**2 / 2)
    shifts = PAIRS[:, 0] * ENCODER[1, 0] + np.multiply.outer(second(y), PAIRS[:, 1]) * ENCODER[1, 1]
    return np.sum(0.01 * phi(y) * call(weights, shifts, threshold))


@pytest.mark.parametrize("threshold", [0.6, 1.0, 1.5, 4.0])
@pytest.mark.parametrize("name", sorted(set(ADVERSARIES) - {"ones"}))
def test_adaptive_inputs_are_dominated_by_ones(name, threshold):
    """All real epsilon in remove is both adjacencies (lemma 1.1)."""
    fixed = two_step_remove(ADVERSARIES["ones"], threshold)
    assert two_step_remove(ADVERSARIES[name], threshold) < fixed


@pytest.mark.parametrize("threshold", [0.6, 1.5, 4.0])
def test_adaptive_vectors_are_dominated_by_ones(threshold):
    """Inputs in the plane: the second turns with the first output."""
    p, y, v = 0.3, np.arange(-7, 9, 0.2)[:, None, None], np.arange(-7, 8, 0.2)[None, :, None]
    prior = p ** PAIRS.sum(1) * (1 - p) ** (2 - PAIRS.sum(1))
    one, two = PAIRS.T
    for angle in (y, 2 * np.arctan(y), -0.5 * y, np.pi / 2 + 0 * y):
        first = one * ENCODER[0, 0]
        along = one * ENCODER[1, 0] + two * ENCODER[1, 1] * np.cos(angle)
        across = two * ENCODER[1, 1] * np.sin(angle)
        weights = prior * np.exp(y * first - first**2 / 2 + v * across - across**2 / 2)
        inner = call(weights, np.broadcast_to(along, weights.shape), threshold)
        found = np.sum(0.04 * phi(y[..., 0]) * phi(v[..., 0]) * inner)
        assert found < two_step_remove(ADVERSARIES["ones"], threshold)


def test_level_sets_of_an_adaptive_mixture_are_not_monotone():
    """The gap: a larger first output, the same second one, and a smaller likelihood ratio."""

    def ratio(y1, y2, p=0.3):
        x2 = ADVERSARIES["early"](np.float64(y1))
        c1, c2 = PAIRS[:, 0] * 0.9, PAIRS @ [0.6, 0.8 * x2]
        prior = p ** PAIRS.sum(1) * (1 - p) ** (2 - PAIRS.sum(1))
        return prior @ np.exp(c1 * y1 - c1**2 / 2 + c2 * y2 - c2**2 / 2)

    assert ratio(0.6, 3.0) < ratio(0.4, 3.0)


def test_padding_makes_row_norms_equal_and_projects_back():
    """Dropping the padded coordinate of every component gives the unpadded density."""
    rng = np.random.default_rng(0)
    c = rng.normal(size=(5, 3))
    bound = np.linalg.norm(c, axis=1) + rng.uniform(0, 1, 5)
    padded = np.column_stack([c, np.sqrt(bound**2 - (c**2).sum(1))])
    assert np.linalg.norm(padded, axis=1) == pytest.approx(bound)
    x, weights = rng.normal(size=3), rng.dirichlet(np.ones(5))
    e, h = np.linspace(-15, 15, 3001, retstep=True)
    full = weights @ np.exp(
        (c @ x)[:, None] + np.multiply.outer(padded[:, 3], e) - (padded**2).sum(1)[:, None] / 2
    )
    assert h * np.sum(phi(e) * full) == pytest.approx(
        weights @ np.exp(c @ x - (c**2).sum(1) / 2), rel=1e-12
    )


# Section 3: Gram monotonicity.


@pytest.mark.parametrize("seed", SEEDS)
def test_delta_grows_with_every_entry_of_the_gram_matrix(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    norms, angles = rng.uniform(0.3, 1.2, n), rng.uniform(0, 2.6, n)  # negative entries too
    p = float(rng.uniform(0.05, 0.5))

    def build(norms, angles):
        A = norms * np.stack([np.cos(angles), np.sin(angles)])
        return A, Mechanism(A, p, np.ones(n))

    smaller, one = build(norms, angles)
    for factor, shrink in ((1.0, 0.8), (1.0, 0.0), (1.05, 0.97)):
        stretch = np.where(smaller.T @ smaller < 0, 1.0, factor).min()
        larger, two = build(norms * stretch, angles * shrink)
        assert np.all(larger.T @ larger >= smaller.T @ smaller - ROUNDING)
        for threshold in (1.0, 1.5):
            assert one.remove(threshold)[0] < two.remove(threshold)[1]
            assert one.add(threshold)[0] < two.add(threshold)[1]
            if shrink == 0:  # far enough apart for the brackets
                assert one.remove(threshold, 0.03)[1] < two.remove(threshold, 0.03)[0]


# Section 4: projection, lower bounds.


@pytest.mark.parametrize("seed", SEEDS)
def test_projection_identities(seed):
    m = mechanism(seed, rows=4)
    assert m.rest @ m.w == pytest.approx(np.zeros(4), abs=1e-14)
    assert m.gram == pytest.approx(m.A.T @ m.A - np.outer(m.a, m.a), abs=1e-13)
    y = np.random.default_rng(seed).normal(size=4)
    d = m.A @ m.w / np.linalg.norm(m.A @ m.w)
    t, z = d @ y, y - (d @ y) * d
    means, rests = m.sets @ m.A.T, m.sets @ m.rest.T
    ratio = m.prior @ np.exp(means @ y - (means**2).sum(1) / 2)
    assert m.omega(t) @ np.exp(rests @ z - (rests**2).sum(1) / 2) == pytest.approx(ratio)


@pytest.mark.parametrize("seed", SEEDS)
def test_lower_bounds(seed):
    m = mechanism(seed, largest=6)
    along = m.sets @ m.a
    for threshold in (1.1, 2.0):
        remove, add = m.remove(threshold, 0.03)[1], m.add(threshold, 0.03)[1]
        for t in np.linspace(-4, 6, 41):
            above = m.prior @ ndtr(along - t)
            assert above - threshold * ndtr(-t) < remove
            assert ndtr(t) - threshold * (1 - above) < add


# Section 5: the contour.


def contour(m, t, theta, step, count):
    zeta = theta + 1j * step * np.arange(-count, count + 1)
    gamma, b = zeta.imag, t - theta
    c = np.exp(b**2 / 2 - gamma**2 / 2 - 1j * gamma * b + m.cumulant(zeta))
    c *= step / math.sqrt(2 * math.pi)
    r = m.tilted(zeta)
    V = (r.T * c) @ r
    np.fill_diagonal(V, c @ r)
    return c.sum().real, (c @ r).real, V.real


@pytest.mark.parametrize("seed", SEEDS)
def test_contour_and_the_sign_and_size_of_its_aliasing(seed):
    m = mechanism(seed)
    along = m.sets @ m.a
    for t in times(m):
        omega = m.omega(t)
        exact = omega.sum(), omega @ m.sets, (m.sets.T * omega) @ m.sets
        for theta in (m.saddle(t), m.saddle(t) + 0.3):  # any real theta will do
            Z, u, law = m.tangent(t, theta)
            b = t - theta
            fine = contour(m, t, theta, 0.25, 60)
            for found, true in zip(fine, exact, strict=True):
                assert found == pytest.approx(true, rel=1e-11)
            step = 1.3
            K = 2 * math.pi / step
            images = K * np.array([k for k in range(-40, 41) if k])
            alias = Z * law * np.exp(-((along - b - images[:, None]) ** 2) / 2).sum(0)
            coarse = contour(m, t, theta, step, 40)
            wanted = alias.sum(), alias @ m.sets, (m.sets.T * alias) @ m.sets
            for found, true, error in zip(coarse, exact, wanted, strict=True):
                assert np.all(error > 0)
                assert found == pytest.approx(true + error, rel=1e-11)
            lam = m.saddle(t + K) - theta
            rise = lam**2 / 2 - lam * (K + b) + m.cumulant(theta + lam) - m.cumulant(theta)
            bound = Z * math.exp(rise) / -math.expm1(-lam * K)
            if b < K:
                bound += Z * math.exp(-((K - b) ** 2) / 2) / -math.expm1(-(K - b) * K)
                assert alias.sum() < bound
            cut = [contour(m, t, theta, 0.25, 8)[i] - fine[i] for i in (0, 1)]
            assert abs(cut[0]) < 2 * Z * ndtr(-2.0)
            assert np.all(np.abs(cut[1]) < 2 * Z * ndtr(-2.0) * u)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("side", [1, -1])
def test_tail_and_the_sign_and_size_of_its_aliasing(seed, side):
    """side 1: P(t > t*) with theta > 0; side -1: P(t <= t*) with theta < 0."""
    m = mechanism(seed)
    along = m.sets @ m.a

    def tail(t):
        return m.prior @ ndtr(side * (along - np.multiply.outer(t, np.ones(along.size)))).T

    def height(theta):
        return math.exp(theta**2 / 2 + m.cumulant(theta))

    t, theta = side * 2.0 + m.p * m.a.sum(), side * 1.5

    def trapezoid(step, count):
        zeta = theta + 1j * step * np.arange(-count, count + 1)
        terms = np.exp(zeta**2 / 2 + m.cumulant(zeta) - zeta * t) / (side * zeta)
        return step / (2 * math.pi) * terms.sum().real

    assert trapezoid(0.1, 400) == pytest.approx(tail(t), rel=1e-9)
    K = 2 * math.pi / 0.6
    k = np.array([k for k in range(-6, 7) if k])
    alias = np.exp(theta * K * k) * tail(t + K * k)
    assert np.all(alias >= 0)
    assert trapezoid(0.6, 60) == pytest.approx(tail(t) + alias.sum(), rel=1e-11)
    other = theta + side * 2.0
    bound = 1 / math.expm1(abs(theta) * K) + height(other) * math.exp(-other * t) / math.expm1(
        2 * K
    )
    assert 0 < alias.sum() < bound
    cut = 2.0
    error = math.sqrt(2 / math.pi) * height(theta) * math.exp(-theta * t) * ndtr(-cut)
    assert abs(trapezoid(0.1, 20) - trapezoid(0.1, 400)) < error / math.hypot(theta, cut)


# Section 6: chaos norms and their bounds.


@pytest.mark.parametrize("seed", SEEDS)
def test_tangent_weights(seed):
    m = mechanism(seed)
    for t in times(m):
        for theta in (m.saddle(t), m.saddle(t) - 0.2):
            Z, _, law = m.tangent(t, theta)
            assert np.all(m.omega(t) <= Z * law * (1 + 1e-12))


@pytest.mark.parametrize("seed", SEEDS)
def test_chaos_norms(seed):
    m = mechanism(seed)
    shifts, nodes = m.shifts, np.polynomial.hermite_e.hermegauss(60)
    for t in times(m):
        omega = m.omega(t)
        inner = np.multiply.outer(shifts, shifts)
        x = omega @ np.exp(np.multiply.outer(shifts, nodes[0]) - shifts[:, None] ** 2 / 2)
        variance = nodes[1] @ (x - omega.sum()) ** 2 / math.sqrt(2 * math.pi)
        assert omega @ np.expm1(inner) @ omega == pytest.approx(variance, rel=1e-9)
        v, V = omega @ m.sets, (m.sets.T * omega) @ m.sets
        for lam in (0.0, 0.7):
            first = np.sum((m.rest @ (v - lam * m.w)) ** 2)
            assert first == pytest.approx(omega @ inner @ omega, rel=1e-9)
        second = np.trace(V @ m.gram @ V @ m.gram) / 2
        assert second == pytest.approx(omega @ inner**2 @ omega / 2, rel=1e-10)


def poisson_fourth_moment(u, G):
    """E (N^T G N')^4 for independent vectors N, N' of independent Poisson(u) (lemma 6.4)."""
    squares = G * G
    P1, P2, P3, P4 = G @ u, squares @ u, (squares * G) @ u, squares**2 @ u
    y = u * P1
    q, s, e, f = G @ y, u @ P1, u @ P2, u @ P1**2
    half = np.sqrt(u)[:, None] * G * np.sqrt(u)
    return (
        (s**4 + 6 * e * s**2 + 3 * e**2)
        + (4 * s * (u @ P3) + 24 * s * (u @ (P1 * P2)) + 8 * s * (u @ P1**3) + 24 * s * (y @ q))
        + (12 * f * s**2 + 12 * e * f + 12 * f**2)
        + (u @ P4 + 8 * (u @ (P1 * P3)) + 6 * (u @ P2**2) + 12 * (u @ (P1**2 * P2)))
        + (2 * (u @ P1**4) + 24 * (u @ (P2 * q)) + 24 * (u @ (P1**2 * q)) + 24 * (u @ q**2))
        + (12 * (y @ squares @ y) + 6 * np.sum((half @ half) ** 2))
    )


def partitions(items):
    if not items:
        yield []
        return
    head, *tail = items
    for part in partitions(tail):
        yield [[head], *part]
        for i, block in enumerate(part):
            yield [*part[:i], [head, *block], *part[i + 1 :]]


@pytest.mark.parametrize("n", [2, 5])
def test_fourth_moment_is_the_sum_over_pairs_of_partitions(n):
    rng = np.random.default_rng(n)
    G, u = rng.normal(size=(n, n)), rng.uniform(0.02, 0.6, n)
    G, total = G + G.T, 0.0
    for left, right in itertools.product(partitions(range(4)), repeat=2):
        terms = [part for i in range(len(left)) for part in (u, [i])]
        terms += [part for i in range(len(right)) for part in (u, [9 + i])]
        for edge in range(4):
            i = next(k for k, block in enumerate(left) if edge in block)
            j = next(k for k, block in enumerate(right) if edge in block)
            terms += [G, [i, 9 + j]]
        total += np.einsum(*terms, [], optimize=True)
    assert poisson_fourth_moment(u, G) == pytest.approx(total, rel=1e-11)
    if n == 2:
        counts = np.array(list(itertools.product(range(40), repeat=2)))
        law = np.array([[math.exp(-x) * x**k / math.factorial(k) for k in range(40)] for x in u])
        weights = law[0, counts[:, 0]] * law[1, counts[:, 1]]
        assert weights @ (counts @ G @ counts.T) ** 4 @ weights == pytest.approx(total, rel=1e-11)


def poisson_binomial(u):
    law = np.ones(1)
    for x in u:
        law = np.convolve(law, [1 - x, x])
    return law


def without(u, j):
    return poisson_binomial(np.delete(u, j))


def high_orders(m, t, theta, s, kmax, order):
    """Lemma 6.3: a bound on the even orders >= order (4 or 6)."""
    Z, u, _ = m.tangent(t, theta)
    total = 0.0
    for k in range(1, kmax + 1):
        x = s * k * m.gram
        k1, k2, k3, k4 = (x**r @ u for r in range(1, 5))
        F = np.exp((np.cosh(x) - 1) @ u) * np.cosh(np.sinh(x) @ u) - 1 - (k1**2 + k2) / 2
        if order == 6:
            F -= (k1**4 + 6 * k1**2 * k2 + 3 * k2**2 + 4 * k1 * k3 + k4) / 24
        assert np.all(F > -ROUNDING)
        F = np.maximum(F, 0)
        total += sum(u[j] * without(u, j)[k - 1] * F[j] for j in range(m.n)) / k
    return Z**2 * total


def second_order(m, t):
    V = (m.sets.T * m.omega(t)) @ m.sets
    return np.trace(V @ m.gram @ V @ m.gram) / 2


def third_order_bounds(m, t, theta, s, kmax):
    """Both forms of R_3(s)."""
    Z, u, _ = m.tangent(t, theta)
    e2, Q4 = s**2 * second_order(m, t), high_orders(m, t, theta, s, kmax, 4)
    e4 = s**4 * Z**2 * poisson_fourth_moment(u, m.gram) / 24
    Q6 = high_orders(m, t, theta, s, kmax, 6)
    return (
        Q4 + math.sqrt(4 / 3 * (e2 + Q4) * Q4),
        e4 + Q6 + math.sqrt(4 / 3 * e2 * e4) + math.sqrt(6 / 5 * (e4 + Q6) * Q6),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_orders_from_three_on(seed):
    m = mechanism(seed, rows=3, largest=6, scales=(0.2, 0.4, 0.6))
    for t, s, kmax in itertools.product(times(m), (1.0, 3.0), (1, 2, m.n)):
        theta = m.saddle(t)
        kept = m.sizes <= kmax
        Z, u, law = m.tangent(t, theta)
        omega = m.omega(t)[kept]
        inner = (m.sets @ m.gram @ m.sets.T)[np.ix_(kept, kept)]
        y = s * inner
        fourth = omega @ inner**4 @ omega / 24
        assert fourth <= Z**2 * (law @ (m.sets @ m.gram @ m.sets.T) ** 4 @ law) / 24
        assert fourth <= Z**2 * poisson_fourth_moment(u, m.gram) / 24
        even = omega @ (np.cosh(y) - 1 - y**2 / 2) @ omega
        assert even <= high_orders(m, t, theta, s, kmax, 4)
        even = omega @ (np.cosh(y) - 1 - y**2 / 2 - y**4 / 24) @ omega
        assert even <= high_orders(m, t, theta, s, kmax, 6) + ROUNDING
        true = omega @ (np.expm1(y) - y - y**2 / 2) @ omega
        assert all(true <= bound for bound in third_order_bounds(m, t, theta, s, kmax))


def test_trace_of_the_fourth_power():
    for seed in SEEDS:
        m = mechanism(seed, rows=3)
        u, more = m.tilted(0.4), m.tilted(0.9)
        fourth = [np.trace(np.linalg.matrix_power(x[:, None] * m.gram, 4)) for x in (u, more)]
        assert fourth[0] <= (u @ m.gram**2 @ u) ** 2
        assert fourth[0] <= fourth[1]


def exponential_bound(m, t, theta, s, kmax):
    """Lemma 6.6, O(n^2): a bound on all orders >= 2."""
    Z, u, _ = m.tangent(t, theta)
    h = m.gram @ u
    Zh = np.prod(1 + u * np.expm1(s * h))
    hat = u * np.exp(s * h) / (1 + u * np.expm1(s * h))
    largest = np.sort(np.maximum(m.gram, 0), axis=1)[:, ::-1][:, :kmax].sum(1).max()
    x = s * largest
    k0 = 2 * (math.expm1(x) - x) / x**2
    mean = u @ (m.gram @ hat) ** 2 + u @ m.gram**2 @ (hat * (1 - hat))
    most = k0 * s**2 / 2 * kmax * u.max() * np.linalg.eigvalsh(m.gram)[-1] ** 2
    found = Zh * (1 + math.expm1(most) / most * k0 * s**2 / 2 * mean) - 1 - s * (u @ h)
    return Z**2 * found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_on_all_orders_from_two_on(seed):
    m = mechanism(seed, rows=3, largest=6, scales=(0.2, 0.4, 0.6))
    for t, s, kmax in itertools.product(times(m), (1.0, 2.0), (1, 2, m.n)):
        kept = m.sizes <= kmax
        y = s * (m.sets @ m.gram @ m.sets.T)[np.ix_(kept, kept)]
        true = m.omega(t)[kept] @ (np.expm1(y) - y) @ m.omega(t)[kept]
        assert true <= exponential_bound(m, t, m.saddle(t), s, kmax)


def test_leave_one_out():
    rng = np.random.default_rng(5)
    for n in range(2, 9):
        u = rng.uniform(0.01, 0.9, n)
        law = poisson_binomial(u)
        for j, k in itertools.product(range(n), range(1, n + 1)):
            exact = u[j] * without(u, j)[k - 1]
            assert exact <= u[j] * law[k - 1] / (1 - u[j]) * (1 + 1e-13)
            assert exact <= law[k] * (1 + 1e-13)
    one = np.full(3, 0.5)  # without the division it is not a bound
    assert one[0] * without(one, 0)[0] > one[0] * poisson_binomial(one)[0]


def test_series_remainder():
    rng = np.random.default_rng(6)
    for X in (0.5, 3.0, 8.0):
        x, u = rng.uniform(-X, X, 20), rng.uniform(0, 0.3, 20)
        last = 24
        top = u @ x**last / math.factorial(last)
        even = sum(u @ x**r / math.factorial(r) for r in range(last + 2, 100, 2))
        odd = sum(u @ np.abs(x) ** r / math.factorial(r) for r in range(last + 1, 100, 2))
        rho = X**2 / ((last + 1) * (last + 2))
        assert even < top * rho / (1 - rho)
        assert odd < top * X / (last + 1) / (1 - X**2 / ((last + 2) * (last + 3)))


# Section 7: bounds on U(t).


def excluded_cost(x, order):
    """E (exp(g - x/2) minus its orders below `order`)_+ is at most this, g ~ N(0, x)."""
    if order == 2:
        return np.minimum(1 + 0.4 * np.sqrt(x), np.sqrt(np.expm1(x) - x) / 2)
    tail = np.sqrt(np.maximum(np.expm1(x) - x - x**2 / 2, 0)) / 2
    return np.minimum(1 + 0.4 * np.sqrt(x) + 0.25 * x, tail)


@pytest.mark.parametrize("x", [0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 9.0, 25.0])
def test_cost_of_an_excluded_set(x):
    h = 1e-3
    g = math.sqrt(x) * np.arange(-12, 12 + math.sqrt(x), h)
    density = h * phi(g / math.sqrt(x))
    rest = np.exp(g - x / 2) - 1 - g
    assert density @ np.maximum(rest, 0) < excluded_cost(x, 2)
    assert density @ np.maximum(rest - (g**2 - x) / 2, 0) < excluded_cost(x, 3)


def moment_bounds(excess, first, higher):
    """Variance and Nelson bounds on E (Y - excess)_+; higher(s) bounds sum_{r >= 2} s^r T_r."""
    root = math.sqrt(first + higher(1.0) + excess**2)
    found = [(root - excess) / 2]
    if excess > 0:
        for order in (2.0, 2.5, 3.0, 4.0):
            s = order - 1
            norm = math.sqrt(s * first + higher(s))
            found.append(norm**order * s**s / (order**order * excess**s))
    return found


def excluded(m, t, theta, kmax, order):
    """D(t) with the bound on |A'_S|^2 and the tangent weights."""
    Z, u, _ = m.tangent(t, theta)
    rows = np.sort(np.maximum(m.gram, 0), axis=1)[:, ::-1].cumsum(1).max(0)
    law = poisson_binomial(u)
    return Z * sum(law[k] * excluded_cost(k * rows[k - 1], order) for k in range(kmax + 1, m.n + 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_moment_bounds_with_truncation(seed):
    m = mechanism(seed, largest=6, scales=(0.2, 0.4, 0.6))
    for t, kmax, threshold in itertools.product(times(m), (1, 2, m.n), (1.2, 4.0)):
        theta, omega = m.saddle(t), m.omega(t)
        first = np.sum((m.rest @ (omega @ m.sets)) ** 2)
        true = m.inner(np.array([t]), threshold)[0]
        cost = excluded(m, t, theta, kmax, 2)
        sizes = np.einsum("si,ij,sj->s", m.sets, m.gram, m.sets)
        out = m.sizes > kmax
        assert omega[out] @ excluded_cost(np.maximum(sizes[out], 0), 2) <= cost
        assert true <= omega.sum()

        def series(s, t=t, theta=theta, kmax=kmax):
            return s**2 * second_order(m, t) + third_order_bounds(m, t, theta, s, kmax)[1]

        def exponential(s, t=t, theta=theta, kmax=kmax):
            return exponential_bound(m, t, theta, s, kmax)

        for higher in (series, exponential):
            for bound in moment_bounds(threshold - omega.sum(), first, higher):
                assert true <= bound + cost


def log_moment(c, b, lam):
    """log E exp(c Y), Y = <b,z> + sum lam_i (z_i^2 - 1)/2."""
    c = np.asarray(c)[..., None]
    return (b**2 * c**2 / (1 - c * lam) - np.log(1 - c * lam) - c * lam).sum(-1) / 2


def quadratic_call(lam, b, x):
    """E (b z + lam (z^2-1)/2 - x)_+ for z ~ N(0,1), lam > 0, exactly."""
    root = np.sqrt(np.maximum(b**2 + lam * (lam + 2 * x), 0))
    low, high = (-b - root) / lam, (-b + root) / lam
    tails = ndtr(low) + ndtr(-high)
    second = tails + high * phi(high) - low * phi(low)
    return b * (phi(high) - phi(low)) + lam * (second - tails) / 2 - x * tails


@pytest.mark.parametrize("x", [-0.5, 0.3, 1.5, 4.0])
def test_first_and_second_order_exactly(x):
    b, lam = np.array([0.5, 0.3]), np.array([0.35, 0.1])
    z, h = np.linspace(-12, 12, 4801, retstep=True)
    given = x - b[1] * z - lam[1] * (z**2 - 1) / 2
    true = h * np.sum(phi(z) * quadratic_call(lam[0], b[0], given))
    for c in (0.4, 1.2):

        def trapezoid(step, count, c=c):
            zeta = c + 1j * step * np.arange(-count, count + 1)
            terms = np.exp(log_moment(zeta, b, lam) - zeta * x) / zeta**2
            return step / (2 * math.pi) * terms.sum().real

        heights = log_moment(c + 1j * np.linspace(0, 50, 400), b, lam).real
        assert np.all(np.diff(heights) < 0)
        assert trapezoid(0.02, 20_000) == pytest.approx(true, rel=1e-6)
        assert trapezoid(1.0, 2000) > true  # aliasing errs upwards
        for count in (50, 100, 400):
            end = 0.02 * count
            height = math.exp(log_moment(c + 1j * end, b, lam).real - c * x)
            assert trapezoid(0.02, count) + height / (math.pi * end) > true


def test_second_order_of_more_sets_is_no_upper_bound():
    """Why truncated sets may not keep all of B in the Fourier route."""
    assert quadratic_call(0.4, 0.5, -1.5) < quadratic_call(0.05, 0.5, -1.5)


def test_errors_of_the_coefficients_enter_by_their_norm():
    """Lemma 7.5, last claim, and the derivative of a put in section 9.3."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        b, c, x = rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(-2, 3)
        lam, mu = rng.uniform(0.01, 0.8, 2)
        change = abs(quadratic_call(lam, b, x) - quadratic_call(mu, c, x))
        assert change < math.sqrt((b - c) ** 2 + (lam - mu) ** 2 / 2)
        spot, strike, (s, r) = rng.uniform(0.2, 2), rng.uniform(0.2, 2), rng.uniform(0.01, 2, 2)
        change = abs(scaled_put(spot, strike, s) - scaled_put(spot, strike, r))
        assert change < 0.8 * strike * abs(s - r)


def scaled_put(spot, strike, s):
    """E (strike - spot e^(s N))_+."""
    d = math.log(strike / spot) / s
    return strike * ndtr(d) - spot * math.exp(s * s / 2) * ndtr(d - s)


@pytest.mark.parametrize("seed", SEEDS)
def test_splitting_off_the_first_two_orders(seed):
    m = mechanism(seed, largest=6, scales=(0.2, 0.4, 0.6))
    for t, kmax, threshold in itertools.product(times(m), (2, m.n), (1.5, 4.0)):
        theta, omega, shifts = m.saddle(t), m.omega(t), m.shifts
        true = m.inner(np.array([t]), threshold)[0]
        b, lam = omega @ shifts, omega @ shifts**2
        for tau in (0.02, 0.2, 1.0):
            low = quadratic_call(lam, b, threshold - omega.sum() - tau)
            bounds = moment_bounds(
                tau,
                0.0,
                lambda s, t=t, theta=theta, kmax=kmax: third_order_bounds(m, t, theta, s, kmax)[1],
            )
            for bound in bounds:
                assert true <= low + bound + excluded(m, t, theta, kmax, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_collinear_bound(seed):
    m = mechanism(seed)
    for t, threshold in itertools.product(times(m), (0.05, 1.5, 5.0)):
        true = m.inner(np.array([t]), threshold)[0]
        omega, norms = m.omega(t), np.abs(m.shifts)
        W = np.array([omega[m.sizes == k].sum() for k in range(m.n + 1)])
        reach = np.array([norms[m.sizes == k].max() for k in range(m.n + 1)])

        def mixture(g, W=W, reach=reach):
            return W @ np.exp(reach * g - reach**2 / 2)

        if W[0] >= threshold:
            assert true <= (W.sum() - threshold) * (1 + 1e-12)
            continue
        g = brentq(lambda g, E=threshold: mixture(g) - E, -300, 100)
        assert true <= W @ ndtr(reach - g) - threshold * ndtr(-g) + ROUNDING * W.sum()
        low, high = g - 0.01, g + 0.02
        assert mixture(low) <= threshold <= mixture(high)
        assert true <= W @ ndtr(reach - low) - threshold * ndtr(-high) + ROUNDING * W.sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_chords_and_tails(seed):
    m = mechanism(seed)
    for threshold in (1.2, 3.0):
        t = np.arange(-1, m.a.sum() + 4, 0.25)
        U = m.inner(t, threshold)
        assert np.all(np.diff(U) > -ROUNDING)
        assert np.all(m.inner((t[1:] + t[:-1]) / 2, threshold) <= (U[1:] + U[:-1]) / 2 + ROUNDING)
        slope = np.diff(U) / np.diff(t)
        chords = (U[:-1] - slope * t[:-1]) * np.diff(ndtr(t)) - slope * np.diff(phi(t))
        theta = max(m.saddle(t[-1]), 0.0)
        above = math.exp(theta**2 / 2 - theta * t[-1] + m.cumulant(theta))
        assert m.remove(threshold)[0] < ndtr(t[0]) * U[0] + chords.sum() + above


# Section 8: add.


@pytest.mark.parametrize("seed", SEEDS)
def test_frozen_weights_bound_the_ratio_from_below(seed):
    m = mechanism(seed)
    shifts, z = m.shifts, np.linspace(-5, 5, 41)
    for node, t in itertools.product(times(m), times(m)):
        frozen = m.omega(node)
        mass, v, V = frozen.sum(), frozen @ m.sets, (m.sets.T * frozen) @ m.sets
        slope = (m.a @ v) / mass
        kappa = np.trace(V @ m.gram) / (2 * mass)
        b = (frozen @ shifts) / mass
        assert abs(b) == pytest.approx(np.linalg.norm(m.rest @ v) / mass, rel=1e-9, abs=1e-12)
        ratio = m.omega(t) @ np.exp(np.multiply.outer(shifts, z) - shifts[:, None] ** 2 / 2)
        lower = mass * np.exp((t - node) * slope + b * z - kappa)
        assert np.all(ratio >= lower * (1 - 1e-12))
        assert np.all(ratio >= (1 - m.p) ** m.n)


@pytest.mark.parametrize("seed", SEEDS)
def test_upper_bound_for_add(seed):
    m = mechanism(seed)
    for threshold in (1.05, 1.3, 2.0):
        strike, t = 1 / threshold, np.arange(-5, 4, 0.1)
        omega = m.omega(t)
        mass, v = omega.sum(1), omega @ m.sets
        b = np.linalg.norm(v @ m.rest.T, axis=1) / mass
        kappa = omega @ np.square(m.shifts) / 2 / mass
        spot = mass * np.exp(b**2 / 2 - kappa)
        d = (np.log(strike / spot) + b**2 / 2) / b
        puts = strike * ndtr(d) - spot * ndtr(d - b)
        cells = np.diff(np.append(ndtr(t), 1.0))
        below = ndtr(t[0]) * max(strike - (1 - m.p) ** m.n, 0)
        assert m.add(threshold)[0] < threshold * (below + cells @ puts)
