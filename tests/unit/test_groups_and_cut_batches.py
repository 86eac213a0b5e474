"""Claim: the group lemma and bounds for cut batches pay for what they assume, and no more.

Truth: the lemma by its formula in many digits, and by the best of many splits of delta; all batches
of a small data set, integrated in a plane; binomial tails by summing.
"""

from __future__ import annotations

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from oracles import truth
from oracles.groups import count_components
from oracles.scalar import scalar_delta, scalar_epsilon
from oracles.whole_data_sets import step_law
from scipy.optimize import brentq

from mmcc import sampling, strategies
from mmcc.accounting import Problem
from mmcc.accounting._bounds import PLAIN, ByCounts, ByRelaxation, GroupLemma, Mmcc
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.accounting._group_lemma import (
    bound_by_even_links,
    bound_by_links,
    bound_group_delta,
    bound_group_epsilon,
)
from mmcc.errors import NothingCertifiedError, PrecisionError

P, SIGMA = 0.15, 2.0
"""One subsampled Gaussian: what the lemma knows of one example."""


@cache
def epsilon_of_one(delta: float) -> float:
    return scalar_epsilon([0.0, 1.0], [1 - P, P], SIGMA, delta)[0]


@cache
def delta_of_one(epsilon: float) -> float:
    return max(
        scalar_delta([0.0, 1.0], [1 - P, P], SIGMA, epsilon, side) for side in truth.ADJACENCIES
    )


def even_links(group: int, delta: float) -> float:
    """The smallest k e with d (e^(k e) - 1) / (e^e - 1) <= delta."""

    def excess(each: float) -> float:
        grown = math.expm1(group * each) / math.expm1(each)
        return math.log(max(delta_of_one(each), 1e-300) * grown / delta)

    return group * brentq(excess, 1e-6, 5.0, xtol=1e-13)


def best_split(delta: float) -> float:
    """The smallest e_1 + e_2 with d_1 + e^(e_1) d_2 = delta, over many d_1."""
    found = []
    for share in np.linspace(0.3, 0.98, 35):
        first = epsilon_of_one(float(share * delta))
        found.append(first + epsilon_of_one(float((1 - share) * delta * math.exp(-first))))
    return min(found)


@pytest.mark.parametrize("group", [2, 3, 5])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_equal_links_follow_the_formula(group, delta):
    exact = even_links(group, delta)
    found = bound_by_even_links(epsilon_of_one, group, delta)
    assert exact <= found <= exact * (1 + 1e-3)
    assert bound_group_epsilon(epsilon_of_one, group, delta) <= found


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_two_unequal_links_are_as_good_as_any_split_and_no_better(delta):
    found = bound_by_links(epsilon_of_one, 2, delta)
    assert best_split(delta) * (1 - 1e-3) <= found <= best_split(delta) * (1 + 5e-3)
    assert bound_by_links(epsilon_of_one, 1, delta) == epsilon_of_one(delta)
    assert bound_by_even_links(epsilon_of_one, 1, delta) == epsilon_of_one(delta)


@pytest.mark.parametrize("group", [2, 3])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_delta_of_a_group_follows_the_formula(group, epsilon):
    one, each = delta_of_one(epsilon / group), mpmath.mpf(epsilon) / group
    with mpmath.workdps(50):
        exact = mpmath.fsum(mpmath.exp(j * each) for j in range(group)) * one
    found = bound_group_delta(lambda at: one, group, epsilon)
    assert min(exact, 1) <= found <= min(exact, 1) * (1 + 1e-9)
    # Asked at no larger epsilon than that of a link.
    asked = []
    bound_group_delta(lambda at: asked.append(at) or 0.5, group, epsilon)
    assert epsilon / group * (1 - 1e-9) <= asked[0] <= epsilon / group


