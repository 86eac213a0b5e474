"""Claim: estimates by revealed participations lie around the truth, whatever the tilt.

Truth: two rows by integration in the plane, with laws of participation worked out set by set; and
independent noise by composition.
"""

from __future__ import annotations

import math
import time
from functools import cache

import numpy as np
import pytest
from cases.chances import LAWS, STEPS
from extending.exactly import Exactly
from oracles.plane import plane_delta, plane_epsilon
from oracles.truth import composed_subsampled_gaussian_delta
from scipy.optimize import brentq
from scipy.stats import binom

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation.estimate import Budget, simulate
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.revealed import RevealPlan, draw, pair_to_reveal
from mmcc.errors import PrecisionError
from mmcc.sampling import MinSeparation, Poisson

ROWS = np.random.default_rng(8).random((2, STEPS)) + 0.1
TWO_ROWS = strategies.dense(ROWS, adaptive=False)
SCHEMES = [Poisson(0.3), MinSeparation(0.3, 3), MinSeparation(0.3, 3, True), Exactly(2)]
SIGMA, DELTA = 2.5, 1e-4
BANDS = strategies.toeplitz(strategies.continual_counting(8).coefficients, 2000)
TREE = strategies.binary_tree(2048)


def components(scheme, sigma=SIGMA):
    sets, weights = LAWS[scheme]
    return sets @ ROWS.T / sigma, weights


@cache
def epsilon_of_two_rows(scheme):
    return plane_epsilon(*components(scheme), DELTA)


@cache
def epsilon_of_independent_noise(sigma):
    def excess(epsilon):
        low, high = composed_subsampled_gaussian_delta(30, 1.0, 0.1, sigma, epsilon, "remove")
        assert high - low < 1e-3 * DELTA
        return max(high, 1e-30) - DELTA

    return brentq(excess, 0.05, 20, xtol=1e-7)


FAMILIES = {
    **{str(scheme): (TWO_ROWS, scheme, SIGMA) for scheme in SCHEMES},
    "independent, much noise": (strategies.identity(30), Poisson(0.1), 2.0),
    "independent, more noise": (strategies.identity(30), Poisson(0.1), 4.0),
}


def truth_of(name):
    strategy, scheme, sigma = FAMILIES[name]
    if strategy is TWO_ROWS:
        return epsilon_of_two_rows(scheme)
    return epsilon_of_independent_noise(sigma)


def covered(name, seeds):
    """How many intervals hold the truth, and how many runs have none to show."""
    strategy, scheme, sigma = FAMILIES[name]
    mechanism, truth = Mechanism(strategy, scheme, sigma), truth_of(name)
    hits, refused = 0, 0
    for seed in seeds:
        try:
            found = simulate(mechanism, DELTA, Budget(60_000, 0.05, 0.99, seed, reveal=True))
        except PrecisionError:
            refused += 1
            continue
        assert "revealed" in found.method
        hits += found.low <= truth <= found.high
    return hits, refused


@pytest.mark.parametrize("name", [str(SCHEMES[1]), "independent, much noise"])
def test_intervals_cover_the_truth(name):
    assert covered(name, range(1)) == (1, 0)


