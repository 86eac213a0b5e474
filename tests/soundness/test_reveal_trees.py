"""Claim: the reveal bound for trees is never below the truth, and its pair is the one it says."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.reveal import log_uniform
from cases.samples import first
from oracles import truth
from oracles.enumeration import enumerated_delta

from mmcc import strategies
from mmcc.accounting._bounds.reveal import trees
from mmcc.accounting._bounds.reveal.trees.curves import haar_curve, leaf_curve
from mmcc.accounting._bounds.reveal.trees.forest import Forest, forest_of
from mmcc.sampling import Rounds
from mmcc.strategies._tree import Tree


def haar_squares(forest: Forest, takes: np.ndarray) -> float:
    """The sum of the squared Haar coefficients of a participation set, by the forest's numbers."""
    total, start = 0.0, 0
    for grove in forest.groves:
        for _ in range(grove.count):
            leaves = takes[start : start + (1 << grove.height)]
            start += leaves.size
            total += (leaves.sum() * grove.amplitude) ** 2
            for height in range(1, grove.height + 1):
                halves = leaves.reshape(-1, 2, 1 << (height - 1)).sum(axis=2)
                shifts = (halves[:, 0] - halves[:, 1]) * forest.amplitude(height)
                total += float(np.square(shifts).sum())
    assert start == takes.size
    return total


@pytest.mark.parametrize(
    ("tree", "separation"),
    [
        (strategies.binary_tree(2), 1),
        (strategies.binary_tree(4), 1),
        (strategies.binary_tree(8), 1),
        (strategies.binary_tree(11), 1),
        (strategies.tree_restart(11, 2), 1),
        (strategies.binary_tree(16), 2),
        (strategies.binary_tree(16), 4),
        (strategies.binary_tree(23), 4),
        (strategies.binary_tree(29), 8),
        (strategies.tree_restart(27, 3), 2),
        (strategies.tree_restart(27, 3), 4),
        (strategies.tree_restart(27, 3), 7),
        (strategies.tree_restart(27, 2), 8),
        (strategies.binary_tree(5), 5),
    ],
)
def test_amplitudes_are_those_of_the_gram_matrix(tree, separation):
    sigma = 3.7
    matrix = tree.to_dense()[:, ::separation]
    gram = matrix.T @ matrix / sigma**2
    forest = forest_of(tree, Rounds(0.3, separation), sigma)
    for takes in itertools.product((0, 1), repeat=min(gram.shape[0], 11)):
        vector = np.zeros(gram.shape[0])
        vector[: len(takes)] = takes
        exact = vector @ gram @ vector
        assert exact <= haar_squares(forest, vector) <= exact * (1 + 1e-6)


@pytest.mark.parametrize(
    ("tree", "separation"),
    [
        (strategies.binary_tree(23), 4),
        (strategies.binary_tree(30), 8),
        (strategies.tree_restart(27, 3), 2),
        (strategies.tree_restart(27, 3), 7),
        (strategies.tree_restart(13, 2), 5),
    ],
)
def test_the_first_group_releases_the_most(tree, separation):
    matrix = tree.to_dense()
    first = matrix[:, ::separation]
    first = first.T @ first
    for group in range(1, separation):
        other = matrix[:, group::separation]
        other = other.T @ other
        size = len(other)
        gap = first[:size, :size] - other
        assert np.linalg.eigvalsh(gap).min() >= -1e-12
        assert not first[:size, size:].any() or size == len(first)


def test_refuses_what_is_not_proven():
    assert trees.refusal(strategies.binary_tree(20), Rounds(0.1, 3)) is not None
    assert trees.refusal(strategies.tree_restart(20, 3), Rounds(0.1, 3)) is not None
    assert trees.refusal(strategies.tree_restart(20, 3), Rounds(0.1, 5)) is None
    assert trees.refusal(strategies.binary_tree(20), Rounds(0.1, 4)) is None


