"""Claim: balls-in-bins and shuffling answer all questions, and refuse what is not proven."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.samples import sampled

import mmcc
from mmcc import sampling, strategies
from mmcc.errors import MethodError, SamplingError

ASK = {"sigma": 2.0, "delta": 1e-5}


@pytest.mark.parametrize("scheme", [sampling.BallsInBins(5), sampling.Shuffle(5)])
@pytest.mark.parametrize("method", ["tight", "unamplified"])
def test_steps_must_be_whole_epochs(scheme, method):
    with pytest.raises(SamplingError, match="whole number of epochs"):
        mmcc.epsilon(strategies.identity(12), scheme, method=method, **ASK)


@pytest.mark.parametrize("scheme", [sampling.BallsInBins(4), sampling.Shuffle()])
@pytest.mark.parametrize("method", ["mmcc", "reveal"])
def test_bounds_for_poisson_sampling_are_refused(scheme, method):
    with pytest.raises(MethodError, match=r"needs? independent rounds"):
        mmcc.epsilon(strategies.toeplitz([1, 0.5], 12), scheme, method=method, **ASK)


def test_without_a_tree_the_cascade_is_for_few_bins():
    counting = strategies.continual_counting(129)
    with pytest.raises(MethodError, match="2 to 128 bins"):
        mmcc.epsilon(counting, sampling.BallsInBins(129), method="cascade", **ASK)
    with pytest.raises(MethodError, match="BallsInBins"):
        mmcc.epsilon(strategies.identity(8), sampling.Poisson(0.1), method="cascade", **ASK)


@pytest.mark.parametrize(
    "strategy", [strategies.dense(np.tril(np.ones((8, 8)))), strategies.binary_tree(12)]
)
def test_without_a_tree_the_cascade_has_an_upper_end(strategy):
    scheme = sampling.BallsInBins(strategy.steps // 2)
    found = mmcc.epsilon(strategy, scheme, method="cascade", **ASK).epsilon
    assert mmcc.bracket(strategy, scheme, **ASK).lower <= found
    spent = mmcc.delta(strategy, scheme, method="cascade", sigma=2.0, epsilon=found).delta
    assert spent <= ASK["delta"] * 1.1


@pytest.mark.parametrize("scheme", [sampling.MinSeparation(0.1, 3), sampling.Shuffle(4)])
@pytest.mark.parametrize("method", ["tight", "projection", "cascade"])
def test_schemes_without_a_proof_say_so(scheme, method):
    for ask in (mmcc.epsilon, mmcc.bracket):
        with pytest.raises(MethodError, match="no amplification is proven"):
            ask(strategies.binary_tree(12), scheme, method=method, **ASK)
    with pytest.raises(MethodError, match="no amplification is proven"):
        mmcc.sigma(strategies.binary_tree(12), scheme, epsilon=1.0, delta=1e-5, method=method)
    plain = mmcc.epsilon(strategies.binary_tree(12), scheme, method="unamplified", **ASK)
    assert plain.epsilon > 0
    assert plain.setting == ""


@pytest.mark.parametrize("strategy", [strategies.binary_tree(8), strategies.continual_counting(8)])
def test_one_shuffled_pass_is_one_bin_of_all(strategy):
    """The same numbers, but for the 0-1 setting and fixed inputs only."""
    shuffled = mmcc.epsilon(strategy, sampling.Shuffle(), **ASK)
    bins = mmcc.epsilon(strategy, sampling.BallsInBins(8), **ASK)
    assert shuffled.epsilon == bins.epsilon
    assert "0-1 setting" in shuffled.setting
    assert not shuffled.adaptive
    assert bins.adaptive
    assert bins.setting == ""
    assert mmcc.epsilon(strategy, sampling.Shuffle(8), **ASK).epsilon == bins.epsilon


def test_unamplified_shuffling_assumes_nothing():
    plain = mmcc.epsilon(strategies.binary_tree(8), sampling.Shuffle(), method="unamplified", **ASK)
    assert plain.setting == ""
    assert plain.adaptive


@pytest.mark.parametrize(
    ("strategy", "bins"),
    [
        pytest.param(strategies.identity(8), 8, marks=pytest.mark.slow),
        (strategies.identity(8), 2),
        (strategies.identity(8), 1),
        (strategies.binary_tree(6), 6),
        (strategies.continual_counting(8), 4),
        (strategies.dense(np.diag([1.0, 1e-6])), 2),
        (strategies.dense(np.ones((1, 3))), 3),
    ],
)
def test_all_questions_agree(strategy, bins):
    scheme = sampling.BallsInBins(bins)
    found = mmcc.bracket(strategy, scheme, sigma=1.5, delta=1e-5)
    assert 0 <= found.lower <= found.upper
    delta = mmcc.delta(strategy, scheme, sigma=1.5, epsilon=found.upper)
    assert delta.details.get("delta_lower", 0.0) <= delta.delta <= 1e-5 * 1.2
    noise = mmcc.sigma(strategy, scheme, epsilon=found.upper, delta=1e-5)
    assert noise.sigma == pytest.approx(1.5, rel=2e-2)
    assert noise.epsilon <= found.upper
    assert noise.details.get("sigma_lower", 0.0) <= noise.sigma


SIGMAS, DELTAS = (1e-3, 0.05, 0.3, 30.0, 1e6), (1e-30, 1e-5, 0.9)
SMALL_BINS = (
    (strategies.identity(8), 2),
    (strategies.binary_tree(6), 6),
    (strategies.dense(np.diag([1.0, 1e-90])), 2),
    (strategies.dense(np.tril(np.ones((4, 4))) * [1, 1, 1e-8, 1e-8]), 4),
)
LARGE_BINS = ((strategies.identity(10**9), 10**9), (strategies.binary_tree(2**30), 2**30))


@pytest.mark.parametrize(
    ("strategy", "bins", "sigma", "delta"),
    [
        *sampled(SMALL_BINS, SIGMAS, DELTAS, strength=1),
        *(
            pytest.param(*large, sigma, delta, marks=pytest.mark.slow)
            for large, sigma, delta in itertools.product(LARGE_BINS, SIGMAS, DELTAS)
        ),
    ],
)
def test_extremes_have_an_answer(strategy, bins, sigma, delta):
    """No warning, no NaN; never less than what the others could hide, never more than no bins."""
    found = mmcc.bracket(strategy, sampling.BallsInBins(bins), sigma=sigma, delta=delta)
    plain = mmcc.epsilon(
        strategy, sampling.BallsInBins(bins), sigma=sigma, delta=delta, method="unamplified"
    )
    assert 0 <= found.lower <= found.upper <= plain.epsilon * (1 + 1e-12)
    # The other bins take away log(bins) at most, at a delta that is bins times larger.
    if bins * delta < 1:
        least = mmcc.epsilon(
            strategy,
            sampling.BallsInBins(bins),
            sigma=sigma,
            delta=bins * delta,
            method="unamplified",
        )
        assert found.upper >= (least.epsilon - math.log(bins)) * (1 - 1e-9)


def test_delta_at_epsilon_zero():
    found = mmcc.delta(strategies.identity(8), sampling.BallsInBins(8), sigma=1.0, epsilon=0.0)
    assert 0 < found.details["delta_lower"] <= found.delta < 0.2
