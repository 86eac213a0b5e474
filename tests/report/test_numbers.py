"""Claim: what a report prints is what the accounting proved, rounded to the safe side."""

from __future__ import annotations

import itertools
import math
import re
import time
import unicodedata
from fractions import Fraction

import mpmath
import pytest
from cases.ledgers import gaussian_delta
from cases.reports import Page, small
from scipy.stats import norm

import mmcc
from mmcc import MmccError, report, strategies
from mmcc.report._epsilon_curve import dots_around
from mmcc.report._facts import Claim, Dot
from mmcc.report._related_numbers import attacks, mechanism_digest
from mmcc.sampling import (
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
    Shuffle,
    TruncatedPoisson,
)

NUMBER = r"([0-9.]+(?:e[-+]?[0-9]+)?)"


@pytest.fixture(scope="module")
def noise():
    return small(seconds=None)


def test_the_headline_is_the_certified_epsilon_rounded_up(noise):
    exact = mmcc.bracket(strategies.identity(8), Poisson(1 / 8), sigma=10.0, delta=1e-6)
    for text in (Page(noise.html()).text, noise.markdown()):
        upper = re.findall(rf"ε ≤ {NUMBER}", text)
        assert exact.upper <= float(upper[0]) <= exact.upper * (1 + 1e-3)
        assert re.search(r"δ = (\S+)", text)[1].rstrip(".,*;") in ("10⁻⁶", "1e-06")
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
        raised = rf"{NUMBER}(?: × 10([⁻\d⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"  # noqa: RUF001
        said, power = re.search(rf"true ε of the mechanism at δ = {raised}", text).groups()
        exponent = unicodedata.normalize("NFKC", power or "").replace("\N{MINUS SIGN}", "-")
        assert float(f"{said}e{exponent}" if power else said) == delta


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
    return dots_around(asked, strategies.identity(1), Poisson(1.0))[0]


def test_dots_bracket_the_exact_curve(gaussian):
    assert len(gaussian) == 7
    assert [dot.delta for dot in gaussian] == sorted(dot.delta for dot in gaussian)
    for dot in gaussian:
        assert gaussian_delta(2.0, dot.upper) <= dot.delta * (1 + 1e-9)
        if dot.lower > 0:
            assert gaussian_delta(2.0, dot.lower) >= dot.delta * (1 - 1e-9)


def test_no_time_leaves_the_dot_that_was_asked_for():
    assert [dot.delta for dot in small(seconds=0.0).dots] == [1e-6]


def test_the_report_does_not_depend_on_how_busy_the_machine_is(monkeypatch):
    """By a clock that runs on by an hour at each look: the same page."""
    quick = small(seconds=None)
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(hours))
    monkeypatch.setattr(time, "perf_counter", lambda: next(hours))
    assert small(seconds=None).markdown() == quick.markdown()


def test_a_missing_dot_is_told():
    """A truncated batch is rare, but not so rare as every delta; `tight` has a number there too."""
    scheme = TruncatedPoisson(1 / 8, 52, 200)
    found = small(strategies.identity(8), scheme, seconds=None, delta=1e-6, method="mmcc")
    assert found.missing
    assert len(found.dots) + len(found.missing) == 7
    for text in (Page(found.html()).text, found.markdown()):
        assert text.count("Nothing is certified at δ = ") == len(found.missing)


def test_dots_hold_under_what_the_guarantee_assumes():
    """Under Shuffle the best bound at another delta may be for the 0-1 setting alone."""
    strategy, scheme = strategies.identity(4), Shuffle()
    asked = mmcc.bracket(strategy, scheme, sigma=2.0, delta=1e-5, method="unamplified")
    assert asked.guarantee.setting == ""
    for dot in dots_around(asked, strategy, scheme)[0]:
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


# ---------------------------------------------------------------- beside the number


