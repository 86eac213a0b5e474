"""Claim: docs/theory-identity.md is right about the true delta near the identity.

Truth for two steps: integrals over the first output with the boundary in the second one found by
root search, in mpmath with 20 digits and its own error estimate; nothing is shared with
benchmarks/near_identity.py, which conditions on another variable and has the boundary in closed
form.  Slopes are compared with finite differences, whose error is the difference of two orders: of
that truth in one case, in the others of the quadrature that was compared with it.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from cases.samples import first

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load(name: str):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


near = load("near_identity")
CELLS = [  # p, epsilon, sigma of the identity near delta = 1e-5
    (1 / 1000, 1.0, 0.45377),
    (1 / 100, 10.0, 0.31966),
    (1 / 16, 0.3, 1.92586),
    (1 / 4, 0.1, 11.65766),
    (1 / 4, 3.0, 1.06345),
    (0.9, 1.0, 4.85771),
]
DIGITS = 20


def true_delta(corner, sigma, p, epsilon, adjacency="remove"):
    """Delta and its error for C = [[1, 0], [corner, 1]], corner >= 0, 0 < p < 1."""
    with mp.workdps(DIGITS):
        c, s, p = mp.mpf(corner), mp.mpf(sigma), mp.mpf(p)
        sign = 1 if adjacency == "remove" else -1
        x = mp.exp(sign * mp.mpf(epsilon))
        means = [(mp.mpf(a), a * c + b) for a in (0, 1) for b in (0, 1)]  # sigma times the shift
        weights = [(p if a else 1 - p) * (p if b else 1 - p) for a in (0, 1) for b in (0, 1)]

        def boundary(parts):
            """The second output at which X = x: Newton in floats, then twice in full precision."""
            logs = [float(mp.log(k / x)) for k in parts]
            rates = [float(m[1] / s) for m in means]
            y, low, high = 0.0, -1e4, 1e4
            for _ in range(200):
                exponents = [k + r * y for k, r in zip(logs, rates, strict=True)]
                top = max(exponents)
                terms = [math.exp(v - top) for v in exponents]
                value = top + math.log(sum(terms))
                low, high = (low, y) if value > 0 else (y, high)
                slope = sum(r * t for r, t in zip(rates, terms, strict=True)) / sum(terms)
                after = y - value / slope if slope > 1e-300 else math.inf
                after = after if low < after < high else (low + high) / 2
                if abs(after - y) <= 1e-13 * (1 + abs(y)):
                    break
                y = after
            y = mp.mpf(after)
            for _ in range(2):
                terms = [k * mp.exp(m[1] * y / s) for k, m in zip(parts, means, strict=True)]
                slope = mp.fsum(m[1] / s * t for m, t in zip(means, terms, strict=True))
                y -= (mp.fsum(terms) - x) / slope
            return y

        def slice_at(y):
            parts = [
                w * mp.exp(m[0] * y / s - (m[0] ** 2 + m[1] ** 2) / (2 * s * s))
                for w, m in zip(weights, means, strict=True)
            ]
            always = mp.fsum(k for k, m in zip(parts, means, strict=True) if m[1] == 0)
            edge = boundary(parts) if always < x else -mp.inf
            total = -sign * x * mp.ncdf(-sign * edge)
            for k, m in zip(parts, means, strict=True):
                total += (
                    sign * k * mp.exp(m[1] ** 2 / (2 * s * s)) * mp.ncdf(sign * (m[1] / s - edge))
                )
            return total * mp.npdf(y)

        cuts = mp.linspace(-11, 11 + 2 / s, 12)
        value, error = mp.quad(slice_at, cuts, error=True, maxdegree=6)
        scale = 1 if adjacency == "remove" else mp.exp(epsilon)
        return value * scale, (error + mp.mpf(10) ** (6 - DIGITS)) * scale


def corner_gram(corner, sigma):
    """The Gram matrix of the same C."""
    g = sigma**-2.0
    return near.Gram(g * (1 + corner**2), g * corner, g)


def forward_slope(value, step):
    """Derivative at 0 from the right and its error: orders five and six, and round-off of 1e-13."""
    at = [value(k * step) for k in range(7)]
    five = np.array([-137 / 60, 5, -5, 10 / 3, -5 / 4, 1 / 5])
    six = np.array([-49 / 20, 6, -15 / 2, 20 / 3, -15 / 4, 6 / 5, -1 / 6])
    low, high = five @ at[:6] / step, six @ at / step
    return high, abs(high - low) + 25 * 1e-13 * max(at) / step


@pytest.mark.parametrize(
    ("corner", "sigma", "p", "epsilon", "adjacency"),
    [
        (0.4, 0.45377, 1 / 1000, 1.0, "remove"),
        (0.4, 1.92586, 1 / 16, 0.3, "remove"),
        (0.0, 2.06048, 1 / 4, 1.0, "remove"),
        (0.2, 4.78013, 1 / 4, 0.3, "add"),
    ],
)
def test_two_step_delta_is_the_truth(corner, sigma, p, epsilon, adjacency):
    exact, error = true_delta(corner, sigma, p, epsilon, adjacency)
    found = near.two_step_delta(corner_gram(corner, sigma), p, epsilon, adjacency)
    assert exact > 1e-12
    assert abs(found - exact) <= error + 1e-11 * exact


def test_correlated_noise_has_the_smaller_true_delta_at_equal_largest_error():
    """Corollary 5 where its gain is small: p = 1/4, epsilon = 1.  Truth in mpmath, no tolerance."""
    corner, sigma = 0.25, 2.06048
    larger = sigma * math.sqrt(2 / (1 + (1 - corner) ** 2)) * (1 - 1e-12)  # error not above
    plain, plain_error = true_delta(0.0, sigma, 1 / 4, 1.0)
    found, error = true_delta(corner, larger, 1 / 4, 1.0)
    assert found + error < plain - plain_error
    added = near.two_step_delta(corner_gram(corner, larger), 1 / 4, 1.0, "add")
    assert added < plain - plain_error


def test_slope_in_tau_is_the_slope_of_the_truth():
    p, epsilon, sigma, step = 1 / 4, 3.0, 1.06345, mp.mpf("1e-4")
    at, errors = zip(*(true_delta(k * step, sigma, p, epsilon) for k in range(4)), strict=True)
    low = (-3 * at[0] + 4 * at[1] - at[2]) / (2 * step)
    high = (-11 * at[0] + 18 * at[1] - 9 * at[2] + 2 * at[3]) / (6 * step)
    allowed = abs(high - low) + 7 * max(errors) / step
    slope = near.two_step_sensitivity(p, sigma, epsilon, "remove")[0, 1] / sigma**2
    assert allowed < 1e-4 * high
    assert abs(slope - high) <= allowed


@pytest.mark.parametrize(("p", "epsilon", "sigma"), CELLS)
@pytest.mark.parametrize("adjacency", near.ADJACENCIES)
def test_slopes_of_delta(p, epsilon, sigma, adjacency):
    g = sigma**-2.0
    k = near.two_step_sensitivity(p, sigma, epsilon, adjacency)
    if math.exp(-epsilon) <= (1 - p) ** 2 and adjacency == "add":
        assert (k == 0).all()  # X never falls to the level: the add side costs nothing
        return
    cross, error = forward_slope(
        lambda t: near.two_step_delta(near.Gram(g, t * g, g), p, epsilon, adjacency) / g, 1e-3
    )
    assert abs(k[0, 1] - cross) <= 2 * error
    for place, gram in enumerate((lambda t: (g + t * g, 0.0, g), lambda t: (g, 0.0, g + t * g))):
        own, error = forward_slope(
            lambda t, at=gram: near.two_step_delta(near.Gram(*at(t)), p, epsilon, adjacency) / g,
            1e-3,
        )
        assert abs(k[place, place] / 2 - own) <= 2 * error


@pytest.mark.parametrize("p", [1e-3, 1e-2, 1 / 16, 1 / 4, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 10.0])
def test_rho_is_between_nought_and_one(p, epsilon):
    for sigma in (0.3, 1.0, 5.0, 30.0):
        k = near.two_step_sensitivity(p, sigma, epsilon, "remove")
        if k[0, 0] > 1e-250:
            assert 0 < k[0, 1] < k[0, 0]
            assert k[1, 1] == pytest.approx(k[0, 0], rel=1e-6)


@pytest.mark.parametrize(("p", "epsilon", "sigma"), CELLS)
def test_sign_for_two_steps(p, epsilon, sigma):
    """Mean error: the corner wins if rho < 2/3, loses if more.  Largest error: it always wins."""
    plain = near.two_step_worst(corner_gram(0.0, sigma), p, epsilon)
    rho = near.alignment(2, p, sigma, epsilon, "remove")
    corner = 0.002 * (1 - rho)  # small against the second order
    mean = sigma * math.sqrt(3 / (3 - 2 * corner + corner**2))
    largest = sigma * math.sqrt(2 / (1 + (1 - corner) ** 2))
    at_mean, at_largest = (
        near.two_step_worst(corner_gram(corner, noise), p, epsilon) for noise in (mean, largest)
    )
    assert (at_mean < plain) == (rho < 2 / 3)
    assert at_largest < plain


@pytest.mark.parametrize(("p", "epsilon", "sigma"), CELLS)
def test_unequal_independent_noise_beats_equal_noise(p, epsilon, sigma):
    """Mean error, diagonal C = (1 + t, 1 - t): wins for every p, full batch or nearly."""
    g, t = sigma**-2.0, 1e-3
    error = (2 / (1 + t) + 1 / (1 - t)) / 3
    found = near.two_step_worst(
        near.Gram(g * error * (1 + t), 0.0, g * error * (1 - t)), p, epsilon
    )
    assert found < near.two_step_worst(near.Gram(g, 0.0, g), p, epsilon)


def three_step_delta(cross, p, sigma, epsilon, diagonal=0.0):
    """Remove, three steps, G = g (I + cross (E_12 + E_21) + diagonal I): the third factor given."""
    g = sigma**-2.0 * (1 + diagonal)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    low, high = -9.0, 9.0 + 1 / sigma
    y = low + (high - low) * (nodes + 1) / 2
    factor = 1 - p + p * np.exp(y * math.sqrt(g) - g / 2)
    density = weights * (high - low) / 2 * np.exp(-(y**2) / 2) / math.sqrt(2 * math.pi)
    pair = near.Gram(g, cross * sigma**-2.0, g)
    inner = [near.two_step_delta(pair, p, epsilon - math.log(f), "remove") for f in factor]
    return float(density @ (factor * inner))


@pytest.mark.parametrize(
    ("p", "epsilon", "sigma"), first([(1 / 4, 1.0, 2.27952), (1 / 16, 1.0, 1.2)], 1)
)
def test_rho_of_three_steps(p, epsilon, sigma):
    cross, cross_error = forward_slope(lambda t: three_step_delta(t, p, sigma, epsilon), 2e-3)
    own, own_error = forward_slope(lambda t: three_step_delta(0.0, p, sigma, epsilon, t), 2e-3)
    found = near.alignment(3, p, sigma, epsilon, "remove")
    expected = 3 * cross / (2 * own)
    allowed = expected * (cross_error / cross + own_error / own) + 1e-4 * expected
    assert abs(found - expected) <= 2 * allowed
    assert found < 1


def test_three_steps_beat_the_identity_in_mean_error():
    """Corollary 6, n = 3, p = 1/4: C = I + tau E_21 at equal mean error."""
    p, epsilon, sigma, tau = 1 / 4, 1.0, 2.27952, 0.01
    larger = sigma * math.sqrt(6 / (6 - 4 * tau + 2 * tau**2))
    # G_11 = 1 + tau^2 is raised to that on all three steps, which only adds to delta
    found = three_step_delta(tau, p, larger, epsilon, diagonal=tau**2)
    assert found < three_step_delta(0.0, p, sigma, epsilon)


@pytest.mark.parametrize("delta", [1.0, 2e-3, math.nan])
def test_no_noise_is_needed_where_nobody_takes_part(delta):
    with pytest.raises(ValueError, match="no noise is needed"):
        near.two_step_scale(near.Gram(1.0, 0.0, 1.0), 1e-3, 1.0, delta)


@pytest.mark.parametrize("entries", [(0.0, 0.0, 1.0), (1.0, -0.1, 1.0), (1.0, 1.0, 1.0)])
def test_only_gram_matrices_of_encoders(entries):
    with pytest.raises(ValueError, match=r"got|definite"):
        near.Gram(*entries)
