"""Claim: mixtures of Gaussians give the known numbers, to the digits that are known."""

from __future__ import annotations

import math

import pytest
from oracles import truth

import mmcc


def binomial(count: int, p: float) -> list[float]:
    return [math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)]


def test_three_and_two_mixtures():
    """Exact: 17.19312; the last digit printed is rounded down."""
    first = mmcc.pld.mixture_of_gaussians([0.0, 1.0, 2.0], [0.2, 0.6, 0.2], 1.0)
    second = mmcc.pld.mixture_of_gaussians([0.0, 2.0, 3.0], [0.33, 0.34, 0.33], 2.0)
    found = first.self_compose(3).compose(second.self_compose(2)).epsilon(1e-6)
    assert found == pytest.approx(17.1931, rel=1e-4)


def test_composed_subsampled_gaussians():
    one = mmcc.pld.mixture_of_gaussians([0.0, 1.0], [127 / 128, 1 / 128], 1.0)
    assert one.self_compose(128).epsilon(1e-6) == pytest.approx(0.8064, abs=1.5e-4)


def test_last_iterate_on_linear_losses():
    """One release of a sum of 128 steps: sensitivity Binom(128, 1/128), variance 128."""
    sensitivities = [float(k) for k in range(129)]
    last = mmcc.pld.mixture_of_gaussians(sensitivities, binomial(128, 1 / 128), math.sqrt(128))
    assert last.epsilon(1e-6, adjacency="remove") == pytest.approx(0.4199, abs=1e-4)
    assert last.epsilon(1e-6, adjacency="add") == pytest.approx(0.2908, abs=1e-4)
    assert last.epsilon(1e-6) == pytest.approx(0.4199, abs=1e-4)


def test_a_mechanism_that_depends_on_nobody_costs_nothing():
    nothing = mmcc.pld.mixture_of_gaussians([0.0], [1.0], 1.0)
    assert nothing.self_compose(3).epsilon(1e-6) <= 1e-9
    one = mmcc.pld.mixture_of_gaussians([1.0], [1.0], 2.0)
    assert one.compose(nothing).epsilon(1e-6) == pytest.approx(one.epsilon(1e-6), rel=1e-4)


def test_add_costs_nothing_above_its_largest_loss():
    """The loss of add is at most -log P(sensitivity 0), 2 log 2 here."""
    two = mmcc.pld.mixture_of_gaussians([0.0, 4.0], [0.5, 0.5], 0.5).self_compose(2)
    assert two.delta(1.4, adjacency="add") <= 1e-12
    assert two.epsilon(1e-6, adjacency="add") <= 1.001 * 2 * math.log(2)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_one_mixture_is_within_a_thousandth_of_the_closed_form(sigma, delta):
    law = ([0.0, 0.5, 1.0, 3.0], [0.6, 0.2, 0.15, 0.05], sigma)
    exact = truth.smallest_epsilon(lambda e: truth.worst(truth.mixture_delta, *law, e), delta)
    assert mmcc.pld.mixture_of_gaussians(*law).epsilon(delta) <= 1.001 * exact


@pytest.mark.parametrize(
    ("count", "probability", "sigma", "delta"),
    [
        (128, 1 / 128, 1.0, 1e-6),
        (1000, 0.01, 1.0, 1e-5),
        (100, 0.1, 2.0, 1e-6),
        (64, 0.5, 4.0, 1e-8),
    ],
)
def test_dp_accounting_gives_the_same_subsampled_gaussians(count, probability, sigma, delta):
    peer = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    theirs = peer.from_gaussian_mechanism(
        sigma, sampling_prob=probability, value_discretization_interval=1e-4
    )
    one = mmcc.pld.mixture_of_gaussians([0.0, 1.0], [1 - probability, probability], sigma)
    ours = one.self_compose(count).epsilon(delta)
    assert ours == pytest.approx(theirs.self_compose(count).get_epsilon_for_delta(delta), rel=2e-3)