def test_what_stands_beside_the_number_is_what_the_library_says():
    tree, scheme, asked = strategies.binary_tree(8), Poisson(1 / 4), {"sigma": 6.0, "delta": 1e-5}
    found = small(tree, scheme, seconds=None, groups=(2,), **asked)
    told = {fact.name: fact.value for fact in found.beside}
    plain = mmcc.epsilon(tree, scheme, method="unamplified", **asked).epsilon
    pair = mmcc.epsilon(tree, scheme, group_size=2, **asked).epsilon
    for name, value in (("Without amplification (no use", plain), ("A group of 2", pair)):
        [text] = [text for known, text in told.items() if known.startswith(name)]
        printed = float(re.search(rf"ε ≤ {NUMBER}", text)[1])
        assert value <= printed <= value * (1 + 1e-3)
    epsilon = mmcc.epsilon(tree, scheme, **asked).epsilon
    noise = mmcc.sigma(strategies.identity(8), scheme, epsilon=epsilon, delta=1e-5).sigma
    [plain_error] = [text for name, text in told.items() if name.startswith("DP-SGD")]
    error = mmcc.utility.rmse(strategies.identity(8), noise)
    assert float(plain_error.split()[0]) == pytest.approx(error, rel=1e-3)
    facts = {fact.name: fact.value for fact in found.facts}
    assert facts["Expected participations of an example"] == "2 (epochs)"
    assert float(facts["Noise multiplier"].split()[0]) == pytest.approx(6.0 / 2.0, rel=1e-3)


@pytest.mark.parametrize("epsilon", [1e-9, 0.3, 2.0, 30.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.2])
def test_no_attack_on_an_epsilon_delta_private_pair_does_better(epsilon, delta):
    """The pair of Kairouz et al., which is as far apart as epsilon and delta allow."""
    with mpmath.workdps(60):
        e, d = mpmath.mpf(epsilon), mpmath.mpf(delta)
        share = mpmath.exp(e) / (1 + mpmath.exp(e))
        ours = [d, (1 - d) * share, (1 - d) * (1 - share), mpmath.mpf(0)]
        theirs = ours[::-1]
        rows = {name: float(value) for name, value, _ in attacks([Dot(delta, 0.0, epsilon)])}
        gap = sum(max(p - q, 0) for p, q in zip(ours, theirs, strict=True))
        assert gap <= rows.pop("advantage")
        for rate, power in zip((0.001, 0.01), rows.values(), strict=True):
            left, caught = mpmath.mpf(rate), mpmath.mpf(0)
            for p, q in zip(ours, theirs, strict=True):  # by falling likelihood ratio
                taken = 1 if q <= left else left / q
                caught, left = caught + taken * p, left - taken * q
            assert caught <= power


def test_one_digest_ties_mechanism_checkpoint_and_ledger():
    tree, scheme = strategies.binary_tree(8), Poisson(1 / 8)
    told = {fact.name: fact.value for fact in small(tree, scheme).facts}
    assert told["Digest of the mechanism"] == mechanism_digest(tree, scheme, 10.0)
    others = (
        (strategies.identity(8), scheme, 10.0),
        (tree, Poisson(1 / 9), 10.0),
        (tree, scheme, 10.000000001),
    )
    assert mechanism_digest(tree, scheme, 10.0) not in {mechanism_digest(*one) for one in others}


def test_what_only_the_author_knows_is_told_or_has_a_place():
    words = {"model": "ward-7b", "commit": "c0ffee", "author": "A. Nurse", "tuning": "Four runs."}
    for text in (small(**words).markdown(), Page(small(**words).html()).text):
        for value in words.values():
            assert value in text
        assert "Which runs there were" not in text
    for text in (small().markdown(), Page(small().html()).text):
        assert "Which runs there were" in text
        assert "signature" in text


@pytest.mark.parametrize("size", [1, 3])
def test_every_sentence_names_the_unit(size):
    """Nobody reads of `one unit`."""
    given = {"unit": "one patient", "group_size": size, "method": "unamplified"}
    found = small(strategies.binary_tree(8), Poisson(1 / 8), **given)
    for text in (found.markdown(), Page(found.html()).text):
        assert "one patient had contributed" in text or size > 1
        assert text.count("one patient") >= 6
        for words in ("one unit", "such unit", "one training example", "the protected unit has"):
            assert words not in text


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        ("1e-06", "10⁻⁶"),
        ("0.001", "10⁻³"),
        ("3.34e-10", "3.34 × 10⁻¹⁰"),  # noqa: RUF001
        ("0.01", "0.01"),
        ("1", "1"),
        ("0", "0"),
    ],
)
def test_a_small_delta_is_a_power_of_ten_with_all_its_digits(number, shown):
    from mmcc.report._pages import _power_of_ten

    assert _power_of_ten(number) == shown


def test_a_page_writes_delta_as_a_paper_does(noise):
    """Text to be run again keeps the exact number."""
    page = Page(noise.html())
    again = page.by_id["command"] + page.by_id["snippet"]
    assert "1e-06" in again
    assert "δ = 1e" not in page.text
