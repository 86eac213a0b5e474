"""Claim: what makes no sense is refused with a reason, and extremes are no surprise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import mmcc
from mmcc import strategies, utility
from mmcc.errors import MmccError, ParameterError, PrecisionError, StrategyError

EIGHT = strategies.identity(8)


@pytest.mark.parametrize("sigma", [0, -1.0, math.nan, math.inf, "1", None, True, 1j])
@pytest.mark.parametrize("question", [utility.rmse, utility.max_error, utility.step_errors])
def test_sigma_is_a_positive_number(question, sigma):
    with pytest.raises(ParameterError, match="sigma"):
        question(EIGHT, sigma)


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (np.ones(7), "7 steps, the strategy 8"),
        (np.ones(9), "9 steps, the strategy 8"),
        ([], "0 steps"),
        (1.0, "shape"),
        (np.ones((8, 8, 8)), "shape"),
        (np.ones((8, 8)), "above the diagonal"),
        (np.ones((8, 7)), "square"),
        (np.full(8, math.nan), "finite"),
        (np.full((8, 8), math.inf), "finite"),
        ("prefix", "real numbers"),
        (np.ones(8) * 1j, "real numbers"),
        (utility.schedule([1.0, 0.5]), "2 steps"),
    ],
)
def test_workloads_that_do_not_fit(workload, why):
    for strategy in (EIGHT, strategies.binary_tree(8), strategies.dense(np.tri(8))):
        with pytest.raises(StrategyError, match=why):
            utility.rmse(strategy, 1.0, workload)


@pytest.mark.parametrize(
    "make",
    [
        lambda: utility.momentum(8, 1.0),
        lambda: utility.momentum(8, -0.1),
        lambda: utility.momentum(0, 0.5),
        lambda: utility.momentum(8.5, 0.5),
        lambda: utility.momentum(8, math.nan),
        lambda: utility.cooldown(8, 1.5),
        lambda: utility.cooldown(8, 0.5, -1.0),
        lambda: utility.schedule([]),
        lambda: utility.schedule([1.0, -1.0]),
        lambda: utility.schedule([1.0, math.nan]),
        lambda: utility.schedule(np.ones((2, 2))),
        lambda: utility.schedule([1.0, 2.0], momentum=1.0),
        lambda: utility.level_weights(0),
        lambda: utility.noise_memory("identity"),
        lambda: utility.rmse(np.eye(8), 1.0),
        lambda: utility.decoder_matrix(strategies.identity(10**6)),
    ],
)
def test_bad_arguments(make):
    with pytest.raises(MmccError):
        make()


def test_singular_and_late_encoders():
    singular = strategies.dense([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    with pytest.raises(StrategyError, match="singular"):
        utility.rmse(singular, 1.0)
    late = strategies.dense([[1.0, 1.0], [1.0, 2.0]])
    with pytest.raises(StrategyError, match="not lower triangular"):
        utility.rmse(late, 1.0)
    known = strategies.dense([[1.0, 1.0], [1.0, 2.0]], adaptive=False)
    assert utility.rmse(known, 1.0) == pytest.approx(
        np.linalg.norm(np.tri(2) @ np.linalg.inv(known.to_dense())) / 2**0.5
    )
    with pytest.raises(StrategyError, match="singular"):
        utility.rmse(strategies.dense(np.ones((2, 2)), adaptive=False), 1.0)


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.toeplitz([1e-100, 1.0], 50),
        strategies.toeplitz([1.0, 2.0], 5000),
        strategies.toeplitz(np.full(9000, 3.5) - 2.5 * np.eye(1, 9000)[0], 9000),
        strategies.dense(np.tri(50, k=-1) + 1e-100 * np.eye(50)),
    ],
)
def test_errors_beyond_floating_point_are_refused(strategy):
    with pytest.raises(PrecisionError, match="too large"):
        utility.rmse(strategy, 1.0)


def test_too_many_steps():
    for strategy in (strategies.identity(10**9), strategies.binary_tree(2**40)):
        with pytest.raises(StrategyError, match="at most"):
            utility.rmse(strategy, 1.0)
    assert utility.noise_memory(strategies.binary_tree(2**40)) == 41


@pytest.mark.parametrize("strategy", [strategies.identity(1), strategies.binary_tree(1)])
def test_one_step(strategy):
    assert utility.rmse(strategy, 2.5) == utility.max_error(strategy, 2.5) == 2.5
    assert utility.noise_memory(strategy) == 1
    assert utility.rmse(strategy, 2.0, [3.0]) == utility.rmse(strategy, 2.0, [[-3.0]]) == 6.0


@pytest.mark.parametrize("sigma", [5e-324, 1e-300, Fraction(1, 3), np.float32(2.0), 7, 1e300])
def test_sigma_scales(sigma):
    for strategy in (EIGHT, strategies.binary_tree(8)):
        one = utility.rmse(strategy, 1.0)
        assert utility.rmse(strategy, sigma) == pytest.approx(float(sigma) * one, rel=1e-14)


def test_sigma_too_large():
    with pytest.raises(PrecisionError, match="too large"):
        utility.rmse(strategies.identity(100), 1e308)


def test_entries_at_the_edge_of_the_range():
    for size in (2e-100, 1e100):
        big = strategies.toeplitz([size, size / 2], 10)
        plain = strategies.toeplitz([1.0, 0.5], 10)
        assert utility.rmse(big, 1.0) * size == pytest.approx(utility.rmse(plain, 1.0))


def test_the_module_is_there_when_asked_for():
    assert mmcc.utility.rmse(mmcc.strategies.identity(8), 1.0) > 2.12
