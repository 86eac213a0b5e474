"""Claim: a scheme or a bound that says what cannot be is refused; no number gets smaller."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from cases.samples import first

import mmcc
from extending.all_or_nothing import AllOrNothing
from extending.exactly import Exactly
from mmcc import accounting, sampling, strategies
from mmcc.accounting import Answer, LowerEnd
from mmcc.errors import MethodError, MmccError

ASKED = {"sigma": 1.0, "delta": 1e-5}
STRATEGIES = (
    strategies.identity(6),
    strategies.binary_tree(6),
    strategies.toeplitz([1, 0.5], 6),
    strategies.dense(strategies.binary_tree(6).to_dense()),
)


@dataclass(frozen=True)
class Claims(Exactly):
    """Says about itself what it is given."""

    facts: tuple = ()

    def _fact(self, name, otherwise):
        return dict(self.facts).get(name, otherwise)

    def rounds(self, steps):
        made = self._fact("rounds", None)
        return None if made is None else sampling.Rounds(*made)

    def positions(self, steps):
        return self._fact("positions", None)

    def chance(self, steps):
        return self._fact("chance", 1.0)

    def sensitivity(self, strategy):
        return self._fact("sensitivity", super().sensitivity(strategy))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize(
    "facts",
    [
        {"positions": 4},  # a last epoch that is cut off
        {"positions": 0},
        {"positions": -1},
        {"positions": 7},
        {"positions": 2.0},
        {"rounds": (0.3, 0)},
        {"rounds": (0.3, 7)},
        {"rounds": (0.0, 1)},
        {"rounds": (1.5, 1)},
        {"rounds": (math.nan, 1)},
        {"positions": 3, "chance": -1.0},
        {"positions": 3, "chance": math.nan},
        {"positions": 3, "chance": 1.5},
        {"positions": 3, "sensitivity": math.nan},
        {"positions": 3, "sensitivity": -1.0},
        {"positions": 3, "sensitivity": 0.0},
    ],
    ids=str,
)
def test_facts_that_cannot_be_are_refused(facts, strategy):
    scheme = Claims(1, tuple(facts.items()))
    for ask in (
        lambda: mmcc.epsilon(strategy, scheme, **ASKED),
        lambda: mmcc.delta(strategy, scheme, sigma=1.0, epsilon=0.1),
        lambda: mmcc.sigma(strategy, scheme, epsilon=1.0, delta=1e-5),
    ):
        with pytest.raises(MmccError):
            ask()


class Says(AllOrNothing):
    """Answers what it is given."""

    name = "says"

    def __init__(self, remove, add):
        self.answer = Answer(remove, add)

    def refusal(self, problem):
        return None

    def epsilon(self, problem, delta):
        return self.answer

    def delta(self, problem, epsilon):
        return self.answer


@pytest.mark.parametrize(
    ("remove", "add"),
    first([(0.1, math.nan), (math.nan, 0.1), (-1.0, 0.1), (0.1, -1.0), (math.nan, math.nan)], 2),
)
def test_answers_that_promise_nothing_are_not_taken(remove, add):
    mechanism = strategies.identity(4), sampling.BallsInBins(2)
    without = mmcc.epsilon(*mechanism, **ASKED).epsilon
    noise = mmcc.sigma(*mechanism, epsilon=1.0, delta=1e-5).sigma
    ours = Says(remove, add)
    accounting.register(ours)
    try:
        assert mmcc.epsilon(*mechanism, **ASKED).epsilon == without
        assert mmcc.sigma(*mechanism, epsilon=1.0, delta=1e-5).sigma == noise
        for ask in (
            lambda: mmcc.epsilon(*mechanism, method=ours.name, **ASKED),
            lambda: mmcc.delta(*mechanism, method=ours.name, sigma=1.0, epsilon=1.0),
            lambda: mmcc.sigma(*mechanism, method=ours.name, epsilon=1.0, delta=1e-5),
        ):
            with pytest.raises(MmccError):
                ask()
    finally:
        accounting.unregister(ours)


class OnlyRounds(AllOrNothing):
    """Knows only mechanisms with rounds, and a lower end that is wrong for others."""

    name = "only rounds"

    def refusal(self, problem):
        return None if problem.rounds is not None else "it is for rounds."

    def lower_epsilon(self, problem, delta):
        return LowerEnd(100 * problem.rounds.probability)


def test_a_bound_that_refuses_is_not_asked_for_lower_ends():
    mechanism = strategies.identity(4), sampling.BallsInBins(2)
    before = mmcc.bracket(*mechanism, **ASKED)
    ours = OnlyRounds()
    accounting.register(ours)
    try:
        after = mmcc.bracket(*mechanism, **ASKED)
    finally:
        accounting.unregister(ours)
    assert (after.lower, after.upper) == (before.lower, before.upper)


def test_names_of_bounds_are_their_own():
    for name in ("tight", "", None):
        ours = Says(0.1, 0.1)
        ours.name = name
        with pytest.raises(MethodError, match="a name of its own"):
            accounting.register(ours)
    with pytest.raises(MethodError, match="not registered"):
        accounting.unregister(Says(0.1, 0.1))


@pytest.mark.parametrize("kind", [sampling.Poisson, sampling.BallsInBins, sampling.Shuffle])
def test_a_scheme_that_is_proven_cannot_be_given_other_draws(kind):
    with pytest.raises(TypeError, match="whatever it draws"):
        type("Other", (kind,), {"draw": Exactly.draw})


class HalfPlain(Says):
    """Makes no use of sampling, and is good for one adjacency only."""

    name = "half plain"
    amplified = False


def test_a_promise_that_rests_on_two_bounds_has_the_setting_of_both():
    tree, shuffled = strategies.binary_tree(8), sampling.Shuffle()
    both = mmcc.epsilon(tree, shuffled, sigma=4.0, delta=1e-5)
    assert both.details["add"] < both.details["remove"]
    ours = HalfPlain(0.9 * both.epsilon, 50.0)
    accounting.register(ours)
    try:
        found = mmcc.epsilon(tree, shuffled, sigma=4.0, delta=1e-5)
    finally:
        accounting.unregister(ours)
    assert found.epsilon < both.epsilon  # the remove side is ours, the add side needs the setting
    assert found.setting == both.setting
    assert not found.adaptive
