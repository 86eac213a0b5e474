"""Claim: epsilons of groups, fixed batches and last iterates are never below the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases.samples import sampled
from oracles import truth
from oracles.line import batch_sums, line_delta, poisson_sums

from mmcc import mixtures

SIDES = ("remove", "add")


def binomial(trials: int, p: float) -> list[float]:
    return [math.comb(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(trials + 1)]


@pytest.mark.parametrize(
    ("group", "probability", "sigma", "delta"),
    sampled([1, 2, 5], [1e-4, 0.3, 0.97], [(0.7, 1e-5), (5.0, 1e-2), (2.0, 1e-12)]),
)
def test_one_step_of_a_group(group, probability, sigma, delta):
    found = mixtures.group_privacy(group, 1, probability, sigma=sigma, delta=delta)
    law = (range(group + 1), binomial(group, probability), sigma)
    for side in SIDES:
        assert truth.mixture_delta(*law, found.details[side], side) <= delta


@pytest.mark.parametrize(
    ("group", "steps", "probability", "sigma"),
    [(2, 2000, 0.01, 1.0), (4, 50, 0.1, 2.0), (3, 20, 0.5, 4.0)],
)
def test_many_steps_of_a_group(group, steps, probability, sigma):
    delta = 1e-5
    found = mixtures.group_privacy(group, steps, probability, sigma=sigma, delta=delta)
    part = (steps, [float(j) for j in range(group + 1)], binomial(group, probability), sigma)
    for side in SIDES:
        assert truth.composed_mixture_delta([part], found.details[side], side)[0] <= delta
    # The lemma holds for this very mechanism, so neither of its numbers can be below the truth.
    for bound in ("black_box", "black_box_even"):
        assert truth.composed_mixture_delta([part], found.details[bound], "remove")[0] <= delta


@pytest.mark.parametrize("seed", range(6))
def test_the_lemma_is_never_below_the_mixture(seed):
    """It holds for the mechanism that the mixture is exact for; add has its own, smaller truth."""
    rng = np.random.default_rng(seed)
    group, steps = int(rng.integers(2, 6)), int(rng.integers(1, 40))
    numbers = {"sigma": float(rng.uniform(0.8, 6)), "delta": float(10 ** rng.uniform(-9, -2))}
    for found in (
        mixtures.group_privacy(group, steps, float(rng.uniform(0.01, 0.9)), **numbers),
        mixtures.fixed_batches(int(rng.integers(12, 200)), 6, steps, group=group, **numbers),
    ):
        lowest = max(found.details[side] for side in SIDES) * (1 - 1e-3)  # both are rounded up
        assert lowest <= found.details["black_box"]
        even = found.details["black_box_even"]
        assert even is None or found.details["black_box"] <= even


def test_the_even_lemma_by_itself():
    """Each link at black_box_even / k, its delta from the closed form, summed as the lemma says."""
    group, delta = 3, 1e-6
    found = mixtures.group_privacy(group, 1, 0.2, sigma=1.5, delta=delta)
    each = found.details["black_box_even"] / group
    link = truth.worst(truth.mixture_delta, [0, 1], [0.8, 0.2], 1.5, each)
    assert link * (math.exp(group * each) - 1) / (math.exp(each) - 1) <= delta * (1 + 1e-9)


def members_and_others(seed: int, group: int, others: int) -> tuple[list[float], list[float]]:
    """Contributions of norm at most one; the first seeds are the extreme ones."""
    if seed == 0:
        return [1.0] * group, [-1.0] * others
    if seed == 1:
        return [1.0] * group, [1.0] * others
    rng = np.random.default_rng(seed)
    if seed % 2:
        return list(rng.choice([-1.0, 1.0], group)), list(rng.choice([-1.0, 1.0], others))
    return list(rng.uniform(-1, 1, group)), list(rng.uniform(-1, 1, others))


@pytest.mark.parametrize(
    ("examples", "batch", "group", "seed"),
    sampled([(6, 2, 1), (7, 3, 2), (8, 4, 4)], range(8), strength=1),
)
def test_fixed_batches_whatever_the_others_are(examples, batch, group, seed):
    sigma, delta = 1.5, 1e-3
    found = mixtures.fixed_batches(examples, batch, 1, group=group, sigma=sigma, delta=delta)
    members, others = members_and_others(seed, group, examples - group)
    with_them, without = batch_sums(members + others, batch), batch_sums(others, batch)
    assert line_delta(with_them, without, sigma, found.details["remove"]) <= delta
    assert line_delta(without, with_them, sigma, found.details["add"]) <= delta


def test_fixed_batches_of_a_larger_neighbour():
    """The number for n examples also covers a neighbour with `group` more."""
    sigma, delta = 1.5, 1e-3
    found = mixtures.fixed_batches(6, 2, 1, group=2, sigma=sigma, delta=delta)
    members, others = members_and_others(0, 2, 6)
    with_them, without = batch_sums(members + others, 2), batch_sums(others, 2)
    assert line_delta(with_them, without, sigma, found.details["remove"]) <= delta
    assert line_delta(without, with_them, sigma, found.details["add"]) <= delta


def test_the_zero_one_number_is_no_guarantee_when_others_contribute():
    """Why it is not the default: others at -1 break it, even if members keep their places."""
    sigma, delta = 1.5, 1e-3
    alone = mixtures.fixed_batches(6, 2, 1, sigma=sigma, delta=delta, setting="0-1")
    assert "0-1" in alone.setting
    assert line_delta(batch_sums([1.0] + [0.0] * 5, 2), {0.0: 1.0}, sigma, alone.epsilon) <= delta
    broken = line_delta(
        batch_sums([1.0] + [-1.0] * 5, 2), batch_sums([-1.0] * 5, 2), sigma, alone.epsilon
    )
    assert broken > 2 * delta
    in_place = line_delta(
        batch_sums([1.0] + [-1.0] * 5, 2), batch_sums([0.0] + [-1.0] * 5, 2), sigma, alone.epsilon
    )
    assert in_place > delta


@pytest.mark.parametrize(("value", "others"), [(1.0, [1.0, -0.5]), (0.6, [-1.0]), (-1.0, [])])
def test_last_iterate_with_others(value, others):
    steps, p, sigma, delta = 4, 0.3, 0.8, 1e-4
    found = mixtures.last_iterate(steps, p, sigma=sigma, delta=delta)
    with_it = poisson_sums([value, *others], p, steps)
    without = poisson_sums(others, p, steps)
    noise = sigma * math.sqrt(steps)
    assert line_delta(with_it, without, noise, found.details["remove"]) <= delta
    assert line_delta(without, with_it, noise, found.details["add"]) <= delta


@pytest.mark.parametrize(("steps", "p", "delta"), [(1, 0.5, 1e-6), (128, 1 / 128, 1e-6)])
def test_last_iterate_against_the_closed_form(steps, p, delta):
    found = mixtures.last_iterate(steps, p, sigma=1.0, delta=delta)
    law = (range(steps + 1), binomial(steps, p), math.sqrt(steps))
    for side in SIDES:
        assert truth.mixture_delta(*law, found.details[side], side) <= delta
    assert found.epsilon == max(found.details[side] for side in SIDES)


def test_merged_counts_stay_above_the_truth():
    """4000 steps at p = 1/2 have more counts than are listed."""
    steps, delta = 4000, 1e-3
    found = mixtures.last_iterate(steps, 0.5, sigma=20.0, delta=delta)
    likely = range(1700, 2301)  # the rest, below 1e-20, can only lower what the truth says
    mixture = {float(j): math.comb(steps, j) / 2**steps for j in likely}
    noise = 20.0 * math.sqrt(steps)
    assert line_delta(mixture, {0.0: 1.0}, noise, found.details["remove"]) <= delta
    assert line_delta(mixture, {0.0: 1.0}, noise, 0.99 * found.details["remove"]) > delta
    assert line_delta({0.0: 1.0}, mixture, noise, found.details["add"]) <= delta
    assert found.epsilon <= found.details["composition"] * 1.01
