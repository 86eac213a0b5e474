"""Claim: the reveal bound with a gap between participations never goes below the truth.

Truths: enumeration of all participation sets, one output integrated and four standard errors
allowed; the exact likelihood of long bands, simulated (`oracles.separation`); Gaussians.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import reveal
from cases.reveal import counting_bands, log_uniform, random_toeplitz
from cases.samples import first, sampled
from oracles import enumeration, separation, truth

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting import Problem
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.errors import MethodError


def check_against_enumeration(seed: int) -> None:
    """Epsilon and the lower end of a random mechanism, to .2 % of the delta asked for."""
    rng = np.random.default_rng([seed, 21])
    steps = int(rng.integers(2, 8))
    gap, warm = int(rng.integers(2, steps + 3)), bool(rng.random() < 0.5)
    strategy = random_toeplitz(rng, steps)
    p, sigma = log_uniform(rng, 0.02, 0.95), log_uniform(rng, 0.5, 30)
    delta = float(10 ** rng.uniform(-9, -2))
    scheme = sampling.MinSeparation(p, gap, warm)
    found = reveal.bound_epsilon(strategy, scheme, sigma, delta)
    lower = Reveal().lower_epsilon(Problem(strategy, scheme, sigma), delta).value
    assert lower <= found.value
    parts = separation.components(strategy.to_dense(), p, gap, sigma, warm)
    precise = {"absolute": 0.0018 * delta, "seed": seed}
    for adjacency, epsilon in (("remove", found.remove), ("add", found.add)):
        assert epsilon >= 0
        if not math.isfinite(epsilon):
            continue
        try:
            exact = enumeration.mixture_delta(*parts, epsilon, adjacency, **precise)
        except enumeration.UnreliableError:
            continue
        assert exact.error <= 0.002 * max(exact.mean, delta)
        assert exact.mean - 4 * exact.error <= delta
    if lower > 0:
        try:
            exact = enumeration.mixture_delta(*parts, lower, "remove", **precise)
        except enumeration.UnreliableError:
            return
        assert exact.mean + 4 * exact.error >= delta


@pytest.mark.parametrize("seed", first(range(6), 3))
def test_epsilon_is_never_below_enumeration(seed):
    check_against_enumeration(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 312))
def test_epsilon_is_never_below_enumeration_many(seed):
    check_against_enumeration(seed)


def check_long_bands(bands, gap, warm, steps, p, sigma, delta, samples):
    strategy = counting_bands(bands, steps)
    scheme = sampling.MinSeparation(p, gap, warm)
    found = reveal.bound_epsilon(strategy, scheme, sigma, delta)
    mean, error = separation.simulated_delta(
        strategy.coefficients, steps, p, gap, warm, sigma, found.remove, samples=samples, seed=bands
    )
    assert error < max(0.2 * mean, 0.05 * delta)  # far below delta nothing may be seen
    assert mean - 4 * error <= delta


@pytest.mark.parametrize("warm", [False, True])
def test_long_bands_against_the_simulated_likelihood(warm):
    check_long_bands(2, 3, warm, 300, 0.03, 2.2, 1e-2, samples=3_000)


@pytest.mark.slow
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("bands", "gap", "steps", "p", "sigma"),
    [
        (2, 2, 1000, 0.02, 1.5),
        (4, 4, 200, 0.1, 2.5),
        (4, 10, 2000, 0.011, 1.5),
        (8, 8, 1000, 0.0107, 3.03),
        (8, 8, 2000, 0.0107, 1.78),
        (8, 20, 500, 0.5, 4.0),
    ],
)
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_more_long_bands_against_the_simulated_likelihood(bands, gap, steps, p, sigma, warm, delta):
    check_long_bands(bands, gap, warm, steps, p, sigma, delta, samples=20_000)


@pytest.mark.parametrize("warm", [False, True])
def test_a_gap_of_one_is_poisson_sampling(warm):
    strategy = strategies.blt(300, decay=[0.9], scale=[0.2])
    poisson = reveal.bound_epsilon(strategy, sampling.Poisson(0.03), 3.0, 1e-5)
    found = reveal.bound_epsilon(strategy, sampling.MinSeparation(0.03, 1, warm), 3.0, 1e-5)
    assert (found.remove, found.add) == (poisson.remove, poisson.add)


def test_whoever_takes_part_whenever_allowed_has_the_gaussian_mechanism():
    strategy = strategies.toeplitz([1.0, 0.5, 0.2], 8)
    length = float(np.linalg.norm(strategy.to_dense()[:, ::3].sum(axis=1)))
    for warm in (False, True):
        found = mmcc.epsilon(strategy, sampling.MinSeparation(1.0, 3, warm), sigma=3.0, delta=1e-5)
        assert truth.gaussian_delta(length, 3.0, found.epsilon) <= 1e-5


@pytest.mark.parametrize(
    ("steps", "gap", "warm"),
    sampled([(5, 5), (5, 6), (5, 10**12), (1, 2), (2, 2)], [False, True], strength=1),
)
def test_gaps_longer_than_the_run_are_one_chance(steps, gap, warm):
    strategy = strategies.blt(steps, decay=[0.5], scale=[0.3])
    found = reveal.bound_epsilon(strategy, sampling.MinSeparation(0.2, gap, warm), 1.0, 1e-3)
    if gap < 100:
        parts = separation.components(strategy.to_dense(), 0.2, gap, 1.0, warm)
        exact = enumeration.mixture_delta(*parts, found.remove, "remove")
        assert exact.mean - 4 * exact.error <= 1e-3
    assert 0 <= found.value < math.inf


@pytest.mark.parametrize("strategy", [strategies.binary_tree(8), strategies.optimal(6)], ids=repr)
def test_nothing_is_claimed_where_nothing_is_proven(strategy):
    with pytest.raises(MethodError, match="no amplification is proven"):
        mmcc.epsilon(strategy, sampling.MinSeparation(0.1, 3), sigma=3.0, delta=1e-5)
    with pytest.raises(MethodError, match="need a Toeplitz strategy"):
        reveal.bound_epsilon(strategy, sampling.MinSeparation(0.1, 3), 3.0, 1e-5)


@pytest.mark.parametrize(
    ("strategy", "p", "gap", "sigma", "delta"),
    [
        (strategies.toeplitz([1, 0.5], 10**9), 1e-8, 3, 1.0, 1e-5),
        pytest.param(
            *(strategies.toeplitz([1, 0.5], 10**9), 1e-8, 1000, 1.0, 1e-5), marks=pytest.mark.slow
        ),
        (strategies.toeplitz([1, 0.5], 100), 0.5, 3, 1e-40, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.5, 3, 1e12, 1e-5),
        (strategies.toeplitz([1, 0.5], 10), 1e-300, 3, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 1 - 2.0**-53, 3, 2.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.01, 3, 2.0, 1 - 1e-9),
        (strategies.blt(50, decay=[1 - 2.0**-53], scale=[0.5]), 0.1, 3, 2.0, 1e-5),
        (strategies.blt(50, decay=[1e-200], scale=[1e-300]), 0.1, 3, 2.0, 1e-5),
    ],
)
def test_extremes_give_a_number_or_infinity(strategy, p, gap, sigma, delta):
    found = reveal.bound_epsilon(strategy, sampling.MinSeparation(p, gap), sigma, delta)
    assert found.remove >= 0
    assert found.add >= 0
