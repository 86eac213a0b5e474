"""Claim: the reveal bound of chains under random allocation never goes below the truth.

Truth: all participation sets of small mechanisms (`oracles.allocation`) with a standard error below
0.2 % of delta, compared at four standard errors; a long run, simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from cases import reveal
from cases.samples import first
from oracles.allocation import allocation_delta

from mmcc import sampling, strategies

ACCURACY = 0.0018
ADJACENCIES = ("remove", "add")


@dataclass(frozen=True)
class Case:
    strategy: strategies.Toeplitz
    length: int
    sigma: float
    delta: float

    @property
    def scheme(self) -> sampling.Scheme:
        return sampling.RandomAllocation(self.length)

    def check(self, epsilon: float, delta: float, adjacency: str, seed: int) -> None:
        found = allocation_delta(
            self.strategy.to_dense(),
            self.length,
            1,
            self.sigma,
            epsilon,
            adjacency,
            relative=ACCURACY,
            absolute=ACCURACY * delta,
            seed=seed,
        )
        assert found.mean <= delta + 4 * found.error, (self, adjacency, epsilon, delta, found)


def case(seed: int, epochs: int, longest: int) -> Case:
    """A random BLT, bands or a banded inverse; noise for epsilons that are neither 0 nor huge."""
    rng = np.random.default_rng([seed, 2107])
    length = int(rng.integers(2, longest + 1))
    steps = min(int(rng.integers(1, epochs + 1)), 9 // length) * length
    kind = rng.random()
    if kind < 0.5:
        decay = rng.uniform(0.05, 0.98)
        strategy = strategies.blt(steps, decay=[decay], scale=[decay * rng.uniform(0.02, 1)])
    elif kind < 0.6:
        strategy = strategies.banded_inverse(steps, int(rng.integers(1, 3)))
    elif kind < 0.7:
        strategy = strategies.identity(steps).toeplitz
    else:
        later = np.sort(rng.random(int(rng.integers(1, 4))))[::-1]
        strategy = strategies.toeplitz(np.concatenate([[1.0], later]), steps)
    size = strategy.sensitivity_shuffled(length)
    sigma = size / math.exp(rng.uniform(math.log(0.4), math.log(2.2)))
    return Case(strategy, length, sigma, 10 ** rng.uniform(-7, -1.5))


def check_epsilon(this: Case, seed: int) -> float:
    """The certified epsilon; infinite if a side has none."""
    answer = reveal.bound_epsilon(this.strategy, this.scheme, this.sigma, this.delta)
    for side in ADJACENCIES:
        if math.isfinite(getattr(answer, side)):
            this.check(getattr(answer, side), this.delta, side, seed)
    return answer.value


def check_delta(this: Case, epsilon: float, seed: int) -> None:
    answer = reveal.bound_delta(this.strategy, this.scheme, this.sigma, epsilon)
    for side in ADJACENCIES:
        this.check(epsilon, getattr(answer, side), side, seed)


@pytest.mark.parametrize("seed", first(range(5), 3))
def test_epsilon_and_delta_are_above_the_truth(seed):
    this = case(seed, epochs=2, longest=2)
    epsilon = check_epsilon(this, seed)
    assert epsilon < math.inf
    if seed == 7:
        check_delta(this, 0.9 * epsilon, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_every_random_mechanism_is_above_the_truth(seed):
    this = case(1000 + seed, epochs=3, longest=4)
    epsilon = check_epsilon(this, seed)
    if seed % 10 == 0 and epsilon < math.inf:
        check_delta(this, 0.9 * epsilon, seed)


@pytest.mark.slow
def test_a_long_run_is_above_its_simulation():
    """20 epochs of 100 steps: the loss of the revealed pair itself, sampled under P~."""
    epochs, length, decay, scale, sigma = 20, 100, 0.8975, 0.2165, 2.927
    shared = (scale / decay + scale**2 / (1 - decay**2)) / sigma**2
    diagonal = (1 + scale**2 / (1 - decay**2)) / sigma**2
    steps, rng = epochs * length, np.random.default_rng(8)
    losses = []
    for _ in range(20):
        count = 2000
        state = np.sqrt(shared) * rng.standard_normal(count)
        x = np.empty((count, steps))
        for step in range(steps):
            x[:, step] = state
            fresh = rng.standard_normal(count)
            state = decay * state + np.sqrt(shared * (1 - decay**2)) * fresh
        x += np.sqrt(diagonal - shared) * rng.standard_normal(x.shape) - diagonal / 2
        for epoch in range(epochs):
            mark = epoch * length + rng.integers(length, size=count)
            seen = np.arange((epoch + 1) * length)
            x[:, : seen.size] += shared * decay ** np.abs(seen - mark[:, None])
            x[np.arange(count), mark] += diagonal - shared
        means = np.exp(x).reshape(count, epochs, length).mean(axis=2)
        losses.append(np.log(means).sum(axis=1))
    loss = np.concatenate(losses)
    strategy = strategies.blt(steps, decay=[decay], scale=[scale])
    epsilon = 1.0
    found = reveal.bound_delta(strategy, sampling.RandomAllocation(length), sigma, epsilon)
    for side, excess in (
        ("remove", np.maximum(1 - np.exp(epsilon - loss), 0)),
        ("add", np.maximum(np.exp(-loss) - math.exp(epsilon), 0)),
    ):
        error = excess.std() / math.sqrt(loss.size)
        assert excess.mean() <= getattr(found, side) + 4 * error
