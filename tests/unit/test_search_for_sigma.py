"""Claim: the search for sigma steps where it should, and printed numbers round to the safe side."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from oracles import truth

import mmcc
from mmcc import strategies
from mmcc.accounting import Answer, Problem
from mmcc.accounting import _calibrate as calibrate
from mmcc.accounting._best_bound import best_of
from mmcc.accounting._bounds import PLAIN, Mmcc
from mmcc.accounting._bounds.projection import Projection, bracket
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.accounting._calibrate import _gaussian_sigma, next_sigma
from mmcc.accounting._guarantee import Details, rounded_down, rounded_up
from mmcc.sampling import Poisson
from mmcc.strategies._toeplitz import first_bands


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
        assert value <= up <= value * (1 + 1.1e-3)
        assert value * (1 - 1.1e-3) <= down <= value
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


BOUNDS = [PLAIN, Reveal(), Projection(), Mmcc()]
"""Free, quick, brisk, and one that may take minutes."""
PROBLEM = Problem(strategies.toeplitz([1.0, 0.5], 8), Poisson(0.5), 0.5)


def pretend(monkeypatch, remove, add=lambda _bound, _sigma: 0.0):
    """Let bounds answer by functions of bound and sigma; the list of what was asked, and where."""
    asked = []

    def ask(problem, bounds, _delta, *, level, known):
        asked.append((level, problem.sigma, [bound.name for bound in bounds], tuple(known)))
        answers = [
            Answer(remove(bound, problem.sigma), add(bound, problem.sigma), bound=bound)
            for bound in bounds
        ]
        return best_of([*known, *answers])

    monkeypatch.setattr(calibrate, "_ask", ask)
    return asked


def power_law(**heights):
    """Epsilons (height / sigma)^2 by the bound's name; the others know nothing."""
    return lambda bound, sigma: (heights.get(bound.name, 1e6) / sigma) ** 2


def sigmas_of(asked, name):
    """Where a bound was asked; a second time at the same sigma costs nothing."""
    return {sigma for _, sigma, names, _ in asked if name in names}


def test_the_search_forgets_what_a_bound_that_fails_could_not_certify(monkeypatch):
    """One bound is the best at the first guess and useless at the second, where another is fine."""

    def remove(bound, sigma):
        if bound.name == "projection":
            return (2 / sigma) ** 2 if sigma < 1 else 100.0
        return (2.2 / sigma) ** 2

    pretend(monkeypatch, remove)
    found, best = calibrate._search(PROBLEM, BOUNDS, 1.0, 1e-5)
    assert 0.999 <= best.value <= 1.0
    assert found.sigma == pytest.approx(2.2, rel=1e-3)


def test_what_is_taken_for_granted_on_the_way_is_not_promised(monkeypatch):
    """Add is the smaller side at the first guess, and the larger one at the answer."""
    add = lambda _bound, sigma: (2.2 / sigma) ** 2 if sigma > 1 else 0.0  # noqa: E731
    asked = pretend(monkeypatch, power_law(reveal=2.0), add)
    found, best = calibrate._search(PROBLEM.at(2.5), BOUNDS, 1.0, 1e-5)
    assert best.add.add == (2.2 / found.sigma) ** 2
    assert 0.999 <= best.value <= 1.0
    assert asked[-1][0] is calibrate.Level.ALL


@pytest.mark.parametrize(
    ("start", "projection"), [(1.99, 2.1), (1.2, 2.1), (1.99, 1.999), (1.895, 1.9)]
)
def test_slow_bounds_are_asked_at_two_sigmas_at_most(monkeypatch, start, projection):
    """From lower ends that are close to the winner; the projection loses or wins, MMCC loses."""
    asked = pretend(monkeypatch, power_law(reveal=2.0, projection=projection, mmcc=2.5))
    found, best = calibrate._search(PROBLEM.at(start), BOUNDS, 1.0, 1e-5, slope=-2.01)
    assert found.sigma == pytest.approx(min(2.0, projection), rel=1e-4)
    assert 1 - 1e-4 <= best.value <= 1.0
    assert len(sigmas_of(asked, "projection")) <= 2
    assert len(sigmas_of(asked, "mmcc")) <= 1


