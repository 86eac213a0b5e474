"""Claim: numbers for a group hold whatever its members contribute, and so do their lower ends.

The truth is enumerated: every vector of counts, every assignment to public groups, every bin.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.reveal import log_uniform
from cases.samples import first, in_turn
from oracles.enumeration import mixture_delta
from oracles.groups import (
    adaptive_delta,
    bin_components,
    count_components,
    cyclic_sizes,
    revealed_delta,
)

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._best_bound import (
    adapt_bound,
    amplified,
    ask_delta,
    ask_epsilon,
    lower_delta,
    lower_epsilon,
    refusal,
)
from mmcc.accounting._bounds import PLAIN, Problem, bound_named
from mmcc.strategies import Strategy

ADJACENCIES = ("remove", "add")
METHODS = ("mmcc", "projection", "reveal", "unamplified", "group-lemma")
SAMPLES = 20_000


def random_strategy(rng, steps, toeplitz):
    if toeplitz or rng.random() < 0.5:
        bands = int(rng.integers(1, steps + 1))
        return strategies.toeplitz([1.0, *rng.random(bands - 1)], steps)
    return strategies.dense(np.tril(rng.random((steps, steps)) + 0.05))


def above(components, weights, epsilon, adjacency, delta, seed, near=math.inf):
    """Whether the truth may be as small as a certified delta: within four standard errors.

    Delta falls with epsilon, so that it is enough to look at a smaller epsilon, `near` the truth,
    where sampling is easier, if delta is small enough there already.
    """
    if not math.isfinite(epsilon) or delta >= 1:
        return True

    def truth(at):
        options = {"relative": 0.02, "absolute": 0.02 * delta, "seed": seed}
        return mixture_delta(components, weights, at, adjacency, **options)

    if near < epsilon:
        found = truth(near)
        if found.mean + 4 * found.error <= delta:
            return True
    found = truth(epsilon)
    return found.mean - 4 * found.error <= delta


def check_counts(seed, method):
    rng = np.random.default_rng([seed, 31])
    steps, members = [(1, 4), (2, 3), (3, 2), (4, 2), (3, 3)][seed % 5]
    strategy = random_strategy(rng, steps, toeplitz=method == "reveal")
    p, sigma = log_uniform(rng, 0.02, 0.9), log_uniform(rng, 1.0, 20)
    problem = Problem(strategy, sampling.Poisson(p), sigma, group_size=members)
    components, weights = count_components(strategy.to_dense(), [members] * steps, p, sigma)
    bound = adapt_bound(bound_named(method), problem)
    assert refusal(bound, problem) is None
    delta = float(10 ** rng.uniform(-6, -1.5))
    low = max(lower_epsilon(problem, delta), 1e-3)
    found = ask_epsilon(bound, problem, delta)
    for side in ADJACENCIES:
        epsilon = getattr(found, side)
        assert above(components, weights, epsilon, side, delta, seed, near=1.2 * low)
    found = ask_delta(bound, problem, low)
    for side in ADJACENCIES:
        assert above(components, weights, low, side, getattr(found, side), seed)


@pytest.mark.parametrize(("method", "seed"), in_turn(METHODS, [0, 2]))
def test_no_number_is_below_enumeration_of_counts(seed, method):
    check_counts(seed, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [1, *range(3, 60)])
def test_no_number_is_below_enumeration_of_counts_many(seed, method):
    check_counts(seed, method)


@pytest.mark.parametrize("seed", range(4))
def test_lower_ends_are_below_enumeration(seed):
    rng = np.random.default_rng([seed, 32])
    steps, members = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    strategy = random_strategy(rng, steps, toeplitz=False)
    p, sigma, epsilon = log_uniform(rng, 0.1, 0.9), log_uniform(rng, 1.0, 5), 0.5
    problem = Problem(strategy, sampling.Poisson(p), sigma, group_size=members)
    components, weights = count_components(strategy.to_dense(), [members] * steps, p, sigma)
    truth = [
        mixture_delta(components, weights, epsilon, side, relative=0.01) for side in ADJACENCIES
    ]
    lower = lower_delta(problem, epsilon)
    assert 0 < lower <= max(found.mean + 4 * found.error for found in truth)
    assert lower >= lower_delta(problem.of_one(), epsilon)


class ATreeToo(Strategy):
    """Independent noise, which says that it is a tree of one level as well."""

    steps = rows = 4

    def prefix(self, steps):
        raise NotImplementedError

    def _dense(self):
        return np.eye(4)

    @property
    def toeplitz(self):
        return strategies.identity(4)

    @property
    def tree(self):
        return strategies.tree_restart(4, 1)


def test_a_tree_is_revealed_for_one_example_alone():
    components, weights = count_components(np.eye(4), [2] * 4, 0.2, 1.0)
    problem = Problem(ATreeToo(), sampling.Poisson(0.2), 1.0, group_size=2)
    found = ask_epsilon(bound_named("reveal"), problem, 1e-3)
    assert above(components, weights, found.remove, "remove", 1e-3, seed=0)


def every_assignment(steps, separation, members):
    for groups in itertools.combinations_with_replacement(range(separation), members):
        yield cyclic_sizes(steps, separation, groups)


@pytest.mark.parametrize(("bands", "seed"), first([(1, 0), (3, 1)], 1))
def test_cyclic_poisson_holds_for_every_assignment_of_members(bands, seed):
    """By counts for independent noise, where the worst assignment is proven; else by the lemma."""
    rng = np.random.default_rng([seed, 33])
    steps, separation, members = 4, 2, 2 + seed % 2
    strategy = strategies.toeplitz([1.0, *rng.random(bands - 1)], steps)
    p, sigma, delta = log_uniform(rng, 0.1, 0.9), log_uniform(rng, 1.0, 5), 1e-3
    scheme = sampling.CyclicPoisson(p, separation)
    problem = Problem(strategy, scheme, sigma, group_size=members)
    names = {bound.name for bound in amplified(problem)}
    assert names == (
        {"mmcc", "projection", "reveal", "group-lemma"} if bands == 1 else {"group-lemma"}
    )
    for bound in [PLAIN, *amplified(problem)]:
        found = ask_epsilon(bound, problem, delta)
        for sizes in every_assignment(steps, separation, members):
            components, weights = count_components(strategy.to_dense(), sizes, p, sigma)
            for side in ADJACENCIES:
                assert above(components, weights, getattr(found, side), side, delta, seed)


@pytest.mark.parametrize("seed", range(2))
def test_balls_in_bins_by_the_lemma(seed):
    rng = np.random.default_rng([seed, 34])
    bins, members = 3, 2
    strategy = random_strategy(rng, 2 * bins, toeplitz=False)
    sigma, delta = log_uniform(rng, 2.0, 6), 1e-3
    problem = Problem(strategy, sampling.BallsInBins(bins), sigma, group_size=members)
    components, weights = bin_components(strategy.to_dense(), bins, members, sigma)
    for bound in [PLAIN, *amplified(problem)]:
        found = ask_epsilon(bound, problem, delta)
        for side in ADJACENCIES:
            assert above(components, weights, getattr(found, side), side, delta, seed)


# ------------------------------------------------------------------------------- the reduction


def turned(angles):
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def aligned(member, step, rows):
    return np.tile([1.0, 0.0], (len(rows), 1))


def apart(member, step, rows):
    return turned(np.full(len(rows), 2.0 * member + 0.5 * step))


def follows(member, step, rows):
    """Each member turns towards what was released, one of them too far."""
    seen = rows.sum(axis=1)
    return turned(np.arctan2(seen[:, 1], seen[:, 0]) + 0.7 * member)


def hides(member, step, rows):
    """A member contributes only while the releases look harmless."""
    quiet = rows.sum(axis=1)[:, 0] < 0.5
    return np.where((quiet | (member == 0))[:, None], [1.0, 0.0], [0.0, 0.0])


def against(member, step, rows):
    """Members pull in opposite directions, which depend on the rows before."""
    sign = np.where(rows.sum(axis=1)[:, 1] > 0, 1.0, -1.0) * (-1.0) ** member
    return np.stack([np.full(len(rows), 0.6), 0.8 * sign], axis=-1)


MATRIX = np.array([[1.0, 0.0], [0.7, 1.0]])


@pytest.mark.parametrize(
    ("adversary", "adjacency"), in_turn([apart, follows, hides, against], ADJACENCIES)
)
def test_no_adaptive_choice_of_vectors_beats_counts(adversary, adjacency):
    components, weights = count_components(MATRIX, [2, 2], 0.4, 1.2)
    for epsilon in (0.5, 1.5):
        fixed = mixture_delta(components, weights, epsilon, adjacency, relative=0.005)
        rng = np.random.default_rng([1, len(adversary.__name__)])
        found, error = adaptive_delta(
            MATRIX, 2, 0.4, 1.2, adversary, epsilon, adjacency, SAMPLES, rng
        )
        assert found - 4 * error <= fixed.mean + 4 * fixed.error


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_aligned_members_attain_the_pair(adjacency):
    components, weights = count_components(MATRIX, [2, 2], 0.4, 1.2)
    fixed = mixture_delta(components, weights, 0.5, adjacency, relative=0.005)
    rng = np.random.default_rng(5)
    found, error = adaptive_delta(MATRIX, 2, 0.4, 1.2, aligned, 0.5, adjacency, SAMPLES, rng)
    assert abs(found - fixed.mean) <= 4 * (error + fixed.error)


# ------------------------------------------------------- monotone in the Gram matrix, and revealed


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("seed", range(2))
def test_delta_of_counts_grows_with_the_gram_matrix(seed, adjacency):
    """A larger entry off the diagonal; then a larger diagonal, in the Loewner order too."""
    rng = np.random.default_rng([seed, 35])
    matrix = np.tril(rng.random((3, 3))) + 0.5 * np.eye(3)
    gram = matrix.T @ matrix
    entry = gram.copy()
    entry[0, 1] = entry[1, 0] = 1.1 * gram[0, 1]
    found = []
    for one in (gram, entry, entry + np.diag(rng.random(3))):
        # Upper triangular with non-negative rows: components stay in the positive orthant.
        root = np.linalg.cholesky(one[::-1, ::-1]).T[::-1, ::-1]
        assert (root >= -1e-12).all()
        components, weights = count_components(root, [2, 2, 2], 0.3, 1.5)
        found.append(mixture_delta(components, weights, 0.4, adjacency, relative=0.003))
    for small, large in itertools.pairwise(found):
        assert small.mean - 4 * small.error <= large.mean + 4 * large.error


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("seed", range(2))
def test_revealed_counts_are_never_below_enumeration(seed, adjacency):
    rng = np.random.default_rng([seed, 36])
    matrix = np.tril(rng.random((3, 3))) + 0.2 * np.eye(3)
    p, sigma, members = 0.3, 1.2, 2
    components, weights = count_components(matrix, [members] * 3, p, sigma)
    law = np.array([(1 - p) ** 2, 2 * p * (1 - p), p * p])
    for epsilon in (0.3, 1.0):
        exact = mixture_delta(components, weights, epsilon, adjacency, relative=0.005)
        found, error = revealed_delta(
            matrix.T @ matrix / sigma**2, law, epsilon, adjacency, 2 * SAMPLES, rng
        )
        assert found + 4 * error >= exact.mean - 4 * exact.error


@pytest.mark.parametrize("probability", [1e-12, 1 - 1e-12])
def test_chances_that_floats_lose_are_refused(probability):
    strategy, scheme = strategies.toeplitz([1, 0.5], 4), sampling.Poisson(probability)
    given = {"sigma": 100.0, "delta": 1e-5, "group_size": 32}
    with pytest.raises(mmcc.MmccError, match="all or none"):
        mmcc.epsilon(strategy, scheme, **given, method="reveal")
