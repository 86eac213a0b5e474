"""Claim: an audit of what training uses finds nothing, and its lower bound is below the truth."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from cases.samples import in_turn, sampled
from scipy.optimize import brentq
from scipy.stats import norm

from mmcc import sampling, strategies
from mmcc.audit import audit
from mmcc.errors import MmccError
from mmcc.training import MissingPackageError
from mmcc.training._noise import NoiseStream

STRATEGIES = {
    "tree": strategies.binary_tree,
    "counting": strategies.continual_counting,
    "banded": lambda steps: strategies.banded_toeplitz(steps, 4),
    "blt": lambda steps: strategies.blt(steps, 2),
}
SCHEMES = {
    "poisson": sampling.Poisson(1 / 4),
    "cyclic": sampling.CyclicPoisson(1 / 2, 4),
    "bins": sampling.BallsInBins(4),
}


def gaussian_epsilon(shift, delta):
    """Epsilon at delta of N(0, 1) against N(shift, 1), from the exact curve."""

    def excess(epsilon):
        left = norm.cdf(shift / 2 - epsilon / shift)
        return left - math.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift) - delta

    return brentq(excess, 0, 50)


@pytest.mark.parametrize(("strategy", "scheme"), in_turn(list(STRATEGIES), list(SCHEMES)))
def test_the_real_stream_and_sampler_pass(strategy, scheme):
    found = audit(
        STRATEGIES[strategy](8), SCHEMES[scheme], sigma=3.0, delta=1e-3, runs=10_000, seed=1
    )
    assert found.passed, str(found)
    assert 0.2 < found.epsilon_lower <= found.epsilon
    assert found.runs >= 10_000
    assert found.resumed == found.runs // 2


@pytest.mark.parametrize(
    ("strategy", "scheme"),
    [
        (strategies.tree_restart(8, 3), sampling.Poisson(0.3)),
        (strategies.optimal(6), sampling.MinSeparation(0.3, 2)),
        (strategies.banded_inverse(6, 2), sampling.Shuffle(3)),
        (strategies.identity(6), sampling.RandomAllocation(3, 2)),
        (strategies.banded(6, 2), sampling.CyclicPoisson(1.0, 6)),
        (strategies.continual_counting(7), sampling.CyclicPoisson(0.03, 3)),
        (strategies.identity(40), sampling.Poisson(0.1)),
        (strategies.continual_counting(20), sampling.Poisson(0.05)),
        (strategies.blt(30, 2), sampling.Shuffle(15)),
    ],
    ids=repr,
)
def test_other_mechanisms_pass(strategy, scheme):
    found = audit(strategy, scheme, sigma=2.0, delta=1e-3, runs=4000, seed=3, epsilon=50.0)
    assert found.passed, str(found)


def test_trees_pass_with_both_decoders():
    tree = strategies.binary_tree(6)
    for decoder in ("online", "honaker"):
        found = audit(
            tree, SCHEMES["poisson"], sigma=3.0, delta=1e-3, runs=4000, seed=5, decoder=decoder
        )
        assert found.passed, str(found)
        assert found.decoder == decoder


@pytest.mark.parametrize(("sigma", "delta"), [(2.0, 1e-2), (1.0, 1e-2), (0.5, 1e-3), (1.0, 1e-5)])
def test_the_bound_comes_near_the_truth_of_one_gaussian(sigma, delta):
    """One step in which everyone takes part: the true epsilon is known in closed form."""
    truth = gaussian_epsilon(1 / sigma, delta)
    found = audit(
        strategies.identity(1),
        sampling.Poisson(1.0),
        sigma=sigma,
        delta=delta,
        runs=100_000,
        seed=2,
    )
    assert found.epsilon == pytest.approx(truth, rel=1e-3)
    assert 0.5 * truth < found.epsilon_lower < truth


def test_the_bound_is_near_the_truth_for_many_steps_of_one_participation():
    """Everyone in one fixed step each: sensitivity is a column's norm, the largest the first's."""
    counting = strategies.continual_counting(8)
    norm_of_first = float(np.linalg.norm(counting.to_dense()[:, 0]))
    truth = gaussian_epsilon(norm_of_first / 1.5, 1e-2)
    found = audit(
        counting, sampling.CyclicPoisson(1.0, 8), sigma=1.5, delta=1e-2, runs=50_000, seed=4
    )
    assert 0.7 * truth < found.epsilon_lower < truth


def test_single_precision_is_no_repeat():
    def single(strategy, sigma, shape, seed, *, decoder):
        return NoiseStream(strategy, sigma, shape, seed, decoder=decoder, dtype=np.float32)

    found = audit(
        strategies.continual_counting(6),
        SCHEMES["poisson"],
        sigma=3.0,
        delta=1e-3,
        runs=4000,
        seed=6,
        stream=single,
    )
    assert found.passed, str(found)


@pytest.mark.parametrize(
    ("diagonal", "probability", "least"),
    sampled([[0.1, 1.0, 0.1, 1.0], [1.0, 0.1, 1.0, 0.1]], [(1.0, 2.0), (0.5, 0.8)], strength=1),
)
def test_canaries_are_of_the_worst_group(diagonal, probability, least):
    """Whether epsilon is certified, by whichever bound, or claimed."""
    strategy, scheme = strategies.dense(np.diag(diagonal)), sampling.CyclicPoisson(probability, 2)
    asked = {"sigma": 1.0, "delta": 1e-2, "runs": 12_000, "seed": 1}
    found = audit(strategy, scheme, **asked)
    assert found.group == diagonal.index(1.0)
    assert least < found.epsilon_lower <= found.epsilon
    claimed = audit(strategy, scheme, epsilon=0.5, **asked)
    assert claimed.epsilon_lower > least
    assert not claimed.passed


def test_schemes_without_groups_name_none():
    found = audit(
        strategies.identity(2), sampling.Poisson(0.5), sigma=1.0, delta=1e-2, runs=1000, epsilon=5.0
    )
    assert found.to_dict()["group"] is None


def named(**given):
    found = audit(
        strategies.identity(2),
        sampling.Poisson(0.5),
        sigma=1.0,
        delta=1e-2,
        runs=1000,
        seed=3,
        epsilon=5.0,
        **given,
    )
    return found.stream, found.generator


def test_the_result_says_which_stream_was_played():
    assert named(stream="numpy") == ("numpy", "device")
    assert named(stream=NoiseStream) == ("NoiseStream", "its own")


def test_without_torch_the_stream_of_numpy_is_played(monkeypatch):
    for module in ("mmcc.audit._torch_stream", "mmcc.training._torch_noise"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert named() == ("numpy", "device")
    with pytest.raises(MissingPackageError, match=r"mmcc\[train\].*'numpy'"):
        named(stream="torch")


def test_an_audit_can_be_repeated_and_needs_no_seed():
    def ask(seed):
        return audit(
            strategies.identity(2),
            sampling.Poisson(0.5),
            sigma=1.0,
            delta=1e-2,
            runs=1000,
            seed=seed,
            epsilon=5.0,
        )

    assert ask(7).to_dict() == ask(7).to_dict()
    assert ask(7).epsilon_lower != ask(8).epsilon_lower
    drawn = ask(None)
    assert drawn.to_dict() == ask(drawn.seed).to_dict()


def test_long_work_says_how_far_it_is():
    said = []
    audit(
        strategies.identity(2),
        sampling.Poisson(0.5),
        sigma=1.0,
        delta=1e-2,
        runs=1000,
        seed=1,
        epsilon=5.0,
        progress=lambda what, done: said.append((what, done)),
    )
    assert said[-1] == ("runs audited", 1000)
    assert len(said) >= 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": strategies.identity(2000)}, "prefix"),
        ({"strategy": "tree"}, "mmcc.strategies"),
        ({"sampling": sampling.BallsInBins(3)}, "bins"),
        ({"sampling": "poisson"}, "mmcc.sampling"),
        ({"sigma": 0.0}, "sigma"),
        ({"delta": 1.0}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"runs": 10}, "runs"),
        ({"sampling": sampling.CyclicPoisson(0.5, 10**6)}, "separation"),
        ({"seed": -1}, "seed"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"decoder": "online"}, "decoder"),
        ({"stream": "nump"}, "did you mean 'numpy'"),
        ({"stream": 3}, "unknown stream 3"),
        ({"stream": "numpy", "generator": "chac"}, "did you mean 'chacha'"),
        ({"stream": NoiseStream, "generator": "philox"}, "brings its own"),
        ({"strategy": strategies.dense(np.ones((4, 4)), adaptive=False)}, "adaptive"),
    ],
)
def test_bad_input_is_refused(change, message):
    asked = {
        "strategy": strategies.identity(4),
        "sampling": sampling.Poisson(0.5),
        "sigma": 1.0,
        "delta": 1e-2,
    }
    asked |= change
    with pytest.raises(MmccError, match=message):
        audit(asked.pop("strategy"), asked.pop("sampling"), **asked)


GRID = [(name, scheme) for name in STRATEGIES for scheme in SCHEMES]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "scheme"), GRID, ids=lambda part: str(part))
@pytest.mark.parametrize(("steps", "sigma"), [(16, 4.0), (64, 8.0)])
def test_the_grid_of_many_runs_passes(strategy, scheme, steps, sigma):
    found = audit(
        STRATEGIES[strategy](steps),
        SCHEMES[scheme],
        sigma=sigma,
        delta=1e-5,
        runs=100_000,
        seed=11,
    )
    assert found.passed, str(found)
    assert found.epsilon_lower > 0


@pytest.mark.slow
def test_hundreds_of_steps_pass():
    found = audit(strategies.blt(512, 2), sampling.Poisson(1 / 64), sigma=8.0, delta=1e-5, seed=12)
    assert found.passed, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_correct_mechanism_never_fails_over_a_hundred_seeds(strategy):
    made, scheme = STRATEGIES[strategy](8), SCHEMES["bins"]
    certified = audit(made, scheme, sigma=3.0, delta=1e-2, runs=1000, seed=0).epsilon
    for seed in range(100):
        found = audit(made, scheme, sigma=3.0, delta=1e-2, runs=4000, seed=seed, epsilon=certified)
        assert found.passed, f"seed {seed}: {found}"


@pytest.mark.slow
def test_the_bound_is_below_the_exact_truth_over_a_hundred_seeds():
    truth = gaussian_epsilon(1.0, 1e-2)
    bounds = [
        audit(
            strategies.identity(1),
            sampling.Poisson(1.0),
            sigma=1.0,
            delta=1e-2,
            runs=10_000,
            seed=seed,
            epsilon=truth,
        ).epsilon_lower
        for seed in range(100)
    ]
    assert max(bounds) < truth
