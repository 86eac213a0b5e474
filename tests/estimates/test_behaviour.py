"""Claim: intervals keep their confidence, do not depend on workers, and are never proofs."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import numpy as np
import pytest
from oracles.plane import plane_epsilon
from oracles.truth import gaussian_delta, mixture_delta, two_row_delta
from scipy.optimize import brentq

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation.estimate import Budget, simulate
from mmcc._simulation.one_example import Mechanism
from mmcc.errors import ParameterError, PrecisionError, SamplingError, StrategyError

ROWS = np.random.default_rng(8).random((2, 6)) + 0.1


def root(curve, delta):
    return brentq(lambda e: np.log(max(float(curve(e)), 1e-300) / delta), 1e-3, 20, xtol=1e-9)


def test_one_column_has_no_noise_at_all():
    truth = root(lambda e: gaussian_delta(1.0, 2.0, e), 1e-5)
    found = mmcc.estimate(
        strategies.identity(3), sampling.CyclicPoisson(1.0, 3), sigma=2.0, delta=1e-5
    )
    assert found.low <= truth <= found.high
    assert found.high - found.low <= 1e-4 * truth
    truth = root(lambda e: mixture_delta([0.0, 1.0], [0.9, 0.1], 1.0, e, "remove"), 1e-5)
    found = mmcc.estimate(strategies.identity(1), sampling.Poisson(0.1), sigma=1.0, delta=1e-5)
    assert found.low <= truth <= found.high


@cache
def two_row_epsilon():
    """By quadrature; remove is the larger adjacency here."""
    assert two_row_delta(ROWS, 0.15, 1.5, 1.0, "remove") > two_row_delta(
        ROWS, 0.15, 1.5, 1.0, "add"
    )
    return root(lambda e: two_row_delta(ROWS, 0.15, 1.5, e, "remove"), 1e-5)


@cache
def bins_epsilon():
    shifts = [ROWS[:, [j, j + 3]].sum(axis=1) / 0.9 for j in range(3)]
    return plane_epsilon(shifts, [1 / 3] * 3, 1e-4)


def covered(name, runs):
    strategy = strategies.dense(ROWS, adaptive=False)
    if name == "bins":
        mechanism = Mechanism(strategy, sampling.BallsInBins(3), 0.9)
        truth, delta = bins_epsilon(), 1e-4
    else:
        mechanism = Mechanism(strategy, sampling.Poisson(0.15), 1.5)
        truth, delta = two_row_epsilon(), 1e-5
    found = [
        simulate(mechanism, delta, Budget(4000, 0.04, 0.99, seed, exact=name != "sampled sets"))
        for seed in range(runs)
    ]
    assert all(f.high - f.low <= 0.1 * truth for f in found)
    return sum(f.low <= truth <= f.high for f in found)


@pytest.mark.parametrize(("name", "runs"), [("exact ratio", 4), ("sampled sets", 1), ("bins", 8)])
def test_intervals_cover_the_truth(name, runs):
    assert covered(name, runs) == runs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact ratio", "sampled sets", "bins"])
def test_intervals_cover_the_truth_97_times_in_100(name):
    assert covered(name, 100) >= 97


def quick(executor=None, progress=None, seed=5):
    return mmcc.estimate(
        strategies.continual_counting(64),
        sampling.Poisson(1 / 32),
        sigma=8.0,
        delta=1e-5,
        width=0.05,
        seed=seed,
        executor=executor,
        progress=progress,
    )


def test_progress_is_told_every_batch():
    heard = []
    found = quick(progress=lambda what, done: heard.append((what, done)))
    outputs = [done for what, done in heard if "outputs" in what]
    assert outputs == sorted(outputs)
    assert outputs[-1] == found.samples


def test_an_interrupt_gets_through():
    def interrupt(what, done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(progress=interrupt)


def test_collapsed_weights_are_refused():
    with pytest.raises(PrecisionError, match="weights have collapsed"):
        mmcc.estimate(
            strategies.identity(2048),
            sampling.BallsInBins(2048),
            sigma=1.0,
            delta=1e-6,
            samples=2000,
        )


def test_an_estimate_is_not_a_guarantee():
    found = quick()
    assert type(found) is mmcc.Estimate
    assert not isinstance(found, mmcc.Guarantee)
    assert not issubclass(mmcc.Estimate, mmcc.Guarantee)
    assert found.to_dict()["certified"] is False
    assert set(found.to_dict()) == {f.name for f in dataclasses.fields(found)} | {"certified"}
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert "not a proof" in str(found)
    assert "certified" not in str(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.epsilon = 0.0


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"sigma": 0.0}, ParameterError, "sigma must lie"),
        ({"sigma": float("nan")}, ParameterError, "sigma must lie"),
        ({"delta": 1.0}, ParameterError, "delta must lie"),
        ({"delta": 1e-30}, ParameterError, "delta must lie"),
        ({"samples": 10}, ParameterError, "samples must lie"),
        ({"samples": 2.5}, ParameterError, "samples must be a whole number"),
        ({"seed": -1}, ParameterError, "seed must lie"),
        ({"width": 0.0}, ParameterError, "width must lie"),
        ({"confidence": 1.0}, ParameterError, "confidence must lie"),
        ({"executor": 3}, ParameterError, "executor"),
        ({"progress": 3}, ParameterError, "progress"),
        ({"strategy": np.eye(3)}, StrategyError, "mmcc.strategies"),
        ({"sampling": 0.1}, SamplingError, "mmcc.sampling"),
        ({"sampling": sampling.BallsInBins(3)}, SamplingError, "whole number of epochs"),
        ({"sampling": sampling.Shuffle(3)}, SamplingError, "whole number of epochs"),
    ],
    ids=lambda x: repr(x)[:30],
)
def test_bad_input(change, error, words):
    options = {"sigma": 1.0, "delta": 1e-5} | change
    strategy = options.pop("strategy", strategies.identity(4))
    scheme = options.pop("sampling", sampling.Poisson(0.1))
    with pytest.raises(error, match=words):
        mmcc.estimate(strategy, scheme, **options)


def test_groups_of_cyclic_poisson_say_which_one():
    strategy = strategies.dense(np.diag([1.0, 3.0, 1.0, 2.0, 1.0, 1.0]))
    found = mmcc.estimate(strategy, sampling.CyclicPoisson(0.2, 3), sigma=3.0, delta=1e-5)
    assert "group 1" in found.method
    certain = mmcc.estimate(strategy, sampling.CyclicPoisson(1.0, 3), sigma=3.0, delta=1e-5)
    assert "group 1" in certain.method
    truth = root(lambda e: gaussian_delta(np.sqrt(10.0), 3.0, e), 1e-5)
    assert certain.epsilon == pytest.approx(truth, rel=1e-4)
