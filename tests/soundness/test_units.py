"""Claim: guarantees in other units are upper bounds: mu, rho, attack rates, advantage.

Truth: mixtures in 50 digits, compositions by Mellin inversion, laws on a few outcomes by hand, and
the rates of tests that really exist.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from cases.samples import first
from oracles import attacks, truth

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._curve_points import Point, bound_mu, mu_between


def gaussian(mu, epsilon):
    return truth.gaussian_delta(mu, 1.0, epsilon) if mu > 0 else mp.mpf(0)


def longest(curve, floor):
    """An epsilon at which the curve is below the floor."""
    high = 1.0
    while curve(high) > floor:
        high *= 2
    return high


def assert_covered(curve, mu, floor, count=25):
    """The true curve is below that of mu plus the floor, wherever it is above the floor."""
    for epsilon in np.linspace(0, longest(curve, floor), count):
        assert curve(float(epsilon)) <= gaussian(mu, float(epsilon)) + mp.mpf(floor)


@pytest.mark.parametrize("seed", [0, 1, pytest.param(range(2, 60), marks=pytest.mark.slow)])
def test_mu_of_one_step_covers_the_true_curve(seed):
    for one in [seed] if isinstance(seed, int) else seed:
        rng = np.random.default_rng(one)
        p, sigma = 10.0 ** rng.uniform(-4, -0.01), 10.0 ** rng.uniform(-0.4, 1)
        floor = 10.0 ** rng.uniform(-14, -2)
        identity, scheme = strategies.identity(1), sampling.Poisson(p)
        method = "tight" if one % 10 == 9 else "mmcc"
        found = mmcc.epsilon(identity, scheme, sigma=sigma, delta=1e-6, method=method)

        def curve(epsilon, p=p, sigma=sigma):
            sides = ("remove", "add")
            return max(
                truth.mixture_delta([0, 1], [1 - p, p], sigma, epsilon, side) for side in sides
            )

        assert_covered(curve, found.gdp(floor), floor)
        assert curve(0.0) <= found.advantage()
        assert_powers(found, p, sigma)


def assert_powers(found, p, sigma):
    """Both hypotheses of one step: the ratio is monotone, so half-lines are the best tests."""
    for threshold in (-1.0, 0.5, 1.0, 2.5, 4.0):
        with mp.workdps(30):
            y = mp.mpf(threshold)
            without = mp.ncdf(-y / sigma)
            with_it = (1 - mp.mpf(p)) * without + p * mp.ncdf((1 - y) / sigma)
        for rate, power in ((without, with_it), (1 - with_it, 1 - without)):
            # The rate as a float may be below the true one; a slope of the trade-off pays for it.
            asked = math.nextafter(float(rate), 1)
            assert asked == 1 or found.true_positive_rate(asked) >= power


def dp_sgd(p, sigma, steps, method="mmcc"):
    """Independent noise, which MMCC accounts exactly."""
    identity, scheme = strategies.identity(steps), sampling.Poisson(p)
    return mmcc.epsilon(identity, scheme, sigma=sigma, delta=1e-6, method=method)


@pytest.mark.parametrize("method", ["mmcc", pytest.param("tight", marks=pytest.mark.slow)])
def test_mu_of_dp_sgd_covers_the_true_curve(method):
    p, sigma, steps = 0.05, 0.9, 12
    found = dp_sgd(p, sigma, steps, method)
    for floor in (1e-12, 1e-6) if method == "tight" else (1e-9,):
        mu = found.gdp(floor)
        for epsilon in np.linspace(0.3, found.epsilon_at(floor), 5):
            for side in ("remove", "add"):
                low, _ = truth.composed_subsampled_gaussian_delta(
                    steps, 1.0, p, sigma, float(epsilon), side
                )
                assert low <= gaussian(mu, float(epsilon)) + floor


@pytest.mark.parametrize(("p", "sigma", "steps"), [(0.05, 0.9, 12), (0.3, 2.0, 8)])
def test_powers_of_dp_sgd_lie_above_those_of_real_tests(p, sigma, steps):
    found = dp_sgd(p, sigma, steps)
    for rates in attacks.rounded_loss_rates(p, sigma, steps, spacing=2e-3):
        # The rates are sums of thousands of floats: so much is theirs, not the bound's.
        assert np.max(rates[1] - rates[0]) <= found.advantage() + 1e-13
        for asked in (1e-6, 1e-4, 1e-2, 0.3, 0.9):
            rate, power = rates[:, np.searchsorted(rates[0], asked)]
            assert power <= found.true_positive_rate(rate * (1 + 1e-12))


SLOW = [pytest.param(c, "tight", marks=pytest.mark.slow) for c in (0.25, 0.5, 1.0)]


@pytest.mark.parametrize(("corner", "method"), [(0.5, "mmcc"), *SLOW])
def test_mu_of_correlated_noise_covers_the_true_curve(corner, method):
    matrix, p, sigma = np.array([[1.0, 0.0], [corner, 1.0]]), 0.3, 1.5
    found = mmcc.epsilon(
        strategies.dense(matrix), sampling.Poisson(p), sigma=sigma, delta=1e-5, method=method
    )
    for floor in (1e-3, 1e-8) if method == "tight" else (1e-3,):
        mu = found.gdp(floor)
        for epsilon in np.linspace(0, found.epsilon_at(floor), 7):
            for side in ("remove", "add"):
                low, _ = truth.two_row_bracket(matrix, p, sigma, float(epsilon), side)
                assert low <= gaussian(mu, float(epsilon)) + floor


@pytest.mark.parametrize("seed", range(40))
def test_points_of_small_laws_bound_all_their_tests(seed):
    """Any pair of laws on a few outcomes: points of its curve against all of its tests."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(6, 0.7), size=2) + 1e-9
    p, q = p / p.sum(), q / q.sum()
    points = [
        Point(float(e), min(attacks.hockey_stick(p, q, e) + 1e-15, 1.0))
        for e in rng.uniform(0, 4, size=5)
    ]
    for one, other in ((p, q), (q, p)):
        for rate, power in zip(*attacks.best_rates(one, other), strict=True):
            assert power <= min(point.power(float(rate)) for point in points) + 1e-14
        advantage = 0.5 * np.abs(p - q).sum()
        assert advantage <= min(point.advantage for point in points) + 1e-14


