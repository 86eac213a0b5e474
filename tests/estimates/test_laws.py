"""Claim: listed and drawn participation sets have the law of their scheme."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from oracles import separation

from mmcc import sampling, strategies
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.set_lists import all_sets, draw_sets, with_larger_sets

STEPS = 7


def renewal_pairs(steps, p, gap):
    """P(j and l take part), by the recursion of the renewal process."""

    def chances(length):  # of each step, starting eligible
        found = np.zeros(length)
        for j in range(length):
            # Taking part at j: eligible there, so nobody took part in the gap - 1 steps before.
            found[j] = p * (1 - found[max(j - gap + 1, 0) : j].sum())
        return found

    pairs = np.zeros((steps, steps))
    single = chances(steps)
    for j in range(steps):
        pairs[j, j] = single[j]
        later = chances(max(steps - j - gap, 0))
        pairs[j, j + gap : j + gap + later.size] = single[j] * later
        pairs[j + gap : j + gap + later.size, j] = single[j] * later
    return pairs


def warm_pairs(steps, p, gap):
    """P(j and l take part) after a warm start, from all sets."""
    pairs = np.zeros((steps, steps))
    for members, chance in separation.law_of_sets(steps, p, gap, True).items():
        for j, k in itertools.product(members, repeat=2):
            pairs[j, k] += chance
    return pairs


def epoch_pairs(steps, length, same):
    """Balls in bins (the same place in every epoch) or a shuffle (independent places)."""
    pairs = np.zeros((steps, steps))
    for j, k in itertools.product(range(steps), repeat=2):
        if j // length == k // length:
            pairs[j, k] = (j == k) / length
        elif same:
            pairs[j, k] = (j % length == k % length) / length
        else:
            pairs[j, k] = 1 / length**2
    return pairs


CASES = [
    (sampling.Poisson(0.3), 7, renewal_pairs(7, 0.3, 1)),
    (sampling.MinSeparation(0.4, 3), 7, renewal_pairs(7, 0.4, 3)),
    (sampling.MinSeparation(0.2, 2), 9, renewal_pairs(9, 0.2, 2)),
    (sampling.MinSeparation(0.5, 20), 7, renewal_pairs(7, 0.5, 20)),
    (sampling.MinSeparation(0.4, 3, True), 7, warm_pairs(7, 0.4, 3)),
    (sampling.MinSeparation(0.5, 20, True), 7, warm_pairs(7, 0.5, 20)),
    (sampling.MinSeparation(1.0, 3, True), 7, warm_pairs(7, 1.0, 3)),
    (sampling.MinSeparation(1.0, 9, True), 7, warm_pairs(7, 1.0, 9)),
    (sampling.BallsInBins(3), 9, epoch_pairs(9, 3, same=True)),
    (sampling.RandomAllocation(3), 9, epoch_pairs(9, 3, same=False)),
    (sampling.RandomAllocation(6, 2), 6, (1 + 4 * np.eye(6)) / 15),
    (sampling.RandomAllocation(6, 4), 6, (6 + 4 * np.eye(6)) / 15),
    (sampling.Shuffle(3), 9, epoch_pairs(9, 3, same=False)),
    (sampling.Shuffle(), 5, epoch_pairs(5, 5, same=False)),
]


def marks(steps, edges, columns):
    found = np.zeros((len(edges) - 1, columns))
    found[np.repeat(np.arange(len(found)), np.diff(edges)), steps] = 1.0
    return found


@pytest.mark.parametrize(("scheme", "steps", "pairs"), CASES, ids=lambda x: repr(x)[:40])
def test_schemes_draw_their_law(scheme, steps, pairs):
    count = 40_000
    drawn = scheme.draw(steps, count, np.random.default_rng(3))
    x = marks(drawn.steps, drawn.edges, steps)
    assert np.abs(x.T @ x / count - pairs).max() < 5 * math.sqrt(0.25 / count)


@pytest.mark.parametrize(("scheme", "steps", "pairs"), CASES, ids=lambda x: repr(x)[:40])
def test_listed_sets_have_the_law(scheme, steps, pairs):
    sets = all_sets(Mechanism(strategies.identity(steps), scheme, 1.0))
    x, weights = marks(sets.columns, sets.edges, steps), np.exp(sets.logs)
    assert weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert x.T @ (weights[:, None] * x) == pytest.approx(pairs, abs=1e-12)
    assert sets.squares == pytest.approx(x.sum(axis=1))


@pytest.mark.parametrize("tilts", [None, [0.3, 0.6], [0.05, 0.8]])
@pytest.mark.parametrize(("scheme", "steps", "pairs"), CASES[:6], ids=lambda x: repr(x)[:40])
def test_weights_of_drawn_sets_are_right_on_average(scheme, steps, pairs, tilts):
    mechanism = Mechanism(strategies.identity(steps), scheme, 1.0)
    rng = np.random.default_rng(5)
    means = []
    for _ in range(60):
        sets = draw_sets(mechanism, 300, tilts or [scheme.probability], rng)
        x, weights = marks(sets.columns, sets.edges, steps), np.exp(sets.logs)
        means.append(np.append((x.T @ (weights[:, None] * x)).ravel(), weights.sum()))
    error = np.std(means, axis=0, ddof=1) / math.sqrt(len(means))
    expected = np.append(pairs.ravel(), 1.0)
    assert (np.abs(np.mean(means, axis=0) - expected) <= 5 * error + 1e-12).all()


def test_cyclic_groups_keep_their_own_columns():
    strategy = strategies.continual_counting(10)
    mechanism = Mechanism(strategy, sampling.CyclicPoisson(0.5, 4), 2.0, group=1)
    assert mechanism.columns == 3
    sets = all_sets(mechanism)
    dense = strategy.to_dense()[:, 1::4] / 2.0
    x = marks(sets.columns, sets.edges, 3)
    assert len(sets) == 8
    assert sets.squares == pytest.approx(np.square(x @ dense.T).sum(axis=1))
    y = np.random.default_rng(0).standard_normal((2, 10))
    assert mechanism.adjoint(y) == pytest.approx(y @ dense)
    assert mechanism.encode(x) == pytest.approx(x @ dense.T)


def test_larger_sets_are_drawn_where_they_are_wanted():
    law = sampling.Renewal(1e-3)
    assert with_larger_sets(law, 1000, 1.0) == [1e-3]
    tilts = with_larger_sets(law, 1000, 8.0)
    assert tilts[0] == 1e-3
    assert tilts[-1] == pytest.approx(8e-3)
