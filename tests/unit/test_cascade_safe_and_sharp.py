"""Claim: each part of the cascade is as safe, and as sharp, as it says.

Truth: closed forms, plain sums and searches over all choices, with many digits where rounding is
what is claimed.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from oracles import truth

from mmcc.accounting._bounds.cascade.law import Law, TreeBracket, _Builder, _deviation
from mmcc.errors import PrecisionError
from mmcc.strategies._hierarchy import Node


@pytest.mark.parametrize("variance", [0.25, 1.0, 4.0])
def test_one_bin_is_the_gaussian_mechanism_also_far_beyond_its_delta(variance):
    """Where e^epsilon is an edge no cell costs anything under remove: only rounding is left."""
    cascade = TreeBracket(Node(variance), 1.0, 1e-6)
    last = round(math.log(cascade.law("upper", "remove").values[-1]) / cascade.width)
    for edge in np.linspace(0, last - 1, 60).astype(int).tolist():
        epsilon = edge * cascade.width
        exact = truth.gaussian_delta(math.sqrt(variance), 1.0, epsilon)
        lower, upper = cascade.lower_delta(epsilon), cascade.bound_delta(epsilon)
        for adjacency in truth.ADJACENCIES:
            low, high = getattr(lower, adjacency), getattr(upper, adjacency)
            assert low <= exact <= high
            if exact > 1e-7:
                assert high <= exact * (1 + 1e-3)
                assert low >= exact * (1 - 1e-3)


@pytest.mark.parametrize("bins", [64, 1024])
def test_the_mean_of_many_bins_has_cells_as_fine_as_it_is_narrow(bins):
    """The mean of n ratios of variance e - 1 has a deviation of sqrt((e - 1)/n) around 1."""
    cascade = TreeBracket(Node(0.0, ((bins, Node(1.0)),)), 1.0, 1e-6)
    epsilon = math.log1p(math.sqrt(math.expm1(1.0) / bins))
    low, high = cascade.lower_delta(epsilon), cascade.bound_delta(epsilon)
    assert low.remove <= high.remove <= low.remove * 1.01
    assert low.add <= high.add <= low.add * 1.01


@pytest.mark.parametrize("count", [2, 3, 5, 6, 7])
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_means_have_a_variance_between_those_of_both_laws(count, adjacency):
    """Var X = (e - 1)/n exactly; it is a convex function of X, so it is bounded from both sides."""
    cascade = TreeBracket(Node(0.0, ((count, Node(1.0)),)), 1.0, 1e-9)
    exact = math.expm1(1.0) / count
    low, high = (
        float((law.values - 1) ** 2 @ law.masses)
        for law in (cascade.law("lower", adjacency), cascade.law("upper", adjacency))
    )
    assert low <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-5) <= high <= exact * (1 + 1e-2)  # but for what is cut off above
    assert low >= exact * (1 - 1e-2)


@pytest.mark.parametrize("variance", [4.0, 9.0])
def test_factors_one_above_another_are_the_gaussian_mechanism_also_far_out(variance):
    """One bin below two nodes: variances add up.  Under add X below e^-15 counts."""
    cascade = TreeBracket(Node(variance / 3, ((1, Node(variance * 2 / 3)),)), 1.0, 1e-9)
    for epsilon in (1.0, 6.0, 12.0, 16.0, 20.0):
        exact = truth.gaussian_delta(math.sqrt(variance), 1.0, epsilon)
        low, high = cascade.lower_delta(epsilon), cascade.bound_delta(epsilon)
        for adjacency in truth.ADJACENCIES:
            assert getattr(low, adjacency) <= exact <= getattr(high, adjacency)
            if exact > 1e-9:
                assert getattr(high, adjacency) <= exact * 1.01
                assert getattr(low, adjacency) >= exact * 0.99


@pytest.mark.parametrize(("bound", "side"), [("upper", 1), ("lower", -1)])
def test_masses_cover_the_rounding_of_every_addition(bound, side):
    """Masses so small beside the first that each is lost, or counts for nearly two, when added."""
    small = {"upper": 1.0, "lower": 1.3}[bound] * 2.0**-53
    masses = np.concatenate([[1.0], np.full(999, small)])
    law = Law(1 + 1e-6 * np.arange(1000.0), masses)
    builder = _Builder(TreeBracket(Node(1.0), 1.0), bound, "remove")
    found = builder._combine(law, law, 0.5, 0.5, 0.0)
    exact = sum(map(Fraction, masses.tolist())) ** 2
    total = sum(map(Fraction, found.masses.tolist()))
    assert side * (total - exact) >= 0
    assert abs(total / exact - 1) <= Fraction(1, 10**9)


def test_the_deviation_is_that_of_the_sum_or_of_the_product():
    """Two independent variables of mean 1, all pairs of values."""
    first = Law(np.array([0.5, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]))
    second = Law(np.array([0.9, 1.1]), np.array([0.5, 0.5]))
    pairs = np.outer(first.masses, second.masses)
    for share, other in ((0.25, 0.75), (0.9, 0.1), (0.0, 0.0)):
        values = np.add.outer(share * first.values, other * second.values)
        if not share:
            values = np.outer(first.values, second.values)
        exact = math.sqrt(float(np.sum(pairs * (values - 1) ** 2)))
        assert _deviation(first, second, share, other) == pytest.approx(exact, rel=1e-12)


def test_a_law_with_no_number_is_not_read_as_privacy():
    cascade = TreeBracket(Node(1.0), 1.0)
    for adjacency in truth.ADJACENCIES:
        cascade._laws["upper", adjacency] = Law(np.ones(2), np.array([1.0, math.nan]))
    with pytest.raises(PrecisionError, match="beyond floating point"):
        cascade.bound_delta(0.0)