@pytest.mark.parametrize("seed", first(range(20), 8))
def test_mu_lies_above_all_chords(seed):
    """Not only at the points: everywhere between them, in 50 digits."""
    rng = np.random.default_rng(seed)
    left = Point(float(rng.uniform(0, 3)), float(10 ** rng.uniform(-9, -0.3)))
    right = Point(
        left.epsilon + float(rng.uniform(0.01, 3)), left.delta * float(10 ** rng.uniform(-6, -0.01))
    )
    floor = float(10 ** rng.uniform(-14, -5))
    mu = mu_between(left, right, floor)
    tight = False
    for share in np.linspace(0, 1, 200):
        epsilon = left.epsilon + float(share) * (right.epsilon - left.epsilon)
        with mp.workdps(40):
            a, b, x = (mp.exp(mp.mpf(e)) for e in (left.epsilon, right.epsilon, epsilon))
            chord = left.delta + (right.delta - mp.mpf(left.delta)) * (x - a) / (b - a)
        assert chord <= gaussian(mu, epsilon) + floor
        tight |= bool(gaussian(mu * (1 - 1e-4), epsilon) + floor < chord) if mu else True
    assert tight or left.delta <= floor


def test_a_curve_that_does_not_reach_the_floor_has_no_mu():
    points = [Point(0.0, 0.2), Point(1.0, 1e-3)]
    assert bound_mu(points, 1e-6) == math.inf
    assert bound_mu(points, 1e-3) < 1
    assert bound_mu(points, 1e-3) < bound_mu(points[1:], 1e-3)  # less is known at epsilon 0
    assert bound_mu(points, 0.2) == 0


@pytest.mark.parametrize(("steps", "sigma"), [(1, 1.0), (16, 3.7), (100, 55.5)])
def test_a_gaussian_mechanism_is_exact(steps, sigma):
    exact = math.sqrt(steps) / sigma
    for method in ("tight", "unamplified"):
        found = mmcc.epsilon(
            strategies.identity(steps), sampling.Poisson(1), sigma=sigma, delta=1e-6, method=method
        )
        for floor in (0, 1e-12, 1e-9):
            assert exact <= found.gdp(floor) <= exact * (1 + 1e-9)
        assert exact**2 / 2 <= found.zcdp() <= exact**2 / 2 * (1 + 1e-9)
        tv = 2 * mp.ncdf(mp.mpf(exact) / 2) - 1
        assert tv <= found.advantage() <= tv * (1 + 1e-9)
        for rate in (1e-9, 1e-3, 0.4, 0.99):
            with mp.workdps(40):
                quantile = mp.sqrt(2) * mp.erfinv(2 * mp.mpf(rate) - 1)
                power = mp.ncdf(quantile + mp.mpf(math.sqrt(steps)) / mp.mpf(sigma))
            assert power <= found.true_positive_rate(rate) <= power * (1 + 1e-9)


def test_rho_covers_divergences_of_the_mixture():
    """zCDP of one step with amplification left out, both adjacencies, by quadrature."""
    p, sigma = 0.3, 0.8
    found = mmcc.epsilon(strategies.identity(1), sampling.Poisson(p), sigma=sigma, delta=1e-5)
    for order in (1.5, 4.0, 20.0):
        for remove in (True, False):

            def integrand(y, order=order, remove=remove):
                ratio = 1 - p + p * mp.exp((y - mp.mpf(0.5)) / sigma**2)
                weight = ratio**order if remove else ratio ** (1 - order)
                return weight * mp.npdf(y, 0, sigma)

            grid = [-30, -10, -3, 0, 3, 10, 20, 30, 60]
            divergence = mp.log(mp.quad(integrand, grid)) / (order - 1)
            assert divergence <= order * found.zcdp()
