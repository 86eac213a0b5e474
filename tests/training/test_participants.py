"""Claim: who takes part has exactly the law that is accounted, and is a function of key and step.

The truth is written out below from the definition of each scheme: every participation set of a
small case with its probability.  Nothing here calls `draw`.  A chi-square test fails a correct
program with chance 1e-6, and its seeds are fixed.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from itertools import chain, combinations, product

import numpy as np
import pytest
from cases.samples import first
from oracles.separation import law_of_sets
from scipy import stats

from mmcc.errors import MmccError, ParameterError, SamplingError
from mmcc.sampling import (
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
    Shuffle,
)
from mmcc.sampling._min_separation import REMEMBERED
from mmcc.training import _participants as module
from mmcc.training._participants import Participants

CHANCE = 1e-6
SEEDS = [1500, 8000]
ALL = (
    Poisson(0.3),
    CyclicPoisson(0.4, 3),
    MinSeparation(0.2, 4),
    BallsInBins(6),
    RandomAllocation(6),
    RandomAllocation(3, 2),
    Shuffle(6),
)


def subsets(items):
    return [set_ for size in range(len(items) + 1) for set_ in combinations(items, size)]


def coins(items, p):
    """Law of the set of heads."""
    return {s: p ** len(s) * (1 - p) ** (len(items) - len(s)) for s in subsets(items)}


def waits(steps, p, separation):
    """Law of the set when a participation blocks the next `separation - 1` steps."""
    law = {}
    for chosen in subsets(range(steps)):
        chance, eligible = 1.0, 0
        for step in range(steps):
            if step < eligible:
                chance *= step not in chosen
            else:
                chance *= p if step in chosen else 1 - p
            if step in chosen:
                eligible = step + separation
        law[chosen] = chance
    return law


def independent(law, examples):
    """Law of the sets of several examples that do not know of each other."""
    joint = {}
    for sets in product(law, repeat=examples):
        joint[sets] = math.prod(law[s] for s in sets)
    return joint


def deals(examples, parts):
    """All ways to deal out the examples so that no part is larger by two than another."""
    found = []
    for places in product(range(parts), repeat=examples):
        sizes = [places.count(part) for part in range(parts)]
        if max(sizes) - min(sizes) <= 1:
            found.append(places)
    return found


def poisson(p, steps, examples):
    return independent(coins(range(steps), p), examples)


def cyclic(p, separation, steps, examples):
    """Given the groups the examples are independent; every balanced grouping is as likely."""
    joint, groupings = Counter(), deals(examples, separation)
    for groups in groupings:
        laws = [coins(range(group, steps, separation), p) for group in groups]
        for sets in product(*laws):
            chance = math.prod(law[s] for law, s in zip(laws, sets, strict=True))
            joint[sets] += chance / len(groupings)
    return joint


def min_separation(p, separation, steps, examples):
    return independent(waits(steps, p, separation), examples)


def warm_start(p, gap, steps, examples):
    return independent(law_of_sets(steps, p, gap, True), examples)


def balls_in_bins(bins, steps, examples):
    law = {tuple(range(place, steps, bins)): 1 / bins for place in range(bins)}
    return independent(law, examples)


def allocated(length, times, steps):
    """Law of the set of one example: in every epoch any `times` steps, all as likely."""
    epochs = [
        list(combinations(range(start, start + length), times)) for start in range(0, steps, length)
    ]
    every = [tuple(chain(*run)) for run in product(*epochs)]
    return dict.fromkeys(every, 1 / len(every))


def random_allocation(length, times, steps, examples):
    return independent(allocated(length, times, steps), examples)


def shuffle(length, steps, examples):
    joint, epochs = Counter(), deals(examples, length)
    for run in product(epochs, repeat=steps // length):
        sets = tuple(
            tuple(length * epoch + places[example] for epoch, places in enumerate(run))
            for example in range(examples)
        )
        joint[sets] += len(epochs) ** -float(len(run))
    return joint


CASES = [
    (Poisson(0.3), 3, 2, poisson(0.3, 3, 2)),
    (Poisson(0.05), 2, 3, poisson(0.05, 2, 3)),
    (CyclicPoisson(0.4, 2), 4, 3, cyclic(0.4, 2, 4, 3)),
    (CyclicPoisson(0.05, 3), 3, 4, cyclic(0.05, 3, 3, 4)),
    (CyclicPoisson(0.7, 3), 5, 2, cyclic(0.7, 3, 5, 2)),
    (CyclicPoisson(1.0, 4), 4, 3, cyclic(1.0, 4, 4, 3)),
    (MinSeparation(0.5, 2), 4, 2, min_separation(0.5, 2, 4, 2)),
    (MinSeparation(0.3, 3), 5, 2, min_separation(0.3, 3, 5, 2)),
    (MinSeparation(0.4, 9), 3, 3, min_separation(0.4, 9, 3, 3)),
    (MinSeparation(0.5, 2, True), 4, 2, warm_start(0.5, 2, 4, 2)),
    (MinSeparation(0.4, 9, True), 3, 3, warm_start(0.4, 9, 3, 3)),
    (BallsInBins(3), 6, 3, balls_in_bins(3, 6, 3)),
    (BallsInBins(4), 4, 2, balls_in_bins(4, 4, 2)),
    (RandomAllocation(3), 6, 2, random_allocation(3, 1, 6, 2)),
    (RandomAllocation(4, 2), 4, 3, random_allocation(4, 2, 4, 3)),
    (RandomAllocation(3, 2), 6, 2, random_allocation(3, 2, 6, 2)),
    (Shuffle(2), 4, 3, shuffle(2, 4, 3)),
    (Shuffle(3), 6, 4, shuffle(3, 6, 4)),
    (Shuffle(), 4, 2, shuffle(4, 4, 2)),
    (Shuffle(), 3, 5, shuffle(3, 3, 5)),
]
NAMES = [f"{scheme}-{steps}-{examples}" for scheme, steps, examples, _ in CASES]


def sets_of(drawn, steps=None):
    """The set of steps of each example."""
    found = [[] for _ in range(drawn.examples)]
    for step in range(drawn.steps) if steps is None else steps:
        for example in drawn.at(step):
            found[example].append(step)
    return tuple(tuple(steps) for steps in found)


def assert_law(found, law):
    """No outcome is impossible, and the others come as often as they should."""
    assert math.fsum(law.values()) == pytest.approx(1, abs=1e-12)
    assert all(law.get(outcome, 0) > 0 for outcome in found)
    total = found.total()
    seen, due, rest = [], [], [0, 0.0]
    for outcome, chance in law.items():
        if chance * total >= 5:
            seen.append(found[outcome])
            due.append(chance * total)
        else:
            rest = [rest[0] + found[outcome], rest[1] + chance * total]
    if rest[1] >= 1:
        seen.append(rest[0])
        due.append(rest[1])
    if len(due) > 1:
        statistic = sum((s - d) ** 2 / d for s, d in zip(seen, due, strict=True))
        assert stats.chi2.sf(statistic, len(due) - 1) > CHANCE, (statistic, len(due))


def marginal(law, keep):
    """Law of some of the examples."""
    found = Counter()
    for sets, chance in law.items():
        found[tuple(sets[example] for example in keep)] += chance
    return found


@pytest.mark.parametrize("seeds", first(SEEDS, 1))
@pytest.mark.parametrize(("scheme", "steps", "examples", "law"), CASES, ids=NAMES)
def test_the_sets_of_all_examples_have_the_joint_law(scheme, steps, examples, law, seeds):
    drawn = [sets_of(Participants(scheme, steps, examples, seed)) for seed in range(seeds)]
    assert_law(Counter(drawn), law)
    for keep in [*combinations(range(examples), 2), *((one,) for one in range(examples))]:
        found = Counter(tuple(sets[example] for example in keep) for sets in drawn)
        assert_law(found, marginal(law, keep))


LARGE = [
    (Poisson(0.3), 4, coins(range(4), 0.3)),
    (Poisson(0.04), 4, coins(range(4), 0.04)),
    (Poisson(0.9), 3, coins(range(3), 0.9)),
    (MinSeparation(0.3, 3), 6, waits(6, 0.3, 3)),
    (MinSeparation(0.05, 2), 6, waits(6, 0.05, 2)),
    (MinSeparation(0.6, 1), 3, coins(range(3), 0.6)),
    (MinSeparation(1.0, 3), 7, {(0, 3, 6): 1.0}),
    (MinSeparation(0.3, 3, True), 6, law_of_sets(6, 0.3, 3, True)),
    (MinSeparation(1.0, 3, True), 7, {tuple(range(k, 7, 3)): 1 / 3 for k in range(3)}),
    (BallsInBins(5), 15, {(k, k + 5, k + 10): 0.2 for k in range(5)}),
    (RandomAllocation(3), 9, allocated(3, 1, 9)),
    (RandomAllocation(5, 2), 5, allocated(5, 2, 5)),
    (RandomAllocation(4, 3), 8, allocated(4, 3, 8)),
]


@pytest.mark.parametrize(("scheme", "steps", "law"), LARGE, ids=[str(case[0]) for case in LARGE])
def test_examples_of_one_run_have_the_law_and_neighbours_are_independent(scheme, steps, law):
    """One seed, many examples; neighbours in order, and examples that stand far apart."""
    examples = 60_000
    sets = sets_of(Participants(scheme, steps, examples, seed=7))
    assert_law(Counter(sets), law)
    pairs = independent(law, 2)
    assert_law(Counter(zip(sets[::2], sets[1::2], strict=True)), pairs)
    assert_law(Counter(zip(sets[: examples // 2], sets[examples // 2 :], strict=True)), pairs)


@pytest.mark.parametrize(("p", "separation", "steps"), [(0.4, 3, 7), (0.03, 2, 5), (0.9, 4, 4)])
def test_groups_are_drawn_like_coins_given_the_grouping(p, separation, steps):
    """Who is ever seen at a step of group g belongs to it; the size of a group is known."""
    examples = 60_001
    sets = sets_of(Participants(CyclicPoisson(p, separation), steps, examples, seed=3))
    assert all(len({step % separation for step in steps_}) <= 1 for steps_ in sets)
    for group in range(separation):
        rounds = range(group, steps, separation)
        law = coins(rounds, p)
        del law[()]
        seen = Counter(s for s in sets if s and s[0] % separation == group)
        size = examples / separation  # up to one example: far below the sampling error
        seen[()] = round(size) - seen.total()
        assert_law(seen, {**law, (): (1 - p) ** len(rounds)})


@pytest.mark.parametrize(("examples", "separation"), [(1, 1), (1, 5), (10, 3), (12, 4), (7, 20)])
def test_groups_are_a_partition_into_parts_of_equal_size(examples, separation):
    drawn = Participants(CyclicPoisson(1.0, separation), 3 * separation, examples, seed=5)
    groups = [drawn.at(step).tolist() for step in range(separation)]
    assert sorted(chain(*groups)) == list(range(examples))
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    assert [drawn.at(step).tolist() for step in range(3 * separation)] == 3 * groups


@pytest.mark.parametrize(("examples", "length", "epochs"), [(10, 3, 4), (12, 4, 2), (3, 8, 3)])
def test_each_epoch_is_a_new_partition(examples, length, epochs):
    drawn = Participants(Shuffle(length), epochs * length, examples, seed=5)
    runs = []
    for epoch in range(epochs):
        batches = [drawn.at(epoch * length + place).tolist() for place in range(length)]
        assert sorted(chain(*batches)) == list(range(examples))
        sizes = [len(batch) for batch in batches]
        assert max(sizes) - min(sizes) <= 1
        runs.append(str(batches))
    assert len(set(runs)) == epochs


def binomial(count, p):
    return {k: float(stats.binom.pmf(k, count, p)) for k in range(count + 1)}


@pytest.mark.parametrize("p", [0.001, 0.03, 0.0624, 0.0626, 0.5, 0.99])
def test_sizes_and_places_of_coins(p):
    """Binomial batches, every example as often as any other, the first and the last too."""
    examples, steps = 60, 6000
    drawn = Participants(Poisson(p), steps, examples, seed=11)
    batches = [drawn.at(step) for step in range(steps)]
    assert_law(Counter(batch.size for batch in batches), binomial(examples, p))
    counts = np.bincount(np.concatenate(batches), minlength=examples)
    statistic = ((counts - steps * p) ** 2 / (steps * p * (1 - p))).sum()
    assert CHANCE < stats.chi2.sf(statistic, examples) < 1 - CHANCE
    assert abs(stats.norm.ppf(stats.binom.cdf(counts[0], steps, p))) < 5
    assert abs(stats.norm.ppf(stats.binom.cdf(counts[-1], steps, p))) < 5


@pytest.mark.parametrize("step", range(6))
def test_sizes_under_min_separation_are_binomial_with_the_rate_of_the_step(step):
    p, separation, examples = 0.3, 3, 20
    law = waits(6, p, separation)
    rate = math.fsum(chance for steps, chance in law.items() if step in steps)
    sizes = Counter(
        Participants(MinSeparation(p, separation), 6, examples, seed).at(step).size
        for seed in range(2000)
    )
    assert_law(sizes, binomial(examples, rate))


def test_a_warm_start_has_the_same_law_of_sizes_at_every_step():
    scheme, steps, examples = MinSeparation(0.4, 4, True), 9, 20_000
    drawn = Participants(scheme, steps, examples, seed=5)
    sizes = np.array([drawn.at(step).size for step in range(steps)])
    rate = drawn.expected / examples
    assert rate == pytest.approx(0.4 / 2.2, rel=1e-12)
    assert np.abs(sizes - examples * rate).max() < 5 * math.sqrt(examples * rate * (1 - rate))
    assert np.allclose(scheme.law(steps).rates, rate, rtol=1e-14)


def test_sizes_of_bins_and_groups_are_binomial():
    for scheme in (BallsInBins(4), RandomAllocation(8, 2)):
        sizes = Counter(Participants(scheme, 8, 20, seed).at(6).size for seed in range(3000))
        assert_law(sizes, binomial(20, 1 / 4))
    drawn = Participants(CyclicPoisson(0.2, 4), 12_000, 80, seed=1)
    assert_law(Counter(drawn.at(step).size for step in range(2, 12_000, 4)), binomial(20, 0.2))


@pytest.mark.parametrize(
    ("scheme", "steps", "expected"),
    [
        (Poisson(0.05), 3000, 10),
        (CyclicPoisson(0.5, 10), 3000, 10),
        (MinSeparation(0.1, 11), 3000, 10),
        (BallsInBins(20), 3000, 10),
        (RandomAllocation(20), 3000, 10),
        (RandomAllocation(100, 5), 3000, 10),
        (RandomAllocation(40, 2), 3000, 10),
        (Shuffle(20), 3000, 10),
        (Shuffle(), 20, 10),
    ],
    ids=str,
)
def test_expected_size_is_the_mean_size(scheme, steps, expected):
    drawn = Participants(scheme, steps, 200, seed=2)
    assert drawn.expected == pytest.approx(expected, rel=1e-12)
    sizes = [drawn.at(step).size for step in range(steps)]
    assert np.mean(sizes[steps // 10 :] if steps > 20 else sizes) == pytest.approx(10, abs=0.4)


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_batches_are_sorted_distinct_indices_that_nobody_can_change(scheme):
    drawn = Participants(scheme, 12, 50, seed=1)
    for step in range(12):
        batch = drawn.at(step)
        assert batch.dtype == np.int64
        assert (np.diff(batch) > 0).all()
        assert batch.size == 0 or (batch[0] >= 0 and batch[-1] < 50)
        with pytest.raises(ValueError, match="read-only"):
            batch[:] = 0


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_a_step_is_a_function_of_key_and_step(scheme):
    """Any order, also further back than is remembered, and after a restore."""
    steps = 3 * (REMEMBERED + 2)
    first = Participants(scheme, steps, 30, seed=9)
    truth = [first.at(step).tolist() for step in range(steps)]
    order = np.random.default_rng(1).permutation(steps)
    again = Participants(scheme, steps, 30, seed=9)
    assert all(again.at(int(step)).tolist() == truth[step] for step in order)
    other = Participants(scheme, steps, 30)
    before = [other.at(step).tolist() for step in range(steps)]
    assert before != truth
    other.restore(json.loads(json.dumps(first.state())))
    assert all(other.at(step).tolist() == truth[step] for step in reversed(range(steps)))
    assert other.state() == first.state()


def test_other_seeds_and_steps_are_unrelated():
    examples = 60_000
    drawn = [Participants(Poisson(0.3), 10, examples, seed) for seed in (0, 1, 2**64, 10**5000)]
    batches = [drawn_.at(step) for drawn_ in drawn for step in (0, 1)]
    for one, two in combinations(batches, 2):
        sets = Counter(
            zip(np.isin(range(examples), one), np.isin(range(examples), two), strict=True)
        )
        assert_law(sets, independent({True: 0.3, False: 0.7}, 2))


@pytest.mark.parametrize("scheme", ALL, ids=str)
def test_without_a_seed_no_two_runs_are_alike(scheme):
    runs = [Participants(scheme, 12, 200) for _ in range(20)]
    assert len({run.state()["key"] for run in runs}) == 20
    assert len({str(sets_of(run)) for run in runs}) == 20


def test_noise_of_the_same_seed_has_another_key():
    randomness = pytest.importorskip("mmcc.training._randomness")
    for seed in (0, 1, 2**70):
        key = Participants(Poisson(0.3), 1, 1, seed).state()["key"]
        assert key not in randomness.normals(seed).state()["key"]


def test_rare_coins_are_where_they_should_be():
    """A thousand million coins with chance 1e-9: one head a step, anywhere."""
    drawn = Participants(Poisson(1e-9), 3000, 10**9, seed=4)
    batches = [drawn.at(step) for step in range(3000)]
    law = {k: float(stats.poisson.pmf(k, 1)) for k in range(30)}
    law[30] = 1 - math.fsum(law.values())
    assert_law(Counter(batch.size for batch in batches), law)
    assert stats.kstest(np.concatenate(batches) / 1e9, "uniform").pvalue > CHANCE


@pytest.mark.parametrize("p", [1e-9, 1e-300])
@pytest.mark.parametrize("examples", [1, 1000])
def test_nobody_takes_part_where_the_chance_is_tiny(p, examples):
    for scheme in (Poisson(p), CyclicPoisson(p, 3), MinSeparation(p, 3)):
        drawn = Participants(scheme, 100, examples, seed=1)
        assert sum(drawn.at(step).size for step in range(100)) == 0


def test_all_take_part_where_the_chance_is_one():
    everyone = list(range(7))
    assert all(Participants(Poisson(1), 5, 7).at(step).tolist() == everyone for step in range(5))
    separated = Participants(MinSeparation(1, 3), 8, 7)
    assert [separated.at(step).tolist() for step in range(8)] == [everyone, [], []] * 2 + [
        everyone,
        [],
    ]
    one_bin = Participants(BallsInBins(1), 5, 7)
    assert one_bin.at(4).tolist() == everyone
    assert Participants(Shuffle(1), 5, 7).at(3).tolist() == everyone
    assert Participants(RandomAllocation(3, 3), 6, 7).at(4).tolist() == everyone


def test_a_long_separation_means_once_at_most():
    for separation in (10, 11, 10**12):
        sets = sets_of(Participants(MinSeparation(0.5, separation), 10, 500, seed=1))
        assert max(map(len, sets)) == 1


def test_more_groups_than_steps_leave_examples_out():
    drawn = Participants(CyclicPoisson(1.0, 10**12), 5, 3, seed=1)
    assert sum(drawn.at(step).size for step in range(5)) <= 3
    sets = sets_of(Participants(CyclicPoisson(1.0, 10), 4, 1000, seed=1))
    assert Counter(map(len, sets)) == {1: 400, 0: 600}


@pytest.mark.parametrize("scheme", [Poisson(1e-5), MinSeparation(1e-5, 1000)], ids=str)
def test_a_step_costs_what_its_batch_is_large(scheme):
    """Ten million coins tossed one by one take tens of milliseconds."""
    drawn = Participants(scheme, 100, 10**7, seed=1)
    seconds = []
    for step in range(50):
        start = time.process_time()
        drawn.at(step)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.002


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("poisson", 3, 3), SamplingError, "must be one of mmcc.sampling"),
        ((Poisson(0.5), 0, 3), ParameterError, "steps must lie between"),
        ((Poisson(0.5), 3, 0), ParameterError, "examples must lie between"),
        ((Poisson(0.5), 3, 10**10), ParameterError, "examples must lie between"),
        ((Poisson(0.5), 3, 2.5), ParameterError, "examples must be a whole number"),
        ((BallsInBins(4), 6, 3), SamplingError, "not a whole number of epochs"),
        ((Shuffle(4), 6, 3), SamplingError, "not a whole number of epochs"),
        ((RandomAllocation(4), 6, 3), SamplingError, "not a whole number of epochs"),
        ((Poisson(0.5), 3, 3, -1), ParameterError, "seed must be"),
        ((Poisson(0.5), 3, 3, True), ParameterError, "seed must be"),
        ((Poisson(0.5), 3, 3, 1.0), ParameterError, "seed must be"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Participants(*arguments)


@pytest.mark.parametrize("step", [-1, 3, 1.0])
def test_steps_outside_the_run_are_refused(step):
    with pytest.raises(ParameterError, match="step must"):
        Participants(Poisson(0.5), 3, 3).at(step)


@pytest.mark.parametrize(
    ("scheme", "steps", "examples", "message"),
    [
        (Poisson(0.5000001), 6, 9, "scheme"),
        (Shuffle(3), 6, 9, "scheme"),
        (Poisson(0.5), 7, 9, "steps"),
        (Poisson(0.5), 6, 8, "examples"),
    ],
)
def test_a_state_of_another_run_is_refused_and_changes_nothing(scheme, steps, examples, message):
    saved = Participants(scheme, steps, examples, seed=1).state()
    drawn = Participants(Poisson(0.5), 6, 9, seed=2)
    before = drawn.state()
    with pytest.raises(SamplingError, match=f"saved sampler has {message}"):
        drawn.restore(saved)
    assert drawn.state() == before


@pytest.mark.parametrize(
    "change", [{"key": "ab"}, {"key": None}, {"key": "zz" * 16}, {"probe": ""}]
)
def test_a_damaged_state_is_refused(change):
    drawn = Participants(Poisson(0.5), 6, 9, seed=2)
    with pytest.raises(MmccError, match=r"use a state made by|Resume with the run's numpy"):
        drawn.restore({**drawn.state(), **change})


def test_a_generator_that_changed_is_noticed(monkeypatch):
    """Another numpy may give other bins: an example would then take part where it must not."""
    drawn = Participants(BallsInBins(3), 6, 9, seed=2)
    saved = drawn.state()
    made = module._generator
    monkeypatch.setattr(module, "_generator", lambda key, *place: made(key[::-1], *place))
    with pytest.raises(SamplingError, match="Resume with the run's numpy"):
        drawn.restore(saved)


def test_the_key_is_not_shown():
    drawn = Participants(Poisson(0.5), 6, 9, seed=2)
    assert drawn.state()["key"] not in repr(drawn)
    assert repr(drawn) == "Participants(Poisson(probability=0.5), steps=6, examples=9)"
