"""Claim: the parts of an audit have the laws they state.

Truth: enumeration of all participation sets, dense linear algebra, sums of binomial probabilities.
"""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import chain, combinations, product

import numpy as np
import pytest
from oracles import separation
from scipy.stats import binom, kstest, multivariate_normal

import mmcc
from mmcc import sampling, strategies
from mmcc.audit._bound import largest_chance, lower_bounds, smallest_chance
from mmcc.audit._group import worst_group
from mmcc.audit._noise_law import Moments, NoiseLaw
from mmcc.audit._statistic import likelihood_ratio, whitener
from mmcc.strategies._decoders import decoder_matrix


def sets_of(scheme, steps):
    """Every participation set with its probability, from the definition of the scheme."""
    if isinstance(scheme, sampling.BallsInBins):
        return [(range(bin, steps, scheme.bins), 1 / scheme.bins) for bin in range(scheme.bins)]
    if isinstance(scheme, sampling.RandomAllocation):
        length, times = scheme.epoch_steps, scheme.participations
        epochs = [combinations(range(a, a + length), times) for a in range(0, steps, length)]
        every = [list(chain(*run)) for run in product(*epochs)]
        return [(members, 1 / len(every)) for members in every]
    if isinstance(scheme, sampling.Shuffle):
        length = scheme.epoch_steps or steps
        starts = range(0, steps, length)
        every = list(product(range(length), repeat=len(starts)))
        return [([a + b for a, b in zip(starts, p, strict=True)], 1 / len(every)) for p in every]
    p, b = scheme.probability, scheme.separation
    if isinstance(scheme, sampling.MinSeparation):
        return list(separation.law_of_sets(steps, p, b, scheme.warm_start).items())
    found = []
    for marks in product((0, 1), repeat=steps):
        members = [step for step in range(steps) if marks[step]]
        for group in range(b):
            own = range(group, steps, b)
            if all(step in own for step in members):
                chance = p ** len(members) * (1 - p) ** (len(own) - len(members)) / b
                found.append((members, chance))
    return found