def test_a_link_without_a_certificate_certifies_nothing():
    def refuses(delta):
        raise PrecisionError("too small")

    def only_large(delta):
        return epsilon_of_one(delta) if delta > 1e-4 else math.inf

    assert bound_group_epsilon(refuses, 3, 1e-5) == math.inf
    assert bound_group_epsilon(lambda delta: math.inf, 2, 1e-5) == math.inf
    assert bound_group_epsilon(only_large, 2, 1e-4) == math.inf
    assert bound_group_epsilon(epsilon_of_one, 2, 1e-280) == math.inf
    assert bound_group_epsilon(only_large, 2, 1e-2) >= best_split(1e-2) * (1 - 1e-3)


@pytest.mark.parametrize("bounds", [(Mmcc(),), (PLAIN, Mmcc())], ids=["one", "two"])
@pytest.mark.parametrize("group", [2, 3])
def test_the_lemma_holds_for_groups_and_asks_the_best_bound(group, bounds):
    """Between the truth for the group and the formula for one bound."""
    lemma = GroupLemma(bounds)
    problem = Problem(strategies.identity(1), sampling.Poisson(P), SIGMA, group_size=group)
    assert lemma.refusal(problem) is None
    components, weights = count_components(np.eye(1), [group], P, SIGMA)
    for delta in (1e-2, 1e-6):
        found = lemma.epsilon(problem, delta)
        assert found.remove == found.add <= even_links(group, delta) * (1 + 2e-3)
        assert found.value >= 0.9 * even_links(group, delta)
        for side in truth.ADJACENCIES:
            assert scalar_delta(components[:, 0], weights, 1.0, found.value, side) <= delta
    for epsilon in (0.3, 2.0):
        found = lemma.delta(problem, epsilon)
        exact = delta_of_one(epsilon / group) * sum(
            math.exp(epsilon / group * j) for j in range(group)
        )
        assert found.remove == found.add
        assert exact * (1 - 1e-9) <= found.value <= exact * (1 + 1e-2)
        for side in truth.ADJACENCIES:
            assert found.value >= scalar_delta(components[:, 0], weights, 1.0, epsilon, side)
    assert dict(lemma.details(problem, found, 1e-6))["links"] == group


def test_the_lemma_says_why_it_does_not_apply():
    lemma, strategy = GroupLemma((Mmcc(),)), strategies.identity(2)
    one = Problem(strategy, sampling.Poisson(P), SIGMA)
    two = Problem(strategy, sampling.Poisson(P), SIGMA, group_size=2)
    assert "one example" in lemma.refusal(one)
    assert "needs a certificate" in GroupLemma().refusal(two)
    assert lemma.refusal(two) is None


# ------------------------------------------------------------------------------------ cut batches

STEPS = 2
ROOM = 1.06
"""The binomial tail is bounded, not summed."""


@cache
def poisson_delta(
    p: float, sigma: float, epsilon: float, side: str, group: int = 1
) -> tuple[float, float]:
    """The same two steps if no batch is ever cut."""
    components, weights = count_components(np.eye(STEPS), [group] * STEPS, p, sigma)
    return truth.plane_bracket(components, np.log(weights), epsilon, side)


@cache
def cut_delta(
    contributions: tuple[int, ...], p: float, most: int, sigma: float, epsilon: float, side: str
) -> float:
    """Of two steps without correlation, when the first contribution becomes zero."""
    places = np.arange(-10.0, 10.0, 0.04) / sigma
    sums = np.arange(-len(contributions), len(contributions) + 1) / sigma
    peaks = np.exp(-((places[:, None] - sums) ** 2) / 2) / math.sqrt(2 * math.pi)
    present = peaks @ step_law(contributions, p, most)
    absent = peaks @ step_law((0, *contributions[1:]), p, most)
    first, second = (present, absent) if side == "remove" else (absent, present)
    excess = np.outer(first, first) - math.exp(epsilon) * np.outer(second, second)
    return float(np.maximum(excess, 0).sum()) * (places[1] - places[0]) ** 2


def chance_of_a_cut(p: float, most: int, examples: int, members: int = 1) -> float:
    """At least that a member's coin comes up in a step with too many other coins."""
    others = examples - members
    too_many = sum(
        math.comb(others, k) * p**k * (1 - p) ** (others - k)
        for k in range(max(most - members + 1, 0), others + 1)
    )
    return STEPS * members * p * too_many


