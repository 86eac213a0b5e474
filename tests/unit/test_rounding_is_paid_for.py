"""Claim: room for rounding is there and on the safe side, against many digits, no tolerance."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from oracles import truth

from mmcc.accounting._bounds.cascade.law import Law, TreeBracket, _Builder
from mmcc.accounting._bounds.chain.domination import Chain
from mmcc.accounting._bounds.chain.factors import Tangent, add_factors, remove_factors
from mmcc.accounting._bounds.chain.lattice import Lattice
from mmcc.accounting._bounds.chain.operator import Factors, Moments, moments
from mmcc.accounting._bounds.projection.upper_add import ProjectedAdd
from mmcc.accounting._bounds.reveal.inversion import Inversion, Line
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
    pushed = GridLoss(spacing, 3, computed, 0.0).pushed_up(error)
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
        _Builder(cascade, bound, adjacency)._combined(first, second, *shares, 0.0)
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


# The chain.


@pytest.mark.parametrize("diagonal", [1e-6, 0.3, 20.0])
@pytest.mark.parametrize("p", [1e-9, 0.01, 0.6, 1 - 1e-9])
def test_factors_of_independent_steps_lie_on_both_sides_of_the_ratio(p, diagonal):
    """With nothing shared the ratio of a step is 1 - p + p e^(u - g/2) itself."""
    chain = Chain(1, 1, p, diagonal, 0.0, 0.0)
    logs = np.concatenate([[-np.inf], math.sqrt(diagonal) * np.linspace(-9, 9, 37)])
    one = np.ones((1, 1))
    lattice = Lattice(np.zeros(1), np.ones(1), one, logs, np.ones((1, logs.size)), 0.0, 0.0)
    upper = remove_factors(chain, lattice, Tangent(np.zeros(1), np.zeros(1), 1.0)).step[0]
    lower = add_factors(chain, lattice).step[0]
    for u, low, high in zip(logs.tolist(), lower.tolist(), upper.tolist(), strict=True):
        ratio = 1 - mpmath.mpf(p)
        if math.isfinite(u):
            ratio += mpmath.mpf(p) * mpmath.exp(mpmath.mpf(u) - mpmath.mpf(diagonal) / 2)
        assert low < mpmath.log(ratio) < high
        assert high - low < 1e-6 * (1 + abs(high))


def test_moments_out_of_the_range_of_floats_certify_nothing():
    chain = Chain(3, 1, 0.1, 1.0, 0.5, 0.5)
    even = np.full((2, 2), 0.5)
    still = Factors(np.zeros(2), np.zeros((2, 2)), np.zeros((2, 2)))

    def found(second: float):
        masses = np.array([[0.5, 0.5], [second, second]])
        lattice = Lattice(np.zeros(2), even[0], even, np.array([-np.inf, 0.0]), masses, 0.0, 0.0)
        return moments(lattice, still, chain, np.array([2.0 + 0j]))

    assert found(0.5) is not None
    assert found(1e-260) is None


@pytest.mark.parametrize("count", [3, 5, 8, 12])
@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_what_lies_beyond_the_last_node_is_paid_for(order, count):
    """X = 1 has moments that never fall: smoothed, it is the Gaussian mechanism of ratio tau."""
    line = Line(order, 0.4, count, smoothing=0.5)
    found = Inversion(line, Moments(np.ones(count, complex), 0.0, 1e-14))
    for epsilon in np.linspace(0, 5, 51).tolist():
        assert found.excess(epsilon) >= truth.gaussian_delta(math.sqrt(0.5), 1.0, epsilon)


# The projection.


@pytest.mark.parametrize("steps", [1, 7, 300])
@pytest.mark.parametrize("p", [1e-12, 0.003, 0.5, 1 - 1e-12])
def test_the_chance_of_nobody_is_rounded_down(p, steps):
    put = ProjectedAdd(DenseGram(np.eye(steps), 1.0, steps), p, np.ones(steps), 0.0)
    exact = steps * mpmath.log1p(-mpmath.mpf(p))
    assert put.log_empty < exact
    assert put.log_empty > exact * (1 + mpmath.mpf(1e-12))
