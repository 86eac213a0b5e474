"""Claim: the simulated pair dominates the mechanism, and its two laws have the ratio that is said.

Truth: every participation set of the mechanism, by laws worked out set by set, summed by
`oracles.enumeration`.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from cases.chances import LAWS, STEPS
from extending.exactly import Exactly
from oracles import enumeration, mechanisms
from oracles.truth import ADJACENCIES

from mmcc import sampling, strategies
from mmcc._simulation.kicks import Kicks, kicks_of
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.pairs import ColumnPair, EpochPair, pair_of
from mmcc.accounting import Problem
from mmcc.errors import MethodError, SamplingError, StrategyError

STRATEGIES = {
    "bands": strategies.toeplitz([1.0, 0.5, 0.375], STEPS),
    "counting": strategies.continual_counting(STEPS),
    "tree": strategies.binary_tree(STEPS),
    "dense": strategies.dense(mechanisms.random_matrix(np.random.default_rng(4), "lower", STEPS)),
    "blt": strategies.blt(STEPS, decay=[0.7], scale=[0.4]),
    "independent": strategies.identity(STEPS),
}
SCHEMES = list(LAWS)
CASES = [(name, SCHEMES[k % len(SCHEMES)]) for k, name in enumerate(2 * list(STRATEGIES))]
"""Every strategy and every scheme."""
EVERY = [(name, scheme) for name in STRATEGIES for scheme in SCHEMES]
SLOW = [case for case in EVERY if case not in CASES]
SIZE = 20_000


def noise_for(strategy, sigma_of_one: float) -> float:
    return sigma_of_one * float(np.linalg.norm(strategy.to_dense(), axis=0).max())


def drawn(strategy, scheme, sigma, adjacency, size=SIZE, group=0, seed=1):
    pair = pair_of(Problem(strategy, scheme, sigma), group)
    return pair.losses(adjacency == "remove", size, np.random.default_rng([seed, group]))


def delta_of(losses, epsilon):
    gain = -np.expm1(np.minimum(epsilon - losses, 0.0))
    return gain.mean(), gain.std() / math.sqrt(losses.size)


def check_dominates(name, scheme, adjacency, most):
    strategy = STRATEGIES[name]
    sigma = noise_for(strategy, 1.5)
    losses = drawn(strategy, scheme, sigma, adjacency)
    sets, weights = LAWS[scheme]
    columns = strategy.to_dense()[:, :: scheme.stride(STEPS)] / sigma
    for epsilon in (0.3, max(0.31, float(np.quantile(losses, 0.97)))):
        mean, error = delta_of(losses, epsilon)
        exact = enumeration.mixture_delta(
            sets @ columns.T, weights, epsilon, adjacency, relative=0.01, absolute=1e-7
        )
        assert mean + 4 * error >= exact.mean - 4 * exact.error
        assert mean - 4 * error <= most * exact.mean + 4 * exact.error


@pytest.mark.parametrize(("name", "scheme"), CASES, ids=str)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_delta_is_no_less_than_the_truth_and_near_it(name, scheme, adjacency):
    check_dominates(name, scheme, adjacency, 1.25)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scheme"), SLOW, ids=str)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_delta_is_no_less_than_the_truth_for_every_pair_of_both(name, scheme, adjacency):
    check_dominates(name, scheme, adjacency, 1.25)


@pytest.mark.parametrize(("name", "scheme"), EVERY[::2], ids=str)
def test_truth_and_fakes_have_the_ratio_that_is_said(name, scheme):
    """E_Q~ f(Lhat) = E_P~ f(Lhat) / Lhat for any f: both laws drawn, four errors allowed."""
    strategy = STRATEGIES[name]
    sigma = noise_for(strategy, 1.5)
    remove = drawn(strategy, scheme, sigma, "remove", 10_000)
    add = drawn(strategy, scheme, sigma, "add", 10_000)
    for f in (np.ones_like, np.tanh, lambda loss: np.minimum(np.exp(loss), 1.0)):
        for left, right in ((f(-add), f(remove) * np.exp(-remove)),):
            error = math.hypot(left.std(), right.std()) / math.sqrt(left.size)
            assert abs(left.mean() - right.mean()) <= 4 * error + 1e-12


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_group_of_cyclic_sampling_sees_its_own_columns(name):
    strategy, scheme = STRATEGIES[name], sampling.CyclicPoisson(0.4, 2)
    sigma = noise_for(strategy, 1.0)
    sets, weights = LAWS[scheme]
    components = sets @ strategy.to_dense()[:, 1::2].T / sigma
    exact = enumeration.mixture_delta(components, weights, 1.0, "remove", relative=0.01)
    mean, error = delta_of(drawn(strategy, scheme, sigma, "remove", group=1), 1.0)
    assert mean + 4 * error >= exact.mean - 4 * exact.error
    assert mean - 4 * error <= 1.25 * exact.mean + 4 * exact.error


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_several_of_an_epoch_one_after_the_other(name, adjacency):
    """Long epochs are revealed so: sound for short ones, where it is not near the truth."""
    strategy, scheme = STRATEGIES[name], sampling.RandomAllocation(3, 2)
    sigma = noise_for(strategy, 1.5)
    pair = EpochPair(Mechanism(strategy, scheme, sigma), scheme.allocation(STEPS))
    losses = pair.losses(adjacency == "remove", SIZE, np.random.default_rng(1))
    sets, weights = LAWS[scheme]
    components = sets @ strategy.to_dense().T / sigma
    exact = enumeration.mixture_delta(components, weights, 0.3, adjacency, relative=0.01)
    mean, error = delta_of(losses, 0.3)
    assert mean + 4 * error >= exact.mean - 4 * exact.error
    inverse = np.exp(-losses)
    assert abs(inverse.mean() - 1) <= 4 * inverse.std() / math.sqrt(SIZE)


def test_two_members_together_are_above_the_truth():
    strategy = strategies.toeplitz([1.0, 0.5], 4)
    pair = pair_of(Problem(strategy, sampling.Poisson(0.2), 3.0, group_size=2))
    losses = pair.losses(True, SIZE, np.random.default_rng(1))
    mean, error = delta_of(losses, 0.5)
    exact = enumeration.enumerated_delta(
        np.hstack([strategy.to_dense()] * 2), 0.2, 3.0, 0.5, "remove", relative=0.01
    )
    assert mean + 4 * error >= exact.mean - 4 * exact.error
    assert mean - 4 * error <= 1.1 * exact.mean + 4 * exact.error


@pytest.mark.parametrize("bands", [1, 2, 4, 9])
@pytest.mark.parametrize("separation", [1, 2, 3])
@pytest.mark.parametrize("group", [0, 1])
def test_kicks_of_bands_are_the_inner_products(bands, separation, group):
    strategy = strategies.toeplitz(np.random.default_rng(bands).uniform(0.1, 1, bands), 61)
    mechanism = Mechanism(
        strategy, sampling.CyclicPoisson(0.1, separation), 2.0, group % separation
    )
    kicks = kicks_of(mechanism)
    columns = strategy.to_dense()[:, group % separation :: separation] / 2
    exact = columns.T @ columns
    found = np.zeros_like(exact)
    for j in range(len(exact)):
        for d in range(-kicks.reach, kicks.reach + 1):
            if 0 <= j + d < len(exact):
                found[j, j + d] = kicks.flat[kicks.starts[j] + d]
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-15)
    assert isinstance(kicks, Kicks)


def test_rounding_is_what_more_digits_show():
    """Losses of the same draws, once by the pair and once in long double."""
    strategy = strategies.toeplitz(strategies.continual_counting(3).coefficients, 300)
    exact_one = pair_of(Problem(strategy, sampling.Poisson(0.05), 1.0))
    pair = ColumnPair(exact_one.mechanism, exact_one.chances)
    noise = pair._noise(20, np.random.default_rng(1))
    losses, _ = pair._reveal(noise.copy(), False, np.random.default_rng(2), None)
    exact = [
        fake_loss(row, strategy, 0.05, pair, np.random.default_rng(2), k)
        for k, row in enumerate(noise[:1])
    ]
    assert abs(losses[0] - float(exact[0])) <= pair.rounding
    assert pair.rounding < 1e-5


def fake_loss(noise, strategy, p, pair, rng, place):
    """Column by column with the kernel's own coins, written out again."""
    assert place == 0
    gram = strategy.to_dense().T.astype(np.longdouble) @ strategy.to_dense().astype(np.longdouble)
    x = noise.astype(np.longdouble) - np.diagonal(gram) / 2
    total, reach = np.longdouble(0), 2
    for column in range(len(x)):
        near = slice(column + 1, min(column + 1 + reach, len(x)))
        grown = p * np.exp(x[near])
        seen = grown / (1 - p + grown)
        ratio = np.prod(1 - seen * -np.expm1(-gram[column, near]))
        weight = p * np.exp(x[column]) * ratio
        factor = 1 - p + weight
        total += np.log(factor)
        if rng.random() * factor < weight:
            total -= np.log(ratio)
            x[near] -= gram[column, near]
    return total


