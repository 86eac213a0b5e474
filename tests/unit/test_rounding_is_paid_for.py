"""Claim: room for rounding is there and on the safe side, against many digits, no tolerance."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from mmcc.accounting._bounds.cascade.law import Law, TreeBracket, _Builder
from mmcc.accounting._bounds.projection.upper_add import ProjectedAdd
from mmcc.accounting._losses.grid import GridLoss
from mmcc.strategies._gram import DenseGram
from mmcc.strategies._hierarchy import Node


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workdps(50):
        yield


# Losses on a grid.


def hockey_stick(losses, masses, epsilon):
    return mpmath.fsum(
        m * -mpmath.expm1(epsilon - loss) if loss > epsilon else 0
        for loss, m in zip(losses, masses, strict=True)
    )


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("spacing", [0.01, 0.4, 1.0, 2.0])
def test_pushing_up_pays_for_the_errors_of_a_cell(spacing, share):
    """The upper point lost as much as a relative error of both masses can take from it.

    The exact cell has `share` of its mass at its upper point, or up to `error` above it.
    """
    h = mpmath.mpf(spacing)
    error = 0.02 * -math.expm1(-spacing) * math.exp(-spacing)
    moved = min(2 * error / -math.expm1(-spacing), share)
    exact = [1 - mpmath.mpf(share), mpmath.mpf(share)]
    computed = np.array([1 - share + moved, share - moved]) * (1 - error)
    pushed = GridLoss(spacing, 3, computed, 0.0).push_up(error)
    losses = [h * (3 + i) for i in range(pushed.masses.size)]
    for above, place in itertools.product((0.0, error), np.linspace(-3, 5, 81)):
        epsilon = h * (3 + mpmath.mpf(float(place)))
        true = hockey_stick([3 * h, 4 * h + above], exact, epsilon)
        found = hockey_stick(losses, [mpmath.mpf(float(m)) for m in pushed.masses], epsilon)
        assert found >= true


# Trees of bins.


@pytest.mark.parametrize("shares", [(0.0, 0.0), (0.5, 0.5), (0.25, 0.75)])
@pytest.mark.parametrize("adjacency", ["remove", "add"])
def test_combined_laws_lie_on_both_sides_of_the_exact_one(adjacency, shares):
    """Few values, each in a cell of its own: there the lower law is exact but for rounding."""
    cascade = TreeBracket(Node(1.0), 1.0, 1e-9)
    first = Law(np.array([0.31, 1.7]), np.array([0.6, 0.4]))
    second = Law(np.array([0.12, 0.9, 6.3]), np.array([0.2, 0.7, 0.1]))
    pairs = [
        (mpmath.mpf(x), mpmath.mpf(y), mpmath.mpf(p) * mpmath.mpf(q))
        for (x, p), (y, q) in itertools.product(
            zip(first.values.tolist(), first.masses.tolist(), strict=True),
            zip(second.values.tolist(), second.masses.tolist(), strict=True),
        )
    ]
    mean = shares != (0.0, 0.0)
    exact = [(shares[0] * x + shares[1] * y if mean else x * y, m) for x, y, m in pairs]
    laws = [
        _Builder(cascade, bound, adjacency)._combine(first, second, *shares, 0.0)
        for bound in ("lower", "upper")
    ]

    def gains(pairs, k):
        sign = 1 if adjacency == "remove" else -1
        return mpmath.fsum(m * max(sign * (v - k), 0) for v, m in pairs)

    for k in map(mpmath.mpf, np.exp(np.linspace(-4, 4, 65)).tolist()):
        low, high = (
            gains([(mpmath.mpf(v), mpmath.mpf(m)) for v, m in zip(*law, strict=True)], k)
            for law in ((x.values.tolist(), x.masses.tolist()) for x in laws)
        )
        lost = mpmath.mpf(laws[1].lost) if adjacency == "remove" else 0
        true = gains(exact, k)
        assert low <= true <= high + lost
        assert low == 0 or low < true


# The projection.


@pytest.mark.parametrize("steps", [1, 7, 300])
@pytest.mark.parametrize("p", [1e-12, 0.003, 0.5, 1 - 1e-12])
def test_the_chance_of_nobody_is_rounded_down(p, steps):
    put = ProjectedAdd(DenseGram(np.eye(steps), 1.0, steps), p, np.ones(steps), 0.0)
    exact = steps * mpmath.log1p(-mpmath.mpf(p))
    assert put.log_empty < exact
    assert put.log_empty > exact * (1 + mpmath.mpf(1e-12))
