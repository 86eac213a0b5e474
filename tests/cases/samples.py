"""Products of cases: a sample runs by default, the rest with `-m slow`.

A sample keeps every value of every axis (`strength=1`) or every pair of values of different axes
(`strength=2`); it is the same every time.  The first case of the product is always in it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import hypothesis
import pytest

Together = tuple[tuple[int, int], ...]
"""Places on some of the axes: (axis, place) each."""


def sampled(*axes: Iterable[Any], strength: int = 2) -> list[Any]:
    """The product of the axes for `pytest.mark.parametrize`; what a sample leaves out is slow.

    A value that is a tuple stands for several arguments, as it does in `parametrize`.
    """
    lists = [list(axis) for axis in axes]
    kept = covering([len(values) for values in lists], strength)
    cases = []
    for places in itertools.product(*(range(len(values)) for values in lists)):
        chosen = [values[place] for values, place in zip(lists, places, strict=True)]
        flat = [part for one in chosen for part in (one if isinstance(one, tuple) else (one,))]
        marks = () if places in kept else (pytest.mark.slow,)
        cases.append(pytest.param(*flat, marks=marks))
    return cases


def in_turn(cases: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Every case with one of the others by default, which come in turn; all products are there."""
    return [
        pytest.param(case, other, marks=() if j == i % len(others) else (pytest.mark.slow,))
        for i, case in enumerate(cases)
        for j, other in enumerate(others)
    ]


def first(values: Sequence[Any], count: int) -> list[Any]:
    """All values for `pytest.mark.parametrize`; those after the first `count` are slow.

    A value that is a tuple stands for several arguments.
    """
    rest = (one if isinstance(one, tuple) else (one,) for one in values[count:])
    return [*values[:count], *(pytest.param(*one, marks=pytest.mark.slow) for one in rest)]


def examples(most: int) -> int:
    """How many examples Hypothesis draws: a third by default, all in a search for new ones."""
    repeatable = hypothesis.settings.get_current_profile_name() == "repeatable"
    return max(most // 3, 5) if repeatable else most


def covering(sizes: Sequence[int], strength: int) -> set[tuple[int, ...]]:
    """A few of all places such that any `strength` of them occur together, found greedily."""
    strength = min(strength, len(sizes))
    axes = list(itertools.combinations(range(len(sizes)), strength))

    def together(places: tuple[int, ...]) -> set[Together]:
        return {tuple((axis, places[axis]) for axis in some) for some in axes}

    rest = list(itertools.product(*map(range, sizes)))
    missing: set[Together] = set().union(*map(together, rest))
    used: Counter[tuple[int, int]] = Counter()

    def worth(places: tuple[int, ...]) -> tuple[int, int]:
        """What is new; among equals, values that were seldom taken, so that all have their turn."""
        return len(together(places) & missing), -sum(used[one] for one in enumerate(places))

    kept = set()
    while missing:
        best = max(rest, key=worth)
        kept.add(best)
        missing -= together(best)
        used.update(enumerate(best))
    return kept
