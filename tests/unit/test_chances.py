"""Claim: chances are the law of the scheme, column by column, and tilts of it are exact."""

from __future__ import annotations

import numpy as np
import pytest
from cases.chances import LAWS, STEPS, every
from scipy.stats import chi2

from mmcc.errors import SamplingError
from mmcc.sampling import BallsInBins, Chances, MinSeparation, Shuffle, TruncatedPoisson, Unsampled

DRAWS = 20_000


def law_by_columns(chances: Chances, columns: int) -> dict[tuple[int, ...], float]:
    found = {}
    for marks in every(columns):
        state, chance = 0, 1.0
        for column, mark in enumerate(marks):
            p = chances.row(column)[state]
            chance *= p if mark else 1 - p
            state = chances.after[state, mark]
        found[tuple(marks)] = chance
    return found


def as_dict(law) -> dict[tuple[int, ...], float]:
    sets, weights = law
    found: dict[tuple[int, ...], float] = {}
    for marks, weight in zip(sets, weights, strict=True):
        found[tuple(marks)] = found.get(tuple(marks), 0.0) + weight
    return found


@pytest.mark.parametrize("scheme", LAWS, ids=str)
def test_the_automaton_has_the_law_that_is_worked_out_set_by_set(scheme):
    columns = scheme.columns(STEPS)
    truth = as_dict(LAWS[scheme])
    for marks, chance in law_by_columns(scheme.chances(STEPS), columns).items():
        assert chance == pytest.approx(truth.get(marks, 0.0), abs=1e-14)


@pytest.mark.parametrize("scheme", LAWS, ids=str)
def test_the_scheme_draws_whole_sets_by_it(scheme):
    """Chi-square on whole sets, at level 1e-4 each."""
    drawn = scheme.draw(STEPS, DRAWS, np.random.default_rng(5))
    marks = np.zeros((DRAWS, STEPS), np.int64)
    marks[drawn.owners(), drawn.steps] = 1
    marks = marks[:, :: scheme.stride(STEPS)]
    truth = {key: value for key, value in as_dict(LAWS[scheme]).items() if value > 0}
    found, counts = np.unique(marks, axis=0, return_counts=True)
    seen = {tuple(key): count for key, count in zip(found, counts, strict=True)}
    assert set(seen) <= set(truth)
    common = [key for key, value in truth.items() if value * DRAWS >= 5]
    expected = np.array([truth[key] * DRAWS for key in common])
    observed = np.array([seen.get(key, 0) for key in common], float)
    if len(common) < len(truth):
        expected = np.append(expected, DRAWS - expected.sum())
        observed = np.append(observed, DRAWS - observed.sum())
    if len(expected) > 1:
        statistic = np.square(observed - expected) / expected
        assert statistic.sum() <= chi2.isf(1e-4, len(expected) - 1)


@pytest.mark.parametrize("scheme", LAWS, ids=str)
def test_rates_are_those_of_the_law(scheme):
    sets, weights = LAWS[scheme]
    rates = scheme.chances(STEPS).rates(scheme.columns(STEPS))
    np.testing.assert_allclose(rates, weights @ sets, atol=1e-14)


@pytest.mark.parametrize("scheme", LAWS, ids=str)
@pytest.mark.parametrize("size", [0.5, 30.0])
def test_a_tilted_law_is_the_tilt_of_the_law(scheme, size):
    columns = scheme.columns(STEPS)
    weights = size * np.random.default_rng(2).standard_normal(columns)
    log_mean, tilted = scheme.chances(STEPS).tilted(weights)
    sets, law = LAWS[scheme]
    logs = np.log(law) + sets @ weights
    exact = np.logaddexp.reduce(logs)
    assert log_mean == pytest.approx(exact, rel=1e-13, abs=1e-13)
    truth = as_dict((sets, np.exp(logs - exact)))
    for marks, chance in law_by_columns(tilted, columns).items():
        assert chance == pytest.approx(truth.get(marks, 0.0), abs=1e-13)


@pytest.mark.parametrize("scheme", LAWS, ids=str)
def test_what_can_happen_is_known(scheme):
    truth = as_dict(LAWS[scheme])
    marks = every(scheme.columns(STEPS))
    found = scheme.chances(STEPS).possible(marks)
    assert found.tolist() == [truth.get(tuple(row), 0.0) > 0 for row in marks]


def test_a_forecast_is_the_chance_some_columns_ahead():
    chances = MinSeparation(0.3, 3).chances(STEPS)
    ahead = chances.forecast(4)
    np.testing.assert_allclose(ahead[0], chances.rates(4), atol=1e-15)
    np.testing.assert_allclose(ahead[2], [0, 0, 0.3, 0.3 * 0.7], atol=1e-15)


def test_schemes_without_independent_examples_have_none():
    for scheme in (Shuffle(3), TruncatedPoisson(0.1, 3, 10), Unsampled(2, 2)):
        assert scheme.chances(STEPS) is None


def test_automata_that_would_be_large_are_not_offered():
    assert MinSeparation(0.1, 10**7, True).chances(10**7) is None
    assert MinSeparation(0.1, 10**7).chances(10**8) is None
    assert BallsInBins(10**7).chances(10**7) is None


@pytest.mark.parametrize(
    ("probability", "after"),
    [
        ([[1.5]], [[0, 0]]),
        ([[np.nan]], [[0, 0]]),
        ([[0.5]], [[0, 1]]),
        ([[0.5]], [[0, -1]]),
        ([[0.5, 0.5]], [[0, 0]]),
        ([0.5], [[0, 0]]),
        (np.empty((0, 1)), [[0, 0]]),
    ],
)
def test_an_automaton_that_is_none_is_refused(probability, after):
    with pytest.raises(SamplingError, match=r"chances|states"):
        Chances(probability, after)