@pytest.mark.parametrize("leaves", [2, 4, 8])
def test_the_pair_and_its_loss(leaves):
    """With Lhat a product of mixtures, q(s|y) = pi(s) N(As) / (N(0) Lhat) adds up to one."""
    rng = np.random.default_rng(leaves)
    p, sigma = 0.3, 2.0
    matrix = strategies.binary_tree(leaves).to_dense() / sigma
    sets, logs = truth.participation_sets(leaves, p)
    forest = forest_of(strategies.binary_tree(leaves), Rounds(p, 1), sigma)
    for _ in range(5):
        y = 2 * rng.standard_normal(matrix.shape[0])
        likelihood = logs + sets @ (matrix.T @ y) - 0.5 * np.square(sets @ matrix.T).sum(axis=1)
        product = np.array([log_product(forest, matrix, y, takes) for takes in sets])
        assert np.exp(likelihood - product).sum() == pytest.approx(1, abs=1e-6)


def log_product(forest: Forest, matrix: np.ndarray, y: np.ndarray, takes: np.ndarray) -> float:
    """Return log f_0 prod f_h at y for the counts of one set, from the matrix's own directions."""
    leaves = takes.size
    direction = matrix.sum(axis=1)
    t = direction @ y / np.linalg.norm(direction)
    k = np.arange(leaves + 1)
    chances = np.array([math.comb(leaves, j) for j in k])
    chances = chances * forest.probability**k * (1 - forest.probability) ** (leaves - k)
    shift = k * forest.groves[0].amplitude
    total = math.log(float(chances @ np.exp(shift * t - shift**2 / 2)))
    height = 1
    while 1 << height <= leaves:
        half = 1 << (height - 1)
        for start in range(0, leaves, 2 * half):
            haar = np.zeros(leaves)
            haar[start : start + half], haar[start + half : start + 2 * half] = 1.0, -1.0
            direction = matrix @ haar
            d = direction @ y / np.linalg.norm(direction)
            count = int(takes[start : start + 2 * half].sum())
            j = np.arange(count + 1)
            ways = np.array([math.comb(half, i) * math.comb(half, count - i) for i in j])
            shift = (2 * j - count) * forest.amplitude(height)
            mixture = ways @ np.exp(shift * d - shift**2 / 2) / math.comb(2 * half, count)
            total += math.log(float(mixture))
        height += 1
    return total


def random_tree(rng: np.random.Generator, most: int) -> Tree:
    steps = int(rng.integers(1, most + 1))
    if rng.random() < 0.5:
        return strategies.binary_tree(steps)
    return strategies.tree_restart(steps, int(rng.integers(1, 5)))


def random_rounds(rng: np.random.Generator, tree: Tree) -> Rounds:
    while True:
        separation = 1 if rng.random() < 0.5 else int(rng.integers(1, tree.leaves + 1))
        rounds = Rounds(log_uniform(rng, 0.02, 0.95), separation)
        if trees.refusal(tree, rounds) is None:
            return rounds


def check_against_enumeration(seed: int, most: int, relative: float) -> None:
    """Each way of telling by itself; Haar may not be able to say anything, nor leaf order."""
    rng = np.random.default_rng([seed, 41])
    tree = random_tree(rng, most)
    rounds = random_rounds(rng, tree)
    sigma, delta = log_uniform(rng, 0.6, 20), float(10 ** rng.uniform(-9, -2))
    forest = forest_of(tree, rounds, sigma)
    for make, adjacency in itertools.product((haar_curve, leaf_curve), truth.ADJACENCIES):
        curve = make(forest, adjacency, delta)
        epsilon = math.inf if curve is None else curve.epsilon(delta)
        assert epsilon >= 0
        if math.isfinite(epsilon):
            exact = enumerated_delta(
                tree.to_dense(),
                rounds.probability,
                sigma,
                epsilon,
                adjacency,
                columns=range(0, tree.leaves, rounds.separation),
                relative=relative,
                absolute=relative * delta,
                seed=seed,
            )
            assert exact.mean - 4 * exact.error <= delta


@pytest.mark.parametrize("seed", first(range(30), 8))
def test_epsilon_is_never_below_enumeration(seed):
    check_against_enumeration(seed, most=8, relative=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 330))
def test_epsilon_is_never_below_enumeration_many(seed):
    check_against_enumeration(seed, most=11, relative=0.003)


