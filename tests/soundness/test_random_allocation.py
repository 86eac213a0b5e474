"""Claim: random allocation, independent noise: lower <= true <= upper for both adjacencies.

The truth sums over all participation sets (`oracles.allocation`) to a standard error below 0.2 % of
delta and is compared at four standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from cases.samples import first
from oracles.allocation import allocation_delta, allocation_sensitivity
from oracles.truth import ADJACENCIES

from mmcc import sampling, strategies
from mmcc.accounting._bounds import Problem
from mmcc.accounting._bounds.cascade import Cascade, _bracket

ACCURACY = 0.0018
ALL = range(300)


@dataclass(frozen=True)
class Case:
    strategy: strategies.Strategy
    epoch_steps: int
    times: int
    sigma: float
    delta: float

    @property
    def problem(self) -> Problem:
        scheme = sampling.RandomAllocation(self.epoch_steps, self.times)
        return Problem(self.strategy, scheme, self.sigma)

    def truth(self, epsilon: float, adjacency: str, seed: int) -> tuple[float, float]:
        """Delta in units of the target, and its standard error."""
        found = allocation_delta(
            self.strategy.to_dense(),
            self.epoch_steps,
            self.times,
            self.sigma,
            epsilon,
            adjacency,
            relative=ACCURACY,
            absolute=ACCURACY * self.delta,
            seed=seed,
        )
        return found.mean / self.delta, found.error / self.delta


def case(seed: int, most: int = 8) -> Case:
    """A random mechanism of at most so many steps."""
    rng = np.random.default_rng([seed, 21])
    length = int(rng.integers(2, 5))
    epochs = min(int(rng.integers(1, 3)), most // length)
    times = int(rng.integers(1, min(2, length - 1) + 1))
    steps = length * epochs
    kind = rng.integers(4)
    if kind == 0:  # steps of different lengths, in rows of their own
        matrix = np.diag(rng.choice([0.7, 1.0, 1.6], steps))
        strategy = strategies.dense(matrix)
    elif kind == 1 and times == 1 and length in (2, 4):
        strategy = strategies.tree_restart(steps, length.bit_length())
    elif kind == 2:  # several rows a step
        matrix = np.kron(np.eye(steps), rng.uniform(0.2, 1, (2, 1)))
        strategy = strategies.dense(matrix)
    else:
        strategy = strategies.identity(steps)
    sigma = math.exp(rng.uniform(math.log(0.5), math.log(3)))
    return Case(strategy, length, times, sigma, 10 ** rng.uniform(-7, -1))


def check(this: Case, seed: int) -> None:
    bracket = _bracket(this.problem, this.delta)
    upper, lower = bracket.bound_epsilon(this.delta), bracket.lower_epsilon(this.delta)
    for side in ADJACENCIES:
        high, low = getattr(upper, side), getattr(lower, side)
        assert low <= high, (this, side, low, high)
        if low > 0:
            mean, error = this.truth(low, side, seed)
            assert mean >= 1 - 4 * error, (this, side, low, mean, error)
        if math.isfinite(high):
            mean, error = this.truth(high, side, seed)
            assert mean <= 1 + 4 * error, (this, side, high, mean, error)


def check_deltas(this: Case, seed: int) -> None:
    epsilon = Cascade().epsilon(this.problem, this.delta).value
    if not 0 < epsilon < math.inf:
        return
    bracket = _bracket(this.problem, this.delta)
    upper, lower = bracket.bound_delta(epsilon), bracket.lower_delta(epsilon)
    for side in ADJACENCIES:
        mean, error = this.truth(epsilon, side, seed)
        assert getattr(lower, side) <= (mean + 4 * error) * this.delta, (this, side, epsilon)
        assert getattr(upper, side) >= (mean - 4 * error) * this.delta, (this, side, epsilon)


@pytest.mark.parametrize("seed", first(range(12), 3))
def test_true_epsilon_lies_in_the_bracket(seed):
    check(case(seed, most=4), seed)


@pytest.mark.parametrize("seed", first(range(20, 24), 2))
def test_true_delta_lies_in_the_bracket(seed):
    check_deltas(case(seed, most=4), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_true_epsilon_lies_in_the_bracket_of_every_random_mechanism(seed):
    this = case(1000 + seed, most=6 if seed % 10 else 8)
    check(this, seed)
    check_deltas(this, seed)


@pytest.mark.parametrize("seed", range(20))
def test_sensitivity_is_not_below_the_largest_set(seed):
    rng = np.random.default_rng([seed, 5])
    length = int(rng.integers(2, 5))
    times = int(rng.integers(1, length + 1))
    steps = 2 * length
    strategy = (
        strategies.toeplitz(rng.uniform(0, 1, steps) + 0.01, steps),
        strategies.toeplitz(np.sort(rng.uniform(0, 1, 3))[::-1], steps),
        strategies.binary_tree(steps),
        strategies.dense(np.tril(rng.uniform(0, 1, (steps, steps)))),
        strategies.identity(steps),
    )[seed % 5]
    most = allocation_sensitivity(strategy.to_dense(), length, times)
    assert sampling.RandomAllocation(length, times).sensitivity(strategy) >= most
