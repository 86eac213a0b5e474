"""Claim: numbers are printed on the safe side, and bounds are asked in the order that is said."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from decimal import Decimal

import numpy as np
import pytest
from oracles import truth

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting import Answer, Bound, Cost, LowerEnd, Problem, _best_bound
from mmcc.accounting._best_bound import (
    Best,
    Budget,
    ask_delta,
    ask_epsilon,
    best_delta,
    best_epsilon,
    best_of,
    bounds_for,
    lower_delta,
    lower_epsilon,
)
from mmcc.accounting._bounds import PLAIN, bound_named, known_bounds, register, unregister
from mmcc.accounting._bounds.base import NOTHING_KNOWN
from mmcc.accounting._bounds.cascade.law import TreeBracket
from mmcc.accounting._bounds.mmcc import independent
from mmcc.accounting._guarantee import (
    Bracket,
    Details,
    Guarantee,
    assumes_more,
    rounded_down,
    rounded_up,
)
from mmcc.errors import MethodError, ParameterError, PrecisionError
from mmcc.strategies._hierarchy import Node

# Print.


@pytest.mark.parametrize(
    "value", [0.0, 1.0, 1 / 3, 2 / 3, 0.1234565, 999999.4, 999999.6, 1e-300 / 3, 7e22 / 3, 1e5]
)
def test_printed_numbers_are_on_the_safe_side_and_near(value):
    up, down = Decimal(rounded_up(value)), Decimal(rounded_down(value))
    assert down <= Decimal(value) <= up
    assert up - down <= Decimal(value) * Decimal("1.0001e-3")
    assert len(up.as_tuple().digits) <= 4
    assert rounded_up(math.inf) == "inf"


GUARANTEE = Guarantee(
    epsilon=1 / 3,
    delta=1e-5,
    sigma=2.0,
    method="tight",
    strategy="C",
    sampling="S",
    adaptive=True,
    bound="some",
)


def test_a_guarantee_says_all_of_it():
    assert str(GUARANTEE) == (
        "(0.3334, 1e-05)-DP, certified by some; sigma 2, C, S, adaptive inputs, zero-out: the "
        "larger of remove and add"
    )
    fixed = dataclasses.replace(GUARANTEE, adaptive=False, setting="the 0-1 setting")
    assert "non-adaptive inputs only" in str(fixed)
    assert str(fixed).endswith(", in the 0-1 setting")
    told = GUARANTEE.to_dict()
    assert told["certified"] is True
    assert json.loads(json.dumps(told)) == told
    facts = {f.name for f in dataclasses.fields(Guarantee)} - {"curve"}  # what answers, no fact
    assert set(told) == facts | {"certified", "noise_multiplier"}


def test_a_bracket_says_both_ends():
    found = Bracket(lower=0.25, guarantee=GUARANTEE)
    assert (found.upper, found.method, found.ratio) == (1 / 3, "some", 1 / 3 / 0.25)
    assert str(found).startswith("epsilon in [0.25, 0.3334], both certified; upper end: (0.33")
    assert found.to_dict()["lower"] == 0.25
    assert found.to_dict()["upper"] == 1 / 3
    assert found.to_dict()["estimate"] is None
    assert Bracket(0.0, GUARANTEE).ratio == math.inf
    assert Bracket(0.0, dataclasses.replace(GUARANTEE, epsilon=0.0)).ratio == 1.0


def test_who_assumes_more_is_known():
    narrow = dataclasses.replace(GUARANTEE, adaptive=False, setting="the 0-1 setting")
    assert not assumes_more(GUARANTEE, GUARANTEE)
    assert not assumes_more(narrow, narrow)
    assert assumes_more(narrow, GUARANTEE)
    assert not assumes_more(GUARANTEE, narrow)
    assert assumes_more(dataclasses.replace(GUARANTEE, adaptive=False), GUARANTEE)
    assert assumes_more(dataclasses.replace(GUARANTEE, adjacency="other"), GUARANTEE)


def test_details_are_computed_when_they_are_looked_at_and_once():
    asked = []
    details = Details({"a": 1}, {"b": lambda: asked.append(1) or 2})
    assert (len(details), list(details), asked) == (2, ["a", "b"], [])
    assert repr(details) == "{'a': 1}"
    assert (details["b"], details["b"], asked) == (2, 2, [1])
    more = details.extended({"a": 3, "c": 4})
    assert dict(more) == {"a": 3, "b": 2, "c": 4}
    assert dict(details) == {"a": 1, "b": 2}
    assert dict(pickle.loads(pickle.dumps(more))) == dict(more)


# Bounds, and the choice among them.


@dataclasses.dataclass(frozen=True)
class Given(Bound):
    """Answers what it is told to, at a cost."""

    name: str = "given"
    at: float = 1.0
    other: float = 0.5
    price: Cost = Cost.FAST
    least: LowerEnd = NOTHING_KNOWN
    fails: type[Exception] | None = None

    def refusal(self, problem):
        return None

    def cost(self, problem):
        return self.price

    def epsilon(self, problem, delta):
        if self.fails:
            raise self.fails("no.")
        return Answer(self.at, self.other)

    def delta(self, problem, epsilon):
        return self.epsilon(problem, epsilon)

    def lower_epsilon(self, problem, delta):
        return self.least

    def lower_delta(self, problem, epsilon):
        return self.least


PROBLEM = Problem(strategies.identity(3), sampling.Poisson(0.9), 2.0)


def test_each_adjacency_takes_its_smallest_number():
    one, other = Given("one", 1.0, 0.9), Given("other", 1.2, 0.7)
    best = best_of([ask_epsilon(b, PROBLEM, 1e-5) for b in (one, other)], 0.3)
    assert (best.remove.remove, best.add.add, best.value, best.lower) == (1.0, 0.7, 1.0, 0.3)
    assert best.bounds == [one, other]
    assert best.winner.bound == one  # it gives both adjacencies
    split = best_of([ask_epsilon(b, PROBLEM, 1e-5) for b in (Given("a", 1.0, 2.0), other)])
    assert split.value == 1.0
    assert split.winner.bound.name == "a"
    tied = Best(Answer(0.5, 3.0, bound=one), Answer(4.0, 0.6, bound=other))
    assert tied.winner.bound == other


@pytest.mark.parametrize(
    ("remove", "add"), [(math.nan, 0.5), (0.5, math.nan), (-0.1, 0.5), (0.5, -1e-9)]
)
def test_what_is_no_number_promises_nothing(remove, add):
    with pytest.raises(PrecisionError, match="promises nothing"):
        ask_epsilon(Given(at=remove, other=add), PROBLEM, 1e-5)
    with pytest.raises(PrecisionError, match="promises nothing"):
        ask_delta(Given(at=remove, other=add), PROBLEM, 1.0)


def test_a_delta_above_one_promises_nothing_and_infinity_is_an_epsilon():
    assert ask_epsilon(Given(at=math.inf), PROBLEM, 1e-5).value == math.inf
    assert ask_delta(Given(at=1.0), PROBLEM, 1.0).value == 1.0
    with pytest.raises(PrecisionError):
        ask_delta(Given(at=1.0 + 1e-9), PROBLEM, 1.0)


@pytest.fixture
def asked_of(monkeypatch):
    """Who is asked, where one more bound is known that has a lower end."""

    def ask(bounds, lower, question=best_epsilon):
        asked = []

        class Heard(Given):
            def cost(self, problem):
                return Cost.SLOW

            def epsilon(self, problem, delta):
                asked.append(self.name)
                return super().epsilon(problem, delta)

        known = Given("known", least=LowerEnd(lower))
        monkeypatch.setattr(_best_bound, "known_bounds", lambda: (known,))
        heard = [Heard(b.name, b.at, b.other, fails=b.fails) for b in bounds]
        return asked, question(PROBLEM, 0.01, heard)

    return ask


def test_bounds_are_asked_until_the_bracket_is_closed(asked_of):
    far, near, last = Given("far", 5.0, 5.0), Given("near", 4.07, 4.0), Given("last", 4.0, 4.0)
    asked, best = asked_of([far, near, last], 4.0)
    assert asked == ["far", "near"]  # within two per cent
    assert (best.value, best.lower) == (4.07, 4.0)
    asked, _ = asked_of([far, dataclasses.replace(near, at=4.09), last], 4.0)
    assert asked == ["far", "near", "last"]
    deltas = [dataclasses.replace(b, at=b.at / 10, other=0.0) for b in (far, near, last)]
    asked, told = asked_of(deltas, 0.38, best_delta)
    assert asked == ["far", "near"]  # within ten per cent
    assert told.value == pytest.approx(0.407)


def test_a_bound_that_fails_is_passed_over_unless_all_do(asked_of):
    fails, near = Given("fails", fails=PrecisionError), Given("near", 3.0, 3.0)
    assert asked_of([fails, near], 0.0)[1].value == 3.0
    with pytest.raises(PrecisionError, match="no"):
        asked_of([fails], 0.0)
    plain = best_epsilon(PROBLEM, 1e-5, [PLAIN, fails])
    assert plain.winner.bound is PLAIN
    with pytest.raises(MethodError, match="no"):
        best_epsilon(PROBLEM, 1e-5, [PLAIN, Given("fails", fails=MethodError)])


def test_the_largest_lower_end_counts_until_one_is_closed(monkeypatch):
    ends = [LowerEnd(7.0), LowerEnd(9.0, closed=True), LowerEnd(11.0)]
    bounds = [Given(str(k), least=end) for k, end in enumerate(ends)]
    monkeypatch.setattr(_best_bound, "known_bounds", lambda: bounds)
    assert lower_epsilon(PROBLEM, 1e-5) == lower_delta(PROBLEM, 1.0) == 9.0
    monkeypatch.setattr(_best_bound, "known_bounds", lambda: bounds[::2])
    assert lower_epsilon(PROBLEM, 1e-5) == lower_delta(PROBLEM, 1.0) == 11.0


def test_bounds_come_in_the_order_of_their_cost_and_some_are_too_dear():
    tree = Problem(strategies.binary_tree(8), sampling.BallsInBins(8), 3.0)
    every = bounds_for(tree)
    costs = [bound.cost(tree) for bound in every]
    assert costs == sorted(costs)
    assert every[0] == PLAIN
    hurried = bounds_for(tree, Budget.SECONDS)
    assert {bound.cost(tree) for bound in hurried} == {Cost.FREE, Cost.FAST}
    certain = Problem(strategies.identity(3), sampling.Poisson(1.0), 3.0)
    assert bounds_for(certain) == [PLAIN]
    with pytest.raises(MethodError, match="no amplification is proven"):
        bounds_for(Problem(strategies.binary_tree(6), sampling.MinSeparation(0.1, 2), 3.0))


def test_bounds_are_registered_once_under_a_name_of_their_own():
    mine = Given("mine")
    before = known_bounds()
    with pytest.raises(MethodError, match="not registered"):
        unregister(mine)
    register(mine)
    try:
        assert known_bounds() == (*before, mine)
        assert bound_named("mine") is mine
        for taken in (mine, Given("unamplified"), Given("tight"), Given("")):
            with pytest.raises(MethodError, match="name"):
                register(taken)
        with pytest.raises(MethodError, match="subclass"):
            register(3)
    finally:
        unregister(mine)
    assert known_bounds() == before
    with pytest.raises(MethodError, match="unknown method 'mine'"):
        bound_named("mine")


def test_next_to_no_noise_leaves_the_plain_bound():
    strategy, scheme = strategies.identity(3), sampling.Poisson(0.5)
    found = mmcc.epsilon(strategy, scheme, sigma=0.99e-4, delta=1e-5)
    assert found.bound == "unamplified"
    with pytest.raises(ParameterError, match="nothing is left to amplify"):
        mmcc.epsilon(strategy, scheme, sigma=0.99e-4, delta=1e-5, method="mmcc")


# Lower bounds by cells, where the grid is coarse, and the cascade's own search.


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
@pytest.mark.parametrize(("p", "a", "count"), [(0.2, 0.7, 3), (0.3, 0.2, 100)])
def test_a_lower_delta_is_below_the_true_one_and_near_it(p, a, count, adjacency):
    for epsilon in (0.0, 0.1, 0.4):
        low, high = truth.composed_subsampled_gaussian_delta(count, a, p, 1.0, epsilon, adjacency)
        found = independent.lower_delta([(a, count)], p, epsilon, adjacency, high)
        assert 0.0 <= found <= high
        if adjacency == "remove":
            assert found >= 0.97 * low
    assert independent.lower_delta([(a, count)], 1.0, 0.1, adjacency, 0.1) == 0.0
    assert independent.lower_delta([(a, count)], p, 0.1, adjacency, 0.0) == 0.0


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
@pytest.mark.parametrize("most", [60, 400])
def test_few_cells_cost_sharpness_and_nothing_else(adjacency, most, monkeypatch):
    monkeypatch.setattr(independent, "MAX_POINTS", most)
    p, a, count, epsilon = 0.2, 0.7, 3, 0.3
    low, high = truth.composed_subsampled_gaussian_delta(count, a, p, 1.0, epsilon, adjacency)
    found = independent.lower_delta([(a, count)], p, epsilon, adjacency, high)
    assert 0.0 < found <= high
    assert adjacency == "add" or found >= 0.8 * low


def test_outputs_are_left_out_where_they_are_a_small_part_of_delta():
    """Above its mean by more than so much, in one of all steps: at most 1e-4 of delta."""
    for share, total, delta in ((0.01, 100, 1e-5), (1.0, 7, 1e-2)):
        reach = independent._short_reach(share, total, delta)
        out = total * share * 0.5 * math.erfc(reach / math.sqrt(2))
        assert out == pytest.approx(1e-4 * delta, rel=1e-6)
    assert independent._short_reach(1e-9, 1, 0.5) == pytest.approx(1.2815515655446004)
    assert independent._short_reach(1.0, 10**9, 1e-200) == independent.REACH


@pytest.mark.parametrize("delta", [0.1, 1e-4, 1e-9])
def test_the_cascade_finds_the_epsilon_of_one_gaussian_from_both_sides(delta):
    cascade = TreeBracket(Node(1.0), 0.6, delta)
    exact = truth.smallest_epsilon(lambda e: truth.gaussian_delta(1.0, 0.6, e), delta)
    upper, lower = cascade.bound_epsilon(delta), cascade.lower_epsilon(delta)
    for side in truth.ADJACENCIES:
        assert exact * (1 - 1e-4) <= getattr(lower, side) <= exact * (1 + 1e-10)
        assert exact <= getattr(upper, side) <= exact * (1 + 1e-4)


def test_the_cascade_knows_no_epsilon_where_there_is_none_and_zero_where_delta_is_large():
    cascade = TreeBracket(Node(1.0), 1.0, 1e-6)
    assert cascade.bound_epsilon(0.9).value == 0.0
    assert cascade.lower_epsilon(0.9).value == 0.0
    assert cascade.bound_epsilon(1e-300).remove == math.inf
    assert cascade.lower_delta(341.0).value == 0.0
    assert cascade.bound_delta(0.0).value <= 1.0
    with pytest.raises(PrecisionError, match="noise is too small"):
        TreeBracket(Node(1.0), 0.03).bound_epsilon(1e-6)
    assert np.isfinite(TreeBracket(Node(1.0), 0.06).bound_epsilon(1e-6).value)
