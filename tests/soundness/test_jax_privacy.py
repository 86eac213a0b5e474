"""Claim: what crosses to jax_privacy and back is one mechanism: its law, its noise, its number.

Needs the extra `jax` and Python 3.11: pip install -e '.[test-core,jax]'.
"""

from __future__ import annotations

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc.bridge import jax_privacy as bridge
from mmcc.bridge.jax_privacy._noise import _rounded_up

pytest.importorskip("jax_privacy", reason="needs pip install 'mmcc[jax]' and Python 3.11")

import dp_accounting
import jax
from jax_privacy import batch_selection, matrix_factorization
from jax_privacy.experimental import execution_plan
from jax_privacy.noise_addition import matrix_factorization_privatizer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:optax")
STEPS, COORDINATES = 12, 100_000
INDEPENDENT = batch_selection.PartitionType.INDEPENDENT
RELATION = dp_accounting.NeighboringRelation
Cyclic = batch_selection.CyclicPoissonSampling
Bins = batch_selection.BallsInBinsSampling
Pause = batch_selection.BMinSepSampling


@pytest.fixture(params=["float32", "float64"])
def precision(request):
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)


# ------------------------------------------------------------------------------------- the noise


def geometric(length: int) -> np.ndarray:
    """C written out by hand: 1, .4, .4 * .7, ... down each column."""
    first = np.array([1.0, *(0.4 * 0.7**k for k in range(length - 1))])
    return np.array(
        [[first[i - j] if i >= j else 0.0 for j in range(length)] for i in range(length)]
    )


def bands(first: list[float], length: int) -> np.ndarray:
    found = np.zeros((length, length))
    for k, value in enumerate(first):
        found += np.diag(np.full(length - k, value), -k)
    return found


UNEVEN = bands([1.0, 0.6, 0.3], STEPS) * np.linspace(0.5, 2.0, STEPS)[:, None]
ENCODERS = {
    "independent": (strategies.identity(STEPS), np.eye(STEPS)),
    "bands": (strategies.toeplitz([0.8, 0.5, 0.25], STEPS), bands([0.8, 0.5, 0.25], STEPS)),
    "one buffer": (strategies.blt(STEPS, decay=[0.7], scale=[0.4]), geometric(STEPS)),
    "uneven bands": (strategies.dense(UNEVEN), UNEVEN),
    "inverse bands": (
        strategies.banded_inverse(STEPS, 3),
        np.linalg.inv(bands([1.0, -0.5, -0.125], STEPS)),
    ),
}


