"""Claim: groups, fixed batches and last iterates give the known numbers."""

from __future__ import annotations

import pytest
from oracles import truth
from oracles.line import batch_sums, line_delta

import mmcc
from mmcc import mixtures, sampling, strategies


def test_last_iterate():
    """The paper prints 0.291: the add side alone."""
    found = mixtures.last_iterate(128, 1 / 128, sigma=1.0, delta=1e-6)
    assert found.details["remove"] == pytest.approx(0.4199, abs=1e-4)
    assert found.details["add"] == pytest.approx(0.2908, abs=1e-4)
    assert found.details["composition"] == pytest.approx(0.8064, abs=1.5e-4)
    assert found.epsilon == found.details["remove"]


def test_one_step_is_composition():
    found = mixtures.last_iterate(1, 0.25, sigma=1.0, delta=1e-6)
    assert found.epsilon == pytest.approx(found.details["composition"], rel=1e-9)


@pytest.mark.parametrize(
    ("group", "epsilon", "even"), [(2, 5.705, 6.166), (4, 13.10, 18.30), (8, 32.04, 252.6)]
)
def test_groups_are_below_the_black_box(group, epsilon, even):
    found = mixtures.group_privacy(group, 2000, 1 / 100, sigma=1.0, delta=1e-5)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert found.details["black_box_even"] == pytest.approx(even, rel=1.5e-3)
    assert found.epsilon < found.details["black_box"] < found.details["black_box_even"]


def test_a_group_of_one_is_plain_dp_sgd():
    found = mixtures.group_privacy(1, 2000, 1 / 100, sigma=1.0, delta=1e-5)
    plain = mmcc.epsilon(
        strategies.identity(2000), sampling.Poisson(1 / 100), sigma=1.0, delta=1e-5
    )
    assert found.epsilon == pytest.approx(2.584, abs=1e-3)
    assert found.epsilon == pytest.approx(plain.epsilon, rel=1e-4)
    assert found.details["black_box"] == found.details["black_box_even"] == found.epsilon


@pytest.mark.parametrize("group", [2, 3, 7])
def test_links_at_their_best_are_exact_for_gaussian_noise(group):
    """Without sampling the lemma with the whole curve of one example loses nothing."""
    found = mixtures.group_privacy(group, 1, 1.0, sigma=4.0, delta=1e-6)
    exact = truth.smallest_epsilon(lambda e: truth.gaussian_delta(group, 4.0, e), 1e-6)
    assert found.epsilon == pytest.approx(exact, rel=1e-4)
    assert exact <= found.details["black_box"] <= 1.002 * exact
    assert found.details["black_box_even"] >= 1.005 * exact


def test_fixed_batches_are_attained():
    """Others at -1, members at +1: sensitivity 2 J is what happens."""
    found = mixtures.fixed_batches(7, 3, 1, group=2, sigma=1.5, delta=1e-3)
    with_them, without = batch_sums([1.0] * 2 + [-1.0] * 5, 3), batch_sums([-1.0] * 5, 3)
    assert line_delta(with_them, without, 1.5, 0.999 * found.details["remove"]) > 1e-3
    assert line_delta(without, with_them, 1.5, 0.99 * found.details["add"]) > 1e-3


def test_fixed_batches_of_large_data_sets_are_like_poisson_with_twice_the_sensitivity():
    fixed = mixtures.fixed_batches(10**9, 10**7, 2000, group=4, sigma=2.0, delta=1e-5)
    poisson = mixtures.group_privacy(4, 2000, 0.01, sigma=1.0, delta=1e-5)
    assert fixed.epsilon == pytest.approx(poisson.epsilon, rel=1e-5)
    alone = mixtures.fixed_batches(
        10**9, 10**7, 2000, group=4, sigma=1.0, delta=1e-5, setting="0-1"
    )
    assert alone.epsilon == pytest.approx(poisson.epsilon, rel=1e-5)
    assert alone.details["black_box"] is None


@pytest.mark.parametrize("delta", [1e-30, 1e-100])
def test_small_deltas(delta):
    found = mixtures.group_privacy(3, 2000, 0.01, sigma=1.0, delta=delta)
    assert found.details["add"] < found.epsilon < found.details["black_box"]
