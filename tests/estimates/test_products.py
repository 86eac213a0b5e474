"""Claim: encode, adjoint and squared_norms are products with the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

from mmcc import sampling, strategies

STRATEGIES = [
    strategies.binary_tree(13),
    strategies.binary_tree(16),
    strategies.tree_restart(23, 3),
    strategies.continual_counting(37),
    strategies.toeplitz([1.0, 0.5, 0.25], 9),
    strategies.identity(5),
    strategies.blt(40),
    strategies.dense(np.random.default_rng(0).random((11, 6)), adaptive=False),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_products_are_those_of_the_dense_matrix(strategy):
    rng = np.random.default_rng(1)
    dense = strategy.to_dense()
    x = rng.standard_normal((3, 2, strategy.steps))
    y = rng.standard_normal((4, strategy.rows))
    assert strategy.encode(x) == pytest.approx(x @ dense.T, rel=1e-12, abs=1e-12)
    assert strategy.adjoint(y) == pytest.approx(y @ dense, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_squared_norms_are_those_of_the_sum_of_columns(strategy):
    sets = sampling.Poisson(0.3).draw(strategy.steps, 50, np.random.default_rng(2))
    dense = strategy.to_dense()
    pieces = np.split(sets.steps, sets.edges[1:-1])
    expected = [np.square(dense[:, piece].sum(axis=1)).sum() for piece in pieces]
    assert strategy.squared_norms(sets) == pytest.approx(expected, rel=1e-12)
