"""Claim: power series are divided to ten digits, or not at all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mmcc import strategies, utility
from mmcc.errors import PrecisionError
from mmcc.strategies import _series as series
from mmcc.strategies._recurrences import divide_buffers


def square_root(steps: int) -> np.ndarray:
    """Coefficients of (1 - x)^(-1/2): binom(2k, k) / 4^k."""
    k = np.arange(1, steps)
    return np.cumprod(np.concatenate([[1.0], (2 * k - 1) / (2 * k)]))


def long_division(dividend, divisor, length):
    """The quotient in rational numbers."""
    c = [Fraction(value) for value in divisor]
    found: list[Fraction] = []
    for k in range(length):
        rest = Fraction(dividend[k]) if k < len(dividend) else Fraction(0)
        rest -= sum(c[i] * found[k - i] for i in range(1, min(k, len(c) - 1) + 1))
        found.append(rest / c[0])
    return [float(value) for value in found]


@pytest.fixture
def newton(monkeypatch):
    """Transforms for everything, from the first coefficients on."""
    monkeypatch.setattr(series, "DIRECT_WORK", 0)
    monkeypatch.setattr(series, "DIRECT_PRODUCT", 0)
    monkeypatch.setattr(series, "START", 2)


CASES = {
    "prefix sums over a falling encoder": (np.ones(60), np.linspace(1.0, 0.2, 9)),
    "momentum over the counting matrix": (utility.momentum(60, 0.9), square_root(60)),
    "one coefficient": (np.ones(60), np.array([3.0])),
    "a dividend that ends": (np.array([1.0, -2.0, 0.5]), np.array([2.0, 1.0, 0.25])),
    "one step": (np.ones(1), np.array([4.0, 1.0])),
}


@pytest.mark.parametrize("name", CASES)
def test_recurrence_is_long_division(name):
    dividend, divisor = CASES[name]
    exact = long_division(dividend, divisor, 60 if dividend.size > 1 else 1)
    found = series.quotient(dividend, divisor, len(exact))
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_transforms_are_long_division(newton, name):
    dividend, divisor = CASES[name]
    exact = long_division(dividend, divisor, 60 if dividend.size > 1 else 1)
    found = series.quotient(dividend, divisor, len(exact))
    np.testing.assert_allclose(found, exact, rtol=1e-11, atol=1e-13)


def test_growing_quotients_are_not_left_to_transforms(newton):
    """The inverse of 1 + 3x grows like 3^k: transforms lose its early coefficients."""
    exact = long_division(np.ones(80), [1.0, 3.0], 80)
    found = series.quotient(np.ones(80), np.array([1.0, 3.0]), 80)
    np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_what_cannot_be_had_is_refused(newton, monkeypatch):
    monkeypatch.setattr(series, "PATIENT_WORK", 0)
    with pytest.raises(PrecisionError, match="grows so fast"):
        series.quotient(np.ones(80), np.array([1.0, 3.0]), 80)


@pytest.mark.parametrize("steps", [2**14, 10**5])
def test_counting_matrix_is_its_own_square_root(steps):
    """A C^-1 = C, and C^-1 is (1 - x)^(1/2): closed forms."""
    counting = strategies.continual_counting(steps)
    found = counting.divide(np.ones(steps))
    np.testing.assert_allclose(found, square_root(steps), rtol=1e-9)
    k = np.arange(1, steps)
    inverse = np.cumprod(np.concatenate([[1.0], (k - 1.5) / k]))
    impulse = np.zeros(steps)
    impulse[0] = 1.0
    np.testing.assert_allclose(counting.divide(impulse), inverse, rtol=1e-9, atol=1e-14)


def test_momentum_over_a_long_counting_matrix():
    """(1-x)^(-1/2) / (1 - beta x): a sum of positive terms, one after another."""
    steps, beta = 30000, 0.95
    expected, value = np.empty(steps), 0.0
    for k, f in enumerate(square_root(steps)):
        value = beta * value + f
        expected[k] = value
    found = strategies.continual_counting(steps).divide(utility.momentum(steps, beta))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("decay", "scale"), [([0.9], [0.4]), ([0.999, 0.9], [0.05, 0.3]), ([0.99, 0.9, 0.5], [0.1] * 3)]
)
def test_buffers_are_division_by_their_coefficients(decay, scale):
    steps = 50
    coefficients = [Fraction(1)]
    for k in range(steps - 1):
        terms = zip(decay, scale, strict=True)
        coefficients.append(sum(Fraction(s) * Fraction(d) ** k for d, s in terms))
    exact = long_division(np.ones(steps), coefficients, steps)
    found = divide_buffers(np.ones(steps), np.array(decay), np.array(scale))
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-14)


class KnownInverse(strategies.Toeplitz):
    """An encoder that keeps the bands of its inverse."""

    @property
    def inverse_coefficients(self) -> np.ndarray:
        return np.array([1.0, -0.5, -0.125])


@pytest.mark.parametrize("steps", [3, 50])
def test_known_bands_of_the_inverse_are_used(steps):
    known = KnownInverse(np.array(long_division([1.0], [1.0, -0.5, -0.125], steps)), steps)
    plain = strategies.toeplitz(known.coefficients, steps)
    for workload in (np.ones(steps), utility.momentum(steps, 0.9)):
        np.testing.assert_allclose(known.divide(workload), plain.divide(workload), atol=1e-13)
    assert utility.noise_memory(known) == 3


@pytest.mark.parametrize("lengths", [(1, 1), (1, 5), (7, 3), (64, 64), (33, 100)])
def test_products_by_transforms(newton, lengths):
    rng = np.random.default_rng(5)
    one, other = (rng.normal(size=size) for size in lengths)
    for length in (1, 10, 200):
        exact = np.zeros(length)
        full = np.convolve(one, other)[:length]
        exact[: full.size] = full
        np.testing.assert_allclose(series.product(one, other, length), exact, atol=1e-13)