@pytest.mark.parametrize("seed", first(range(4), 2))
def test_other_groups_are_no_worse(seed):
    rng = np.random.default_rng([seed, 43])
    tree = strategies.binary_tree(int(rng.integers(5, 16)))
    p, separation = log_uniform(rng, 0.1, 0.95), 2 ** int(rng.integers(1, 3))
    sigma, delta = log_uniform(rng, 1, 10), 1e-5
    found = trees.bound_epsilon(tree, Rounds(p, separation), sigma, delta)
    for adjacency, epsilon in (("remove", found.remove), ("add", found.add)):
        for group in range(separation):
            columns = range(group, tree.leaves, separation)
            exact = enumerated_delta(
                tree.to_dense(), p, sigma, epsilon, adjacency, columns=columns, relative=0.01
            )
            assert exact.mean - 4 * exact.error <= delta


@pytest.mark.parametrize("seed", first(range(3), 1))
def test_two_columns_against_quadrature(seed):
    """No sampling here, so no tolerance: the truth is a quadrature with its own error."""
    rng = np.random.default_rng([seed, 42])
    separation = 2 ** int(rng.integers(0, 3))
    tree = strategies.binary_tree(2 * separation)
    p, sigma = log_uniform(rng, 0.02, 0.95), log_uniform(rng, 0.8, 30)
    matrix = tree.to_dense()[:, ::separation]
    for level in (0.3, 1.0):
        epsilon = level * p / sigma * (1 + 1 / sigma)
        found = trees.bound_delta(tree, Rounds(p, separation), sigma, epsilon)
        for adjacency, bound in (("remove", found.remove), ("add", found.add)):
            low, _ = truth.two_row_bracket(matrix, p, sigma, epsilon, adjacency)
            assert low <= bound


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
@pytest.mark.parametrize(("count", "height", "p", "sigma"), [(256, 3, 0.2, 4.0), (64, 1, 0.5, 5.0)])
def test_columns_alone_against_exact_composition(count, height, p, sigma, adjacency):
    """With a separation of a tree's length every column is alone: composed Gaussians."""
    tree, separation = strategies.tree_restart(count, height), 1 << (height - 1)
    found = trees.bound_epsilon(tree, Rounds(p, separation), sigma, 1e-6)
    low, _ = truth.composed_subsampled_gaussian_delta(
        count // separation, math.sqrt(height), p, sigma, getattr(found, adjacency), adjacency
    )
    assert low <= 1e-6


@pytest.mark.parametrize("epsilon", first([0.2, 1.5], 1))
def test_delta_and_epsilon_agree(epsilon):
    tree, rounds = strategies.binary_tree(16), Rounds(0.3, 1)
    delta = trees.bound_delta(tree, rounds, 12.0, epsilon)
    again = trees.bound_epsilon(tree, rounds, 12.0, delta.remove)
    assert again.remove == pytest.approx(epsilon, abs=2e-3)


@pytest.mark.parametrize(
    ("tree", "p", "sigma", "delta"),
    [
        (strategies.binary_tree(2**40), 1e-12, 3.0, 1e-6),
        (strategies.binary_tree(100), 0.5, 1e-40, 1e-5),
        (strategies.binary_tree(100), 0.5, 1e12, 1e-5),
        (strategies.binary_tree(100), 1e-250, 1.0, 1e-5),
        (strategies.binary_tree(100), 1.0, 3.0, 1e-5),
        (strategies.binary_tree(2000), 0.5, 100.0, 1e-5),
        (strategies.binary_tree(64), 0.5, 0.3, 1e-5),
        (strategies.binary_tree(100), 0.999, 100.0, 1e-5),
        (strategies.binary_tree(1), 0.3, 2.0, 0.9),
        (strategies.binary_tree(1), 0.3, 2.0, 1e-200),
    ],
)
def test_extremes_give_a_number_or_infinity(tree, p, sigma, delta):
    found = trees.bound_epsilon(tree, Rounds(p, 1), sigma, delta)
    assert found.remove >= 0
    assert found.add >= 0