def test_a_pair_is_the_same_after_a_journey():
    pair = pair_of(Problem(STRATEGIES["bands"], sampling.MinSeparation(0.3, 3), 2.0))
    again = pickle.loads(pickle.dumps(pair))
    first, second = (p.losses(True, 50, np.random.default_rng(3)) for p in (pair, again))
    assert (first == second).all()


def test_what_a_relaxed_scheme_adds_to_delta_is_stated():
    scheme = sampling.TruncatedPoisson(0.1, 30, 100)
    problem = Problem(STRATEGIES["bands"], scheme, 2.0)
    pair, poisson = (
        pair_of(problem),
        pair_of(Problem(STRATEGIES["bands"], sampling.Poisson(0.1), 2.0)),
    )
    assert pair.dropped >= problem.relaxed.chance > 0
    assert poisson.dropped < 1e-12
    first, second = (p.losses(True, 50, np.random.default_rng(3)) for p in (pair, poisson))
    assert (first == second).all()


@dataclass(frozen=True)
class Silent(Exactly):
    def chances(self, steps):
        return None


@dataclass(frozen=True)
class Other(Exactly):
    def chances(self, steps):
        return Exactly(1).chances(steps)


def test_chances_under_which_its_own_sets_cannot_happen_are_refused():
    with pytest.raises(SamplingError, match="is impossible"):
        pair_of(Problem(STRATEGIES["bands"], Other(2), 1.0))


def test_where_there_is_no_pair_it_is_said_why():
    strategy = STRATEGIES["bands"]
    for scheme, why in [
        (sampling.Shuffle(3), "not independent"),
        (Silent(2), "Define its `chances`"),
    ]:
        with pytest.raises(MethodError, match=why):
            pair_of(Problem(strategy, scheme, 1.0))
    with pytest.raises(SamplingError, match="nothing"):
        pair_of(Problem(strategy, sampling.Unsampled(2, 2), 1.0))
    with pytest.raises(MethodError, match="together"):
        pair_of(Problem(strategy, sampling.BallsInBins(3), 1.0, group_size=2))
    large = strategies.continual_counting(10_000)
    with pytest.raises(StrategyError, match="at most"):
        pair_of(Problem(large, sampling.Poisson(0.1), 1.0)).losses(
            True, 1, np.random.default_rng(1)
        )


@pytest.mark.parametrize("sigma", [0.02, 1e3])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_extreme_noise_gives_numbers(sigma, adjacency):
    for name, strategy in STRATEGIES.items():
        for scheme in SCHEMES:
            losses = drawn(strategy, scheme, sigma, adjacency, 50)
            assert np.isfinite(losses).all(), (name, scheme)
