"""Claim: moments in leaf order are those of the reveal that they stand for, and lose no mass."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmcc import strategies
from mmcc.accounting._bounds.reveal.trees.cuts import cuts_for
from mmcc.accounting._bounds.reveal.trees.forest import Forest, forest_of
from mmcc.accounting._bounds.reveal.trees.leaf_moments import leaf_moments, rough_leaf_moment
from mmcc.accounting._bounds.reveal.trees.leaf_order import Walk, walk_for, walks_for
from mmcc.accounting._bounds.reveal.trees.moments import moments
from mmcc.sampling import Rounds

FORESTS = [
    forest_of(strategies.binary_tree(8), Rounds(0.1, 1), 3.0),
    forest_of(strategies.binary_tree(64), Rounds(1 / 64, 1), 6.0),
    forest_of(strategies.binary_tree(100), Rounds(0.03, 1), 10.0),
    forest_of(strategies.tree_restart(40, 3), Rounds(0.1, 1), 5.0),
    forest_of(strategies.binary_tree(64), Rounds(0.2, 4), 9.0),
    forest_of(strategies.binary_tree(23), Rounds(0.3, 8), 4.0),
]


@pytest.mark.parametrize("forest", FORESTS)
def test_the_masses_of_both_laws_are_one(forest: Forest):
    """E_P~[1] = E_P~[1/Lhat] = 1, less what leaves, whichever way it is told."""
    cuts = cuts_for(forest, 1e-12)
    walks = walks_for(forest, 1e-12)
    lost = 1e-9 + sum(count * walk.inflation for walk, count in walks)
    for real in (0.0, -1.0):
        assert rough_leaf_moment(walks, cuts.counts, real) == pytest.approx(0, abs=lost)
        haar = moments(forest, cuts.counts, real, np.zeros(1))
        assert haar.log_scale == pytest.approx(0, abs=1e-9)


def centres_of_leaves(walk: Walk) -> np.ndarray:
    """m_l: the sum of c_h over the nodes in whose left half the leaf is."""
    leaves = np.arange(1 << walk.height)
    return sum(
        (walk.centres[h] * ((leaves >> (h - 1)) % 2 == 0) for h in range(1, walk.height + 1)),
        np.zeros(leaves.size),
    )


@pytest.mark.parametrize(
    ("steps", "separation", "p", "sigma"), [(4, 1, 0.3, 2.5), (8, 1, 0.1, 4.0), (16, 4, 0.4, 4.0)]
)
@pytest.mark.parametrize("power", [1.0, -2.0, 1.5 + 3j])
def test_moments_against_simulation_of_the_reveal(steps, separation, p, sigma, power):
    """x from the dense Gram matrix: x_l = g_l + sum_{j >= l} G_lj s_j - G_ll / 2."""
    tree = strategies.binary_tree(steps)
    forest = forest_of(tree, Rounds(p, separation), sigma)
    cuts, walks = cuts_for(forest, 1e-10), walks_for(forest, 1e-10)
    frequencies = np.array([0.0, complex(power).imag])
    found = leaf_moments(walks, cuts.counts, complex(power).real, frequencies)
    matrix = tree.to_dense()[:, ::separation] / sigma
    gram = matrix.T @ matrix
    rng = np.random.default_rng(5)
    samples, columns = 400_000, len(gram)
    takes = rng.random((samples, columns)) < p
    x = rng.standard_normal((samples, len(matrix))) @ matrix
    x += takes @ np.tril(gram) - np.diag(gram) / 2  # tril: G_jl counts at l where j >= l
    m = centres_of_leaves(walks[0][0])
    logs = np.log1p(p * np.expm1(x - m)).sum(axis=1) + takes @ m
    values = np.exp(power * logs)
    mean, error = values.mean(), values.std() / math.sqrt(samples)
    exact = found.values[1] * math.exp(found.log_scale)
    assert abs(exact - mean) <= 5 * error
    assert error < 0.02 * np.abs(values).mean()


@pytest.mark.parametrize("sign", [-1, 1])
def test_ends_are_passed_no_more_than_they_say(sign):
    """z_v along the way to the first leaf, drawn as it is defined, with a large budget."""
    p, sigma, height, budget = 0.05, 5.0, 6, 0.05
    forest = forest_of(strategies.binary_tree(1 << height), Rounds(p, 1), sigma)
    walk = walk_for(forest, forest.groves[0], budget)
    rng = np.random.default_rng(3)
    samples = 200_000
    z = np.zeros(samples)
    for h in range(height, 0, -1):
        z += math.sqrt(walk.unit) * rng.standard_normal(samples)
        first, last = walk.inside[h]
        low, high = walk.points[first] - walk.step, walk.points[last - 1] + walk.step
        passed = np.mean(z >= high if sign > 0 else z <= low)
        assert 2.0 ** (height - h) * passed <= budget + 3 * math.sqrt(budget / samples)
        z += rng.binomial(1 << (h - 1), p, samples) * walk.shared(h) - walk.centres[h]


def test_a_finer_lattice_changes_nothing(monkeypatch):
    from mmcc.accounting._bounds.reveal.trees import leaf_order

    forest = FORESTS[1]
    cuts = cuts_for(forest, 1e-10)
    plain = rough_leaf_moment(walks_for(forest, 1e-10), cuts.counts, 3.0)
    monkeypatch.setattr(leaf_order, "LATTICE", 1e-14)
    finer = rough_leaf_moment(walks_for(forest, 1e-10), cuts.counts, 3.0)
    assert plain == pytest.approx(finer, abs=1e-6)


def test_errors_are_stated_for_every_moment():
    forest = FORESTS[2]
    cuts, walks = cuts_for(forest, 1e-9), walks_for(forest, 1e-9)
    found = leaf_moments(walks, cuts.counts, 4.0, np.linspace(0.0, 40.0, 200))
    assert 0 < found.error < 1e-6
    assert np.abs(found.values).max() <= 1 + found.error
