"""Claim: where losses are exact, what is below the truth is verified no more often than allowed.

Truth: two steps, whose outputs span a plane.  Bets are made whatever the pilot saw, which would
refuse nearly all of these before a verdict is drawn.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.chances import apart, independent
from oracles import truth
from scipy import optimize, stats

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation import record
from mmcc._simulation.betting import largest_bet
from mmcc._simulation.directions import bound_weighed_delta, direction_of
from mmcc._simulation.exact_pairs import ExactPair
from mmcc._simulation.experiments import Blended, Crude, Tilted
from mmcc._simulation.pairs import pair_of
from mmcc._simulation.tilts import Blend, Plan
from mmcc._simulation.trials import Pilot
from mmcc.accounting import Problem
from mmcc.errors import NotVerifiedError

LEVEL, DELTA = 0.05, 0.1


def mechanism(seed):
    """A strategy, a scheme, sigma, and the true epsilon at DELTA - LEVEL."""
    rng = np.random.default_rng([seed, 31])
    p = float(rng.uniform(0.15, 0.7))
    scheme, (sets, chances) = (
        (sampling.Poisson(p), independent(2, p)),
        (sampling.MinSeparation(p, 2), apart(2, p, 2, False)),
        (sampling.MinSeparation(p, 2, True), apart(2, p, 2, True)),
    )[seed % 3]
    strategy = strategies.toeplitz([1.0, float(rng.uniform(0.1, 0.9))], 2)
    sigma = float(rng.uniform(0.5, 1.2))
    matrix = strategy.to_dense() / sigma
    corner = np.linalg.cholesky(matrix.T @ matrix)

    def excess(epsilon):
        ends = [
            truth.plane_bracket(sets @ corner, np.log(chances), epsilon, side)[0]
            for side in truth.ADJACENCIES
        ]
        return max(ends) - (DELTA - LEVEL)

    epsilon = optimize.brentq(excess, 0.0, 30.0) if excess(0.0) > 0 else 0.0
    return strategy, scheme, sigma, epsilon


def crude(problem, pair, remove, epsilon, delta, rng):
    return Crude(pair, remove, epsilon)


def blended(problem, pair, remove, epsilon, delta, rng):
    blend = Blend(float(rng.uniform(0.3, 2.5)), int(rng.integers(8, 61)) / 64)
    return Blended(pair, remove, epsilon, blend, direction_of(pair.mechanism))


def tilted(problem, pair, remove, epsilon, delta, rng):
    direction = direction_of(pair.mechanism)
    tilt, slope = (float(x) for x in rng.uniform(0.5, 2.0, 2))
    rest = bound_weighed_delta(problem, direction, pair.columns, remove, epsilon, slope)
    place = (np.log(delta * rng.uniform(0.1, 0.4)) - rest) / slope
    if not np.isfinite(place):
        return Crude(pair, remove, epsilon)
    made = Tilted(pair, remove, epsilon, Plan(tilt, slope, float(place)), direction, rest)
    return made if 1.5 * delta < made.largest < 20 else Crude(pair, remove, epsilon)


@pytest.mark.parametrize("number", [10, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [crude, blended, pytest.param(tilted, marks=pytest.mark.slow)])
def test_an_epsilon_below_the_truth_is_hardly_ever_verified(kind, number, monkeypatch):
    """2 % below, with a chance of error of 5 %: verdicts are drawn for all, and few pass."""
    share = np.random.default_rng(5).uniform(0.1, 1.0)
    monkeypatch.setattr("mmcc._simulation.verify.experiment_for", kind)
    monkeypatch.setattr(Pilot, "hopeless", False)
    bet = property(lambda pilot: share * largest_bet(pilot.mean, pilot.experiment.largest))
    monkeypatch.setattr(Pilot, "size", bet)
    monkeypatch.setattr(Pilot, "samples", lambda *_: 512)
    passed = drawn = 0
    for seed in range(number):
        monkeypatch.setattr(record, "_remembered", {})
        strategy, scheme, sigma, epsilon = mechanism(seed)
        if epsilon == 0.0:
            continue
        assert isinstance(pair_of(Problem(strategy, scheme, sigma)), ExactPair)
        asked = {"sigma": sigma, "epsilon": 0.98 * epsilon, "delta": DELTA, "failure": LEVEL}
        drawn += 1
        try:
            passed += mmcc.verify(strategy, scheme, **asked).kind == "verified"
        except NotVerifiedError:
            assert len(record._remembered) == 1  # by a verdict, not by its pilot
    assert drawn > 0.8 * number
    assert stats.binomtest(passed, drawn, LEVEL, alternative="greater").pvalue > 1e-3, passed


@pytest.mark.parametrize("kind", [crude, blended])
def test_an_epsilon_above_the_truth_is_verified(kind, monkeypatch):
    """The test above is not passed by refusing everything."""
    monkeypatch.setattr("mmcc._simulation.verify.experiment_for", kind)
    for seed in range(6):
        strategy, scheme, sigma, epsilon = mechanism(seed)
        asked = {"sigma": sigma, "epsilon": 1.2 * epsilon + 0.2, "delta": DELTA, "failure": LEVEL}
        assert mmcc.verify(strategy, scheme, **asked).kind == "verified"
