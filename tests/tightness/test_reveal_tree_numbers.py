"""Claim: the reveal bound for trees reaches the numbers that are known to be provable."""

from __future__ import annotations

import math

import pytest
from cases.samples import first

from mmcc import strategies
from mmcc.accounting._bounds.reveal import trees
from mmcc.accounting._bounds.reveal.trees.curves import haar_curve, leaf_curve
from mmcc.accounting._bounds.reveal.trees.forest import forest_of
from mmcc.sampling import Rounds


@pytest.mark.parametrize(
    ("sigma", "remove", "add"),
    first(
        [
            (11.98, 8.0337, 5.136),
            (20.02, 4.0087, 3.132),
            (35.24, 2.0015, 1.759),
            (64.19, 1.0006, 0.937),
        ],
        2,
    ),
)
def test_tree_of_2000_steps(sigma, remove, add):
    found = trees.bound_epsilon(strategies.binary_tree(2000), Rounds(0.01, 1), sigma, 1e-5)
    assert found.remove <= remove
    assert found.add <= add


@pytest.mark.parametrize(
    ("steps", "c", "epsilon"),
    first(
        [
            (2048, 1, 5.53),
            (64, 2, 2.2038),
            (2048, 1.5, 2.3555),
            (2048, 2, 1.4020),
            (2048, 3, 0.7533),
            (64, 1, 9.185),
        ],
        2,
    ),
)
def test_one_expected_participation(steps, c, epsilon):
    """c is sigma over the norm of a column."""
    sigma = c * math.sqrt(math.log2(steps) + 1)
    tree = strategies.binary_tree(steps)
    found = trees.bound_epsilon(tree, Rounds(1 / steps, 1), sigma, 1e-6)
    assert found.remove <= epsilon


def test_rare_participation_in_many_trees():
    """Leaf order; counts from the roots down give 0.654."""
    found = trees.bound_epsilon(strategies.tree_restart(2048, 6), Rounds(2 / 2048, 1), 5.0, 1e-6)
    assert found.remove <= 0.3033
    assert found.add <= 0.2600


def test_rare_participation():
    """Leaf order; counts from the root down give 0.908."""
    found = trees.bound_epsilon(strategies.binary_tree(2048), Rounds(0.3 / 2048, 1), 5.0, 1e-6)
    assert found.remove <= 0.6600


@pytest.mark.slow
@pytest.mark.parametrize("make", [haar_curve, leaf_curve])
def test_both_ways_are_close_where_a_tree_has_a_few_participations(make):
    forest = forest_of(strategies.binary_tree(2048), Rounds(5 / 2048, 1), 20.0)
    assert make(forest, "remove", 1e-6).epsilon(1e-6) <= 1.8235
    assert make(forest, "add", 1e-6).epsilon(1e-6) <= 1.3105


def test_a_million_steps():
    found = trees.bound_epsilon(strategies.binary_tree(2**20), Rounds(20 / 2**20, 1), 20.0, 1e-6)
    assert found.remove <= 8.785
    assert found.add <= 5.87


@pytest.mark.parametrize(("sigma", "epsilon"), [(8, 5.0990), (40, 0.8405)])
def test_columns_alone_are_composed_without_loss(sigma, epsilon):
    """Restarts of 8 steps at separation 8: 64 subsampled Gaussians of sensitivity 2."""
    found = trees.bound_epsilon(strategies.tree_restart(512, 4), Rounds(0.5, 8), sigma, 1e-6)
    assert found.remove <= epsilon
