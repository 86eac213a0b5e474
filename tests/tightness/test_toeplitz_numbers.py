"""Claim: Toeplitz strategies reach the numbers that are known."""

from __future__ import annotations

import numpy as np
import pytest
from cases.samples import sampled
from oracles import truth
from oracles.mechanisms import counting_matrix

import mmcc
from mmcc import sampling, strategies


def counting_sigma(steps: int, c: float) -> float:
    return c * float(np.linalg.norm(counting_matrix(steps)[:, 0]))


def test_counting_matrix_of_eight_steps():
    strategy, scheme = strategies.continual_counting(8), sampling.Poisson(1 / 8)
    sigma = counting_sigma(8, 10)
    release = mmcc.epsilon(strategy, scheme, sigma=sigma, delta=1e-6, method="mmcc")
    turned = mmcc.epsilon(
        strategy, scheme, sigma=sigma, delta=1e-6, method="mmcc", order="reversed"
    )
    tight = mmcc.epsilon(strategy, scheme, sigma=sigma, delta=1e-6)
    assert release.epsilon == pytest.approx(0.347, rel=0.01)
    assert turned.epsilon == pytest.approx(0.314, rel=0.01)
    assert 0.271 <= tight.epsilon <= turned.epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("order", "epsilon"), [("release", 1.903), ("reversed", 0.77)])
def test_counting_matrix_of_2048_steps(order, epsilon):
    found = mmcc.epsilon(
        strategies.continual_counting(2048),
        sampling.Poisson(1 / 2048),
        sigma=counting_sigma(2048, 5),
        delta=1e-6,
        method="mmcc",
        order=order,
    )
    assert 0.98 * epsilon <= found.epsilon <= 1.01 * epsilon


@pytest.mark.parametrize(
    ("coefficients", "steps", "method"),
    sampled(
        [[1.0], [1.0, 0.5, 0.375], [0.3, 0.2, 0.1, 0.9]], [16, 128], ["mmcc", "tight"], strength=1
    ),
)
def test_banded_toeplitz_under_cyclic_poisson_is_a_composition(coefficients, steps, method):
    """Separation four, at most four bands: steps/4 subsampled Gaussians of one column each."""
    found = mmcc.epsilon(
        strategies.toeplitz(coefficients, steps),
        sampling.CyclicPoisson(0.25, 4),
        sigma=2.0,
        delta=1e-6,
        method=method,
    ).epsilon
    mechanism = (steps // 4, float(np.linalg.norm(coefficients)), 0.25, 2.0)
    exact = truth.smallest_epsilon(
        lambda e: truth.composed_subsampled_gaussian_delta(*mechanism, e, "remove")[0], 1e-6
    )
    assert exact <= found <= 1.001 * exact


def test_identity_is_a_composition_of_subsampled_gaussians():
    for method in ("mmcc", "tight"):
        found = mmcc.epsilon(
            strategies.identity(128),
            sampling.Poisson(1 / 128),
            sigma=1.0,
            delta=1e-6,
            method=method,
        )
        assert found.epsilon == pytest.approx(0.8064, abs=1.5e-4)


def test_dense_and_structured_strategies_agree():
    scheme = sampling.Poisson(0.1)
    for structured, array in (
        (strategies.continual_counting(16), counting_matrix(16)),
        (strategies.toeplitz([1.0, 0.5], 16), np.eye(16) + 0.5 * np.eye(16, k=-1)),
    ):
        for method in ("mmcc", "projection", "unamplified"):
            one = mmcc.epsilon(structured, scheme, sigma=5.0, delta=1e-6, method=method)
            two = mmcc.epsilon(
                strategies.dense(array), scheme, sigma=5.0, delta=1e-6, method=method
            )
            assert one.epsilon == pytest.approx(two.epsilon, rel=1e-4)
