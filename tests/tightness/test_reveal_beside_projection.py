"""Claim: the reveal bound is left out beside the projection only where it is certainly larger."""

from __future__ import annotations

import numpy as np
import pytest
from cases.samples import first

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._bounds.base import Problem
from mmcc.accounting._bounds.reveal import Reveal, _chain_problem, _shape

FALLING = strategies.toeplitz(np.linspace(1.0, 0.1, 10), 38)


@pytest.mark.parametrize(
    ("strategy", "rate", "sigma", "delta"),
    [
        (FALLING, 0.044, 3.5, 5.8e-3),  # moments alone are 40 % above the bound
        (strategies.blt(99, decay=[0.97], scale=[0.4]), 0.0225, 4.2, 1.4e-3),
        (strategies.continual_counting(40), 0.05, 4.0, 1e-2),
    ],
    ids=["bands", "blt", "counting"],
)
def test_tight_is_never_above_the_reveal_bound(strategy, rate, sigma, delta):
    scheme = sampling.Poisson(rate)
    tight, reveal = (
        mmcc.epsilon(strategy, scheme, sigma=sigma, delta=delta, method=method).epsilon
        for method in ("tight", "reveal")
    )
    assert tight <= reveal


@pytest.mark.parametrize("seed", first(range(12), 4))
def test_what_one_direction_of_the_chain_shows_is_below_the_bound(seed):
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(10, 60))
    strategy = strategies.toeplitz((1 + np.arange(steps)) ** -rng.uniform(0.1, 0.7), steps)
    rate, delta = 10 ** rng.uniform(-2.5, -0.5), 10 ** rng.uniform(-8, -2)
    sigma = float(np.sqrt(max(1, rate * steps)) * 10 ** rng.uniform(0.1, 1.2))
    problem = Problem(strategy, sampling.Poisson(rate), sigma)
    bound = Reveal()
    shape = _shape(bound.tune_for_epsilon(problem, delta))
    found = bound.epsilon(problem, delta).remove
    assert _chain_problem(problem).shown_delta(shape, found) <= delta
    assert _chain_problem(problem).shown_delta(shape, 0.5 * found) > 0


def test_where_the_chain_certainly_loses_it_is_not_asked(monkeypatch):
    def asked(*_):
        pytest.fail("the chain was asked")

    monkeypatch.setattr("mmcc.accounting._bounds.reveal._side", asked)
    counting = strategies.continual_counting(300)
    found = mmcc.epsilon(counting, sampling.Poisson(0.1), sigma=20.0, delta=1e-5)
    assert found.details["remove"] == found.epsilon