CUT = [(0.2, 1, 4), (0.1, 3, 4), (0.3, 2, 3)]


def cut_problem(p: float, most: int, examples: int, sigma: float, group: int = 1) -> Problem:
    scheme = sampling.TruncatedPoisson(p, most, examples)
    return Problem(strategies.identity(STEPS), scheme, sigma, group_size=group)


@pytest.mark.parametrize(("p", "most", "examples"), CUT)
def test_delta_holds_for_whole_data_sets_and_pays_for_cuts_alone(p, most, examples):
    found_at = ByRelaxation(Mmcc())
    problem = cut_problem(p, most, examples, 1.0)
    assert found_at.refusal(problem) is None
    chance = chance_of_a_cut(p, most, examples)
    for epsilon in (0.3, 2.0):
        found = found_at.delta(problem, epsilon)
        for side in truth.ADJACENCIES:
            answer = getattr(found, side)
            for others in (0, 1, -1):
                data = (1, *[others] * (examples - 1))
                assert answer >= cut_delta(data, p, most, 1.0, epsilon, side)
            alone = poisson_delta(p, 1.0, epsilon, side)
            assert alone[0] + chance * (1 - 1e-12) <= answer
            assert answer <= alone[1] * 1.01 + chance * ROOM
        # A data set of few examples is never cut, so that it is as under Poisson sampling.
        least = found_at.lower_delta(problem, epsilon).value
        alone = poisson_delta(p, 1.0, epsilon, "remove")
        assert 0.98 * alone[0] <= least <= alone[1]
    told = dict(found_at.details(problem, found, 1e-2))
    assert chance * (1 - 1e-12) <= told["added_to_delta"] <= chance * ROOM
    assert told["certified_as"] == repr(sampling.Poisson(p))


@pytest.mark.parametrize("bound", [Mmcc(), Reveal()], ids=["mmcc", "reveal"])
def test_epsilon_leaves_room_for_cuts(bound):
    p, most, examples = 0.1, 3, 4
    asked, problem = ByRelaxation(bound), cut_problem(p, most, examples, 1.0)
    delta, chance = 1e-2, chance_of_a_cut(p, most, examples)
    found = asked.epsilon(problem, delta)
    for side in truth.ADJACENCIES:
        epsilon = getattr(found, side)
        alone = poisson_delta(p, 1.0, epsilon, side)
        assert alone[0] + chance * (1 - 1e-12) <= delta
        assert cut_delta((1, -1, -1, -1), p, most, 1.0, epsilon, side) <= delta
    least = asked.lower_epsilon(problem, delta).value
    assert least <= found.value
    if isinstance(bound, Mmcc):
        less = poisson_delta(p, 1.0, found.value / 1.01, "remove")
        assert less[1] + chance * ROOM >= delta
        at_least = poisson_delta(p, 1.0, least, "remove")
        assert delta <= at_least[1] <= 1.01 * delta
    for too_small in (chance, chance * 0.5):
        with pytest.raises(NothingCertifiedError, match="outside"):
            asked.epsilon(problem, too_small)


def test_a_group_has_more_coins_and_leaves_room_for_fewer_others():
    p, most, examples, members = 0.1, 3, 5, 2
    problem = cut_problem(p, most, examples, 2.0, group=members)
    bound = ByRelaxation(ByCounts(Mmcc()))
    assert bound.refusal(problem) is None
    chance = chance_of_a_cut(p, most, examples, members)
    found = bound.delta(problem, 0.4)
    for side in truth.ADJACENCIES:
        low, high = poisson_delta(p, 2.0, 0.4, side, members)
        assert low + chance * (1 - 1e-12) <= getattr(found, side)
        assert getattr(found, side) <= 1.01 * high + chance * ROOM


def test_more_members_than_a_batch_holds_have_no_lower_end():
    problem = cut_problem(0.1, 1, 5, 2.0, group=2)
    bound = ByRelaxation(ByCounts(Mmcc()))
    assert bound.lower_epsilon(problem, 1e-2).value == 0.0
    assert bound.lower_delta(problem, 0.4).value == 0.0
