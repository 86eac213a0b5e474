"""Claim: an audit plays the noise stream of training, in single precision, and sees it broken.

Every fault is put into `TorchNoiseStream` itself; nothing is handed to the audit.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.samples import first

from mmcc import sampling, strategies
from mmcc.audit import audit
from mmcc.audit._noise_law import COINCIDENCE
from mmcc.audit._statistic import spread, whitener
from mmcc.audit._streams import chosen
from mmcc.training._noise import NoiseStream

torch = pytest.importorskip("torch")
from mmcc.training._torch_noise import TorchNoiseStream  # noqa: E402

STEPS = 8
COUNTING = strategies.continual_counting(STEPS)
ALL = [
    strategies.binary_tree(STEPS),
    COUNTING,
    strategies.banded_toeplitz(STEPS, 3),
    strategies.blt(STEPS, 2),
]


def ask(strategy=COUNTING, **given):
    """The claim is so large that only the tests of the law can fail."""
    given = {"sigma": 3.0, "delta": 1e-3, "runs": 3000, "seed": 1, "epsilon": 1000.0} | given
    return audit(strategy, sampling.Poisson(1 / 4), **given)


def failed(found):
    return {finding.name for finding in found.failures}


def made_with(monkeypatch, change):
    """Every torch stream gets what `change` makes of strategy and sigma."""
    real = TorchNoiseStream.__init__

    def init(self, strategy, sigma, *rest, decoder=None, **more):
        strategy, sigma = change(strategy, sigma)
        decoder = decoder if "tree" in repr(strategy) else None
        real(self, strategy, sigma, *rest, decoder=decoder, **more)

    monkeypatch.setattr(TorchNoiseStream, "__init__", init)


@pytest.mark.parametrize("strategy", first(ALL, 2), ids=repr)
def test_zero_noise(strategy, monkeypatch):
    real = TorchNoiseStream._advance
    monkeypatch.setattr(
        TorchNoiseStream, "_advance", lambda self, step: [0 * part for part in real(self, step)]
    )
    found = ask(strategy)
    assert {"variance of the noise", "repeats of the noise"} <= failed(found)


@pytest.mark.parametrize("strategy", first(ALL, 2), ids=repr)
def test_noise_without_correlation(strategy, monkeypatch):
    made_with(monkeypatch, lambda strategy, sigma: (strategies.identity(strategy.steps), sigma))
    assert {"variance of the noise", "correlation of the noise"} & failed(ask(strategy))


@pytest.mark.parametrize("strategy", first(ALL, 2), ids=repr)
def test_half_the_sigma(strategy, monkeypatch):
    made_with(monkeypatch, lambda strategy, sigma: (strategy, sigma / 2))
    assert "variance of the noise" in failed(ask(strategy))


@pytest.mark.parametrize("strategy", first(ALL, 2), ids=repr)
def test_buffers_lost_on_resume(strategy, monkeypatch):
    real = TorchNoiseStream.restore

    def restore(self, state):
        real(self, {**state, "buffers": [0 * part for part in state["buffers"]]})

    monkeypatch.setattr(TorchNoiseStream, "restore", restore)
    assert {"correlation of the noise", "noise after a stop"} <= failed(ask(strategy))


def test_noise_restarted_after_resume(monkeypatch):
    monkeypatch.setattr(TorchNoiseStream, "restore", lambda self, state: None)
    assert "noise after a stop" in failed(ask())


def test_noise_of_one_tensor_in_another(monkeypatch):
    """Two parameters that share their noise: only a layout of several tensors shows it."""
    real = TorchNoiseStream._split

    def split(self, vectors):
        first, *others, last = real(self, vectors)
        last[: first.numel()] = first.reshape(-1)[: last.numel()]
        return [first, *others, last]

    monkeypatch.setattr(TorchNoiseStream, "_split", split)
    assert "repeats of the noise" in failed(ask(strategies.identity(STEPS)))


def test_a_repeated_seed(monkeypatch):
    real = TorchNoiseStream.__init__

    def init(self, strategy, sigma, like, seed, **more):
        real(self, strategy, sigma, like, 7, **more)

    monkeypatch.setattr(TorchNoiseStream, "__init__", init)
    assert "repeats of the noise" in failed(ask())


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_the_stream_of_training_passes(strategy):
    found = ask(strategy)
    assert found.passed, str(found)
    assert (found.stream, found.generator) == ("torch", "device")
    assert "stream torch" in str(found)


def test_the_other_generators_pass():
    pytest.importorskip("cryptography")
    device, philox, chacha = (ask(generator=name) for name in (None, "philox", "chacha"))
    assert philox.passed, str(philox)
    assert chacha.passed, str(chacha)
    assert chacha.to_dict()["generator"] == "chacha"
    values = {tuple(f.p_value for f in found.findings) for found in (device, philox, chacha)}
    assert len(values) == 3


@pytest.mark.parametrize("steps", [16, 64])
@pytest.mark.parametrize(
    "kind",
    [
        strategies.binary_tree,
        strategies.continual_counting,
        lambda steps: strategies.banded_toeplitz(steps, 4),
        lambda steps: strategies.blt(steps, 2),
    ],
)
def test_single_precision_moves_white_noise_by_millionths(kind, steps):
    """Truth: the same random numbers in double precision."""
    strategy = kind(steps)
    white = whitener(strategy, 3.7, None)
    single = chosen("torch", None).make(strategy, 3.7, 400, 5, decoder=None)
    double = NoiseStream(strategy, 3.7, 400, 5)
    played = [np.array([next(stream) for _ in range(steps)]) for stream in (single, double)]
    assert [part.dtype for part in played] == [np.float32, np.float64]
    assert 0 < np.abs(white @ (played[0] - played[1])).max() < 4e-6


@pytest.mark.parametrize("strategy", [strategies.identity(STEPS), *ALL], ids=repr)
def test_single_values_meet_by_chance_but_no_more_often_than_stated(strategy):
    stream = chosen("torch", None).make(strategy, 3.0, 20_000, 3, decoder=None)
    values = np.sort(np.concatenate([next(stream) for _ in range(STEPS)]))
    equal = np.sum(values[1:] == values[:-1])
    scale = spread(whitener(strategy, 3.0, None)) * np.finfo(np.float32).eps
    assert 0 < equal < values.size**2 / 2 * COINCIDENCE * scale


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_single_precision_never_fails_in_many_runs_over_many_seeds(strategy):
    for seed in range(20):
        found = ask(strategy, runs=100_000, seed=seed)
        assert found.passed, f"seed {seed}: {found}"