def noise_of(strategy: strategies.Strategy, **options) -> np.ndarray:
    """What the transformation adds to zeros, step after step."""
    made = bridge.privatizer(strategy, sigma=1.5, sensitivity=0.5, key=7, **options)
    zeros = {"w": jax.numpy.zeros((COORDINATES // 2,)), "b": jax.numpy.zeros((2, COORDINATES // 4))}
    return drawn(made, zeros, strategy.steps)


def drawn(transformation, zeros, steps: int) -> np.ndarray:
    state, found = transformation.init(zeros), []
    update = jax.jit(transformation.update)
    for _ in range(steps):
        noise, state = update(zeros, state)
        flat = [np.asarray(part, np.float64).ravel() for part in jax.tree.leaves(noise)]
        found.append(np.concatenate(flat))
    return np.array(found)


def assert_white(numbers: np.ndarray) -> None:
    """Rows are independent standard normals: the sample covariance is the identity."""
    count = numbers.shape[1]
    found = numbers @ numbers.T / count
    spread = np.sqrt((1 + np.eye(len(found))) / count)
    assert np.abs(found - np.eye(len(found))).max() <= 5 * spread.max()
    upper = np.triu_indices(len(found))
    scores = ((found - np.eye(len(found))) / spread)[upper]
    assert abs(np.square(scores).mean() - 1) <= 5 * np.sqrt(2 / scores.size)


@pytest.mark.parametrize("dense", [None, True], ids=["streaming", "dense"])
@pytest.mark.parametrize("name", ENCODERS)
def test_the_covariance_of_the_noise_is_that_of_the_strategy(name, dense):
    """C times the noise is white, over 10^5 coordinates; C is written out here."""
    strategy, matrix = ENCODERS[name]
    assert strategy.to_dense() == pytest.approx(matrix, abs=1e-15)
    assert_white(matrix @ noise_of(strategy, dense=dense) / 0.75)


def test_a_coefficient_that_is_off_by_three_hundredths_is_seen():
    """What the test above can tell apart."""
    strategy, _ = ENCODERS["bands"]
    noise = noise_of(strategy) / 0.75
    with pytest.raises(AssertionError):
        assert_white(bands([0.8, 0.53, 0.25], STEPS) @ noise)
    with pytest.raises(AssertionError):
        assert_white(bands([0.8, 0.5, 0.25], STEPS).T @ noise)


def test_the_noise_of_a_tree_is_that_of_its_least_squares_estimate():
    tree = strategies.binary_tree(8)
    noise = noise_of(tree)
    count = noise.shape[1]
    nodes = tree.to_dense()
    weights = np.zeros((8, len(nodes)))  # of the prefix sum that ends in a step
    for step in range(8):
        complete = ~nodes[:, step + 1 :].any(axis=1)
        known = nodes[complete, : step + 1]
        weights[step, complete] = np.linalg.pinv(known).sum(axis=0)
    expected = weights @ weights.T
    found = np.cov(np.cumsum(noise, axis=0), bias=True) / 0.75**2
    spread = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / count)
    assert (np.abs(found - expected) <= 5 * spread).all()


@pytest.mark.parametrize("name", ENCODERS)
def test_matrices_are_inverses(name, precision):
    strategy, matrix = ENCODERS[name]
    streaming = bridge.noising_matrix(strategy)
    assert isinstance(streaming, matrix_factorization.StreamingMatrix)
    close = {"float32": 3e-6, "float64": 1e-12}[precision]
    inverse = np.linalg.inv(matrix)
    assert np.asarray(streaming.materialize(STEPS)) == pytest.approx(inverse, abs=close)
    assert np.asarray(bridge.noising_matrix(strategy, dense=True)) == pytest.approx(
        inverse, abs=close
    )


@pytest.mark.parametrize("name", ENCODERS)
def test_what_is_handed_over_is_entrywise_no_larger(name, precision):
    """So that the certificate of ours holds for theirs, rounded or not."""
    strategy, _ = ENCODERS[name]
    back = bridge.strategy_from(bridge.strategy_to(strategy), STEPS)
    ours, theirs = strategy.to_dense(), back.to_dense()
    margin = 1 + 1e-15 * ("buffer" in name)  # ours rounds the powers up, once on each side
    assert (theirs <= ours * margin).all()
    assert theirs == pytest.approx(ours, rel=3e-7 * STEPS)


@pytest.mark.parametrize("dense", [None, True], ids=["streaming", "dense"])
def test_there_is_no_noise_after_the_last_step(dense):
    made = bridge.privatizer(
        strategies.toeplitz([1.0, 0.5], 3), sigma=1.0, sensitivity=1.0, dense=dense
    )
    found = drawn(made, jax.numpy.zeros(4), 5)
    assert np.isfinite(found[:3]).all()
    assert np.isnan(found[3:]).all()


def test_keys_are_fresh_unless_they_are_given():
    strategy, zeros = strategies.identity(2), jax.numpy.zeros(8)
    size = {"sigma": 1.0, "sensitivity": 1.0}
    one, two = (drawn(bridge.privatizer(strategy, **size), zeros, 2) for _ in range(2))
    assert not np.isin(one, two).any()
    one, two = (drawn(bridge.privatizer(strategy, **size, key=3), zeros, 2) for _ in range(2))
    assert (one == two).all()


@pytest.mark.parametrize("sigma", [0.1, 1.0, 1 + 1e-9, 1 / 3, 1e6])
def test_the_standard_deviation_is_never_below(sigma):
    assert np.float32(_rounded_up(sigma)) == _rounded_up(sigma) >= sigma
    assert _rounded_up(sigma) <= sigma * (1 + 2e-7)


# ------------------------------------------------------------------------------------ the samplers

SAMPLERS = {
    "Poisson": Cyclic(0.3, 6),
    "Poisson, independent": Cyclic(0.3, 6, partition_type=INDEPENDENT),
    "cyclic": Cyclic(0.6, 6, cycle_length=3),
    "cyclic, independent": Cyclic(0.6, 6, cycle_length=3, partition_type=INDEPENDENT),
    "all of a random group": Cyclic(1.0, 6, cycle_length=3, partition_type=INDEPENDENT),
    "bins": Bins(6, 3),
    "pause, cold": Pause(0.4, 6, 3, warm_start=False),
    "pause, warm": Pause(0.4, 6, 3, warm_start=True),
    "pause, warm, certain": Pause(1.0, 6, 3, warm_start=True),
    "no pause": Pause(0.4, 6, 1, warm_start=False),
    "cut": Cyclic(0.5, 6, truncated_batch_size=4),
}
SCHEMES = {
    "Poisson": sampling.Poisson(0.3),
    "Poisson, independent": sampling.Poisson(0.3),
    "cyclic": sampling.CyclicPoisson(0.6, 3),
    "cyclic, independent": sampling.CyclicPoisson(0.6, 3),
    "all of a random group": sampling.BallsInBins(3),
    "bins": sampling.BallsInBins(3),
    "pause, cold": sampling.MinSeparation(0.4, 3),
    "pause, warm": sampling.MinSeparation(0.4, 3, warm_start=True),
    "pause, warm, certain": sampling.BallsInBins(3),
    "no pause": sampling.Poisson(0.4),
    "cut": sampling.TruncatedPoisson(0.5, 4, 6),
}
EXAMPLES, RUNS = 6, 4000


def participations(sampler, seed: int = 1) -> np.ndarray:
    """[run, example, step]: who took part."""
    rng, found = np.random.default_rng(seed), np.zeros((RUNS, EXAMPLES, 6), bool)
    for run in found:
        for step, batch in enumerate(sampler.batch_iterator(EXAMPLES, rng)):
            run[batch, step] = True
    return found


def law_of(scheme, example_sets: np.ndarray) -> np.ndarray:
    """Chances of the participation sets given, by drawing from the scheme: 10^5 examples."""
    drawn = scheme.draw(6, 100_000, np.random.default_rng(5))
    codes = np.zeros(len(drawn), int)
    np.add.at(codes, drawn.owners(), 2**drawn.steps)
    return np.bincount(codes, minlength=64) / len(drawn)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_is_read_as_the_scheme_that_it_draws(name):
    """Sets of one example: a chi-square beside those of our scheme.

    In cyclic schemes a group is public with us, and random there: all groups together.
    """
    scheme = bridge.scheme_from(SAMPLERS[name], EXAMPLES)
    assert scheme == SCHEMES[name]
    took = participations(SAMPLERS[name])
    codes = (took[:, 0] @ (2 ** np.arange(6))).astype(int)
    found = np.bincount(codes, minlength=64) / RUNS
    if scheme.groups:
        parts = [scheme.draw(6, 33_000, np.random.default_rng(g), group=g) for g in range(3)]
        tables = []
        for part in parts:
            each = np.zeros(len(part), int)
            np.add.at(each, part.owners(), 2**part.steps)
            tables.append(np.bincount(each, minlength=64) / len(part))
        expected = np.mean(tables, axis=0)
    else:
        expected = law_of(scheme, found)
    never = expected == 0
    assert (found[never] <= 5 / RUNS).all()
    variance = expected * (1 / RUNS + 1e-5) + 1e-12
    scores = np.square(found - expected)[~never] / variance[~never]
    assert scores.sum() <= (~never).sum() + 5 * np.sqrt(2 * (~never).sum()) + 10


@pytest.mark.parametrize("name", ["Poisson", "bins", "pause, warm", "cyclic, independent"])
def test_examples_are_drawn_independently_of_each_other(name):
    took = participations(SAMPLERS[name], seed=2).astype(float)
    one, two = took[:, 0], took[:, 1]
    found = (one - one.mean(0)).T @ (two - two.mean(0)) / RUNS
    assert np.abs(found).max() <= 5 * 0.25 / np.sqrt(RUNS)


@pytest.mark.parametrize(
    "scheme",
    [
        sampling.Poisson(0.25),
        sampling.CyclicPoisson(0.5, 4),
        sampling.CyclicPoisson(1.0, 4),
        sampling.MinSeparation(0.2, 4),
        sampling.MinSeparation(0.2, 4, warm_start=True),
        sampling.BallsInBins(4),
        sampling.TruncatedPoisson(0.1, 20, 100),
    ],
    ids=repr,
)
def test_a_scheme_goes_there_and_comes_back(scheme):
    sampler = bridge.scheme_to(scheme, 12)
    assert sampler.iterations == 12
    assert bridge.scheme_from(sampler, 100) == scheme
    assert len(list(sampler.batch_iterator(100, 0))) == 12


# -------------------------------------------------------------------------------------- the plans

PLANS = {
    "4 bands": {"strategy": [0.9, 0.4, 0.15, 0.1], "iterations": 400, "sampling_prob": 0.1},
    "8 bands, not whole rounds": {
        "strategy": [1.0, 0.5, 0.375, 0.3125, 0.27, 0.25, 0.23, 0.21],
        "iterations": 797,
        "sampling_prob": 0.2,
    },
    "DP-SGD": {"strategy": [1.0], "iterations": 500, "sampling_prob": 0.02},
    "independent groups": {
        "strategy": [0.8, 0.6],
        "iterations": 300,
        "sampling_prob": 0.05,
        "partition_type": INDEPENDENT,
        "accountant": dp_accounting.pld.PLDAccountant(RELATION.ADD_OR_REMOVE_ONE),
    },
    "other units": {
        "strategy": [0.8, 0.6],
        "iterations": 300,
        "sampling_prob": 0.05,
        "l2_clip_norm": 3.0,
        "rescale_to_unit_norm": False,
        "normalize_by": 77.0,
    },
    "columns of norm one": {
        "strategy": [0.8, 0.6],
        "iterations": 60,
        "sampling_prob": 0.1,
        "column_normalize": True,
    },
}


def plan_of(name: str, **options):
    given = {"epsilon": None, "delta": None, **PLANS[name], **options}
    given["strategy"] = np.array(given["strategy"])
    return execution_plan.BandMFExecutionPlanConfig(**given)


def their_epsilon(config, delta: float) -> float:
    accountant = dp_accounting.pld.PLDAccountant(config.accountant.neighboring_relation)
    return accountant.compose(config.plan.dp_event).get_epsilon(delta)


@pytest.mark.parametrize("name", PLANS)
def test_our_epsilon_of_their_plan_is_at_most_theirs(name, precision):
    noise = {"float32": 2.0, "float64": 0.8}[precision]
    config = plan_of(name, noise_multiplier=noise, dtype=np.dtype(precision))
    theirs = their_epsilon(config, 1e-5)
    ours = bridge.mechanism_from(config).epsilon(1e-5).epsilon
    # Rounding coefficients and noise to float32 may take 1e-7 of the noise away: we count it.
    assert ours <= theirs * {"float32": 1 + 2e-7, "float64": 1}[precision]
    assert ours >= 0.95 * theirs


@pytest.mark.parametrize("precision", ["float64"], indirect=True)
def test_our_epsilon_of_the_plan_that_they_optimise_is_at_most_theirs(precision):
    config = execution_plan.BandMFExecutionPlanConfig.default(
        num_bands=4,
        iterations=100,
        strategy_optimization_steps=20,
        epsilon=2.0,
        delta=1e-6,
        sampling_prob=0.1,
        dtype=np.float64,
    )
    found = bridge.mechanism_from(config)
    assert found.sampling == sampling.CyclicPoisson(0.1, 4)
    assert found.epsilon(1e-6).epsilon <= their_epsilon(config, 1e-6) <= 2.0


@pytest.mark.parametrize("name", PLANS)
def test_the_noise_of_a_plan_is_that_of_its_mechanism(name):
    """Over 10^5 coordinates, by their own transformation."""
    config = plan_of(name, iterations=12, noise_seed=11, noise_multiplier=2.0)
    mechanism = bridge.mechanism_from(config)
    clip = 1.0 if config.rescale_to_unit_norm else config.l2_clip_norm
    clip /= config.normalize_by
    noise = drawn(config.plan.noise_addition_transform, jax.numpy.zeros(COORDINATES), 12)
    assert_white(mechanism.strategy.to_dense() @ noise / (mechanism.sigma * clip))


def test_a_plan_whose_normalisation_takes_noise_away_is_seen_through():
    """Columns are normalised and the noise is made for shorter ones: theirs is too small."""
    config = execution_plan.BandMFExecutionPlanConfig(
        strategy=np.array([0.4, 0.3]),
        iterations=100,
        sampling_prob=0.1,
        epsilon=None,
        delta=None,
        noise_multiplier=2.0,
        column_normalize=True,
    )
    mechanism = bridge.mechanism_from(config)
    assert mechanism.sigma == pytest.approx(1.0, rel=1e-6)
    assert mechanism.epsilon(1e-5).epsilon > 2 * their_epsilon(config, 1e-5)


def test_columns_of_a_banded_matrix_are_normalised_as_there():
    params = np.array([[1.0, 0.5], [2.0, 1.0], [1.0, 3.0]])
    theirs = matrix_factorization.banded.ColumnNormalizedBanded(params=jax.numpy.asarray(params))
    found = bridge.strategy_from(theirs)
    exact = np.asarray(theirs.materialize(), np.float64)
    assert found.to_dense() == pytest.approx(exact, rel=1e-6)
    assert (np.linalg.norm(found.to_dense(), axis=0) >= 1).all()
    # The last entry of `params` is outside the matrix, and their noise counts it all the same.
    noising = np.asarray(theirs.inverse_as_streaming_matrix().materialize(3), np.float64)
    assert (np.linalg.inv(noising) <= found.to_dense() + 1e-6).all()
    assert np.linalg.inv(noising)[2, 2] < 0.4


def test_their_buffers_are_ours():
    theirs = matrix_factorization.buffered_toeplitz.BufferedToeplitz.build(
        [0.5, 0.9], [0.2, 0.1], dtype=jax.numpy.float32
    )
    found = bridge.strategy_from(theirs, 9)
    exact = np.asarray(theirs.materialize(9), np.float64)
    assert found.to_dense() == pytest.approx(exact, rel=1e-5)
    made = matrix_factorization_privatizer(
        theirs.inverse_as_streaming_matrix(), stddev=1.0, prng_key=1
    )
    assert_white(found.to_dense() @ drawn(made, jax.numpy.zeros(COORDINATES), 9))


def test_numbers_of_their_samplers_are_those_of_our_schemes():
    strategy = strategies.toeplitz([0.8, 0.5, 0.25], 12)
    asked = {"sigma": 2.0, "delta": 1e-5}
    sampler = Pause(0.25, 12, 3, warm_start=True)
    found = mmcc.epsilon(strategy, bridge.scheme_from(sampler), **asked)
    ours = mmcc.epsilon(strategy, sampling.MinSeparation(0.25, 3, warm_start=True), **asked)
    assert found.epsilon == ours.epsilon
