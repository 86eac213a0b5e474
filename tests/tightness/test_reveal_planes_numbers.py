"""Claim: for two-buffer BLTs the reveal bound is close to the truth.

Lower ends: the nonlinear test on the same mechanisms, from prototypes (1.360, 3.086, 5.95, 8.91).
"""

from __future__ import annotations

import pytest

from mmcc import sampling, strategies
from mmcc.accounting._bounds.reveal.chains.chain import binomial_prior
from mmcc.accounting._bounds.reveal.chains.upper import ChainProblem
from mmcc.accounting._bounds.reveal.planes.upper import problem_for


def problem_of(steps: int, probability: float, sigma: float, separation: int = 1) -> ChainProblem:
    strategy = strategies.blt(steps, decay=[0.98, 0.7], scale=[0.06, 0.2])
    rounds = sampling.Rounds(probability, separation)
    prior = binomial_prior(1, probability)
    return problem_for(strategy, rounds, prior, sigma)


@pytest.mark.parametrize(
    ("sigma", "most"),
    [
        pytest.param(6.0, 1.367, marks=pytest.mark.slow),
        (3.0, 3.097),
        pytest.param(1.8, 5.985, marks=pytest.mark.slow),
        pytest.param(1.35, 9.03, marks=pytest.mark.slow),
    ],
)
def test_epsilons_of_two_thousand_steps(sigma, most):
    problem = problem_of(2000, 0.01, sigma)
    found = problem.epsilon(problem.best_shape(1e-5), 1e-5)
    assert found.add <= found.remove <= most


@pytest.mark.slow
def test_delta_and_epsilon_agree():
    problem = problem_of(300, 0.03, 3.0)
    shape = problem.best_shape(1e-5)
    delta = problem.delta(shape, problem.epsilon(shape, 1e-5).remove).remove
    assert 0.999e-5 <= delta <= 1.001e-5


@pytest.mark.slow
def test_many_steps():
    problem = problem_of(100_000, 0.001, 6.0)
    found = problem.epsilon(problem.best_shape(1e-5), 1e-5)
    assert found.add <= found.remove <= 0.92


def test_the_plane_is_no_worse_than_the_chain_that_dominates_it():
    problem = problem_of(1500, 0.03, 2.0, separation=5)
    shape = problem.best_shape(1e-5)
    chain = ChainProblem(problem.spectrum, problem.prior, problem.sigma).epsilon(shape, 1e-5)
    plane = problem.epsilon(shape, 1e-5)
    assert plane.remove <= chain.remove
    assert plane.add <= chain.add
