"""Claim: verdicts, rates and families are what they say, whatever the numbers."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from mmcc import sampling
from mmcc.design import Comparison, Row, TunedBlt, family, separations
from mmcc.design import _compare as comparison
from mmcc.design._comparison import CANNOT, LOSES, UNAMPLIFIED, UNKNOWN, WINS
from mmcc.errors import MmccError, SamplingError, StrategyError
from mmcc.sampling._families_at_rate import common_rate, default_words, family_of
from mmcc.strategies._registry import from_word

ROW = Row(
    strategy="some",
    detail="some",
    scheme="poisson",
    sampling="Poisson(probability=0.1)",
    separation=None,
    epsilon=1.0,
    delta=1e-5,
    method="tight",
    verdict=WINS,
    correlated=True,
    sigma=2.0,
    certified=True,
    rmse=9.0,
    max_error=10.0,
    noise_memory=2,
    saving=0.1,
)
BASE = replace(ROW, strategy="DP-SGD", verdict="DP-SGD", correlated=False, rmse=10.0, saving=None)


def table(*rows, epsilons=(1.0,)):
    base = tuple(replace(BASE, epsilon=e) for e in epsilons)
    return Comparison(8, 0.1, 1e-5, "tight", base, rows)


@pytest.mark.parametrize(
    "scheme",
    [
        sampling.Poisson(0.125),
        sampling.CyclicPoisson(0.5, 4),
        sampling.BallsInBins(8),
        sampling.RandomAllocation(8),
        sampling.RandomAllocation(16, 3),
        sampling.Shuffle(8),
        sampling.Shuffle(),
    ],
    ids=repr,
)
def test_the_rate_is_the_share_of_examples_in_a_batch(scheme):
    steps, count = 64, 4000
    generator = np.random.default_rng(5)
    if isinstance(scheme, sampling.CyclicPoisson):
        drawn = [scheme.draw(steps, count, generator, group) for group in range(4)]
    else:
        drawn = [scheme.draw(steps, count, generator)]
    seen = np.concatenate([sets.sizes() for sets in drawn]) / steps
    error = 5 * seen.std() / math.sqrt(len(seen)) + 1e-12
    assert abs(scheme.rate(steps) - seen.mean()) <= error


def test_the_rate_of_a_minimal_separation_is_that_of_late_steps():
    scheme, steps = sampling.MinSeparation(0.2, 5), 400
    sets = scheme.draw(steps, 4000, np.random.default_rng(6))
    late = (sets.steps >= 200).sum() / (200 * 4000)
    assert late == pytest.approx(scheme.rate(steps), rel=0.02)


def test_schemes_of_different_rates_are_refused():
    some = [family_of(sampling.Poisson(0.1)), family_of(sampling.BallsInBins(5))]
    with pytest.raises(SamplingError, match="same rate"):
        common_rate(some, 20)


@pytest.mark.parametrize("wrong", ["poisson", None, [], [sampling.Poisson(0.1), 3]])
def test_other_things_are_no_schemes(wrong):
    with pytest.raises(SamplingError):
        family_of(wrong)


def test_words_are_schemes_of_the_rate():
    for word in default_words(1 / 8, 64):
        for scheme in family(word, 1 / 8, 64).schemes:
            assert scheme.rate(64) == pytest.approx(1 / 8)
            assert scheme.name == word
    assert default_words(0.3, 64) == ("poisson", "cyclic-poisson")
    assert default_words(1.0, 1) == ("poisson", "balls-in-bins")
    assert family("fixed-order", 1 / 8, 64).schemes == (sampling.CyclicPoisson(1, 8),)
    assert family("random-allocation", 1 / 8, 64).schemes == (sampling.RandomAllocation(8),)


@pytest.mark.parametrize("rate", [1 / 49, 0.02, 1 / 3])
def test_a_minimal_separation_has_the_rate(rate):
    for separation in range(1, round(1 / rate) + 1):
        (scheme,) = family(f"min-separation:{separation}", rate, 64).schemes
        assert isinstance(scheme, sampling.MinSeparation)
        assert scheme.separation == separation
        assert common_rate([family_of(scheme), family_of(sampling.Poisson(rate))], 64) > 0
    with pytest.raises(SamplingError, match=f"use min-separation:{separation} or less"):
        family(f"min-separation:{separation + 1}", rate, 64)


@pytest.mark.parametrize(
    ("rate", "steps"), [(1.0, 8), (0.5, 8), (1 / 3, 1), (1e-9, 3), (1e-3, 10**6)]
)
def test_separations_leave_a_chance_below_one(rate, steps):
    found = separations(rate, steps)
    assert all(2 <= b <= steps and b * rate < 1 for b in found)
    assert len(found) <= 25


@pytest.mark.parametrize(
    ("word", "rate", "steps", "what"),
    [
        ("balls-in-bins", 0.3, 10, "whole number"),
        ("balls-in-bins", 0.25, 10, "divides"),
        ("cyclic-poisson", 0.6, 10, "leave cyclic-poisson out"),
        ("poison", 0.25, 8, "did you mean 'poisson'"),
    ],
)
def test_words_that_do_not_fit_say_why(word, rate, steps, what):
    with pytest.raises(SamplingError, match=what):
        family(word, rate, steps)


def test_bands_are_the_first_coefficients():
    made = from_word("continual-counting:3", 9)
    assert made.coefficients.tolist() == [1.0, 0.5, 0.375]
    assert from_word("tuned-blt", 9) == TunedBlt(9)
    assert from_word("blt", 9).steps == 9


@pytest.mark.parametrize(
    "word", ["identty", "banded", "identity:3", "blt:x", "blt:-1", "banded:99", ""]
)
def test_words_that_are_no_strategies(word):
    with pytest.raises(MmccError):
        from_word(word, 9)


@pytest.mark.parametrize(("steps", "rate"), [(1, 1.0), (2, 0.5), (512, 1 / 512), (10**6, 1e-3)])
def test_default_strategies_exist(steps, rate):
    words = comparison.default_words(steps, rate)
    assert "identity" in words
    assert all(from_word(word, steps).steps == steps for word in words)
    with pytest.raises(StrategyError, match="unknown"):
        from_word("nothing", steps)


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, certified=False),
        replace(ROW, reservations=(UNAMPLIFIED,)),
        replace(ROW, reservations=("in the 0-1 setting",)),
        replace(ROW, verdict=LOSES),
        replace(ROW, verdict=CANNOT),
        replace(ROW, verdict=UNKNOWN, reason="a reason"),
        replace(ROW, correlated=False),
    ],
)
def test_only_a_plain_certified_win_of_correlated_noise_counts(row):
    assert table(ROW).crossings[0].epsilon == 1.0
    assert all(crossing.epsilon is None for crossing in table(row).crossings)
    assert not row.wins or not row.correlated
    assert "wins" not in row.text or not row.correlated or not row.certified


def test_the_crossing_is_the_smallest_epsilon_and_names_the_best():
    rows = [
        replace(ROW, epsilon=1.0, verdict=CANNOT),
        replace(ROW, epsilon=2.0, strategy="a", saving=0.1),
        replace(ROW, epsilon=2.0, strategy="b", saving=0.2),
        replace(ROW, epsilon=4.0, strategy="c", saving=0.3),
    ]
    (found,) = table(*rows, epsilons=(1.0, 2.0, 4.0)).crossings
    assert (found.epsilon, found.strategy, found.impossible_below) == (2.0, "b", True)
    rows[0] = replace(rows[0], verdict=LOSES)
    (found,) = table(*rows, epsilons=(1.0, 2.0, 4.0)).crossings
    assert not found.impossible_below


def test_the_best_row_is_certified_and_without_reservations():
    rows = [replace(ROW, rmse=1.0, certified=False), replace(ROW, rmse=2.0, reservations=("x",))]
    assert table(*rows).best(1.0).strategy == "DP-SGD"
    assert table(ROW, *rows).best(1.0) is ROW
    assert table(*rows).best(3.0) is None


def test_print_marks_estimates_and_rounds_savings_down():
    shown = str(table(replace(ROW, certified=False, reservations=("an estimate, not a proof",))))
    assert "~2" in shown
    assert "less error, but an estimate, not a proof" in shown
    assert replace(ROW, saving=0.0999999).text == "wins by 9.9 %"
    assert "~" not in str(table(ROW))


def test_rows_are_frozen():
    with pytest.raises(FrozenInstanceError):
        ROW.sigma = 1.0


def test_a_search_cut_short_says_so():
    assert replace(ROW, reason="time was up.").text == "wins by 10.0 %; time was up"
    assert replace(ROW, verdict=LOSES, reason="time was up.").text == "does not win; time was up"
