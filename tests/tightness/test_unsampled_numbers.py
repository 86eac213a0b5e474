"""Claim: sensitivities of at most k participations at least b apart are those of jax_privacy.

Where its number is exact ours is the same, rounded up; where both are upper bounds ours is smaller.
"""

from __future__ import annotations

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies

COUNTING = strategies.continual_counting(4000).coefficients

# Roots of toeplitz.minsep_sensitivity_squared(coefficients, b, k, n) of jax_privacy 2.0.0, float64;
# buffered_toeplitz.LossFn.build_min_sep asks the same function for BLTs.
FALLING = {
    (2000, 100, 20): (
        5.862387327888694,
        7.115268248823187,
        17.19057467051206,
        4.972663161720672,
        8.632090108789193,
    ),
    (2052, 342, 6): (
        3.2109617803170725,
        3.897192922580741,
        6.099423726469425,
        2.709411430816421,
        3.5589281730229385,
    ),
    (1000, 10, 5): (
        2.931193663944347,
        5.639839804449396,
        7.120277756996694,
        3.098613749027679,
        3.8706510780972345,
    ),
    (2000, 400, 4): (
        2.621739315118494,
        3.182044696502907,
        4.666466959656174,
        2.2122245814957657,
        2.8129390908457137,
    ),
    (4000, 1, 2000): (
        140.4292783516347,
        499.7897246095642,
        2042.81889707341,
        193.27443365941414,
        797.5623086417219,
    ),
}
# sensitivity.get_min_sep_sensitivity_upper_bound and get_sensitivity_banded of the same version for
# the matrices of `random_matrices`.
UPPER = {(30, 4, 3): 7.7094835972395845, (60, 7, 5): 16.705673895678732}
BANDED = {(30, 4, 3): 2.7494576992990676, (60, 7, 5): 4.017940597003821}


def falling(steps: int) -> tuple[strategies.Strategy, ...]:
    return (
        strategies.toeplitz(COUNTING[:8], steps),
        strategies.toeplitz(COUNTING[:100], steps),
        strategies.toeplitz(COUNTING[:steps], steps),
        strategies.blt(steps, decay=[0.9609], scale=[0.1309]),
        strategies.blt(steps, decay=[0.999, 0.95, 0.4], scale=[0.02, 0.1, 0.3]),
    )


def random_matrices():
    rng = np.random.default_rng(5)
    for steps, separation, at_most in UPPER:
        full = np.tril(rng.uniform(size=(steps, steps)))
        inside = np.tri(steps) - np.tri(steps, k=-separation)
        banded = np.tril(rng.uniform(size=(steps, steps))) * inside
        yield (steps, separation, at_most), strategies.dense(full), strategies.dense(banded)


@pytest.mark.parametrize("case", FALLING, ids=str)
def test_bands_and_blts_have_the_published_sensitivity(case):
    steps, separation, at_most = case
    scheme = sampling.Unsampled(separation, at_most)
    for strategy, theirs in zip(falling(steps), FALLING[case], strict=True):
        found = scheme.sensitivity(strategy)
        assert found == pytest.approx(theirs, rel=1e-11)
        assert found * (1 - 1e-11) <= scheme.reached(strategy) <= found


def test_any_matrix_has_a_smaller_bound_than_the_published_one():
    """A set that holds column j holds no other within the separation: theirs may take both."""
    for case, full, banded in random_matrices():
        scheme = sampling.Unsampled(*case[1:])
        assert scheme.reached(full) <= scheme.sensitivity(full) <= UPPER[case] * (1 + 1e-12)
        assert scheme.sensitivity(full) >= 0.9 * UPPER[case]
        assert scheme.sensitivity(banded) == pytest.approx(BANDED[case], rel=1e-12)


def test_a_million_steps_are_as_exact():
    scheme = sampling.Unsampled(separation=342, at_most=6)
    for strategy in (
        strategies.blt(10**6, decay=[0.9999, 0.99], scale=[0.005, 0.1]),
        strategies.toeplitz(COUNTING, 10**6),
        strategies.identity(10**9),
    ):
        found = scheme.sensitivity(strategy)
        assert scheme.reached(strategy) <= found <= scheme.reached(strategy) * (1 + 2e-9)
    tree = strategies.binary_tree(10**6)
    assert scheme.sensitivity(tree) <= 1.02 * scheme.reached(tree)
    spiky = strategies.toeplitz([1, 0, 0.5, 0.1, 0.3], 10**6)  # not falling: those that fall above
    assert scheme.sensitivity(spiky) <= (1 + 1e-12) * scheme.reached(spiky)
    assert sampling.Unsampled(2, 6).sensitivity(spiky) <= 1.2 * sampling.Unsampled(2, 6).reached(
        spiky
    )


def test_brackets_are_closed_where_the_sensitivity_is_exact():
    scheme = sampling.Unsampled(separation=100, at_most=20)
    for strategy in falling(2000):
        found = mmcc.bracket(strategy, scheme, sigma=20.0, delta=1e-6)
        assert 1 <= found.ratio <= 1 + 1e-10
        assert found.method == "unamplified"
        assert found.guarantee.details["sensitivity"] == pytest.approx(
            scheme.sensitivity(strategy), rel=1e-14
        )
    group = mmcc.bracket(falling(2000)[0], scheme, sigma=20.0, delta=1e-6, group_size=3)
    assert group.ratio <= 1 + 1e-10