SCHEMES = [
    sampling.Poisson(0.3),
    sampling.CyclicPoisson(0.4, 3),
    sampling.CyclicPoisson(1.0, 4),
    sampling.CyclicPoisson(0.4, 9),
    sampling.MinSeparation(0.3, 2),
    sampling.MinSeparation(0.7, 4),
    sampling.MinSeparation(0.5, 9),
    sampling.MinSeparation(0.3, 2, warm_start=True),
    sampling.MinSeparation(0.7, 4, warm_start=True),
    sampling.MinSeparation(0.5, 9, warm_start=True),
    sampling.BallsInBins(3),
    sampling.RandomAllocation(3),
    sampling.RandomAllocation(3, 2),
    sampling.RandomAllocation(6, 4),
    sampling.Shuffle(3),
    sampling.Shuffle(),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_laws_of_participation_are_those_of_all_sets(scheme):
    steps = 6
    rates, pairs = np.zeros(steps), np.zeros((steps, steps))
    numbers = np.zeros(steps + 1)
    for members, chance in sets_of(scheme, steps):
        mark = np.zeros(steps)
        mark[list(members)] = 1
        rates += chance * mark
        pairs += chance * np.outer(mark, mark)
        numbers[int(mark.sum())] += chance
    found = scheme.law(steps)
    different = ~np.eye(steps, dtype=bool)
    np.testing.assert_allclose(found.rates / found.share, rates, atol=1e-12)
    np.testing.assert_allclose(found.pairs[different] / found.share, pairs[different], atol=1e-12)
    np.testing.assert_allclose(found.numbers, numbers, atol=1e-12)


@pytest.mark.parametrize("decoder", ["online", "honaker"])
@pytest.mark.parametrize("steps", [1, 5, 8])
def test_trees_become_white(steps, decoder):
    tree = strategies.binary_tree(steps)
    noise = decoder_matrix(tree, decoder)
    white = whitener(tree, 2.0, decoder)
    np.testing.assert_allclose(white @ (4 * noise @ noise.T) @ white.T, np.eye(steps), atol=1e-10)


@pytest.mark.parametrize(
    "strategy",
    [strategies.optimal(5), strategies.blt(5, 2), strategies.banded_inverse(5, 2)],
    ids=repr,
)
def test_square_encoders_become_white(strategy):
    noise = np.linalg.inv(strategy.to_dense())
    white = whitener(strategy, 2.0, None)
    np.testing.assert_allclose(white @ (4 * noise @ noise.T) @ white.T, np.eye(5), atol=1e-10)


CHAINED = (strategies.banded_toeplitz(13, 2), sampling.Poisson(0.2))


@pytest.mark.parametrize(
    ("strategy", "scheme"),
    [
        (strategies.binary_tree(5), sampling.Poisson(0.3)),
        (strategies.continual_counting(6), sampling.BallsInBins(3)),
        (strategies.continual_counting(6), sampling.MinSeparation(0.3, 2)),
        (strategies.continual_counting(6), sampling.MinSeparation(0.3, 2, warm_start=True)),
        (CHAINED[0], sampling.MinSeparation(0.2, 3, warm_start=True)),
        (strategies.blt(6, 2), sampling.Shuffle(3)),
        (strategies.blt(6, 2), sampling.RandomAllocation(3, 2)),
        CHAINED,
    ],
    ids=repr,
)
def test_the_statistic_is_the_likelihood_ratio(strategy, scheme):
    """Densities of the releases themselves, summed over all sets."""
    steps, sigma = strategy.steps, 1.5
    noise = sigma * decoder_matrix(strategy)
    covariance = noise @ noise.T
    generator = np.random.default_rng(1)
    releases = generator.normal(size=(4, steps)) @ np.linalg.cholesky(covariance).T
    releases += generator.random(steps) < 0.5
    flat = multivariate_normal(np.zeros(steps), covariance)
    expected = np.zeros(len(releases))
    for members, chance in sets_of(scheme, steps):
        mark = np.zeros(steps)
        mark[list(members)] = 1
        expected += chance * np.exp(flat.logpdf(releases - mark) - flat.logpdf(releases))
    white = whitener(strategy, sigma, None)
    ratio = likelihood_ratio(strategy, scheme, sigma, 0, white, generator)
    np.testing.assert_allclose(ratio.logs(releases @ white.T), np.log(expected), atol=1e-7)
    assert ("chain" in ratio.description) == (strategy is CHAINED[0])


def test_the_statistic_knows_the_group():
    """Group 1 of 2 takes part in odd steps only."""
    strategy, scheme = strategies.continual_counting(4), sampling.CyclicPoisson(0.5, 2)
    white = whitener(strategy, 1.0, None)
    generator = np.random.default_rng(2)
    ratio = likelihood_ratio(strategy, scheme, 1.0, 1, white, generator)
    releases = generator.normal(size=(3, 4))
    expected = np.zeros(3)
    for first, second in product((0, 1), repeat=2):
        shift = white @ np.array([0, first, 0, second])
        expected += np.exp(releases @ white.T @ shift - shift @ shift / 2) / 4
    np.testing.assert_allclose(ratio.logs(releases @ white.T), np.log(expected), atol=1e-10)


@pytest.mark.parametrize("chance", [0.0, 1e-3, 0.02, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("runs", [5, 200])
def test_clopper_and_pearson_cover(chance, runs):
    """Over all outcomes, each with its probability."""
    hits = np.arange(runs + 1)
    probabilities = binom.pmf(hits, runs, chance)
    error = 0.01
    above = smallest_chance(hits, runs, error) > chance
    below = largest_chance(hits, runs, error) < chance
    assert probabilities[above].sum() <= error
    assert probabilities[below].sum() <= error


def test_clopper_and_pearson_are_not_wasteful():
    """The bounds for 3 of 20: where the tail of the binomial law is the error exactly."""
    low, high = (bound(np.array([3]), 20, 0.025)[0] for bound in (smallest_chance, largest_chance))
    assert binom.sf(2, 20, low) == pytest.approx(0.025, rel=1e-9)
    assert binom.cdf(3, 20, high) == pytest.approx(0.025, rel=1e-9)


def test_the_bound_holds_as_often_as_it_says():
    """A single answer that is randomised: epsilon is log 3 exactly, and the statistic is coarse."""
    generator = np.random.default_rng(3)

    def bits(chance, runs):
        return (generator.random(runs) < chance).astype(float)

    above = 0
    for _ in range(2000):
        tuning = bits(0.75, 300), bits(0.25, 300)
        judged = bits(0.75, 900), bits(0.25, 900)
        found = lower_bounds(tuning, judged, 0.0, 0.8)
        above += found.epsilon > math.log(3)
    assert above / 2000 <= 0.2
    assert found.remove > 0.8
    assert found.add > 0.8


def test_delta_lowers_the_bound():
    """With delta 0.5, a set of probability one against one half shows nothing."""
    ones, halves = np.ones(1000), np.tile([0.0, 1.0], 500)
    sides = lower_bounds((ones, halves), (ones, halves), 0.5, 0.99)
    assert sides.remove == 0.0
    assert sides.add == 0.0
    assert lower_bounds((ones, halves), (ones, halves), 1e-6, 0.99).remove > 0.5


MISLEADING = [0.6, 1.0, 0.6, 0.05, 0.6, 0.05]
"""Group 0 has the longer sum of columns, group 1 the longest column."""


@pytest.mark.parametrize(
    ("diagonal", "probability", "sigma"),
    [
        ([0.1, 1.0, 0.1, 1.0], 1.0, 1.0),
        ([0.1, 1.0, 0.1, 1.0], 0.5, 1.0),
        ([1.0, 0.1, 1.0, 0.1], 0.5, 1.0),
        (MISLEADING, 1.0, 0.3),
        (MISLEADING, 0.1, 0.3),
    ],
)
@pytest.mark.parametrize("named", [None, 0, 1])
def test_the_group_is_the_worst_one(diagonal, probability, sigma, named):
    """Truth: the steps of a group are a mechanism of their own, and its epsilon is certified."""
    truths = [
        mmcc.epsilon(
            strategies.dense(np.diag(diagonal[group::2])),
            sampling.Poisson(probability),
            sigma=sigma,
            delta=1e-2,
        ).epsilon
        for group in (0, 1)
    ]
    strategy, scheme = strategies.dense(np.diag(diagonal)), sampling.CyclicPoisson(probability, 2)
    white = whitener(strategy, sigma, None)
    for seed in range(3):
        generator = np.random.default_rng(seed)
        found = worst_group(strategy, scheme, sigma, 1e-2, white, named, generator)
        assert found == np.argmax(truths)


def test_the_named_group_is_tried_among_many():
    """Twenty groups, of which the worst has the shortest sum of columns but one long column."""
    diagonal = np.full(60, 0.6)
    diagonal[[17, 37, 57]] = 0.99, 0.01, 0.01
    strategy, scheme = strategies.dense(np.diag(diagonal)), sampling.CyclicPoisson(0.1, 20)
    white, generator = whitener(strategy, 0.3, None), np.random.default_rng(1)
    assert worst_group(strategy, scheme, 0.3, 1e-2, white, 17, generator) == 17


@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_the_first_group_of_a_toeplitz_strategy_is_the_worst(probability):
    """Its columns are those of any later group with more below them."""
    scheme, generator = sampling.CyclicPoisson(probability, 4), np.random.default_rng(1)
    for strategy in (strategies.banded_toeplitz(14, 4), strategies.blt(14, 2)):
        white = whitener(strategy, 2.0, None)
        assert worst_group(strategy, scheme, 2.0, 1e-3, white, None, generator) == 0


def test_the_group_of_a_tree_is_that_of_its_releases():
    """Truth: the decoder's covariance; everyone takes part in every round."""
    tree, scheme = strategies.binary_tree(14), sampling.CyclicPoisson(1.0, 3)
    noise = decoder_matrix(tree, "online")
    marks = (np.arange(14) % 3 == np.arange(3)[:, None]).astype(float)
    sizes = [mark @ np.linalg.solve(noise @ noise.T, mark) for mark in marks]
    white = whitener(tree, 2.0, "online")
    found = worst_group(tree, scheme, 2.0, 1e-3, white, None, np.random.default_rng(1))
    assert found == np.argmax(sizes)


def test_neighbouring_coordinates_have_an_exact_p_value():
    """Of three coordinates it is uniform as well, which no asymptotic law would give."""
    generator = np.random.default_rng(5)

    def p_value():
        moments = Moments(1)
        moments.add(generator.normal(size=(3, 1)))
        return float(moments.between_neighbours()[0])

    assert kstest([p_value() for _ in range(20_000)], "uniform").pvalue > 1e-6


def of_streams(values):
    """What the law says of streams of identity noise, (streams, coordinates, steps)."""
    noise_law = NoiseLaw(values.shape[2], 1.0)
    for index, noise in enumerate(values):
        noise_law.add(noise, noise.astype(np.float64), bool(index % 2))
    return next(f for f in noise_law.findings() if f.name == "repeats of the noise")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_short_repeat_is_seen_and_coincidences_are_not(kind):
    """Ten neighbours again, elsewhere in another stream, among hundreds of equal single values."""
    values = np.random.default_rng(6).normal(size=(40, 4000, 2)).astype(kind)
    single = np.sort(values[:, :, 1].ravel())
    assert (np.sum(single[1:] == single[:-1]) > 100) == (kind is np.float32)
    assert of_streams(values).p_value == 1.0
    values[9, 1003:1013, 1] = values[4, 200:210, 1]
    found = of_streams(values)
    assert found.p_value < 1e-9
    assert "the same as another" in found.seen


def test_coincidences_are_no_repeats_over_many_seeds():
    generator = np.random.default_rng(7)
    for _ in range(50):
        values = generator.normal(size=(4, 5000, 2)).astype(np.float32)
        assert of_streams(values).p_value == 1.0


def test_an_audit_needs_no_torch():
    code = "import mmcc.audit, sys; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
