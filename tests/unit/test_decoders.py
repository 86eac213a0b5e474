"""Claim: decoders and their variances are what least squares, enumeration and simulation give."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from cases.samples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcc import strategies, utility
from mmcc.errors import MethodError, StrategyError

DECODERS = ("online", "honaker", "honaker-full")
TREES = [(1, 1), (2, 2), (3, 2), (7, 3), (8, 4), (13, 4), (13, 2), (16, 3), (21, 3), (24, 1)]


def prefix_estimates(tree, decoder):
    """Row t: the weights of the releases in the estimate of x_0 + ... + x_t, from C alone."""
    C = tree.to_dense()
    steps = tree.steps
    if decoder == "honaker-full":
        return np.tri(steps) @ np.linalg.pinv(C)
    released = np.array([np.flatnonzero(row)[-1] for row in C])
    found = np.zeros((steps, len(C)))
    for t in range(steps):
        known = np.flatnonzero(released <= t)
        if decoder == "honaker":
            found[t, known] = np.ones(t + 1) @ np.linalg.pinv(C[known][:, : t + 1])
            continue
        start = 0
        while start <= t:  # the largest node that starts here and is complete
            here = [row for row in known if np.flatnonzero(C[row])[0] == start]
            row = max(here, key=lambda row: C[row].sum())
            found[t, row] = 1.0
            start += int(C[row].sum())
    return found


def brute_errors(tree, decoder, A):
    """Norms of the rows of A B, B the changes of the prefix estimates."""
    changes = np.diff(prefix_estimates(tree, decoder), axis=0, prepend=0)
    return np.linalg.norm(A @ changes, axis=1)


def schedule_matrix(rates, beta):
    """SGD with momentum, run on each unit vector."""
    steps = len(rates)
    A = np.zeros((steps, steps))
    for s in range(steps):
        velocity = model = 0.0
        for t in range(steps):
            velocity = beta * velocity + (t == s)
            model += rates[t] * velocity
            A[t, s] = model
    return A


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("steps", "height"), TREES)
def test_errors_are_those_of_brute_force(steps, height, decoder):
    tree = strategies.tree_restart(steps, height)
    rng = np.random.default_rng(steps)
    coefficients, rates = rng.normal(size=steps), rng.uniform(size=steps)
    lower = np.tril(rng.normal(size=(steps, steps)))
    toeplitz = np.array(
        [[coefficients[t - s] if s <= t else 0.0 for s in range(steps)] for t in range(steps)]
    )
    for workload, A in (
        (None, np.tri(steps)),
        (coefficients, toeplitz),
        (lower, lower),
        (utility.momentum(steps, 0.9), schedule_matrix(np.ones(steps), 0.9)),
        (utility.schedule(np.full(steps, 3.0), 0.5), schedule_matrix(np.full(steps, 3.0), 0.5)),
        (utility.schedule(rates, 0.7), schedule_matrix(rates, 0.7)),
        (utility.schedule(rates), schedule_matrix(rates, 0.0)),
    ):
        expected = brute_errors(tree, decoder, A)
        found = utility.step_errors(tree, 2.0, workload, decoder=decoder)
        np.testing.assert_allclose(found, 2 * expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("steps", "height"), TREES)
def test_decoder_matrix_inverts_the_encoder(steps, height, decoder):
    tree = strategies.tree_restart(steps, height)
    B = utility.decoder_matrix(tree, decoder)
    np.testing.assert_allclose(np.tri(steps) @ B, prefix_estimates(tree, decoder), atol=1e-11)
    np.testing.assert_allclose(B @ tree.to_dense(), np.eye(steps), atol=1e-11)


@settings(derandomize=True, deadline=None, max_examples=examples(40))
@given(steps=st.integers(1, 40), height=st.integers(1, 7), seed=st.integers(0, 99))
def test_least_squares_with_more_releases_is_never_worse(steps, height, seed):
    """Prefix sums: online >= causal >= full, in every step.  Other workloads: full is the least."""
    tree = strategies.tree_restart(steps, height)
    online, causal, full = (utility.step_errors(tree, 1.0, decoder=name) for name in DECODERS)
    assert (online >= causal * (1 - 1e-12)).all()
    assert (causal >= full * (1 - 1e-12)).all()
    A = np.tril(np.random.default_rng(seed).normal(size=(steps, steps)))
    online, causal, full = (utility.step_errors(tree, 1.0, A, decoder=name) for name in DECODERS)
    assert (np.minimum(online, causal) >= full * (1 - 1e-9)).all()


def test_weights_by_level_minimise_the_variance():
    """1/v = 1 + 1/(2 v below), in rational numbers."""
    exact = [Fraction(1)]
    for _ in range(30):
        exact.append(1 / (1 + 1 / (2 * exact[-1])))
    np.testing.assert_allclose(utility.level_weights(31), [float(v) for v in exact], rtol=1e-14)
    assert (utility.level_weights(5, "online") == 1).all()
    with pytest.raises(MethodError, match="no weights by level"):
        utility.level_weights(5, "honaker-full")


def test_prefix_variance_is_a_sum_over_bits():
    """Honaker at 2^20 steps: the nodes of the binary decomposition, each with its v_h."""
    steps = 2**20
    variances = np.square(utility.step_errors(strategies.binary_tree(steps), 1.0))
    for t in (0, 1, 2, 1023, 699050, steps - 2, steps - 1):
        bits = [h for h in range(21) if (t + 1) >> h & 1]
        exact = float(sum(Fraction(2**h, 2 ** (h + 1) - 1) for h in bits))
        assert variances[t] == pytest.approx(exact, rel=1e-12)


def test_schedules_agree_with_momentum_at_many_steps():
    """Two roads to one number: covariances step by step, and sums along strides."""
    for tree in (strategies.binary_tree(3000), strategies.tree_restart(3000, 5)):
        almost = np.ones(3000)
        almost[-1] = 0.5
        for decoder in ("online", "honaker"):
            one = utility.step_errors(tree, 1.0, utility.momentum(3000, 0.9), decoder=decoder)
            other = utility.step_errors(tree, 1.0, utility.schedule(almost, 0.9), decoder=decoder)
            np.testing.assert_allclose(one[:-1], other[:-1], rtol=1e-9)


def streamed_noise(tree, weights, runs, rng):
    """Noise of the prefix estimates, as a training run would make it: one vector a level."""
    held = [np.zeros(runs) for _ in range(tree.levels)]
    roots = np.zeros(runs)
    found = []
    for t in range(tree.steps):
        level, node = 0, weights[0] * rng.normal(size=runs)
        while level < tree.levels - 1 and t >> level & 1:
            below, held[level] = held[level], np.zeros(runs)
            level += 1
            own = rng.normal(size=runs)
            node = weights[level] * own + (1 - weights[level]) * (below + node)
        if level == tree.levels - 1:
            roots = roots + node
        else:
            held[level] = node
        found.append(roots + sum(held))
    return np.array(found)


@pytest.mark.parametrize("decoder", ["online", "honaker"])
@pytest.mark.parametrize("tree", [strategies.binary_tree(13), strategies.tree_restart(21, 3)])
def test_simulated_noise_has_this_variance(tree, decoder):
    """A streamed simulation with noise_memory vectors; six standard errors."""
    runs = 40000
    weights = utility.level_weights(tree.levels, decoder)
    noise = streamed_noise(tree, weights, runs, np.random.default_rng(7))
    assert utility.noise_memory(tree, decoder) == tree.levels
    for workload, moved in (
        (None, noise),
        (
            utility.schedule(utility.cooldown(tree.steps), 0.9),
            schedule_matrix(utility.cooldown(tree.steps), 0.9) @ np.diff(noise, axis=0, prepend=0),
        ),
    ):
        expected = np.square(utility.step_errors(tree, 1.0, workload, decoder=decoder))
        ratio = np.square(moved).mean(axis=1) / expected
        assert (np.abs(ratio - 1) < 6 * np.sqrt(2 / runs)).all()


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.continual_counting(12),
        strategies.toeplitz([2.0, 1.0, 0.5], 12),
        strategies.blt(12),
        strategies.dense(np.tri(12) + np.eye(12)),
    ],
)
def test_simulated_noise_of_square_encoders(strategy):
    """C (B z) = z, and A B z has the variance that was said."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(12, 40000))
    noise = np.linalg.solve(strategy.to_dense(), z)
    np.testing.assert_allclose(utility.decoder_matrix(strategy) @ z, noise, atol=1e-10)
    rates = utility.cooldown(12)
    for workload, A in (
        (None, np.tri(12)),
        (utility.schedule(rates, 0.8), schedule_matrix(rates, 0.8)),
    ):
        expected = np.square(utility.step_errors(strategy, 1.0, workload))
        ratio = np.square(A @ noise).mean(axis=1) / expected
        assert (np.abs(ratio - 1) < 6 * np.sqrt(2 / 40000)).all()


def test_decoders_that_do_not_fit_are_refused():
    tree, square = strategies.binary_tree(8), strategies.identity(8)
    with pytest.raises(MethodError, match="has no inverse"):
        utility.rmse(tree, 1.0, decoder="exact")
    with pytest.raises(MethodError, match="for binary trees"):
        utility.rmse(square, 1.0, decoder="honaker")
    with pytest.raises(MethodError, match="did you mean 'honaker'"):
        utility.rmse(tree, 1.0, decoder="honacker")
    with pytest.raises(MethodError, match="unknown decoder"):
        utility.rmse(tree, 1.0, decoder=["online"])
    with pytest.raises(StrategyError, match="not square and not a tree"):
        utility.rmse(strategies.dense(tree.to_dense()), 1.0)
    with pytest.raises(MethodError, match="step by step"):
        utility.noise_memory(tree, "honaker-full")
