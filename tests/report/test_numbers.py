"""Claim: what a report prints is what the accounting proved, rounded to the safe side."""

from __future__ import annotations

import itertools
import math
import re
import time
from fractions import Fraction

import mpmath
import pytest
from cases.ledgers import gaussian_delta
from cases.reports import Page, small
from scipy.stats import norm

import mmcc
from mmcc import MmccError, report, strategies
from mmcc.report._epsilon_curve import bound_between, dots_around
from mmcc.report._facts import Claim, Dot
from mmcc.sampling import (
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
    Shuffle,
)

NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"


@pytest.fixture(scope="module")
def noise():
    return small(seconds=1e6)


def test_the_headline_is_the_certified_epsilon_rounded_up(noise):
    exact = mmcc.bracket(strategies.identity(8), Poisson(1 / 8), sigma=10.0, delta=1e-6)
    for text in (Page(noise.html()).text, noise.markdown()):
        upper = re.findall(rf"ε ≤ {NUMBER}", text)
        assert exact.upper <= float(upper[0]) <= exact.upper * (1 + 1e-3)
        assert re.search(rf"δ = {NUMBER}", text)[1] == "1e-06"
    lower = re.search(rf"{NUMBER}: no method can prove less", Page(noise.html()).text)[1]
    assert exact.lower * (1 - 1e-3) <= float(lower) <= exact.lower


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.1234567891, 1 / 3, 4.0, 123.456])
@pytest.mark.parametrize("delta", [1e-6, 1 / 3e6, 0.1])
def test_printed_numbers_are_never_smaller_than_what_they_bound(epsilon, delta):
    claim = Claim("all", epsilon, delta, lower=epsilon * 0.97)
    assert float(claim.shown[0]) >= epsilon  # as floats: 0.1 is printed for the float 0.1
    assert float(claim.shown[1]) >= delta
    assert float(claim.factor) >= float(mpmath.exp(epsilon))
    if claim.lower:
        assert float(claim.shown_lower) <= claim.lower
        assert Fraction(claim.ratio) * Fraction(claim.lower) >= Fraction(epsilon)
    dot = Dot(delta, epsilon * 0.97, epsilon)
    assert float(dot.shown[0]) == delta  # a lower end holds at this delta, not at a larger one
    assert float(dot.shown[1]) >= epsilon
    assert not dot.lower or float(dot.shown[2]) <= dot.lower


def test_a_lower_end_stands_at_the_delta_it_was_certified_for():
    delta = 1e-5 / 3
    found = small(delta=delta, seconds=0.0)
    for text in (Page(found.html()).text, found.markdown()):
        said = re.search(rf"true ε of the mechanism at δ = {NUMBER}", text)[1]
        assert float(said) == delta


def test_an_epsilon_too_large_for_a_factor_has_none():
    assert Claim("all", 800.0, 1e-6).factor == ""
    assert Claim("all", 800.0, 1e-6).guess == "100"


@pytest.mark.parametrize("ratio", [0.05, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 9.0])
def test_nobody_guesses_better_than_the_report_says(ratio, epsilon):
    """N(ratio, 1) against N(0, 1): the best guess is right with chance Phi(ratio / 2)."""
    claim = Claim("all", epsilon, gaussian_delta(ratio, epsilon))
    assert float(claim.guess) / 100 >= norm.cdf(ratio / 2)
    assert float(claim.guess) <= 100


def test_the_guess_is_sharp_for_randomised_response():
    """With no delta, the better of two answers is given with chance e^eps / (1 + e^eps)."""
    assert float(Claim("all", math.log(3), 0.0).guess) == pytest.approx(75.0, abs=2e-2)


# ---------------------------------------------------------------- the curve


@pytest.fixture(scope="module")
def gaussian():
    """One step in which everybody takes part: the Gaussian mechanism, known exactly."""
    asked = mmcc.bracket(strategies.identity(1), Poisson(1.0), sigma=0.5, delta=1e-5)
    return dots_around(asked, strategies.identity(1), Poisson(1.0), seconds=1e6)


def test_dots_bracket_the_exact_curve(gaussian):
    assert len(gaussian) == 9
    assert [dot.delta for dot in gaussian] == sorted(dot.delta for dot in gaussian)
    for dot in gaussian:
        assert gaussian_delta(2.0, dot.upper) <= dot.delta * (1 + 1e-9)
        if dot.lower > 0:
            assert gaussian_delta(2.0, dot.lower) >= dot.delta * (1 - 1e-9)


def test_the_line_between_dots_is_above_the_exact_curve(gaussian):
    epsilons, deltas = bound_between(gaussian)
    assert epsilons.size > 100
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        assert gaussian_delta(2.0, epsilon) <= delta * (1 + 1e-9)
    assert deltas.min() == pytest.approx(gaussian[0].delta)
    assert deltas.max() == pytest.approx(gaussian[-1].delta)


