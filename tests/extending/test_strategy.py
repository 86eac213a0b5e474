"""Claim: a strategy is `steps`, `rows`, `prefix` and its matrix; all else works with that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import mmcc
from extending.falling import Falling
from mmcc import sampling, strategies, utility
from mmcc.errors import StrategyError
from mmcc.training import NoiseStream

OURS = Falling(16)
SAME = strategies.dense(OURS.to_dense())
SCHEMES = (
    sampling.Poisson(1 / 8),
    sampling.CyclicPoisson(1 / 4, 4),
    sampling.BallsInBins(8),
    sampling.Shuffle(),
)
UNPROVEN = (sampling.MinSeparation(1 / 4, 4), sampling.Shuffle(8))


def both(question: Any, scheme: sampling.Scheme, **options: Any) -> tuple[Any, Any]:
    """The answer for our strategy, and for its matrix."""
    ours, same = (question(strategy, scheme, **options) for strategy in (OURS, SAME))
    return ours, same


@pytest.mark.parametrize("scheme", UNPROVEN, ids=repr)
def test_it_is_certified_without_amplification(scheme):
    ours, same = both(mmcc.epsilon, scheme, sigma=9.0, delta=1e-5, method="unamplified")
    assert ours.epsilon == same.epsilon


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_its_epsilon_and_its_bracket_are_those_of_its_matrix(scheme):
    ours, same = both(mmcc.bracket, scheme, sigma=2.0, delta=1e-5)
    assert (ours.lower, ours.upper, ours.method) == (same.lower, same.upper, same.method)


@pytest.mark.parametrize("scheme", [sampling.Poisson(1 / 8), sampling.Shuffle(8)], ids=repr)
def test_its_estimate_is_that_of_its_matrix(scheme):
    ours, same = both(mmcc.estimate, scheme, sigma=4.0, delta=1e-3, samples=16384)
    assert (ours.low, ours.epsilon, ours.high) == (same.low, same.epsilon, same.high)


@pytest.mark.parametrize(
    ("workload", "matrix"),
    [
        (None, np.tri(16)),
        (0.9 ** np.arange(16), scipy.linalg.toeplitz(0.9 ** np.arange(16), np.zeros(16))),
        (np.eye(16), np.eye(16)),
    ],
    ids=["prefix sums", "coefficients", "array"],
)
def test_its_errors_are_those_of_its_inverse(workload, matrix):
    rows = np.linalg.norm(matrix @ np.linalg.inv(OURS.to_dense()), axis=1)
    assert utility.rmse(OURS, 3.0, workload) == pytest.approx(3 * np.sqrt(np.mean(rows**2)))
    assert utility.max_error(OURS, 3.0, workload) == pytest.approx(3 * rows.max())
    assert utility.noise_memory(OURS) == 3


def test_it_can_be_compared():
    short = Falling(8)
    named = {"falling": short, "its matrix": strategies.dense(short.to_dense())}
    ours, same = mmcc.compare(named, sampling.BallsInBins(4), epsilon=2.0, delta=1e-5).rows
    assert (ours.verdict, ours.sigma, ours.rmse) == (same.verdict, same.sigma, same.rmse)
    assert ours.correlated


def test_its_noise_is_that_of_its_matrix():
    ours, same = (NoiseStream(some, sigma=2.0, shape=(3,), seed=7) for some in (OURS, SAME))
    assert ours.memory == 3
    for one, other in zip(ours, same, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_it_trains_a_model_with_the_noise_of_its_matrix():
    torch = pytest.importorskip("torch")
    from mmcc.training import make_private

    def trained(strategy: strategies.Strategy) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        data = torch.utils.data.TensorDataset(torch.randn(32, 3), torch.randint(2, (32,)))
        module, optimizer, loader = make_private(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            data,
            strategy=strategy,
            sampling=sampling.Poisson(1 / 8),
            sigma=2.0,
            delta=1e-5,
            max_grad_norm=1.0,
            seed=5,
        )
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(inputs), labels).backward()
            optimizer.step()
        return [float(value) for p in module.parameters() for value in p.detach().flatten()]

    assert trained(OURS) == trained(SAME)


class Negative(Falling):
    def _dense(self) -> np.ndarray:
        return super()._dense() - 0.01


class Early(Falling):
    def _dense(self) -> np.ndarray:
        return super()._dense()[::-1]


class Smaller(Falling):
    def _dense(self) -> np.ndarray:
        return super()._dense()[:-1, :-1]


@pytest.mark.parametrize(
    ("wrong", "why"), [(Negative, "negative"), (Early, "causal"), (Smaller, "shape")]
)
def test_a_matrix_that_is_no_encoder_is_refused(wrong, why):
    with pytest.raises(StrategyError, match=why):
        mmcc.epsilon(wrong(8), sampling.Poisson(1 / 8), sigma=2.0, delta=1e-5)


def test_it_is_saved_as_its_matrix_only(tmp_path):
    with pytest.raises(StrategyError, match="dense"):
        strategies.save(OURS, tmp_path / "ours.npz")
    strategies.save(SAME, tmp_path / "same.npz")
    np.testing.assert_array_equal(strategies.load(tmp_path / "same.npz").to_dense(), SAME.matrix)


class Named(strategies.Toeplitz):
    """More than its coefficients, perhaps."""


def test_a_subclass_of_a_strategy_is_not_saved_as_its_parent(tmp_path):
    with pytest.raises(StrategyError, match="cannot be saved"):
        strategies.save(Named(np.ones(2), 4), tmp_path / "named.npz")
