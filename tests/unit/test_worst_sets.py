"""Claim: the sensitivity of a scheme is at least |C 1_S| for every set S that it allows."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from cases.bins import SHAPES, build, folded

from mmcc import sampling, strategies
from mmcc.strategies import _toeplitz, _tree

STEPS = (1, 2, 5, 6, 8, 12)


def apart(steps: int, separation: int, at_most: int | None = None) -> list[list[int]]:
    """All largest sets of steps at least `separation` apart, and some smaller ones."""
    found: list[list[int]] = []

    def extend(chosen: list[int]) -> None:
        start = chosen[-1] + separation if chosen else 0
        if start >= steps or len(chosen) == at_most:
            found.append(chosen)
            return
        for step in range(start, steps):
            extend([*chosen, step])

    extend([])
    return found


def shuffled(steps: int, length: int) -> list[tuple[int, ...]]:
    epochs = [range(start, start + length) for start in range(0, steps, length)]
    return list(itertools.product(*epochs))


def longest(matrix: np.ndarray, sets) -> float:
    return max(float(np.linalg.norm(matrix[:, list(s)].sum(axis=1))) for s in sets)


def cases(shape: str):
    for seed, steps in enumerate(STEPS):
        yield *build(np.random.default_rng([seed, 911]), shape, steps), steps


@pytest.mark.parametrize("shape", SHAPES)
def test_no_set_of_separated_steps_is_longer(shape):
    for strategy, matrix, steps in cases(shape):
        for separation in {1, 2, 3, max(steps // 2, 1), steps}:
            brute = longest(matrix, apart(steps, separation))
            found = strategy.sensitivity_apart(min(separation, steps))
            assert found >= brute * (1 - 1e-15), (shape, steps, separation)
            scheme = sampling.MinSeparation(0.1, separation)
            assert scheme.sensitivity(strategy) == found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at_most", [1, 2, 3])
def test_no_set_of_few_separated_steps_is_longer(shape, at_most):
    for strategy, matrix, steps in cases(shape):
        for separation in {1, 2, max(steps // 2, 1)}:
            brute = longest(matrix, apart(steps, separation, at_most))
            found = strategy.sensitivity_apart(separation, at_most)
            reached = strategy.reached_apart(separation, at_most)
            assert reached <= brute * (1 + 1e-15), (shape, steps, separation)
            assert found >= brute * (1 - 1e-15), (shape, steps, separation)
            assert found <= strategy.sensitivity_apart(separation)
            if at_most == 1:  # the longest column
                assert found <= brute * (1 + 1e-12)


@pytest.mark.parametrize("steps", range(1, 17))
def test_trees_count_what_each_node_can_hold(steps):
    for height in range(1, steps.bit_length() + 1):
        strategy = strategies.tree_restart(steps, height)
        for separation in (1, 2, 3, 4, 7):
            if separation > steps:
                continue
            for at_most in (1, 2, 3):
                brute = longest(strategy.to_dense(), apart(steps, separation, at_most))
                found = strategy.sensitivity_apart(separation, at_most)
                reached = strategy.reached_apart(separation, at_most)
                assert reached <= brute <= found
                assert found <= 1.07 * brute
                if separation in (1, 2, 4):
                    assert found == pytest.approx(reached, rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shuffled_set_is_longer(shape):
    for strategy, matrix, steps in cases(shape):
        for length in (d for d in range(1, steps + 1) if steps % d == 0):
            if length ** (steps // length) > 5000:
                continue
            brute = longest(matrix, shuffled(steps, length))
            assert strategy.sensitivity_shuffled(length) >= brute * (1 - 1e-15)
            found = sampling.Shuffle(length).sensitivity(strategy)
            assert found >= brute * (1 - 1e-15)
            if length == steps:  # one pass: the longest column
                assert found == pytest.approx(brute, rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_bins_are_exact(shape):
    for strategy, matrix, steps in cases(shape):
        for bins in (d for d in range(1, steps + 1) if steps % d == 0):
            brute = float(np.linalg.norm(folded(matrix, bins), axis=0).max())
            found = sampling.BallsInBins(bins).sensitivity(strategy)
            assert brute * (1 - 1e-15) <= found <= brute * (1 + 1e-12)


@pytest.mark.parametrize("steps", [7, 12])
@pytest.mark.parametrize("separation", [1, 2, 3, 5])
def test_falling_coefficients_are_exact(steps, separation):
    rng = np.random.default_rng([steps, separation])
    for bands in (1, 2, 4, steps):
        c = np.sort(rng.uniform(0.05, 1, bands))[::-1]
        strategy = strategies.toeplitz(c, steps)
        brute = longest(strategy.to_dense(), apart(steps, separation))
        found = strategy.sensitivity_apart(separation)
        assert brute * (1 - 1e-15) <= found <= brute * (1 + 1e-12)


@pytest.mark.parametrize("strategy", [strategies.continual_counting(64), strategies.blt(64)])
def test_large_falling_strategies_are_the_first_group(strategy):
    assert strategy.sensitivity_apart(7) == strategy.sensitivity(7)
    first = np.linalg.norm(strategy.to_dense()[:, ::7].sum(axis=1))
    assert strategy.sensitivity_apart(7) == pytest.approx(float(first), rel=1e-12)


def test_huge_strategies_answer_at_once():
    tree = strategies.binary_tree(2**30)
    assert sampling.Shuffle().sensitivity(tree) == pytest.approx(math.sqrt(31))
    assert sampling.MinSeparation(0.1, 2**30).sensitivity(tree) == pytest.approx(math.sqrt(31))
    one = strategies.identity(10**9)
    assert sampling.Shuffle(10**6).sensitivity(one) == pytest.approx(math.sqrt(1000))
    assert sampling.MinSeparation(0.1, 10**6).sensitivity(one) == pytest.approx(math.sqrt(1000))


def test_coarser_bounds_of_large_strategies_hold_for_small_ones(monkeypatch):
    """Where nodes are not counted and inner products not formed, on sizes that can be checked."""
    monkeypatch.setattr(_tree, "MAX_COUNTED", 0)
    monkeypatch.setattr(_toeplitz, "MAX_COLUMNS", 0)
    rng = np.random.default_rng(77)
    for steps in (5, 8, 13):
        c = rng.uniform(0, 1, steps)
        for strategy in (strategies.binary_tree(steps), strategies.toeplitz(c, steps)):
            for separation, at_most in ((1, 3), (2, 2), (2, 9), (3, 4), (5, 2)):
                brute = longest(strategy.to_dense(), apart(steps, separation, at_most))
                assert strategy.sensitivity_apart(separation, at_most) >= brute
                assert strategy.reached_apart(separation, at_most) <= brute