def test_the_line_is_the_chord_in_the_exponential():
    epsilons, deltas = bound_between([Dot(1e-6, 0.0, 3.0), Dot(1e-2, 0.0, 1.0)], points=5)
    for epsilon, delta in zip(epsilons, deltas, strict=True):
        share = (math.exp(epsilon) - math.e) / (math.exp(3) - math.e)
        assert delta == pytest.approx(1e-2 + (1e-6 - 1e-2) * share, rel=1e-9)


def test_equal_epsilons_and_a_single_dot_make_no_line_that_promises_too_much():
    epsilons, deltas = bound_between([Dot(1e-6, 0.0, 0.0), Dot(1e-5, 0.0, 0.0)])
    assert epsilons.size == deltas.size == 0


def test_no_time_leaves_the_dot_that_was_asked_for():
    assert [dot.delta for dot in small(seconds=0.0).dots] == [1e-6]


def test_no_question_is_begun_that_would_take_longer_than_is_left():
    """The first of them by the time of the headline."""
    strategy, scheme = strategies.identity(8), Poisson(1 / 8)
    asked = mmcc.bracket(strategy, scheme, sigma=10.0, delta=1e-6)
    assert len(dots_around(asked, strategy, scheme, seconds=1e3, took=1e4)) == 1
    assert len(dots_around(asked, strategy, scheme, seconds=1e4, took=1e3)) > 1


def test_the_time_of_the_headline_is_what_it_took(monkeypatch):
    """By a clock that runs on by an hour at each look: no dot fits into two."""
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))
    assert len(small(seconds=5000.0).dots) == 1


def test_dots_hold_under_what_the_guarantee_assumes():
    """Under Shuffle the best bound at another delta may be for the 0-1 setting alone."""
    strategy, scheme = strategies.identity(4), Shuffle()
    asked = mmcc.bracket(strategy, scheme, sigma=2.0, delta=1e-5, method="unamplified")
    assert asked.guarantee.setting == ""
    for dot in dots_around(asked, strategy, scheme, seconds=1e6):
        assert gaussian_delta(0.5, dot.upper) <= dot.delta * (1 + 1e-9)


# ---------------------------------------------------------------- what is said


def test_amplified_shuffling_is_no_guarantee_for_training():
    found = small(strategies.identity(8), Shuffle(), sigma=1.0)
    assert found.claims[0].reserved
    for text in (Page(found.html()).text, found.markdown()):
        assert "not a guarantee for training" in text
        assert "0-1 setting" in text
    assert "not a guarantee for training" not in small().markdown()


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        (Poisson(0.25), "independently with probability 0.25"),
        (CyclicPoisson(0.5, 4), "split into 4 groups"),
        (BallsInBins(4), "one of 4 positions.*each of the 2 epochs"),
        (RandomAllocation(8), "in each of the 1 epochs of 8 steps.*one random step"),
    ],
    ids=repr,
)
def test_every_scheme_is_said_in_words(scheme, words):
    assert re.search(words, small(scheme=scheme).markdown(), re.DOTALL)


def test_without_amplification_too():
    for scheme, words in (
        (MinSeparation(0.5, 4), "blocks the next 3 steps"),
        (Shuffle(4), "new random order every 4 steps"),
    ):
        text = small(scheme=scheme, method="unamplified").markdown()
        assert words in text
        assert "certified by: unamplified" in text


@pytest.mark.parametrize("scheme", [MinSeparation(0.5, 4), Shuffle(4)], ids=repr)
def test_what_has_no_proof_is_refused_with_the_sentence_of_epsilon(scheme):
    tree = strategies.binary_tree(8)
    with pytest.raises(MmccError) as plain:
        mmcc.epsilon(tree, scheme, sigma=10.0, delta=1e-6)
    with pytest.raises(MmccError) as caught:
        small(tree, scheme)
    assert str(caught.value) == str(plain.value)


@pytest.mark.parametrize(
    "wrong",
    [{"clip_norm": 0.0}, {"clip_norm": "1"}, {"title": 7}, {"unit": "x" * 2000}, {"seconds": -1}],
)
def test_wrong_words_are_refused(wrong):
    with pytest.raises(MmccError):
        small(**wrong)


def test_everything_a_reviewer_needs_is_there(noise):
    text = noise.markdown()
    named = report.of_mechanism(
        strategies.identity(8),
        Poisson(1 / 8),
        sigma=10.0,
        delta=1e-6,
        unit="one patient",
        data="ward 3",
        title="Model 7",
        clip_norm=0.25,
        seconds=0.0,
    ).markdown()
    for words in ("# Model 7", "**one patient**", "ward 3", "| Clip norm | 0.25 |", "| 2.5 (sigma"):
        assert words in named
    for words in ("one training example", "zero-out", "| Steps | 8 |", mmcc.__version__, "numpy"):
        assert words in text
    heads = re.findall(r"^\d+\. \*\*(.*?)\*\*", text, re.MULTILINE)
    assert len(heads) >= 9
    for words in ("Sampling", "clipped", "unit", "else is released", "runs", "Tuning", "floating"):
        assert any(words in head for head in heads), words
