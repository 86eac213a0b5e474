"""Claim: the search for sigma steps where it should, and printed numbers round to the safe side."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from oracles import truth

from mmcc import strategies
from mmcc.accounting import Answer, Problem
from mmcc.accounting import _calibrate as calibrate
from mmcc.accounting._best_bound import best_of
from mmcc.accounting._bounds.projection import Projection
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.accounting._calibrate import _gaussian_sigma, next_sigma
from mmcc.accounting._guarantee import Details, rounded_down, rounded_up
from mmcc.sampling import Poisson


@pytest.mark.parametrize("slope", [-0.4, -1.0, -2.5])
@pytest.mark.parametrize("goal", [0.0, -5e-5])
def test_a_power_law_is_met_in_one_step(slope, goal):
    points = [(x, slope * (x - 0.7)) for x in (0.5, 0.1, 2.0)]
    assert math.log(next_sigma(points, goal)) == pytest.approx(0.7 + goal / slope, abs=1e-12)
    assert next_sigma(points[::-1], goal) == pytest.approx(next_sigma(points, goal), rel=1e-12)


def test_steps_from_strange_points_stay_short_and_have_the_right_sign():
    flat = next_sigma([(0.0, 1.0), (0.1, 1.0)], 0.0)  # epsilon falls with sigma, however slowly
    steep = next_sigma([(0.0, 1.0), (1e-9, 0.5)], 0.0)
    rising = next_sigma([(0.0, 1.0), (0.1, 1.1)], 0.0)
    alone = next_sigma([(0.3, 0.6)], 0.0)
    assert 1.0 < steep < math.exp(0.1)
    assert 1.0 < alone / math.exp(0.3) < math.exp(1.0)
    assert 1.0 < flat <= math.exp(3.4)
    assert 1.0 < rising <= math.exp(3.4)
    assert next_sigma([(0.0, 50.0)], 0.0) == pytest.approx(math.exp(3.0))
    assert next_sigma([(0.0, -50.0)], 0.0) == pytest.approx(math.exp(-3.0))


@pytest.mark.parametrize("sensitivity", [1.0, 7.3])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-8), (1.0, 1e-5), (8.0, 1e-2)])
def test_noise_without_amplification_is_enough_and_no_more(sensitivity, epsilon, delta):
    sigma = _gaussian_sigma(sensitivity, epsilon, delta)
    assert truth.gaussian_delta(sensitivity, sigma, epsilon) <= delta
    assert truth.gaussian_delta(sensitivity, sigma * (1 - 1e-8), epsilon) > delta


def test_printed_numbers_are_on_the_safe_side_by_at_most_one_digit():
    rng = np.random.default_rng(3)
    numbers = [*(10 ** rng.uniform(-9, 9, 300)), 1.0, 0.1, 999999.5, 1e-300, 123456.0]
    for value in map(float, numbers):
        up, down = float(rounded_up(value)), float(rounded_down(value))
        assert value <= up <= value * (1 + 1.1e-5)
        assert value * (1 - 1.1e-5) <= down <= value
    assert rounded_up(math.inf) == "inf"
    assert rounded_up(0.0) == "0"


def test_details_are_a_mapping_whose_late_entries_are_made_once():
    made = []
    details = Details({"a": 1}, {"b": lambda: made.append(1) or 2})
    assert len(details) == 2
    assert list(details) == ["a", "b"]
    assert not made
    assert [details["b"], details["b"]] == [2, 2]
    assert made == [1]
    assert dict(details.extended({"a": 5, "c": 3})) == {"a": 5, "b": 2, "c": 3}
    assert pickle.loads(pickle.dumps(Details({"a": 1}, {"b": lambda: 2}))) == {"a": 1, "b": 2}


def test_the_search_forgets_what_a_bound_that_fails_could_not_certify(monkeypatch):
    """One bound is the best at the first guess and useless at the second, where another is fine."""
    good, steady = Projection(), Reveal()

    def answer(bound, sigma):
        value = (2.2 / sigma) ** 2
        if bound == good:
            value = (2 / sigma) ** 2 if sigma < 1 else 100.0
        return Answer(value, value, bound=bound)

    def ask(problem, bounds, _delta, *, explore, known):
        return best_of(answer(bound, problem.sigma) for bound in bounds)

    monkeypatch.setattr(calibrate, "_ask", ask)
    problem = Problem(strategies.identity(1), Poisson(0.5), 0.5)
    found, best = calibrate._search(problem, [good, steady], 1.0, 1e-5)
    assert 0.999 <= best.value <= 1.0
    assert found.sigma == pytest.approx(2.2, rel=1e-3)


def test_what_is_taken_for_granted_on_the_way_is_not_promised(monkeypatch):
    """Add is the smaller side at the first guess, and the larger one at the answer."""
    bounds = [Projection(), Reveal()]
    asked = []

    def ask(problem, _bounds, _delta, *, explore, known):
        sigma = problem.sigma
        add = (2.2 / sigma) ** 2 if sigma > 1 else 0.0
        asked.append(bool(known))
        own = Answer((2 / sigma) ** 2, math.inf if known else add, bound=bounds[0])
        return best_of([*known, own])

    monkeypatch.setattr(calibrate, "_ask", ask)
    problem = Problem(strategies.identity(1), Poisson(0.5), 0.5)
    found, best = calibrate._search(problem, bounds, 1.0, 1e-5)
    assert any(asked)
    assert best.add.add == (2.2 / found.sigma) ** 2
    assert 0.999 <= best.value <= 1.0


@pytest.mark.parametrize("bound", [Projection(), Reveal()], ids=str)
def test_beside_another_bound_a_side_is_left_out_only_where_it_cannot_matter(bound):
    problem = Problem(strategies.toeplitz([1.0, 0.5], 3), Poisson(0.3), 3.0)
    alone = bound.epsilon(problem, 1e-4)
    assert alone.add < alone.remove
    small = bound.epsilon_beside(problem, 1e-4, Answer(math.inf, alone.remove))
    assert (small.remove, small.add) == (alone.remove, math.inf)
    for known in (
        Answer(math.inf, math.nextafter(alone.remove, math.inf)),
        Answer(0.5 * alone.remove, 0.6 * alone.remove),  # add would set the promise
        Answer(math.inf, math.inf),
    ):
        full = bound.epsilon_beside(problem, 1e-4, known)
        assert (full.remove, full.add) == (alone.remove, alone.add)
