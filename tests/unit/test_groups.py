"""Claim: the group lemma is never below what it proves, and repeated columns are just that."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from mmcc import strategies
from mmcc.accounting._bounds.reveal.chains.chain import binomial_prior
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._group_lemma import bound_group_delta, bound_group_epsilon
from mmcc.errors import PrecisionError, StrategyError
from mmcc.strategies._repeated import Repeated

STRATEGIES = [
    strategies.binary_tree(7),
    strategies.toeplitz([1, 0.5, 0.3], 6),
    strategies.identity(4),
    strategies.dense(np.tril(np.random.default_rng(0).random((5, 5)))),
]


@pytest.mark.parametrize("group", [1, 2, 5, 40])
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.3, 4.0, 60.0])
def test_delta_of_the_lemma_is_its_formula_rounded_up(group, epsilon):
    asked = []

    def one(at):
        asked.append(at)
        return 1e-9

    found = bound_group_delta(one, group, epsilon)
    with mpmath.workdps(60):
        each = mpmath.mpf(epsilon) / group
        exact = mpmath.fsum(mpmath.exp(j * each) for j in range(group)) * mpmath.mpf(1e-9)
    assert min(exact, 1) <= found <= min(float(exact) * (1 + 1e-9), 1.0)
    assert asked[0] * group <= epsilon


@pytest.mark.parametrize("group", [2, 3, 8])
def test_the_lemma_is_above_the_gaussian_mechanism_of_the_group(group):
    """One example: sensitivity 1/2.  The group has exactly `group` times that."""
    for epsilon in (0.5, 2.0, 6.0):
        found = bound_group_delta(lambda at: bound_gaussian_delta(0.5, at), group, epsilon)
        assert found >= bound_gaussian_delta(0.5 * group, epsilon) * (1 - 1e-9)
    for delta in (1e-8, 1e-3):
        found = bound_group_epsilon(lambda at: bound_gaussian_epsilon(0.5, at), group, delta)
        exact = bound_gaussian_epsilon(0.5 * group, delta)
        assert exact * (1 - 1e-9) <= found <= 1.05 * exact


def test_the_lemma_promises_nothing_where_one_example_has_nothing():
    def refuses(delta):
        raise PrecisionError("too small")

    assert bound_group_epsilon(refuses, 3, 1e-6) == math.inf
    assert bound_group_delta(lambda at: 1.0, 3, 2.0) == 1.0
    assert 0 < bound_group_delta(lambda at: 0.0, 3, 2.0) < 1e-290


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("repeats", [2, 3])
def test_products_of_repeated_columns(strategy, repeats):
    gram = Repeated(strategy, repeats).gram(1, 0, 2.0)
    classes = gram.counts.size
    once = strategy.gram(1, 0, 2.0)
    plain = strategies.dense(np.repeat(strategy.to_dense(), repeats, axis=1)).gram(1, 0, 2.0)
    assert gram.columns == plain.columns
    rng = np.random.default_rng(1)
    vector = rng.random(classes)
    spread = np.repeat(vector, once.counts.astype(int) * repeats)
    first = np.concatenate([[0], np.cumsum(once.counts).astype(int)[:-1]]) * repeats
    assert gram.product(vector) == pytest.approx(plain.product(spread)[first], rel=1e-12)
    a = 0.1 * gram.product(np.ones(classes))
    wide = np.repeat(a, once.counts.astype(int) * repeats)
    weights = vector[:, None]
    for ours, theirs in (
        (
            gram.power_sums(a, weights, [1, 2, 5]),
            plain.power_sums(wide, spread[:, None], [1, 2, 5]),
        ),
        (gram.absolute_sums(a, weights)[None], plain.absolute_sums(wide, spread[:, None])[None]),
    ):
        assert ours == pytest.approx(theirs[:, first], rel=1e-10, abs=1e-12)
    exact = plain.top_sums(wide, 7)
    bound = gram.top_sums(a, 7)
    assert bound.shape == exact.shape
    assert (bound >= exact * (1 - 1e-12)).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("order", ["release", "reversed"])
def test_rows_of_repeated_columns(strategy, order):
    ours = Repeated(strategy, 2).geometry(order, 1, 0)
    plain = strategies.dense(np.repeat(strategy.to_dense(), 2, axis=1)).geometry(order, 1, 0)
    assert (ours.columns, ours.rows, ours.events) == (plain.columns, plain.rows, plain.events)

    def totals(geometry):
        found = np.zeros(4)
        for block in geometry.blocks():
            columns = (block.values, block.values**2 * block.squares, block.sums, block.peaks)
            found += block.count * block.repeats * np.array([column.sum() for column in columns])
        return found

    assert totals(ours)[:3] == pytest.approx(totals(plain)[:3], rel=1e-10)


def test_repeated_columns_are_for_the_accounting_alone():
    repeated = Repeated(STRATEGIES[1], 2)
    assert repeated.to_dense().shape == (6, 12)
    assert repeated.sensitivity(1) >= 2 * STRATEGIES[1].sensitivity(1)
    with pytest.raises(StrategyError):
        repeated.prefix(3)


@pytest.mark.parametrize("probability", [1e-9, 0.1, 1 / 3, 0.999])
def test_the_law_of_counts_is_rounded_once(probability):
    for members in (1, 2, 7):
        found = binomial_prior(members, probability)
        with mpmath.workdps(60):
            p = mpmath.mpf(probability)
            for m, chance in enumerate(found):
                exact = mpmath.binomial(members, m) * p**m * (1 - p) ** (members - m)
                assert abs(mpmath.mpf(float(chance)) - exact) <= exact * mpmath.mpf(2) ** -53
