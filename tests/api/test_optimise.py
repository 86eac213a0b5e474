"""Claim: `optimise` returns a certified strategy, never worse than the best fixed one."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies, utility
from mmcc.design._optimised_result import Candidate, LeftOut, Optimised, RuledOut
from mmcc.errors import MethodError, ParameterError, SamplingError, StrategyError

DELTA = 1e-5


def dense_errors(strategy) -> np.ndarray:
    """Standard deviations of prefix sums at sigma = 1, from matrices alone."""
    encoder = strategy.to_dense()
    prefix = np.tril(np.ones(encoder.shape))
    return np.linalg.norm(prefix @ np.linalg.inv(encoder), axis=1)


def check(found: Optimised, scheme, epsilon: float) -> None:
    """Everything that is promised, looked at again."""
    again = mmcc.epsilon(found.strategy, scheme, sigma=found.sigma, delta=DELTA)
    assert again.epsilon <= epsilon
    assert found.guarantee.epsilon <= epsilon
    assert found.guarantee.delta == DELTA
    assert (found.strategy.to_dense() >= 0).all()
    deviations = dense_errors(found.strategy) * found.sigma
    measured = deviations.max() if found.objective == "max" else np.sqrt((deviations**2).mean())
    assert found.error == pytest.approx(measured, rel=1e-9)
    assert found.error <= found.fixed.error
    assert found.gain >= 0
    assert f"{found.error:.5g}" in str(found)
    assert f"{found.fixed.error:.5g}" in str(found)


def error_of(strategy, scheme, epsilon: float) -> float:
    sigma = mmcc.sigma(strategy, scheme, epsilon=epsilon, delta=DELTA).sigma
    return sigma * float(np.sqrt((dense_errors(strategy) ** 2).mean()))


def test_poisson():
    scheme = sampling.Poisson(1 / 4)
    rivals = [strategies.identity(4)]
    found = strategies.optimise(4, scheme, 1.0, DELTA, fixed=rivals, evaluations=2)
    check(found, scheme, 1.0)
    for fixed in rivals:
        assert found.fixed.error <= error_of(fixed, scheme, 1.0) * (1 + 1e-12)
    assert found.evaluations <= 2 + 4
    assert found.to_dict()["fixed"]["error"] == found.fixed.error


@pytest.mark.parametrize(
    ("scheme", "epsilon"),
    [
        (sampling.BallsInBins(5), 2.0),
        pytest.param(sampling.CyclicPoisson(0.25, 5), 0.5, marks=pytest.mark.slow),
    ],
)
def test_no_fixed_strategy_is_better(scheme, epsilon):
    found = strategies.optimise(20, scheme, epsilon, DELTA, evaluations=2)
    check(found, scheme, epsilon)
    assert found.tuned is not None
    assert found.error == min(found.tuned.error, found.fixed.error)
    # Counting, its first 2, 4, 5 and 16 coefficients, a BLT, optimised bands, independent noise.
    assert len(found.others) == 7
    counting = strategies.continual_counting(20).coefficients
    for bands in (1, 4):
        fixed = strategies.toeplitz(counting[:bands], 20)
        assert found.fixed.error <= error_of(fixed, scheme, epsilon) * (1 + 1e-12)
    for other in found.others:
        least = other.error_lower if isinstance(other, RuledOut) else other.error
        assert least >= found.fixed.error


def test_the_largest_error_within_bands():
    scheme = sampling.BallsInBins(4)
    found = strategies.optimise(8, scheme, 1.0, DELTA, objective="max", bands=3, evaluations=4)
    check(found, scheme, 1.0)
    for one in (found.strategy, found.fixed.strategy, found.tuned.strategy):
        assert one.bands <= 3


def test_a_better_fixed_strategy_is_returned():
    """At one participation the optimal matrix is better than every Toeplitz one."""
    scheme = sampling.CyclicPoisson(1.0, 16)
    best = strategies.optimal(16)
    found = strategies.optimise(16, scheme, 1.0, DELTA, fixed=[best, strategies.identity(16)])
    check(found, scheme, 1.0)
    assert found.strategy is best
    assert found.gain == 0
    assert found.tuned.error < 1.1 * found.error
    assert "0.00 %" in str(found)


def test_one_participation_comes_near_the_optimum():
    found = strategies.optimise(64, sampling.CyclicPoisson(1.0, 64), 1.0, DELTA)
    bound = mmcc.sigma(
        strategies.optimal(64), sampling.CyclicPoisson(1.0, 64), epsilon=1.0, delta=DELTA
    ).sigma * float(np.sqrt((dense_errors(strategies.optimal(64)) ** 2).mean()))
    assert bound <= found.error * (1 + 1e-6)
    assert found.error <= 1.05 * bound


@pytest.mark.parametrize(
    "scheme",
    [
        sampling.MinSeparation(1 / 3, 2),
        sampling.RandomAllocation(4),
        pytest.param(sampling.TruncatedPoisson(0.25, 90, 200), marks=pytest.mark.slow),
    ],
    ids=lambda scheme: scheme.name,
)
def test_every_scheme_with_a_certificate(scheme):
    rivals = [strategies.identity(8), strategies.blt(8)]
    found = strategies.optimise(8, scheme, 2.0, 1e-3, fixed=rivals, evaluations=4)
    again = mmcc.epsilon(found.strategy, scheme, sigma=found.sigma, delta=1e-3)
    assert again.epsilon <= 2.0
    assert found.error <= found.fixed.error
    assert found.error == pytest.approx(
        found.sigma * float(np.sqrt((dense_errors(found.strategy) ** 2).mean())), rel=1e-9
    )


def test_what_has_no_certificate_is_left_out():
    scheme = sampling.MinSeparation(1 / 3, 2)
    rivals = [strategies.optimal(8), strategies.identity(8)]
    asked = {"method": "reveal", "evaluations": 0}
    found = strategies.optimise(8, scheme, 2.0, DELTA, fixed=rivals, **asked)
    assert found.strategy is rivals[1]
    (left_out,) = found.others
    assert isinstance(left_out, LeftOut)
    assert "left out" in str(left_out)
    with pytest.raises(mmcc.MmccError):
        strategies.optimise(8, scheme, 2.0, DELTA, fixed=rivals[:1], **asked)


def test_a_workload_is_what_errors_are_of():
    workload = utility.schedule(utility.cosine_rates(8), momentum=0.9)
    scheme = sampling.BallsInBins(4)
    rivals = [strategies.identity(8)]
    found = strategies.optimise(
        8, scheme, 2.0, DELTA, workload=workload, evaluations=6, fixed=rivals
    )
    assert found.error == pytest.approx(utility.rmse(found.strategy, found.sigma, workload))
    assert found.error <= found.fixed.error
    assert found.workload == workload.name
    assert workload.name in str(found)
    assert found.to_dict()["workload"] == workload.name


def test_more_buffers():
    found = strategies.optimise(
        8, sampling.BallsInBins(4), 2.0, DELTA, buffers=2, evaluations=30, fixed=[strategies.blt(8)]
    )
    check(found, sampling.BallsInBins(4), 2.0)


def test_it_is_deterministic_and_shows_progress():
    seen = []
    runs = [
        strategies.optimise(
            4,
            sampling.BallsInBins(2),
            1.0,
            DELTA,
            evaluations=2,
            progress=lambda what, done: seen.append((what, done)),
        )
        for _ in range(2)
    ]
    assert runs[0].error == runs[1].error
    assert runs[0].sigma == runs[1].sigma
    assert (runs[0].strategy.to_dense() == runs[1].strategy.to_dense()).all()
    assert {what for what, _ in seen} == {
        "optimise: bounds on fixed strategies",
        "optimise: fixed strategies",
        "optimise: strategies tried",
    }


def test_without_evaluations_the_best_fixed_strategy_is_returned():
    found = strategies.optimise(4, sampling.BallsInBins(2), 1.0, DELTA, evaluations=0)
    assert found.tuned is None
    assert found.strategy is found.fixed.strategy
    assert found.evaluations == 0


@pytest.mark.parametrize("scheme", [sampling.Poisson(0.5), sampling.BallsInBins(1)])
def test_one_step(scheme):
    found = strategies.optimise(1, scheme, 1.0, DELTA)
    check(found, scheme, 1.0)
    assert found.strategy.bands == 1
    assert found.others == ()


def test_a_method_can_be_chosen():
    scheme = sampling.BallsInBins(3)
    found = strategies.optimise(6, scheme, 1.0, DELTA, method="unamplified", evaluations=2)
    check(found, scheme, 1.0)
    assert found.guarantee.method == "unamplified"


def test_it_can_be_interrupted():
    def stop(what, done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strategies.optimise(12, sampling.Poisson(0.1), 1.0, DELTA, progress=stop)


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"steps": 0}, ParameterError, "steps"),
        ({"steps": 2.0}, ParameterError, "steps"),
        ({"steps": 10**9}, ParameterError, "steps"),
        ({"epsilon": math.nan}, ParameterError, "epsilon"),
        ({"epsilon": 0.0}, ParameterError, "epsilon"),
        ({"epsilon": "1"}, ParameterError, "epsilon"),
        ({"delta": 0.0}, ParameterError, "delta"),
        ({"delta": 1.0}, ParameterError, "delta"),
        ({"sampling": sampling.Poisson(1e-9)}, ParameterError, "nothing to optimise"),
        ({"sampling": sampling.BallsInBins(5)}, SamplingError, "epochs"),
        ({"sampling": sampling.Shuffle()}, SamplingError, "Shuffle"),
        ({"sampling": sampling.Unsampled(3, 2)}, SamplingError, "no amplification"),
        ({"workload": [1.0, 2.0]}, StrategyError, "workload has 2 steps"),
        ({"buffers": 5}, ParameterError, "buffers"),
        ({"sampling": 0.1}, SamplingError, "got float"),
        ({"objective": "worst"}, ParameterError, "objective"),
        ({"method": "tigth"}, MethodError, "tight"),
        ({"bands": 0}, ParameterError, "bands"),
        ({"evaluations": -1}, ParameterError, "evaluations"),
        ({"progress": 3}, ParameterError, "progress"),
        ({"fixed": []}, StrategyError, "fixed"),
        ({"fixed": strategies.identity(12)}, StrategyError, "list"),
        ({"fixed": [strategies.identity(8)]}, StrategyError, "12 steps"),
        ({"fixed": [np.eye(12)]}, StrategyError, "fixed"),
    ],
)
def test_bad_input(changed, error, said):
    usual = {"steps": 12, "sampling": sampling.Poisson(0.1), "epsilon": 1.0, "delta": DELTA}
    with pytest.raises(error, match=said):
        strategies.optimise(**(usual | changed))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_at_least_five_per_cent_below_every_fixed_strategy(epsilon):
    """n = 256, p = 1/256: against identity, counting and its first 2, 4, 16, 64 coefficients."""
    scheme = sampling.Poisson(1 / 256)
    found = strategies.optimise(256, scheme, epsilon, DELTA)
    check(found, scheme, epsilon)
    assert found.gain >= 0.05
    counting = strategies.continual_counting(256).coefficients
    for bands in (1, 2, 4, 16, 64, 256):
        fixed = strategies.toeplitz(counting[:bands], 256)
        assert found.error <= 0.95 * error_of(fixed, scheme, epsilon)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "published"), [(1.0, 54.83), (2.0, 30.68), (4.0, 18.38), (8.0, 12.05)]
)
def test_many_participations(epsilon, published):
    """n = 2000, p = .01: at least as good as one buffer tuned by hand, within half a per cent."""
    found = strategies.optimise(2000, sampling.Poisson(0.01), epsilon, DELTA)
    assert found.error <= 1.005 * published
    assert found.error <= found.fixed.error
    assert isinstance(found.fixed, Candidate)
