"""Claim: brackets of larger mechanisms are brackets, and move the right way.

Up to 400 steps there is no independent truth; but lower <= upper, nothing is NaN, epsilon falls
with delta and with sigma, and delta at the certified epsilon is certified too.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.projection import BracketCase, bracket_case, bracket_of
from cases.samples import first
from oracles.truth import ADJACENCIES

import mmcc
from mmcc import strategies
from mmcc.accounting._bounds.projection.bracket import TOLERANCE, _bound_epsilon, _curve
from mmcc.accounting._bounds.projection.lower import lower_epsilon
from mmcc.strategies import Strategy

QUICK = range(14)
ALL = range(1000)
CHEAP = (4, 1, 2, 7, 162)
"""Seeds of `structured` that take a second or two each: bands, both BLTs and a tree, two cyclic.

In the last one the moments of a two-buffer BLT underflow.
"""
LOOSE = 3e-3
"""How much a different plan (nodes, limits) may change the upper bound in the wrong direction."""


def larger(seed: int, most: int = 200) -> BracketCase:
    return bracket_case(50_000 + seed, fewest=10, most=most)


def chosen_groups(case: BracketCase) -> list[int]:
    """The first and the last group: each is a mechanism of its own."""
    groups = list(case.strategy.groups(min(case.separation, case.strategy.steps)))
    return sorted({groups[0], groups[-1]})


def check_bracket(case: BracketCase) -> None:
    separation = min(case.separation, case.strategy.steps)
    p, delta = case.probability, case.delta
    for group in chosen_groups(case):
        gram = case.strategy.gram(separation, group, case.sigma)
        for adjacency in ADJACENCIES:
            low = lower_epsilon(gram, p, delta, adjacency)
            high = _bound_epsilon(gram, p, delta, adjacency, low, enough=0.0)  # add closely too
            assert not math.isnan(low.value), str(case)
            assert high >= 0, str(case)
            assert low.value <= high, (str(case), adjacency, group, low.value, high)
            if 0 < high < math.inf:
                assert _curve(gram, p, low, adjacency, delta, high).bound_delta(high) >= 0
                if adjacency == "remove" and high <= 1.02 * low.value:  # planned at the lower end
                    used = _curve(gram, p, low, adjacency, delta, low.value)
                    assert used.bound_delta(high) <= delta, (str(case), group)


@pytest.mark.parametrize("seed", first(QUICK, 2))
def test_lower_is_below_upper(seed):
    check_bracket(larger(seed, most=50))


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_lower_is_below_upper_for_every_larger_mechanism(seed):
    check_bracket(larger(1000 + seed))


def check_monotone(case: BracketCase) -> None:
    """One group; a smaller delta and a smaller sigma ask for no smaller epsilon."""
    separation = min(case.separation, case.strategy.steps)
    p = case.probability
    for adjacency in ADJACENCIES:
        for settings in (
            [(case.sigma, case.delta), (case.sigma, case.delta / 3), (case.sigma, case.delta / 10)],
            [(case.sigma, case.delta), (case.sigma / 1.1, case.delta)],
        ):
            lows, highs = [], []
            for sigma, delta in settings:
                gram = case.strategy.gram(separation, 0, sigma)
                low = lower_epsilon(gram, p, delta, adjacency)
                lows.append(max(low.value, 0.0))
                highs.append(_bound_epsilon(gram, p, delta, adjacency, low))
            for values, room in ((lows, 1e-4), (highs, LOOSE)):
                for less, more in itertools.pairwise(values):
                    assert more >= less * (1 - room) - 1e-7, (str(case), adjacency, values)


@pytest.mark.parametrize("seed", first(range(2), 1))
def test_epsilon_falls_with_delta_and_sigma(seed):
    check_monotone(bracket_case(60_000 + seed, fewest=5, most=22))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_epsilon_always_falls_with_delta_and_sigma(seed):
    check_monotone(bracket_case(61_000 + seed, fewest=5, most=120))


@pytest.mark.parametrize("seed", first([8, 3, 11], 1))
def test_delta_falls_with_epsilon_and_brackets_the_target(seed):
    case = bracket_case(62_000 + seed, fewest=5, most=25)
    found = bracket_of(case.strategy, case.scheme, case.sigma)
    epsilon = found.bound_epsilon(case.delta).value
    assert math.isfinite(epsilon)
    last = 1.0
    for factor in (0.5, 0.8, 1.0, 1.25):
        low, high = found.lower_delta(factor * epsilon), found.bound_delta(factor * epsilon)
        for adjacency in ADJACENCIES:
            assert 0 <= getattr(low, adjacency) <= getattr(high, adjacency) <= 1
        assert high.value <= last * (1 + 1e-9)
        last = high.value


@pytest.mark.parametrize("seed", first([4, 25, 16], 2))
def test_public_bracket_is_ordered_and_no_wider_than_the_projection(seed):
    case = bracket_case(63_000 + seed, fewest=5, most=20)
    given = {"sigma": case.sigma, "delta": case.delta}
    bracket = mmcc.bracket(case.strategy, case.scheme, **given)
    alone = mmcc.epsilon(case.strategy, case.scheme, method="projection", **given).epsilon
    assert 0 <= bracket.lower <= bracket.upper <= alone * (1 + 2 * TOLERANCE)


def structured(seed: int) -> BracketCase:
    """20 to 400 steps of bands, BLTs of one and two buffers, and trees; a third is cyclic."""
    rng = np.random.default_rng([seed, 77])
    steps = round(float(np.exp(rng.uniform(np.log(20), np.log(400.49)))))
    shape = ("bands", "one buffer", "two buffers", "tree")[seed % 4]
    strategy = _strategy(rng, shape, steps)
    separation = int(2 ** rng.integers(1, 5)) if rng.random() < 1 / 3 else 1
    p = float(np.exp(rng.uniform(np.log(1 / steps), np.log(0.5))))
    column = strategy.sensitivity(steps)
    sigma = column * float(np.exp(rng.uniform(np.log(0.4), np.log(20))))
    delta = 10 ** rng.uniform(-9, -2)
    return BracketCase(shape, strategy, np.empty((steps, 0)), p, separation, sigma, float(delta))


def _strategy(rng: np.random.Generator, shape: str, steps: int) -> Strategy:
    if shape == "tree":
        return strategies.binary_tree(steps)
    if shape == "bands":
        bands = int(np.exp(rng.uniform(np.log(2), np.log(min(steps, 40)))))
        falling = np.sort(rng.uniform(0, 1, bands))[::-1]
        counting = strategies.continual_counting(bands).coefficients
        return strategies.toeplitz(falling if rng.random() < 0.5 else counting, steps)
    buffers = 1 if shape == "one buffer" else 2
    decay = np.sort(1 - np.exp(rng.uniform(np.log(0.01), np.log(0.6), buffers)))[::-1]
    scale = (1 - decay) * rng.uniform(0.3, 0.9) / buffers + rng.uniform(0, 0.1, buffers)
    scale *= min(1.0, 0.999 / float((scale / decay).sum()))  # more is refused: noise would grow
    return strategies.blt(steps, decay=decay, scale=scale)


def check_public_bracket(case: BracketCase) -> float:
    """Upper over lower; `bracket` raises where they are the wrong way round."""
    found = mmcc.bracket(case.strategy, case.scheme, sigma=case.sigma, delta=case.delta)
    assert 0 <= found.lower <= found.upper < math.inf, str(case)
    return found.upper / found.lower if found.lower > 0 else math.inf


@pytest.mark.parametrize("seed", CHEAP)
def test_public_bracket_of_bands_blts_and_trees_is_ordered(seed):
    check_public_bracket(structured(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL)
def test_public_bracket_is_ordered_for_bands_blts_and_trees(seed):
    check_public_bracket(structured(seed))
