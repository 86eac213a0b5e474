"""Claim: a strategy's prefix is the mechanism of a run that was declared to end early."""

from __future__ import annotations

import numpy as np
import pytest

from mmcc import MmccError, strategies
from mmcc.strategies._decoders import decoder_matrix
from mmcc.strategies._records import strategy_digest

N = 12
KINDS = [
    strategies.identity(N),
    strategies.continual_counting(N),
    strategies.toeplitz([1.0, 0.5, 0.25], N),
    strategies.banded_toeplitz(N, 4),
    strategies.banded(N, 3),
    strategies.banded_inverse(N, 5),
    strategies.blt(N, decay=[0.9], scale=[0.4]),
    strategies.blt(N, decay=[0.9, 0.5], scale=[0.3, 0.2]),
    strategies.optimal(N),
    strategies.binary_tree(N),
    strategies.tree_restart(N, 2),
    strategies.dense(np.kron(np.eye(N), [[1.0], [0.5]])),
]


def released_by(matrix: np.ndarray, steps: int) -> np.ndarray:
    """Rows without an entry in a later column; a square lower triangle releases row i at step i."""
    rows = ~matrix[:, steps:].any(axis=1)
    if matrix.shape[0] == matrix.shape[1]:
        rows = np.arange(len(matrix)) < steps
    return matrix[rows][:, :steps]


@pytest.mark.parametrize("strategy", KINDS, ids=repr)
def test_prefix_has_the_leading_columns_and_the_rows_released_by_then(strategy):
    matrix = strategy.to_dense()
    for steps in range(1, N + 1):
        prefix = strategy.prefix(steps)
        assert prefix.steps == steps
        assert type(prefix) is type(strategy)
        np.testing.assert_allclose(prefix.to_dense(), released_by(matrix, steps), rtol=1e-13)


@pytest.mark.parametrize("strategy", KINDS[:-1], ids=repr)
def test_noise_of_a_prefix_is_the_beginning_of_the_noise(strategy):
    """The decoder's first rows use the first releases only, with the same weights."""
    whole = decoder_matrix(strategy)
    for steps in (1, 5, 8, N):
        part = decoder_matrix(strategy.prefix(steps))
        np.testing.assert_allclose(whole[:steps, : part.shape[1]], part, atol=1e-12)
        assert not whole[:steps, part.shape[1] :].any()


@pytest.mark.parametrize("strategy", KINDS, ids=repr)
def test_whole_prefix_is_the_strategy(strategy):
    assert strategy_digest(strategy.prefix(N)) == strategy_digest(strategy)


@pytest.mark.parametrize("steps", [0, N + 1, 2.5])
@pytest.mark.parametrize("strategy", KINDS, ids=repr)
def test_prefix_of_a_length_that_is_not_there(strategy, steps):
    with pytest.raises(MmccError, match="steps must"):
        strategy.prefix(steps)


def test_prefix_needs_an_order_of_release():
    with pytest.raises(MmccError, match="order of release"):
        strategies.dense(np.eye(3)[::-1], adaptive=False).prefix(2)
