"""Claim: listed probabilities are the exact ones within the stated error; nothing is lost."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from mmcc.mixtures import _counts as counts


def exact_binomial(trials: int, probability: float) -> dict[int, Fraction]:
    p = Fraction(probability)
    return {j: math.comb(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(trials + 1)}


def exact_hypergeometric(population: int, marked: int, drawn: int) -> dict[int, Fraction]:
    total = math.comb(population, drawn)
    return {
        j: Fraction(math.comb(marked, j) * math.comb(population - marked, drawn - j), total)
        for j in range(max(0, drawn - population + marked), min(marked, drawn) + 1)
    }


def check(law: counts.CountLaw, exact: dict[int, Fraction], rare: float) -> None:
    left_out = dict(exact)
    for value, prob in zip(law.values, law.probs, strict=True):
        true = left_out.pop(int(value))
        assert (
            true * (1 - Fraction(law.error)) <= Fraction(prob) <= true * (1 + Fraction(law.error))
        )
    assert sum(left_out.values()) <= Fraction(law.beyond)
    assert law.beyond <= 2 * rare


@pytest.mark.parametrize("rare", [1e-18, 1e-100, 1e-250])
@pytest.mark.parametrize(
    ("trials", "probability"),
    [
        (1, 0.01),
        (1, 1.0),
        (1, 5e-324),
        (8, 0.01),
        (8, 1 - 2**-53),
        (64, 0.5),
        (100, 1e-12),
        (200, 0.999),
        (200, 0.3),
    ],
)
def test_binomial(trials, probability, rare):
    check(counts.binomial(trials, probability, rare), exact_binomial(trials, probability), rare)


@pytest.mark.parametrize("rare", [1e-18, 1e-200])
@pytest.mark.parametrize(
    ("population", "marked", "drawn"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (10, 10, 4),
        (10, 4, 10),
        (10, 7, 6),
        (1000, 4, 10),
        (1000, 1, 999),
        (500, 250, 250),
        (10**12, 3, 1000),
    ],
)
def test_hypergeometric(population, marked, drawn, rare):
    law = counts.hypergeometric(population, marked, drawn, rare)
    check(law, exact_hypergeometric(population, marked, drawn), rare)


def test_many_counts_are_merged_upwards():
    """Above every gap between listed values there is at least the true chance."""
    trials = 4000
    law = counts.binomial(trials, 0.5, 1e-18)
    assert law.values.size < trials / 3
    step = law.values[-1] - law.values[-2]
    assert step > 1
    place, choose, tail, found = trials, 1, 0, Fraction(0)
    for value, prob in zip(law.values[::-1], law.probs[::-1], strict=True):
        while place > value - step:
            tail += choose
            choose = choose * place // (trials + 1 - place)
            place -= 1
        found += Fraction(prob)
        listed = found * (1 + Fraction(law.error)) + Fraction(law.beyond)
        assert listed >= Fraction(tail, 2**trials)


def test_a_law_that_is_too_wide_is_refused():
    with pytest.raises(ValueError, match="smaller group"):
        counts.binomial(10**15, 0.5, 1e-18)