@pytest.mark.slow
def test_intervals_of_six_families_keep_their_confidence():
    """100 runs each: misses against 1 % of the intervals at level 1e-3, an exact binomial test."""
    found = [covered(name, range(100)) for name in FAMILIES]
    refused = sum(none for _, none in found)
    intervals = 100 * len(FAMILIES) - refused
    misses = intervals - sum(hits for hits, _ in found)
    assert refused <= 0.02 * 100 * len(FAMILIES)
    assert binom.sf(misses - 1, intervals, 0.01) > 1e-3


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("remove", [True, False], ids=["remove", "add"])
@pytest.mark.parametrize("fakes", [1, 5])
def test_means_above_and_below_are_that_under_any_tilt(scheme, remove, fakes):
    pair = pair_to_reveal(Mechanism(TWO_ROWS, scheme, SIGMA))
    choices = (
        ((1.0, 1.0), (2.0, 1.0), (1.5, 1.4)) if remove else ((0.0, 1.0), (-0.1, 1.0), (-0.2, 1.0))
    )
    epsilons = np.array([0.2, 0.8])
    plan = RevealPlan(pair, remove, epsilons, choices, (0.1, 0.3, 0.6), fakes, 500, 3, 1)
    values = np.concatenate([plan.run(index).values for index in range(30)])
    means, errors = values.mean(axis=0), values.std(axis=0) / math.sqrt(len(values))
    for k, epsilon in enumerate(epsilons):
        side = "remove" if remove else "add"
        truth = plane_delta(*components(scheme), epsilon, side, 0.05)
        assert means[k, 0] + 4 * errors[k, 0] >= truth
        assert means[k, 2] - 4 * errors[k, 2] <= truth
        assert means[k, 0] - 4 * errors[k, 0] <= 1.2 * truth + 1e-3
        assert means[k, 2] + 4 * errors[k, 2] >= 0.8 * truth - 1e-3


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])
def test_weights_of_outputs_are_one_on_average(scheme, shares):
    """E Z / density = 1, the mass of P; E 1 / density = 1, the mass of Q."""
    pair = pair_to_reveal(Mechanism(TWO_ROWS, scheme, SIGMA))
    plan = RevealPlan(pair, True, np.zeros(1), ((1.0, 1.0), (2.0, 0.7)), shares, 1, 2000, 3, 1)
    drawn = [draw(plan, index) for index in range(10)]
    density = np.concatenate([some.density for some in drawn])
    ratios = np.exp(np.concatenate([some.fakes for some in drawn])).mean(axis=1)
    for values in (ratios * np.exp(-density), np.exp(-density)):
        assert abs(values.mean() - 1) <= 4 * values.std() / math.sqrt(values.size)


def test_the_same_seed_gives_the_same_numbers():
    mechanism = Mechanism(*FAMILIES["independent, much noise"])
    budget = Budget(40_000, 0.1, 0.99, 5, reveal=True)
    first, second = simulate(mechanism, DELTA, budget), simulate(mechanism, DELTA, budget)
    assert first == second


BLTS = {
    "one buffer": [
        ([0.859], [0.181], 3.945, 0.990, 0.993),
        ([0.899], [0.171], 2.587, 1.950, 1.955),
        ([0.94], [0.126], 1.766, 3.681, 3.693),
        ([0.9616], [0.131], 1.4064, 7.929, 7.991),
    ],
    "two buffers": [
        ([0.98, 0.7], [0.06, 0.2], 6.0, 1.360, 1.365),
        ([0.98, 0.7], [0.06, 0.2], 3.0, 3.086, 3.096),
        ([0.98, 0.7], [0.06, 0.2], 1.8, 5.95, 5.984),
        ([0.98, 0.7], [0.06, 0.2], 1.35, 8.91, 9.04),
    ],
}
"""Decay, scale, sigma, and a bracket of epsilon at delta 1e-5, p = .01, 2000 steps."""
LARGE = [
    *((BANDS, 0.01, *rest) for rest in [(5.43, 0.99, 0.998), (3.03, 1.97, 1.99)]),
    *((BANDS, 0.01, *rest) for rest in [(1.78, 3.95, 4.02), (1.16, 8.02, 8.26)]),
    *(
        (strategies.blt(2000, decay=decay, scale=scale), 0.01, *rest)
        for decay, scale, *rest in BLTS["one buffer"] + BLTS["two buffers"]
    ),
    (TREE, 1 / 2048, 1.5 * math.sqrt(12), 0.0, 2.395),
    (TREE, 1 / 2048, 2.0 * math.sqrt(12), 1.377, 1.419),
]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "p", "sigma", "low", "high"), LARGE, ids=str)
def test_two_thousand_steps_in_half_a_minute(strategy, p, sigma, low, high):
    start = time.process_time()
    delta = 1e-5 if p == 0.01 else 1e-6
    found = mmcc.estimate(strategy, Poisson(p), sigma=sigma, delta=delta, width=0.05, seed=1)
    assert time.process_time() - start <= 30
    assert found.effective >= 200
    assert found.low <= high
    assert found.high >= low


def test_few_participations_are_left_to_sampled_sets():
    few = mmcc.estimate(
        strategies.continual_counting(40), Poisson(1 / 40), sigma=8.0, delta=1e-5, width=0.1
    )
    assert "sampled participation sets" in few.method


def test_schemes_with_more_to_them_are_estimated_by_sampled_sets():
    assert pair_to_reveal(Mechanism(TREE, sampling.Shuffle(64), 3.0)) is None
    assert pair_to_reveal(Mechanism(strategies.continual_counting(5000), Poisson(0.1), 3.0)) is None
