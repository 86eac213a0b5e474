"""Claim: errors are the published constants and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from mmcc import strategies, utility


@pytest.mark.parametrize(("steps", "expected"), [(8, 1.585857), (128, 2.448826), (512, 2.889173)])
def test_counting(steps, expected):
    counting = strategies.continual_counting(steps)
    norm = float(np.linalg.norm(counting.coefficients))
    assert utility.rmse(counting, norm) == pytest.approx(expected, abs=6e-7)
    assert utility.rmse(strategies.dense(counting.to_dense()), norm) == pytest.approx(
        expected, abs=6e-7
    )


@pytest.mark.parametrize(("steps", "expected"), [(8, 2.121320), (128, 8.031189), (512, 16.015617)])
def test_identity(steps, expected):
    assert utility.rmse(strategies.identity(steps), 1.0) == pytest.approx(expected, abs=6e-7)
    assert utility.max_error(strategies.identity(steps), 1.0) == pytest.approx(steps**0.5)


def test_counting_at_a_hundred_thousand_steps():
    """A C^-1 = C: both errors from the coefficients binom(2k, k) / 4^k, summed by themselves."""
    steps = 10**5
    k = np.arange(steps)
    squares = special.poch(k + 1.0, -0.5) ** 2 / math.pi
    largest = math.sqrt(math.fsum(squares))
    mean = math.sqrt(math.fsum((steps - k) * squares) / steps)
    counting = strategies.continual_counting(steps)
    assert utility.max_error(counting, 3.0) == pytest.approx(3 * largest, rel=1e-10)
    assert utility.rmse(counting, 3.0) == pytest.approx(3 * mean, rel=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 100, 10**5])
def test_one_buffer_against_its_closed_form(steps):
    """c = (1 - lam x) / (1 - decay x): A C^-1 has the entries (1 - beta) + beta lam^k."""
    decay, scale = 0.999, 0.03
    lam = decay - scale
    beta = scale / (1 - lam)
    k = np.arange(steps)
    squares = np.square(1 - beta + beta * lam**k)
    blt = strategies.blt(steps, decay=[decay], scale=[scale])
    assert utility.max_error(blt, 2.0) == pytest.approx(2 * math.sqrt(squares.sum()), rel=1e-11)
    mean = math.sqrt(((steps - k) * squares).sum() / steps)
    assert utility.rmse(blt, 2.0) == pytest.approx(2 * mean, rel=1e-11)


def test_bands_with_a_known_inverse():
    """1 / (1 + x): prefix sums have the errors 1, 0, 1, 0, ... of single draws."""
    errors = utility.step_errors(strategies.toeplitz([1.0, 1.0], 9), 1.0)
    np.testing.assert_allclose(np.square(errors), [1, 1, 2, 2, 3, 3, 4, 4, 5])
    errors = utility.step_errors(strategies.toeplitz([2.0, 1.0], 4), 1.0)
    np.testing.assert_allclose(
        np.square(errors), np.cumsum(np.square([1 / 2, 1 / 4, 3 / 8, 5 / 16]))
    )


@pytest.mark.parametrize("height", range(1, 12))
def test_complete_trees(height):
    """Online: the mean number of ones of 1 .. n is height/2 + 1/n; full: the mean Haar variance."""
    steps = 2**height
    tree = strategies.binary_tree(steps)
    online = utility.rmse(tree, 1.0, decoder="online") ** 2
    assert online == pytest.approx(height / 2 + 1 / steps, rel=1e-12)
    assert utility.max_error(tree, 1.0, decoder="online") == pytest.approx(height**0.5)
    last = utility.step_errors(tree, 1.0, decoder="honaker-full")[-1] ** 2
    assert last == pytest.approx(steps / (2 * steps - 1), rel=1e-12)


def test_momentum_and_schedule_coefficients():
    np.testing.assert_allclose(utility.momentum(4, 0.5), [1, 1.5, 1.75, 1.875])
    np.testing.assert_allclose(utility.momentum(3, 0.0), [1, 1, 1])
    np.testing.assert_allclose(utility.cooldown(8, 0.5, 0.2), [1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    np.testing.assert_allclose(utility.cooldown(3, 0.0), [1, 1, 1])
    np.testing.assert_allclose(utility.cooldown(1, 1.0, 0.0), [0])
    np.testing.assert_allclose(
        utility.schedule([1.0, 2.0, 4.0], 0.5).to_dense(),
        [[1, 0, 0], [2, 2, 0], [3, 4, 4]],
    )


@pytest.mark.parametrize(
    ("strategy", "memory"),
    [
        (strategies.identity(100), 1),
        (strategies.toeplitz([1.0, 0.5, 0.25], 100), 3),
        (strategies.toeplitz(np.ones(50), 10), 10),
        (strategies.continual_counting(100), 100),
        (strategies.blt(100), 2),
        (strategies.blt(1), 1),
        (strategies.binary_tree(64), 7),
        (strategies.binary_tree(100), 7),
        (strategies.tree_restart(100, 3), 3),
        (strategies.dense(np.tri(6) - np.tri(6, k=-2)), 2),
        (strategies.dense(np.tri(6)), 6),
        (strategies.dense(np.ones((2, 2)) + np.eye(2), adaptive=False), 2),
    ],
)
def test_noise_memory(strategy, memory):
    assert utility.noise_memory(strategy) == memory
