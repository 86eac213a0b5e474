"""Claim: what has no exact counterpart in jax_privacy, or no proof, is refused with a remedy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mmcc import sampling, strategies
from mmcc.bridge import jax_privacy as bridge
from mmcc.bridge.jax_privacy import _library
from mmcc.errors import MethodError, MmccError, ParameterError, SamplingError, StrategyError

STRATEGY = strategies.toeplitz([1.0, 0.5], 4)


def test_nothing_imports_jax_before_it_is_needed():
    code = (
        "import mmcc.bridge; from mmcc.bridge import jax_privacy; jax_privacy.scheme_to\n"
        "import sys; print(sorted({'jax', 'jax_privacy', 'dp_accounting'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "question",
    [
        lambda: bridge.strategy_from([1.0, 0.5], 4),
        lambda: bridge.strategy_to(strategies.blt(4, decay=[0.5], scale=[0.2])),
        lambda: bridge.scheme_from(object()),
        lambda: bridge.scheme_to(sampling.Poisson(0.5), 4),
        lambda: bridge.mechanism_from(object()),
        lambda: bridge.noising_matrix(STRATEGY),
        lambda: bridge.privatizer(STRATEGY, sigma=1.0, sensitivity=1.0),
    ],
)
def test_without_the_package_the_extra_is_named(question, monkeypatch):
    def absent(name):
        raise _library.PackageNotFoundError(name)

    monkeypatch.setattr(_library, "version", absent)
    with pytest.raises(MethodError, match=r"pip install 'mmcc\[jax\]'"):
        question()


@pytest.mark.parametrize("found", ["1.0.0", "2.1.0", "2.2.0.dev1"])
def test_another_version_is_not_taken_for_the_one_that_was_read(found, monkeypatch):
    monkeypatch.setattr(_library, "version", lambda name: found)
    with pytest.raises(MethodError, match=r"jax_privacy>=2.0,<2.1"):
        bridge.scheme_to(sampling.Poisson(0.5), 4)


def test_what_they_cannot_draw_is_drawn_by_participants():
    for scheme in (sampling.RandomAllocation(4), sampling.Shuffle()):
        with pytest.raises(SamplingError, match=r"mmcc\.training\.Participants"):
            bridge.scheme_to(scheme, 8)


def test_steps_that_are_no_whole_epochs():
    with pytest.raises(SamplingError, match="whole number of epochs"):
        bridge.scheme_to(sampling.BallsInBins(3), 8)


class TestWithJaxPrivacy:
    """The rest needs the package."""

    @pytest.fixture(autouse=True)
    def theirs(self):
        pytest.importorskip("jax_privacy", reason="needs pip install 'mmcc[jax]', Python 3.11")
        from jax_privacy import batch_selection

        self.samplers = batch_selection

    def refused(self, sampler, why, examples=None):
        with pytest.raises(MmccError, match=why):
            bridge.scheme_from(sampler, examples)

    def test_samplers(self):
        module = self.samplers
        poisson = module.CyclicPoissonSampling(0.1, 8)
        self.refused(module.FixedBatchSampling(4, 8), "fixed size")
        self.refused(module.UserSelectionStrategy(poisson), "base_strategy")
        self.refused(module.BallsInBinsSampling(8, 3), "whole number of epochs")
        self.refused(module.BMinSepSampling(0.1, 8, 3, truncated_batch_size=5), "cut")
        self.refused(module.CyclicPoissonSampling(0.1, 8, truncated_batch_size=5), "examples")
        both = module.CyclicPoissonSampling(0.1, 8, truncated_batch_size=5, cycle_length=2)
        self.refused(both, "cycle_length=2", 100)
        self.refused(poisson.batch_iterator, "need one of")
        self.refused(module.CyclicPoissonSampling(0.0, 8), "probability")
        self.refused(module.CyclicPoissonSampling(0.5, 8, cycle_length=0), "cycle_length")

    def test_a_sampler_of_another_class_draws_as_it_likes(self):
        class Mine(self.samplers.CyclicPoissonSampling):
            pass

        class CyclicPoissonSampling:
            sampling_prob, iterations, cycle_length = 0.1, 8, 1

        self.refused(Mine(0.1, 8), "user-defined class")
        self.refused(CyclicPoissonSampling(), "user-defined class")

    def test_strategies(self):
        from jax_privacy.matrix_factorization import streaming_matrix

        for theirs, why in [
            (streaming_matrix.identity(), "two functions"),
            ([[0.0, 1.0], [1.0, 0.0]], "causal"),
            ([1.0, -0.5], "negative"),
            ("bands", "need Toeplitz"),
            ([[1.0]], "1 steps, not for 4"),
        ]:
            with pytest.raises(StrategyError, match=why):
                bridge.strategy_from(theirs, 4)
        with pytest.raises(StrategyError, match="Pass steps"):
            bridge.strategy_from([1.0, 0.5])

    def test_noise(self):
        size = {"sigma": 1.0, "sensitivity": 1.0}
        backwards = strategies.dense([[1.0, 1.0], [0.0, 1.0]], adaptive=False)
        with pytest.raises(StrategyError, match="causal order"):
            bridge.privatizer(backwards, **size)
        late = strategies.dense([[1.0, 0.5], [0.0, 1.0]])
        with pytest.raises(StrategyError, match="too late"):
            bridge.privatizer(late, **size)
        with pytest.raises(StrategyError, match="no inverse"):
            bridge.noising_matrix(strategies.binary_tree(4), dense=False)
        with pytest.raises(ParameterError, match="jax_enable_x64"):
            bridge.privatizer(STRATEGY, **size, dtype="float64")
        for wrong in ({"sigma": 0.0}, {"sensitivity": -1.0}, {"dtype": "float16"}):
            with pytest.raises(ParameterError, match=next(iter(wrong))):
                bridge.privatizer(STRATEGY, **{**size, **wrong})

    def test_plans(self):
        import dp_accounting
        from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

        given = {
            "strategy": [0.8, 0.6],
            "iterations": 8,
            "epsilon": None,
            "delta": None,
            "noise_multiplier": 1.0,
            "sampling_prob": 0.1,
        }
        replaced = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
        with pytest.raises(MethodError, match="REPLACE_ONE"):
            bridge.mechanism_from(BandMFExecutionPlanConfig(**given, accountant=replaced))
        with pytest.raises(ParameterError, match="float16"):
            bridge.mechanism_from(BandMFExecutionPlanConfig(**given, dtype="float16"))
        with pytest.raises(ParameterError, match="need a BandMF"):
            bridge.mechanism_from(given)
