"""Claim: composed grids lie on both sides of the exact convolution, and near it."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from oracles import truth

from mmcc.accounting._bounds.mmcc.independent import lower_epsilon
from mmcc.accounting._losses.compose import FFT_CONSTANT, compose, fast_length
from mmcc.accounting._losses.grid import GridLoss

SPACING = 0.11


def grid(seed: int, size: int, infinite: float = 0.0) -> GridLoss:
    rng = np.random.default_rng([seed, 17])
    masses = rng.dirichlet(np.ones(size)) * (1 - infinite)
    return GridLoss(SPACING, -int(rng.integers(0, size)), masses, infinite)


CASES = {
    "one": [(grid(0, 9), 1)],
    "powers": [(grid(1, 6), 5), (grid(2, 4), 3)],
    "many different": [(grid(k, 5), 1) for k in range(3, 14)],
    "infinite mass": [(grid(20, 6, 1e-4), 4), (grid(21, 5, 2e-3), 1)],
}


def exact(parts) -> tuple[int, list[mpmath.mpf], mpmath.mpf]:
    """First grid point, masses and infinite mass of the sum, by plain convolution."""
    first, law, finite = 0, [mpmath.mpf(1)], mpmath.mpf(1)
    for loss, count in parts:
        masses = [mpmath.mpf(m) for m in loss.masses.tolist()]
        for _ in range(count):
            first += loss.first
            finite *= 1 - mpmath.mpf(loss.infinite)
            new = [mpmath.mpf(0)] * (len(law) + len(masses) - 1)
            for i, a in enumerate(law):
                for j, b in enumerate(masses):
                    new[i + j] += a * b
            law = new
    return first, law, 1 - finite


def exact_delta(parts, epsilon) -> mpmath.mpf:
    first, law, infinite = exact(parts)
    losses = [SPACING * (first + i) for i in range(len(law))]
    return infinite + mpmath.fsum(
        m * -mpmath.expm1(epsilon - loss)
        for loss, m in zip(losses, law, strict=True)
        if loss > epsilon
    )


@pytest.mark.parametrize("tilt", [0.4, 3.0, 12.0])
@pytest.mark.parametrize("name", CASES)
def test_delta_lies_above_the_exact_one_and_near_it(name, tilt):
    parts = CASES[name]
    composed = compose(parts, tilt, 0.0)
    infinite = float(exact(parts)[2])
    with mpmath.workdps(40):
        for epsilon in np.linspace(max(composed.lowest, -0.3), 2.0, 19).tolist():
            true = exact_delta(parts, epsilon)
            found = composed.delta(epsilon)
            assert found >= true
            if true > 1e-9:
                assert found <= true * (1 + 1e-4) + infinite**2 * 20
            if infinite == 0.0:
                assert composed.lower_delta(epsilon) <= true
                if tilt == 12.0 and 1e-6 < true < 0.1:  # a small tilt lets mass wrap around
                    assert composed.lower_delta(epsilon) >= true * (1 - 1e-3) - 1e-9


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5])
@pytest.mark.parametrize("name", ["one", "powers", "many different"])
def test_epsilon_is_the_smallest_at_which_delta_holds(name, delta):
    parts = CASES[name]
    composed = compose(parts, 3.0, -1.0 if name == "one" else 0.0)
    found = composed.epsilon(delta)
    with mpmath.workdps(40):
        assert exact_delta(parts, found) <= delta
        if found > composed.lowest:
            assert exact_delta(parts, found - 1e-6) > delta * (1 - 1e-5)


def test_no_epsilon_is_found_below_the_infinite_mass():
    assert compose(CASES["infinite mass"], 3.0, 0.0).epsilon(1e-4) == math.inf


@pytest.mark.parametrize("size", [1, 2, 3, 17, 100, 1023, 1025, 40_001])
def test_lengths_are_even_smooth_and_at_most_a_fifth_too_long(size):
    length = fast_length(size)
    assert length >= size
    assert length % 2 == 0
    assert length <= max(1.2 * size, 4)
    for prime in (2, 3, 5):
        while length % prime == 0:
            length //= prime
    assert length == 1


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5])
@pytest.mark.parametrize("name", ["powers", "many different"])
def test_the_search_for_epsilon_starts_next_to_it(name, delta):
    composed = compose(CASES[name], 3.0, 0.0)
    held = [composed.delta(epsilon) <= delta for epsilon in composed.losses.tolist()]
    assert abs(composed._guess(delta) - held.index(True)) <= 1


@pytest.mark.parametrize(("count", "place"), [(3, 1), (50, 12), (200, 40), (400, 90)])
def test_the_rounding_of_many_large_cumulants_is_paid_for(count, place):
    """Every part has one loss, so the sum has one: delta is 1 - e^(epsilon - sum)."""
    loss = count * place * 0.5
    parts = [(GridLoss(0.5, place, np.ones(1), 0.0), 1) for _ in range(count)]
    composed = compose(parts, 1.0, loss - 10.0)
    with mpmath.workdps(40):
        for epsilon in np.linspace(loss - 8.0, loss, 33).tolist():
            exact = -mpmath.expm1(mpmath.mpf(epsilon) - mpmath.mpf(loss))
            assert composed.lower_delta(epsilon) <= exact <= composed.delta(epsilon)


@pytest.mark.parametrize("lowest", [0.0, -50.0, -2000.0])
def test_both_transforms_are_charged_what_one_of_them_may_err(lowest):
    """One mass of 1 has norms of 1, and so have its transform's values."""
    composed = compose([(GridLoss(SPACING, 3, np.ones(1), 0.0), 1)], 2.0, lowest)
    assert composed.error >= 2 * FFT_CONSTANT * math.log2(composed.losses.size) * 2.0**-53
    assert composed.error <= 1e-13


# Cells of outputs, for lower bounds.


@pytest.mark.parametrize(
    ("sigma", "about", "adjacency"),
    [(2.0, 0.25, "remove"), (0.8, 2.0, "remove"), (2.0, 0.18, "add")],
)
def test_a_lower_epsilon_is_below_the_true_one_and_near_it(sigma, about, adjacency):
    delta, p, count = 1e-5, 0.01, 100
    found = lower_epsilon([(1 / sigma, count)], p, delta, adjacency, about)

    def true(epsilon):
        return truth.composed_subsampled_gaussian_delta(count, 1.0, p, sigma, epsilon, adjacency)

    assert true(found)[1] >= delta
    assert true(found * 1.02)[0] <= delta


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_no_lower_epsilon_without_a_guess_or_without_amplification(adjacency):
    assert lower_epsilon([(0.5, 10)], 0.1, 1e-5, adjacency, math.inf) == 0.0
    assert lower_epsilon([(0.5, 10)], 0.1, 1e-5, adjacency, 0.0) == 0.0
    assert lower_epsilon([(0.5, 10)], 1.0, 1e-5, adjacency, 5.0) == 0.0
