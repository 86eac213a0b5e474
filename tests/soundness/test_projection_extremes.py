"""Claim: the bracket stays a bracket where floating point or structure is at its limits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from cases.projection import bracket_of
from cases.samples import first, sampled

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._bounds.projection.line import Line
from mmcc.accounting._bounds.projection.lower import overlaps
from mmcc.accounting._bounds.projection.upper import Projected


@pytest.mark.parametrize("power", [10, 20, 30, 40])
def test_tail_of_very_many_equal_columns(power):
    """A class of 2^40 columns: rounding must not grow with its size."""
    line = Line(np.array([0.6]), np.array([2.0**power]), 2.0**-power)
    found, error = line.tail(3.0, "above")
    with mpmath.workdps(40):
        n, p = 2**power, mpmath.mpf(2) ** -power
        exact = mpmath.fsum(
            mpmath.binomial(n, j) * p**j * (1 - p) ** (n - j) * mpmath.ncdf(mpmath.mpf(0.6) * j - 3)
            for j in range(60)
        )
        assert abs(found - exact) <= error
    assert error <= 1e-12


def test_huge_tree():
    tree = strategies.binary_tree(2**40)
    found = mmcc.bracket(
        tree, sampling.Poisson(2.0**-40), sigma=100 * tree.sensitivity(2**40), delta=1e-9
    )
    assert 0.010186157 < found.lower < found.upper < 0.010187


def test_lengths_of_large_sets_where_the_worst_row_changes():
    """One heavy lone column is the worst row for few entries, light equal columns for many."""
    matrix = np.zeros((3, 301))
    matrix[2, 0], matrix[0, 1:151], matrix[1, 151:] = np.sqrt(0.6), 0.1, 0.1
    gram = strategies.dense(matrix, adaptive=False).gram(1, 0, 1.0)
    ones = np.ones(301)
    rest = Projected(gram, 0.1, ones, 3.0, 1e-6).rest
    a = overlaps(gram, ones)
    left = np.maximum(matrix.T @ matrix - np.outer(a, a), 0)
    exact = np.cumsum(-np.sort(-left, axis=1), axis=1).max(axis=0)
    assert (rest.top_sum(np.arange(1.0, 302.0)) >= exact).all()


@pytest.mark.parametrize(
    ("sigma", "p"), sampled([0.3, 0.1, 0.05, 0.02, 0.005], [0.5, 0.95, 0.02], strength=1)
)
def test_hardly_any_noise(sigma, p):
    """Weights far below their unit are lost in rounding; the bound must say so."""
    bracket = bracket_of(strategies.identity(3), sampling.Poisson(p), sigma)
    lower = bracket.lower_epsilon(1e-6)
    try:
        upper = bracket.bound_epsilon(1e-6)
    except mmcc.MmccError:
        return
    assert lower.remove <= upper.remove
    assert lower.add <= upper.add


@pytest.mark.parametrize("epsilon", first([699.9, 750.0, 690.0, 705.0], 1))
def test_add_where_the_empty_set_underflows(epsilon):
    found = mmcc.delta(
        strategies.identity(1100),
        sampling.Poisson(0.5),
        sigma=0.2,
        epsilon=epsilon,
        method="projection",
    )
    assert found.details["add"] >= 0.99


@pytest.mark.parametrize(
    ("p", "sigma", "delta"), [(0.999999, 0.3522238128030669, 1e-12), (1 - 1e-12, 0.3, 1e-9)]
)
def test_participation_that_is_nearly_certain(p, sigma, delta):
    """One column, add: log(1 - p + p e^x) cancels where p is near one."""
    bracket = bracket_of(strategies.identity(1), sampling.Poisson(p), sigma)
    lower = bracket.lower_epsilon(delta).add
    with mpmath.workdps(60):
        a, chance, level = 1 / mpmath.mpf(sigma), mpmath.mpf(p), mpmath.mpf(lower)
        # The likelihood ratio crosses e^-eps at t.
        ratio = (mpmath.exp(-level) - 1 + chance) / chance
        assert ratio > 0
        t = mpmath.log(ratio) / a + a / 2
        mixed = (1 - chance) * mpmath.ncdf(t) + chance * mpmath.ncdf(t - a)
        assert mpmath.ncdf(t) - mpmath.exp(level) * mixed >= delta


@pytest.mark.parametrize(
    ("strategy", "p"),
    sampled(
        [strategies.binary_tree(2), strategies.dense([[1, 0], [1, 1]])], [1e-17, 1e-300], strength=1
    ),
    ids=str,
)
def test_participation_that_is_all_but_impossible(strategy, p):
    """The truth is at most the chance to take part at all."""
    scheme = sampling.Poisson(p)
    found = mmcc.bracket(strategy, scheme, sigma=1.0, delta=1e-6)
    assert 0 == found.lower <= found.upper <= 1e-5
    assert mmcc.delta(strategy, scheme, sigma=1.0, epsilon=0.0).delta <= 1e-8


def test_more_steps_than_memory():
    """No list of all columns is made before it is known that there are too many."""
    found = mmcc.bracket(strategies.identity(10**9), sampling.Poisson(1e-9), sigma=3.0, delta=1e-6)
    assert 0 <= found.lower <= found.upper < 0.1
