"""Claim: a strategy is `steps`, `rows`, `prefix` and its matrix; everything else works with that."""

from __future__ import annotations

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies, utility
from mmcc.errors import StrategyError
from mmcc.training import NoiseStream


# [strategy]
class Falling(strategies.Strategy):
    """Every release holds the last three gradients, older ones with less weight each time."""

    def __init__(self, length: int) -> None:
        self.length = length

    @property
    def steps(self) -> int:
        return self.length

    @property
    def rows(self) -> int:
        return self.length

    def prefix(self, steps: int) -> Falling:
        return Falling(steps)

    def _dense(self) -> np.ndarray:
        step = np.arange(self.length)
        weights = np.eye(self.length) + 0.5 * np.eye(self.length, k=-1)
        return weights + np.diag(0.25 / (1 + step[2:]), k=-2)


# [/strategy]


OURS = Falling(16)
SAME = strategies.dense(OURS.to_dense())
SCHEMES = (
    sampling.Poisson(1 / 8),
    sampling.CyclicPoisson(1 / 4, 4),
    sampling.BallsInBins(8),
    sampling.Shuffle(),
    sampling.MinSeparation(1 / 4, 4),
)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_its_epsilon_is_that_of_its_matrix(scheme):
    ours, same = (
        mmcc.epsilon(strategy, scheme, sigma=2.0, delta=1e-5) for strategy in (OURS, SAME)
    )
    assert ours.epsilon == same.epsilon
    assert ours.bound == same.bound


@pytest.mark.parametrize("scheme", SCHEMES[:3], ids=repr)
def test_its_bracket_is_that_of_its_matrix(scheme):
    ours, same = (
        mmcc.bracket(strategy, scheme, sigma=2.0, delta=1e-5) for strategy in (OURS, SAME)
    )
    assert (ours.lower, ours.upper) == (same.lower, same.upper)


def test_its_estimate_is_that_of_its_matrix():
    scheme = sampling.MinSeparation(1 / 4, 4)
    ours, same = (
        mmcc.estimate(strategy, scheme, sigma=2.0, delta=1e-3, samples=4096)
        for strategy in (OURS, SAME)
    )
    assert (ours.low, ours.epsilon, ours.high) == (same.low, same.epsilon, same.high)


@pytest.mark.parametrize("workload", [None, utility.momentum(16, 0.9), np.eye(16)], ids=repr)
def test_its_errors_are_those_of_its_inverse(workload):
    matrix = np.tri(16) if workload is None else np.asarray(workload)
    if matrix.ndim == 1:
        matrix = np.array(
            [[matrix[t - s] if s <= t else 0.0 for s in range(16)] for t in range(16)]
        )
    rows = np.linalg.norm(matrix @ np.linalg.inv(OURS.to_dense()), axis=1)
    assert utility.rmse(OURS, 3.0, workload) == pytest.approx(3 * np.sqrt(np.mean(rows**2)))
    assert utility.max_error(OURS, 3.0, workload) == pytest.approx(3 * rows.max())
    assert utility.noise_memory(OURS) == 3


def test_it_can_be_compared():
    found = mmcc.compare(
        {"falling": OURS, "its matrix": SAME}, sampling.Poisson(1 / 8), epsilon=2.0, delta=1e-5
    )
    ours, same = found.rows
    assert (ours.verdict, ours.sigma, ours.rmse) == (same.verdict, same.sigma, same.rmse)
    assert ours.correlated


def test_its_noise_is_that_of_its_matrix():
    ours, same = (NoiseStream(strategy, sigma=2.0, shape=(3,), seed=7) for strategy in (OURS, SAME))
    assert ours.memory == 3
    for one, other in zip(ours, same, strict=True):
        np.testing.assert_array_equal(one, other)


def test_it_trains_a_model():
    torch = pytest.importorskip("torch")
    from mmcc.training import make_private

    model = torch.nn.Linear(3, 1)
    data = torch.utils.data.TensorDataset(torch.randn(32, 3), torch.randn(32, 1))
    private = make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=4),
        strategy=OURS,
        sampling=sampling.Poisson(1 / 8),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    assert private is not None


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
