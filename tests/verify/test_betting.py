"""Claim: bets reject a mean that is not small no more often than their level, rounding included."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mmcc._simulation.betting import (
    LEAST,
    Bets,
    added,
    best_bet,
    bets_around,
    largest_bet,
    needed,
)

LEVEL = 0.05
BLOCK, BLOCKS = 64, 24


def two_points(rng, size, mean, largest):
    return np.where(rng.random(size) < mean / largest, largest, 0.0)


def near(rng, size, mean, largest):
    """Hardly any variance, until once in a while."""
    rare = 0.02 * mean / largest
    low = (mean - rare * largest) / (1 - rare)
    return np.where(rng.random(size) < rare, largest, low)


def weighted(rng, size, mean, largest):
    """Weights of many sizes: the square of a uniform number, on a third of the draws."""
    scale = min(9 * mean, largest)
    some = rng.random(size) < 3 * mean / scale
    return np.where(some, scale * rng.random(size) ** 2, 0.0)


LAWS = {
    "Bernoulli": (two_points, 0.05, 1.0),
    "rare": (two_points, 0.004, 1.0),
    "two points": (two_points, 0.1, 3.0),
    "nearly constant": (near, 0.2, 1.0),
    "weights": (weighted, 0.03, 0.5),
}


def passes(law, mean, largest, rng, sequences):
    """How often a sequence at the boundary is rejected, at whatever block."""
    found = 0
    for _ in range(sequences):
        pilot = 0.7 * law(rng, 500, mean, largest)  # what tempts to the largest bets
        size = best_bet(pilot[pilot > 0], int((pilot == 0).sum()), mean, largest)
        bets = bets_around(size, mean, largest)
        totals = [0.0] * len(bets.sizes)
        for _ in range(BLOCKS):
            totals = added(totals, bets.log_wealth(law(rng, BLOCK, mean, largest)))
            if bets.together(totals) >= needed(LEVEL):
                found += 1
                break
    return found


@pytest.mark.parametrize(
    "sequences", [150, pytest.param(4000, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", LAWS)
def test_the_level_holds_at_the_boundary(name, sequences):
    law, mean, largest = LAWS[name]
    drawn = law(np.random.default_rng(1), 10**6, mean, largest)
    assert abs(drawn.mean() - mean) <= 4 * drawn.std() / 1e3  # it is what it is said to be
    found = passes(law, mean, largest, np.random.default_rng(2), sequences)
    tail = stats.binomtest(found, sequences, LEVEL, alternative="greater").pvalue
    assert tail > 1e-4, f"{found} of {sequences}"


@pytest.mark.parametrize("name", LAWS)
def test_a_smaller_mean_is_shown(name):
    law, mean, largest = LAWS[name]
    rng = np.random.default_rng(3)
    pilot = 0.5 * law(rng, 20_000, mean, largest)
    size = best_bet(pilot[pilot > 0], int((pilot == 0).sum()), mean, largest)
    bets = bets_around(size, mean, largest)
    assert bets.together(bets.log_wealth(0.5 * law(rng, 100_000, mean, largest))) > needed(1e-9)


@given(
    mean=st.floats(1e-12, 0.9),
    share=st.floats(0, 1),
    values=st.lists(st.floats(0, 1), min_size=1, max_size=40),
    zeros=st.integers(0, 10**9),
)
def test_wealth_is_never_above_the_exact_product(mean, share, values, zeros):
    size = share * largest_bet(mean, 1.0)
    bets = Bets(mean, 1.0, (size,), (1.0,))
    (found,) = bets.log_wealth(np.array(values), zeros)
    with mpmath.workdps(60):
        m, lam = mpmath.mpf(mean), mpmath.mpf(size)
        exact = mpmath.fsum(mpmath.log1p(lam * (m - mpmath.mpf(x))) for x in values)
        exact += zeros * mpmath.log1p(lam * m)
        assert found <= exact
        spread = mpmath.fsum(abs(mpmath.log1p(lam * (m - mpmath.mpf(x)))) for x in values)
        assert found >= exact - 1e-12 * (spread + zeros * mpmath.log1p(lam * m)) - 1e-300
        assert all(1 + lam * (m - mpmath.mpf(x)) >= LEAST for x in values)


@given(
    sums=st.lists(
        st.tuples(st.floats(-50, 50), st.floats(-50, 50), st.floats(-50, 50)), max_size=20
    )
)
def test_a_mixture_is_never_above_the_exact_one(sums):
    bets = Bets(0.1, 1.0, (0.1, 0.3, 0.9), (0.25, 0.5, 0.25))
    totals = [0.0, 0.0, 0.0]
    for block in sums:
        totals = added(totals, block)
    with mpmath.workdps(60):
        columns = [mpmath.fsum(block[k] for block in sums) for k in range(3)]
        parts = zip(bets.weights, columns, strict=True)
        exact = mpmath.log(mpmath.fsum(w * mpmath.exp(c) for w, c in parts))
        assert bets.together(totals) <= exact
    assert needed(1e-9) >= -mpmath.log(mpmath.mpf(1e-9))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sizes": (1.2,)},
        {"sizes": (-0.1,)},
        {"weights": (1.5,)},
        {"mean": 0.0},
        {"mean": float("nan")},
        {"largest": 0.05},
        {"sizes": (0.1, 0.2)},
    ],
)
def test_bets_that_could_lose_more_than_all_are_none(wrong):
    right = {"mean": 0.1, "largest": 1.0, "sizes": (0.5,), "weights": (1.0,)}
    Bets(**right)
    with pytest.raises(ValueError, match="no bets"):
        Bets(**{**right, **wrong})


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_values_outside_their_bounds_are_refused(value):
    with pytest.raises(ArithmeticError, match="outside"):
        Bets(0.1, 1.0, (0.5,), (1.0,)).log_wealth(np.array([0.0, value]))
