"""Claim: `optimizer.guarantee` is what the accounting says about the very objects that train."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")

from cases.private import backward, private, train

import mmcc
from mmcc import strategies
from mmcc.sampling import (
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
    Shuffle,
)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

SAMPLED = [
    (strategies.identity(16), Poisson(0.2)),
    (strategies.toeplitz([1.0, 0.5], 16), CyclicPoisson(0.5, 2)),
    (strategies.identity(16), BallsInBins(8)),
    (strategies.identity(16), RandomAllocation(8)),
    (strategies.toeplitz([1.0, 0.5], 16), MinSeparation(0.3, 4, warm_start=True)),
]
SEPARATE = [
    (strategies.identity(16), Shuffle()),
    (strategies.binary_tree(16), Shuffle(8)),
    (strategies.binary_tree(16), MinSeparation(0.3, 4)),
]


def facts(guarantee) -> tuple:
    return (
        guarantee.epsilon,
        guarantee.delta,
        guarantee.sigma,
        guarantee.method,
        guarantee.bound,
        guarantee.strategy,
        guarantee.sampling,
        guarantee.adaptive,
    )


@pytest.mark.parametrize(("strategy", "scheme"), SAMPLED, ids=repr)
def test_of_a_noise_level(strategy, scheme):
    _, optimizer, _ = private(strategy=strategy, sampling=scheme, sigma=2.0, delta=1e-6)
    expected = mmcc.epsilon(strategy, scheme, sigma=2.0, delta=1e-6)
    assert facts(optimizer.guarantee) == facts(expected)


@pytest.mark.parametrize(("strategy", "scheme"), SAMPLED[:2], ids=repr)
def test_for_a_target(strategy, scheme):
    _, optimizer, _ = private(strategy=strategy, sampling=scheme, epsilon=1.0, delta=1e-6)
    expected = mmcc.sigma(strategy, scheme, epsilon=1.0, delta=1e-6)
    assert facts(optimizer.guarantee) == facts(expected)
    assert optimizer.mechanism.sigma == expected.sigma == optimizer.noise_multiplier
    assert optimizer.run.noise.sigma == expected.sigma
    assert optimizer.guarantee.epsilon <= 1.0


@pytest.mark.parametrize(("strategy", "scheme"), SEPARATE, ids=repr)
@pytest.mark.parametrize("target", [{"sigma": 2.0}, {"epsilon": 3.0}], ids=str)
def test_without_amplification_where_none_is_proven_for_training(strategy, scheme, target):
    _, optimizer, _ = private(strategy=strategy, sampling=scheme, delta=1e-6, **target)
    found = optimizer.guarantee
    ask = mmcc.epsilon if "sigma" in target else mmcc.sigma
    expected = ask(strategy, scheme, delta=1e-6, method="unamplified", **target)
    assert (found.epsilon, found.sigma) == (expected.epsilon, expected.sigma)
    assert found.method == "unamplified"
    assert found.adaptive
    assert not found.setting
    assert f"no amplification is proven for training with {type(scheme).__name__}" in str(found)


def test_amplified_number_for_one_shuffled_pass_is_never_given():
    strategy = strategies.identity(16)
    _, optimizer, _ = private(strategy=strategy, sampling=Shuffle(), sigma=2.0, delta=1e-6)
    amplified = mmcc.epsilon(strategy, Shuffle(), sigma=2.0, delta=1e-6)
    assert optimizer.guarantee.epsilon > 1.5 * amplified.epsilon


def test_method_is_handed_on():
    tree = strategies.binary_tree(4)
    for method in ("mmcc", "unamplified"):
        _, optimizer, _ = private(strategy=tree, sigma=4.0, delta=1e-6, method=method)
        expected = mmcc.epsilon(tree, Poisson(0.3), sigma=4.0, delta=1e-6, method=method)
        assert facts(optimizer.guarantee) == facts(expected)


def test_early_stop_changes_nothing():
    plain = strategies.identity(16)
    module, optimizer, loader = private(strategy=plain, sigma=2.0, delta=1e-6)
    before = facts(optimizer.guarantee)
    for batch in loader:
        optimizer.zero_grad()
        backward(module, batch)
        optimizer.step()
        if optimizer.position == 3:
            break
    assert facts(optimizer.guarantee) == before
    assert before == facts(mmcc.epsilon(plain, Poisson(0.3), sigma=2.0, delta=1e-6))


@pytest.mark.parametrize("target", [{"sigma": 2.0}, {"epsilon": 1.0}], ids=str)
def test_declared_stop_has_the_guarantee_of_the_prefix(target):
    plain = strategies.identity(16)
    module, optimizer, loader = private(
        strategy=plain, sampling=Poisson(0.2), delta=1e-6, stop_after=5, **target
    )
    short = strategies.identity(5)
    ask = mmcc.epsilon if "sigma" in target else mmcc.sigma
    expected = ask(short, Poisson(0.2), delta=1e-6, **target)
    full = ask(plain, Poisson(0.2), delta=1e-6, **target)
    assert facts(optimizer.guarantee) == facts(expected)
    assert (optimizer.guarantee.epsilon, optimizer.guarantee.sigma) != (full.epsilon, full.sigma)
    train(module, optimizer, loader)
    assert optimizer.position == optimizer.mechanism.steps == 5
    with pytest.raises(mmcc.MmccError, match="all 5 steps"):
        next(iter(loader))


@pytest.mark.parametrize(
    "strategy", [strategies.binary_tree(16), strategies.toeplitz([1.0, 0.5], 16)], ids=repr
)
def test_declared_stop_takes_the_first_steps_of_the_full_run(strategy):
    full, full_optimizer, full_loader = private(strategy=strategy)
    short, short_optimizer, short_loader = private(strategy=strategy, stop_after=5)
    train(short, short_optimizer, short_loader)
    for batch in full_loader:
        full_optimizer.zero_grad()
        backward(full, batch)
        full_optimizer.step()
        if full_optimizer.position == 5:
            break
    for p, q in zip(full.parameters(), short.parameters(), strict=True):
        assert (p - q).abs().max().item() < 1e-12


def test_sampling_and_noise_are_public_facts_of_the_mechanism():
    _, optimizer, _ = private(sampling=CyclicPoisson(0.5, 4), max_grad_norm=0.25)
    mechanism = optimizer.mechanism
    assert mechanism.expected_batch_size == 30 * 0.5 / 4
    assert mechanism.max_grad_norm == 0.25
    assert mechanism.steps == 7
    assert math.isfinite(mechanism.sigma)
