"""Claim: a sample of a product leaves out no value, or no pair of values; the rest is slow."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
from cases import samples
from cases.samples import covering, examples, first, in_turn, sampled


@pytest.mark.parametrize("sizes", [(1,), (4,), (5, 3), (2, 2, 2), (5, 3, 4), (13, 7, 2, 3)])
@pytest.mark.parametrize("strength", [1, 2])
def test_all_values_or_pairs_are_kept(sizes, strength):
    kept = covering(sizes, strength)
    axes = range(len(sizes))
    for some in itertools.combinations(axes, min(strength, len(sizes))):
        wanted = set(itertools.product(*(range(sizes[axis]) for axis in some)))
        assert {tuple(places[axis] for axis in some) for places in kept} == wanted


def test_samples_are_small_and_the_same_every_time():
    assert len(covering((5, 3, 4), 1)) == 5
    assert len(covering((5, 3, 4), 2)) <= 22  # of 60; 20 is the least possible
    assert covering((5, 3, 4), 2) == covering((5, 3, 4), 2)
    assert (0, 0, 0) in covering((5, 3, 4), 2)


def test_values_have_their_turn():
    kept = covering((12, 4, 2), 1)
    assert len(kept) == 12
    for axis, each in ((1, 3), (2, 6)):
        assert set(Counter(places[axis] for places in kept).values()) == {each}


def test_the_product_is_whole_and_tuples_are_several_arguments():
    cases = sampled([("a", 1), ("b", 2)], [0.5, 0.7, 0.9], strength=1)
    assert [case.values for case in cases] == [
        (word, number, share) for word, number in (("a", 1), ("b", 2)) for share in (0.5, 0.7, 0.9)
    ]
    assert sum(not case.marks for case in cases) == 3
    assert {mark.name for case in cases for mark in case.marks} == {"slow"}


def test_turns_and_first_values_leave_the_rest_to_slow():
    turns = in_turn("abc", [1, 2])
    assert [case.values for case in turns if not case.marks] == [("a", 1), ("b", 2), ("c", 1)]
    assert len(turns) == 6
    kept, *slow = first(range(3), 1)
    assert kept == 0
    assert [(case.values, case.marks[0].name) for case in slow] == [((1,), "slow"), ((2,), "slow")]
    assert first([(1, 2), (3, 4)], 1)[1].values == (3, 4)


@pytest.mark.parametrize(("profile", "most"), [("repeatable", (20, 5)), ("search", (60, 6))])
def test_hypothesis_draws_a_third_by_default_and_all_in_a_search(profile, most, monkeypatch):
    settings = SimpleNamespace(get_current_profile_name=lambda: profile)
    monkeypatch.setattr(samples, "hypothesis", SimpleNamespace(settings=settings))
    assert (examples(60), examples(6)) == most
