"""Claim: of `mmcc.estimate`'s intervals no more miss the truth than their confidence allows.

Six families, fixed before the first interval was looked at, each asked as users ask, by whatever
way the library takes.  Truth: a certified bracket at most .6 % wide where there is one; for eight
bands the likelihood simulated by an oracle that imports nothing from mmcc.  An interval misses if
it does not meet what is known.
"""

from __future__ import annotations

import math

import pytest
from oracles.band_likelihood import simulated_delta
from scipy.stats import binom

import mmcc
from mmcc import sampling, strategies
from mmcc.errors import PrecisionError
from mmcc.sampling import Poisson

DELTA, RUNS = 1e-5, 100
BANDS = strategies.banded_toeplitz(60, 8)
FAMILIES = {
    "bands": (BANDS, Poisson(0.1), 6.0),
    "one buffer": (strategies.blt(400, decay=[0.9], scale=[0.17]), Poisson(0.02), 2.6),
    "two buffers": (strategies.blt(60, decay=[0.98, 0.7], scale=[0.06, 0.2]), Poisson(0.1), 6.0),
    "tree": (strategies.binary_tree(64), Poisson(0.1), 15.0),
    "dense counting": (strategies.continual_counting(64), Poisson(1 / 64), 5.1),
    "balls in bins": (strategies.identity(8), sampling.BallsInBins(8), 1.0),
}


def truth_of(name):
    """Two numbers with the true epsilon between them."""
    strategy, scheme, sigma = FAMILIES[name]
    found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=DELTA)
    if strategy is not BANDS:
        assert found.ratio <= 1.006
        return found.lower, found.upper
    places = (found.lower, found.upper)
    coefficients = BANDS.to_dense()[:, 0][:8]
    (low, _), (high, error) = (
        simulated_delta(coefficients, 60, 0.1, sigma, place, samples=60_000, seed=7)
        for place in places
    )
    slope = math.log(low / high) / (places[1] - places[0])
    middle = places[1] + math.log(high / DELTA) / slope
    return middle - 3 * error / high / slope, middle + 3 * error / high / slope


def interval(name, seed):
    """That of one run; None where the library has none to show."""
    strategy, scheme, sigma = FAMILIES[name]
    try:
        found = mmcc.estimate(strategy, scheme, sigma=sigma, delta=DELTA, width=0.05, seed=seed)
    except PrecisionError:
        return None
    return found.low, found.high


def intervals_of(name):
    """Those of so many seeds."""
    return [interval(name, seed) for seed in range(RUNS)]


@pytest.mark.slow
def test_intervals_of_six_families_miss_no_more_often_than_they_may():
    """600 runs, pooled: an exact binomial test of 1 % at level 1e-3."""
    missed, none = {}, {}
    for name in FAMILIES:
        lower, upper = truth_of(name)
        assert upper <= 1.01 * lower
        found = intervals_of(name)
        shown = [ends for ends in found if ends is not None]
        none[name] = len(found) - len(shown)
        missed[name] = sum(not (low <= upper and lower <= high) for low, high in shown)
    number = RUNS * len(FAMILIES) - sum(none.values())
    assert sum(none.values()) <= 0.02 * RUNS * len(FAMILIES), none
    assert binom.sf(sum(missed.values()) - 1, number, 0.01) > 1e-3, missed