def test_what_is_certified_for_add_counts_only_with_more_noise(monkeypatch):
    """From the floor upwards add is not computed again; from above it is."""
    add = lambda _bound, sigma: (1.5 / sigma) ** 2  # noqa: E731
    law = power_law(reveal=2.0)
    asked = pretend(monkeypatch, law, add)
    _, best = calibrate._search(PROBLEM.at(1.99), BOUNDS, 1.0, 1e-5)
    assert [known.add for known in asked[-1][3]] == [(1.5 / 1.99) ** 2]
    assert best.value <= 1.0
    asked = pretend(monkeypatch, law, add)
    calibrate._search(PROBLEM.at(2.01), BOUNDS, 1.0, 1e-5)
    assert asked[-1][3] == ()


def test_a_single_bound_is_asked_as_it_is(monkeypatch):
    asked = pretend(monkeypatch, power_law(mmcc=2.0))
    found, _ = calibrate._search(PROBLEM, [Mmcc("release")], 1.0, 1e-5)
    assert found.sigma == pytest.approx(2.0, rel=1e-4)
    assert all(names == ["mmcc"] and known == () for _, _, names, known in asked)


@pytest.mark.parametrize("epsilon", [0.2, 3.0])
def test_the_sigma_found_is_certified_there(monkeypatch, epsilon):
    """Bands under Poisson sampling: the projection is computed at no more than two sigmas."""
    strategy, scheme = strategies.toeplitz([1.0, 0.5, 0.25], 24), Poisson(0.1)
    computed = []
    original = bracket._bound_epsilon

    def count(gram, *given):
        computed.append(given[2])
        return original(gram, *given)

    monkeypatch.setattr(bracket, "_bound_epsilon", count)
    found = mmcc.sigma(strategy, scheme, epsilon=epsilon, delta=1e-4)
    assert computed.count("remove") <= 2
    asked = mmcc.epsilon(strategy, scheme, sigma=found.sigma, delta=1e-4)
    assert asked.epsilon <= epsilon
    assert found.epsilon == pytest.approx(asked.epsilon, rel=1e-9)
    assert found.details["add"] <= found.epsilon
    assert found.details["add"] >= asked.details["add"] * (1 - 1e-9)


@pytest.mark.parametrize(
    ("bound", "strategy"),
    [
        (Projection(), strategies.toeplitz([1.0, 0.5], 3)),
        (Reveal(), strategies.toeplitz([1.0, 0.5], 3)),
        (Reveal(), strategies.binary_tree(4)),
    ],
    ids=str,
)
def test_beside_another_bound_a_side_is_left_out_only_where_it_cannot_matter(bound, strategy):
    problem = Problem(strategy, Poisson(0.3), 3.0)
    alone = bound.epsilon(problem, 1e-4)
    assert alone.add < alone.remove
    small = bound.epsilon_beside(problem, 1e-4, Answer(math.inf, alone.remove))
    assert small.remove == alone.remove
    assert small.add > 1.3 * alone.add  # it was not followed
    for known in (
        Answer(math.inf, math.nextafter(alone.remove, math.inf)),
        Answer(0.5 * alone.remove, 0.6 * alone.remove),  # add would set the promise
        Answer(math.inf, math.inf),
    ):
        full = bound.epsilon_beside(problem, 1e-4, known)
        assert (full.remove, full.add) == (alone.remove, alone.add)


@pytest.mark.parametrize(
    ("steps", "bands", "asked"), [(2000, 16, False), (2000, 4, True), (64, 16, True)]
)
def test_the_slow_bound_is_not_asked_where_it_never_wins(steps, bands, asked):
    """16 bands over 2000 steps: minutes for an epsilon many times the projection's."""
    problem = Problem(first_bands(steps, bands), Poisson(0.01), 7.5)
    known = [Answer(1.0, 1.0, bound=Projection())]
    assert Mmcc().worthwhile(problem, known) is asked
    assert Mmcc().worthwhile(problem, []) is True


def test_a_matrix_without_structure_names_one_with():
    assert strategies.banded(601, 2).quicker == "banded-toeplitz --bands 2"
    assert strategies.banded(20, 2).quicker == ""
    assert strategies.binary_tree(2000).quicker == ""
