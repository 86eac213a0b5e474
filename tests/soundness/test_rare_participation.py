"""Claim: where examples rarely take part, no number is below the truth, nor a lower end above it.

Losses are then tiny for nearly all outputs and large for a few: the grid is refined, the lower
bound's grid is moved, and where the chance to take part at all is at most delta, epsilon is 0.
The truth is a closed form in 50 digits, a quadrature, or a bound from one event; no tolerance.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.samples import first, in_turn, sampled
from oracles import truth
from oracles.rare_participation import AXES, Rare, chance, step_delta, tail_delta

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._bounds.mmcc.independent import lower_delta, lower_epsilon

SEVERAL = [
    (100, 1e-6, 0.5, 1e-8),
    (10**5, 1e-7, 0.5, 1e-6),
    (1000, 1e-6, 0.5, 1e-6),
    (10, 1e-4, 0.5, 1e-6),
    (1000, 1e-4, 0.5, 1e-5),
]


METHODS = ("tight", "mmcc")


@pytest.mark.parametrize(("p", "sigma", "part", "method"), sampled(*AXES, METHODS, strength=1))
def test_epsilon_of_one_step(p, sigma, part, method):
    delta = Rare(p, sigma, part).delta
    mechanism = strategies.identity(1), sampling.Poisson(p)
    found = mmcc.bracket(*mechanism, sigma=sigma, delta=delta, method=method)
    for side in truth.ADJACENCIES:
        assert step_delta(p, sigma, found.guarantee.details[side], side) <= delta
    assert step_delta(p, sigma, found.lower) >= delta


@pytest.mark.parametrize(
    ("p", "sigma", "scale", "method"),
    sampled(*AXES[:2], [0.0, 1e-4, 1e-2, 1.0], METHODS, strength=1),
)
def test_delta_of_one_step(p, sigma, scale, method):
    mechanism = strategies.identity(1), sampling.Poisson(p)
    found = mmcc.delta(*mechanism, sigma=sigma, epsilon=scale, method=method)
    for side in truth.ADJACENCIES:
        assert step_delta(p, sigma, scale, side) <= found.details[side]
    assert found.details.get("delta_lower", 0.0) <= step_delta(p, sigma, scale)


@pytest.mark.parametrize(
    ("p", "sigma", "part"), sampled([1e-3, 1e-5], [0.4, 1.0], [0.8, 0.1, 1e-3], strength=1)
)
def test_two_steps(p, sigma, part):
    """Their outputs lie in a plane, where delta is a quadrature with its own error."""

    def exact(epsilon, end):
        sides = (truth.two_row_bracket(np.eye(2), p, sigma, epsilon, s) for s in truth.ADJACENCIES)
        return max(side[end] for side in sides)

    delta = part * exact(0.0, 0)
    mechanism = strategies.identity(2), sampling.Poisson(p)
    found = mmcc.bracket(*mechanism, sigma=sigma, delta=delta, method="mmcc")
    assert exact(found.upper, 0) <= delta <= exact(found.lower, 1)
    again = mmcc.delta(*mechanism, sigma=sigma, epsilon=found.upper, method="mmcc")
    assert exact(found.upper, 0) <= again.delta


@pytest.mark.parametrize(("steps", "p", "sigma", "delta"), first(SEVERAL, 1))
def test_many_steps_show_at_least_whether_an_output_is_large(steps, p, sigma, delta):
    mechanism = strategies.identity(steps), sampling.Poisson(p)
    found = mmcc.epsilon(*mechanism, sigma=sigma, delta=delta)
    assert tail_delta(steps, p, sigma, found.epsilon) <= delta
    again = mmcc.delta(*mechanism, sigma=sigma, epsilon=found.epsilon / 2)
    assert tail_delta(steps, p, sigma, found.epsilon / 2) <= again.delta


@pytest.mark.parametrize(
    ("p", "sigma", "part", "adjacency", "guess"),
    sampled(*AXES, truth.ADJACENCIES, [0.3, 1.0, 30.0], strength=1),
)
def test_lower_ends_hold_whatever_the_guess(p, sigma, part, adjacency, guess):
    delta = Rare(p, sigma, part).delta
    steps = [(1 / sigma, 1)]
    found = lower_epsilon(steps, p, delta, adjacency, guess * 10 * p)
    assert found == 0.0 or step_delta(p, sigma, found, adjacency) >= delta
    at = 3 * p * guess
    below = lower_delta(steps, p, at, adjacency, guess * delta)
    assert below <= step_delta(p, sigma, at, adjacency)


@pytest.mark.parametrize("rounds", [1, 3, 1000, 10**12])
@pytest.mark.parametrize("p", [1e-300, 1e-20, 1e-12, 1e-7, 0.01, 0.3, 1 - 2.0**-53])
def test_the_chance_to_take_part_is_rounded_up(p, rounds):
    most = 10**5 if p < 1e-7 else 1000  # powers in many digits are slow
    rounds = min(rounds, most)
    exact = chance(p, rounds)
    assert exact <= sampling.Poisson(p).chance(rounds) <= 1
    assert exact <= sampling.MinSeparation(p, 3).chance(rounds) <= 1
    assert chance(p, -(-rounds // 7)) <= sampling.CyclicPoisson(p, 7).chance(rounds) <= 1


def test_under_the_other_schemes_everyone_takes_part():
    assert sampling.BallsInBins(4).chance(8) == sampling.Shuffle().chance(8) == 1.0
    assert sampling.Poisson(1.0).chance(8) == 1.0


@pytest.mark.parametrize(
    ("delta", "scheme"),
    in_turn([1e-8, 3.9e-9, 1e-9], [sampling.Poisson(1e-9), sampling.CyclicPoisson(1e-9, 2)]),
)
def test_epsilon_is_zero_only_where_nearly_nobody_takes_part(scheme, delta):
    """With next to no noise delta(0) is the chance to take part."""
    rounds = 4 // scheme.separation
    found = mmcc.epsilon(strategies.identity(4), scheme, sigma=1e-3, delta=delta)
    assert (found.epsilon == 0.0) == (chance(1e-9, rounds) <= delta)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 20.0])
def test_delta_is_at_most_the_chance_and_no_less_than_true(epsilon):
    mechanism = strategies.identity(1), sampling.Poisson(1e-4)
    found = mmcc.delta(*mechanism, sigma=0.01, epsilon=epsilon)
    assert step_delta(1e-4, 0.01, epsilon) <= found.delta <= 1.0001e-4
