"""Claim: each side of a guarantee holds for every group of examples, whichever group is the worst.

Cyclic Poisson sampling splits the examples into groups that see different columns.  The group with
the largest remove side need not have the largest add side, and whoever reads `details` (or takes
the smaller of two bounds for each side) relies on both.  The truth is a quadrature in the plane,
one group at a time; no tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from cases.samples import first
from oracles import truth

import mmcc
from mmcc import sampling, strategies

SEEDS = range(48)


@dataclass(frozen=True)
class Unlike:
    """Two rows, and groups of columns on scales of their own."""

    matrix: np.ndarray
    probability: float
    separation: int
    delta: float

    @property
    def mechanism(self):
        scheme = sampling.CyclicPoisson(self.probability, self.separation)
        return strategies.dense(self.matrix, adaptive=False), scheme

    def largest_delta(self, epsilon: float, side: str) -> float:
        """A lower bound on the true delta of the group that has most of it."""
        return max(
            truth.two_row_bracket(
                self.matrix[:, group :: self.separation], self.probability, 1.0, epsilon, side
            )[0]
            for group in range(self.separation)
        )


def unlike(seed: int) -> Unlike:
    """Groups are light with many columns, or heavy with few; every other one shares its rows."""
    rng = np.random.default_rng([seed, 20260518])
    separation, rounds = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    steps = separation * rounds + int(rng.integers(1, separation))
    matrix = np.zeros((2, steps))
    for group in range(separation):
        columns = np.arange(group, steps, separation)
        scale = float(np.exp(rng.uniform(np.log(0.3), np.log(10.0))))
        own = rng.random((2, columns.size)) + 0.1
        if seed % 2:  # one row a group: no bad events
            own[(group + 1) % 2] = 0.0
        matrix[:, columns] = scale * own
    return Unlike(
        matrix, float(rng.uniform(0.05, 0.9)), separation, float(10 ** rng.uniform(-6, -2))
    )


def test_the_add_side_is_not_that_of_the_group_with_the_largest_remove_side():
    matrix = np.zeros((2, 5))
    matrix[0, [0, 2, 4]], matrix[1, [1, 3]] = 2, 12
    case = Unlike(matrix, 0.5, 2, 1e-3)
    found = mmcc.epsilon(*case.mechanism, sigma=1.0, delta=case.delta, method="mmcc")
    assert found.details["worst_group"] == 1
    assert case.largest_delta(found.details["add"], "add") <= case.delta
    assert case.largest_delta(found.details["remove"], "remove") <= case.delta


@pytest.mark.parametrize("method", ["mmcc", "tight"])
@pytest.mark.parametrize("seed", first(SEEDS, 3))
def test_each_epsilon_holds_for_every_group(seed, method):
    case = unlike(seed)
    found = mmcc.epsilon(*case.mechanism, sigma=1.0, delta=case.delta, method=method)
    sides = {side: found.details.get(side, found.epsilon) for side in truth.ADJACENCIES}
    assert found.epsilon == max(sides.values())
    for side, epsilon in sides.items():
        if epsilon < 600:  # e^epsilon of the oracle is a float
            assert case.largest_delta(epsilon, side) <= case.delta, (side, sides)


@pytest.mark.parametrize("method", ["mmcc", "tight"])
@pytest.mark.parametrize("seed", first(SEEDS, 3))
def test_each_delta_holds_for_every_group(seed, method):
    case = unlike(seed)
    epsilon = 0.1 + 2.0 * case.probability
    found = mmcc.delta(*case.mechanism, sigma=1.0, epsilon=epsilon, method=method)
    sides = {side: found.details.get(side, found.delta) for side in truth.ADJACENCIES}
    assert found.delta == max(sides.values())
    for side, delta in sides.items():
        assert case.largest_delta(epsilon, side) <= delta, (side, sides)
