"""Claim: the chain bound never goes below the truth, and neither does any step of its proof.

Truths: enumeration of all participation sets (pointwise where the claim is pointwise; with sampled
outputs and four standard errors for delta), and quadrature without tolerance for two columns.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import chain
from oracles import truth

from mmcc import sampling, strategies
from mmcc.accounting._bounds.chain.domination import Chain, chain_at, lightest_decay, profile_of
from mmcc.accounting._bounds.chain.factors import Tangent, add_factors, remove_factors, strength
from mmcc.accounting._bounds.chain.lattice import Lattice

# ------------------------------------------------------------------------------ random mechanisms


def random_strategy(rng: np.random.Generator, steps: int) -> strategies.Toeplitz:
    if rng.random() < 0.5:
        decay = rng.uniform(0.05, 0.97)
        return strategies.blt(steps, decay=[decay], scale=[decay * rng.uniform(0.01, 1)])
    bands = int(rng.integers(1, 5))
    later = rng.random(bands - 1) * 1.5
    later = np.sort(later)[::-1] if rng.random() < 0.7 else later
    return strategies.toeplitz(np.concatenate([[1.0], later]), steps)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def scheme_of(probability: float, separation: int) -> sampling.Scheme:
    if separation == 1:
        return sampling.Poisson(probability)
    return sampling.CyclicPoisson(probability, separation)


def random_chain(rng: np.random.Generator) -> Chain:
    blocks, block = [(6, 1), (7, 1), (3, 2), (2, 3), (2, 4)][int(rng.integers(5))]
    return Chain(
        blocks=blocks,
        block=block,
        probability=log_uniform(rng, 0.02, 0.95),
        diagonal=log_uniform(rng, 0.01, 4),
        share=float(rng.uniform(0.05, 0.95)),
        decay=float(rng.uniform(0.05, 0.95)),
    )


def chain_matrix(found: Chain) -> np.ndarray:
    """G^, written out."""
    place = np.arange(found.steps) // found.block
    common = found.share * found.decay ** np.abs(place[:, None] - place)
    return found.diagonal * (common + (1 - found.share) * np.eye(found.steps))


def with_blocks(found: Chain, block: int, steps: int) -> Chain:
    """The chain of longer blocks that dominates a chain of single steps."""
    share, decay = found.share * found.decay ** (1 - block), found.decay**block
    return Chain(-(-steps // block), block, found.probability, found.diagonal, share, decay)


# --------------------------------------------------------------------------- the steps of the proof


@pytest.mark.parametrize("seed", range(60))
def test_the_chain_dominates_the_gram_matrix_and_is_a_covariance(seed):
    rng = np.random.default_rng(seed)
    steps, separation = int(rng.integers(2, 40)), int(rng.integers(1, 4))
    strategy, sigma = random_strategy(rng, steps), log_uniform(rng, 0.5, 30)
    scheme = scheme_of(0.1, separation)
    profile = profile_of(strategy, scheme.rounds(strategy.steps), sigma)
    decay = lightest_decay(profile)
    found = chain_at(profile, 0.1, decay)
    columns = strategy.to_dense()[:, ::separation] / sigma
    truly = columns.T @ columns
    for candidate in (found, with_blocks(found, 3, profile.steps) if found.share else found):
        matrix = chain_matrix(candidate)[: len(truly), : len(truly)]
        assert (matrix >= truly).all()
        assert candidate.share > 1 or np.linalg.eigvalsh(matrix).min() > 0


def test_long_buffers_get_blocks_and_still_dominate():
    strategy = strategies.blt(3000, decay=[0.999], scale=[0.05])
    profile = profile_of(strategy, sampling.Rounds(0.01, 1), 2.0)
    found = chain_at(profile, 0.01, lightest_decay(profile))
    assert found.block > 1
    columns = strategy.to_dense()[:, :300] / 2.0
    assert (chain_matrix(found)[:300, :300] >= columns.T @ columns).all()


@pytest.mark.parametrize("seed", range(60))
def test_cross_terms_are_bounded_for_all_chances_up_to_the_cap(seed):
    rng = np.random.default_rng(seed)
    found, cap = random_chain(rng), log_uniform(rng, 0.02, 1)
    matrix = chain_matrix(found)
    sets, _ = truth.participation_sets(found.steps, 0.5)
    cross = 0.5 * (np.einsum("sj,jl,sl->s", sets, matrix, sets) - sets @ np.diag(matrix))
    eta = strength(found, cap)
    corner = np.full(found.steps, cap)
    for chances in (corner, cap * rng.random(found.steps), cap * (rng.random(found.steps) < 0.5)):
        weights = np.where(sets == 1, chances, 1 - chances).prod(axis=1)
        form = 0.5 * (chances @ matrix @ chances - chances**2 @ np.diag(matrix))
        assert weights @ np.exp(-cross) <= math.exp(-eta * form) * (1 + 1e-14)


def ratio(found: Chain, u: np.ndarray) -> float:
    """X at the point u, all sets summed."""
    sets, logs = truth.participation_sets(found.steps, found.probability)
    norms = np.einsum("sj,jl,sl->s", sets, chain_matrix(found), sets)
    return float(truth.log_sum(logs + sets @ u - norms / 2))


@pytest.mark.parametrize("seed", range(60))
def test_factors_bound_the_likelihood_ratio_at_every_point(seed):
    rng = np.random.default_rng(seed)
    found = random_chain(rng)
    v = 3 * rng.standard_normal(found.blocks)
    place = np.arange(found.steps) // found.block
    noise = rng.standard_normal(found.steps)
    u = math.sqrt(found.common) * v[place] + 3 * math.sqrt(found.white) * noise
    exact = ratio(found, u)
    logs = np.concatenate([[-np.inf], u])
    square = np.ones((found.blocks, found.blocks))
    none = np.zeros((found.blocks, logs.size))
    lattice = Lattice(v, square[0], square, logs, none, 0.0, 0.0)
    tangent = Tangent(v, rng.random(found.blocks) * 3, log_uniform(rng, 0.02, 1))
    upper, lower = remove_factors(found, lattice, tangent), add_factors(found, lattice)
    totals = [
        factors.entry[0]
        + sum(factors.step[place[j], j + 1] for j in range(found.steps))
        + sum(factors.move[a, a + 1] for a in range(found.blocks - 1))
        for factors in (upper, lower)
    ]
    assert totals[1] <= exact <= totals[0]


@pytest.mark.parametrize("seed", range(40))
def test_factors_are_convex_and_concave_in_the_exponential_of_the_output(seed):
    rng = np.random.default_rng(seed)
    found = random_chain(rng)
    x = np.linspace(0, math.exp(8 * math.sqrt(found.diagonal)), 400)
    with np.errstate(divide="ignore"):
        logs = np.log(x)
    q = rng.random(found.blocks) * 3
    square = np.ones((found.blocks, found.blocks))
    none = np.zeros((found.blocks, logs.size))
    lattice = Lattice(q, square[0], square, logs, none, 0.0, 0.0)
    upper = np.exp(remove_factors(found, lattice, Tangent(q, q, float(rng.random()))).step)
    lower = np.exp(add_factors(found, lattice).step)
    assert (np.diff(upper, 2, axis=1) >= -1e-11 * upper[:, 1:-1]).all()
    assert (np.diff(lower, 2, axis=1) <= 1e-11 * lower[:, 1:-1]).all()


# ---------------------------------------------------------------------------------- the whole bound


def check_against_enumeration(seed: int, samples: int) -> None:
    rng = np.random.default_rng([seed, 77])
    steps = int(rng.integers(1, 9))
    separation = 1 if rng.random() < 0.6 else int(rng.integers(1, steps + 1))
    strategy = random_strategy(rng, steps)
    p, sigma = log_uniform(rng, 0.02, 0.95), log_uniform(rng, 0.5, 30)
    delta = float(10 ** rng.uniform(-7, -1.5))
    found = chain.bound_epsilon(strategy, scheme_of(p, separation), sigma, delta)
    columns = list(range(0, steps, separation))
    for adjacency, epsilon in (("remove", found.remove), ("add", found.add)):
        assert epsilon >= 0
        if math.isfinite(epsilon):
            mean, error = truth.enumerated_delta(
                strategy.to_dense(),
                p,
                sigma,
                epsilon,
                adjacency,
                samples=samples,
                seed=seed,
                columns=columns,
            )
            assert mean - 4 * error <= delta


@pytest.mark.parametrize("seed", range(30))
def test_epsilon_is_never_below_enumeration(seed):
    check_against_enumeration(seed, samples=1500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 400))
def test_epsilon_is_never_below_enumeration_many(seed):
    check_against_enumeration(seed, samples=20_000)


@pytest.mark.parametrize("seed", range(8))
def test_two_columns_against_quadrature(seed):
    """No sampling here, so no tolerance: the truth is a quadrature with its own error."""
    rng = np.random.default_rng([seed, 78])
    separation = int(rng.integers(1, 4))
    strategy = random_strategy(rng, 2 * separation)
    p, sigma = log_uniform(rng, 0.02, 0.95), log_uniform(rng, 0.5, 30)
    matrix = strategy.to_dense()[:, ::separation]
    for level in (0.3, 1.0):
        epsilon = level * p / sigma * (1 + 1 / sigma)
        found = chain.bound_delta(strategy, scheme_of(p, separation), sigma, epsilon)
        for adjacency, bound in (("remove", found.remove), ("add", found.add)):
            low, _ = truth.two_row_bracket(matrix, p, sigma, epsilon, adjacency)
            assert low <= bound


@pytest.mark.parametrize(
    ("sigma", "delta", "remove", "add"),
    [(1, 1e-5, 6.8836, 1.3154), (1, 1e-6, 7.8254, 1.3402), (4, 1e-6, 1.1833, 0.7184)],
)
def test_two_steps_against_known_numbers(sigma, delta, remove, add):
    found = chain.bound_epsilon(
        strategies.toeplitz([1, 0.5], 2), sampling.Poisson(0.5), sigma, delta
    )
    assert found.remove >= remove - 5e-5
    assert found.add >= add - 5e-5


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
@pytest.mark.parametrize(
    ("count", "p", "sigma"), [(200, 0.05, 1.0), (2000, 0.01, 0.8), (30, 0.5, 5.0)]
)
def test_independent_noise_against_exact_composition(count, p, sigma, adjacency):
    delta = 1e-6
    found = chain.bound_epsilon(strategies.identity(count), sampling.Poisson(p), sigma, delta)
    epsilon = getattr(found, adjacency)
    low, _ = truth.composed_subsampled_gaussian_delta(count, 1.0, p, sigma, epsilon, adjacency)
    assert low <= delta


def test_delta_and_epsilon_agree():
    strategy = strategies.blt(500, decay=[0.9], scale=[0.2])
    scheme = sampling.Poisson(0.02)
    epsilon = chain.bound_epsilon(strategy, scheme, 3.0, 1e-6)
    delta = chain.bound_delta(strategy, scheme, 3.0, epsilon.remove)
    assert 0.98e-6 <= delta.remove <= 1.02e-6


def test_more_steps_and_more_noise_move_the_right_way():
    scheme = sampling.Poisson(0.02)

    def value(steps: int, sigma: float) -> float:
        strategy = strategies.blt(steps, decay=[0.9], scale=[0.2])
        return chain.bound_epsilon(strategy, scheme, sigma, 1e-6).value

    assert value(200, 3.0) < value(400, 3.0)
    assert value(400, 3.2) < value(400, 3.0)


@pytest.mark.parametrize(
    ("strategy", "p", "sigma", "delta"),
    [
        (strategies.toeplitz([1, 0.5], 10**12), 1e-8, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.5, 1e-40, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.5, 1e12, 1e-5),
        (strategies.toeplitz([1, 0.5], 10), 1e-12, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.999999, 2.0, 1e-5),
        (strategies.toeplitz([1e-90, 1e-95], 100), 0.1, 1.0, 1e-5),
        (strategies.toeplitz([1, 1e-90], 100), 0.1, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 1.0, 2.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 1), 0.3, 2.0, 0.9),
    ],
)
def test_extremes_give_a_number_or_infinity(strategy, p, sigma, delta):
    found = chain.bound_epsilon(strategy, sampling.Poisson(p), sigma, delta)
    assert found.remove >= 0
    assert found.add >= 0
