"""Claim: distributions cross to dp_accounting and back upwards: no delta gets smaller."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from cases.samples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import truth

from mmcc import bridge, pld
from mmcc.accounting._losses.grid import GridLoss
from mmcc.errors import MethodError, MmccError, ParameterError, PrecisionError

theirs = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
their_pmf = pytest.importorskip("dp_accounting.pld.pld_pmf")

LAW = ([0.0, 0.5, 2.0], [0.6, 0.3, 0.1], 1.5)
EPSILONS = (0.0, 0.1, 0.7, 2.0, 4.0)


def single(probs, first=0, infinite=0.0, spacing=0.1, pessimistic=True):
    pmf = their_pmf.DensePLDPmf(spacing, first, np.array(probs), infinite, pessimistic)
    return theirs.PrivacyLossDistribution(pmf)


def hockey_stick(losses, masses, infinite, epsilon):
    above = [(m, loss) for m, loss in zip(masses, losses, strict=True) if loss > epsilon]
    return infinite + math.fsum(m * -math.expm1(epsilon - loss) for m, loss in above)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_mechanism_goes_over_upwards(epsilon):
    found = bridge.to_dp_accounting(pld.mixture_of_gaussians(*LAW), spacing=1e-3)
    for side, pmf in (("remove", found._pmf_remove), ("add", found._pmf_add)):
        exact = truth.mixture_delta(*LAW, epsilon, side)
        assert exact <= pmf.get_delta_for_epsilon(epsilon) <= 1.001 * exact + 1e-12


def test_a_composition_goes_over_upwards():
    part = (40, [0.0, 1.0], [0.9, 0.1], 1.5)
    ours = pld.mixture_of_gaussians(*part[1:]).self_compose(40)
    found = bridge.to_dp_accounting(ours, spacing=2e-3)
    for side, pmf in (("remove", found._pmf_remove), ("add", found._pmf_add)):
        for epsilon in (0.0, 0.1, 0.7, 2.0):
            low, high = truth.composed_mixture_delta([part], epsilon, side)
            delta = pmf.get_delta_for_epsilon(epsilon)
            assert low <= delta
            assert delta <= 1.02 * high + 1e-13


def test_their_events_compose_with_ours_on_either_side():
    """A Gaussian release and three subsampled ones; the truth by Mellin inversion."""
    parts = [(1, [1.0], [1.0], 2.0), (3, [0.0, 1.0], [0.5, 0.5], 2.0)]
    ours = pld.mixture_of_gaussians(*parts[1][1:]).self_compose(3)
    gaussian = theirs.from_gaussian_mechanism(2.0, value_discretization_interval=1e-3)
    there = bridge.to_dp_accounting(ours, spacing=1e-3).compose(gaussian)
    here = bridge.from_dp_accounting(gaussian).compose(ours)
    for epsilon in (0.2, 1.0, 3.0):
        low = max(
            truth.composed_mixture_delta(parts, epsilon, side)[0] for side in ("remove", "add")
        )
        high = max(
            truth.composed_mixture_delta(parts, epsilon, side)[1] for side in ("remove", "add")
        )
        assert low <= here.delta(epsilon) <= 1.01 * high
        assert low <= there.get_delta_for_epsilon(epsilon) <= 1.01 * high
    assert here.epsilon(1e-5) == pytest.approx(there.get_epsilon_for_delta(1e-5), rel=2e-3)


def test_bad_events_go_over_as_infinite_loss():
    one = pld.mixture_of_gaussians(*LAW)
    bad = pld.conditional_composition([one, one], 1e-4)
    found = bridge.to_dp_accounting(bad, spacing=1e-2)
    part = (2, *LAW)
    for epsilon in EPSILONS:
        low = truth.composed_mixture_delta([part], epsilon, "remove")[0] + 1e-4
        assert low <= found.get_delta_for_epsilon(epsilon) <= 1.05 * low
    alone = bridge.to_dp_accounting(pld.conditional_composition([one], 1e-4), spacing=1e-2)
    for pmf in (alone._pmf_remove, alone._pmf_add):
        assert pmf._infinity_mass >= 1e-4


def test_there_and_back():
    ours = pld.mixture_of_gaussians(*LAW)
    back = bridge.from_dp_accounting(bridge.to_dp_accounting(ours, spacing=1e-3))
    for epsilon in EPSILONS:
        for side in ("remove", "add"):
            exact = truth.mixture_delta(*LAW, epsilon, side)
            assert exact <= back.delta(epsilon, side) <= 1.001 * exact + 1e-12
    twice = back.self_compose(2)
    assert ours.self_compose(2).epsilon(1e-6) == pytest.approx(twice.epsilon(1e-6), rel=1e-3)
    again = bridge.from_dp_accounting(bridge.to_dp_accounting(twice))
    assert twice.epsilon(1e-6) <= again.epsilon(1e-6) * (1 + 1e-3)


masses = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 5e-324, 1e-310, 1e-300, 1e-20, 1e-9])),
    min_size=1,
    max_size=12,
)


@given(raw=masses, first=st.integers(-20, 20), infinite=st.floats(0, 0.5), epsilon=st.floats(0, 3))
@example(raw=[1.0, 1e-310], first=0, infinite=0.0, epsilon=0.0)
@example(raw=[5e-324, 1.0], first=-1, infinite=5e-324, epsilon=0.0)
@example(raw=[1.0], first=3, infinite=1e-310, epsilon=0.1)
@example(raw=[1e-310, 0.0, 1.0, 1e-290, 1e-310], first=-2, infinite=0.0, epsilon=0.05)
@settings(derandomize=True, deadline=None, max_examples=examples(60))
def test_their_masses_never_lose_delta(raw, first, infinite, epsilon):
    total = math.fsum(raw)
    if not total > 1e-3:
        return
    probs = [mass / total * (1 - infinite) for mass in raw]
    found = bridge.from_dp_accounting(single(probs, first, infinite))
    losses = [(first + k) * 0.1 for k in range(len(probs))]
    exact = hockey_stick(losses, probs, infinite, epsilon)
    assert exact * (1 - 1e-14) <= found.delta(epsilon) <= exact * (1 + 1e-6) + 1e-11
    pairs = [
        (a + b, p * q)
        for a, p in zip(losses, probs, strict=True)
        for b, q in zip(losses, probs, strict=True)
    ]
    both = 1 - (1 - infinite) ** 2
    exact = hockey_stick([x for x, _ in pairs], [m for _, m in pairs], both, epsilon)
    assert exact * (1 - 1e-13) - 1e-15 <= found.self_compose(2).delta(epsilon)


@pytest.mark.parametrize("delta", [5e-324, 1e-310, 1e-295])
def test_a_delta_near_the_smallest_number_is_refused_without_a_warning(delta):
    for ours in (
        bridge.from_dp_accounting(single([0.5, 0.5])),
        bridge.from_dp_accounting(single([0.5, 0.5, 1e-310])),
        bridge.from_dp_accounting(theirs.from_laplace_mechanism(1.0)),
    ):
        with pytest.raises(PrecisionError, match="larger delta"):
            ours.epsilon(delta)


def test_a_speck_of_mass_counts_as_infinite():
    ((loss, _),) = bridge.from_dp_accounting(single([1.0, 0.0, 1e-310])).remove
    assert loss.infinite >= 1e-310
    assert loss.masses.max() == 1.0
    assert (loss.masses[loss.masses > 0] >= 1e-290).all()


def test_missing_mass_counts_as_infinite():
    found = bridge.from_dp_accounting(single([0.5, 0.4]))
    assert found.delta(5.0) >= 0.1


@pytest.mark.parametrize(
    "probs", [[math.nan, 1.0], [math.inf], [-0.5, 1.0], [0.9, 0.9], [[0.5, 0.5]], [0.0, 0.0]]
)
def test_masses_that_are_none_are_refused(probs):
    with pytest.raises(MmccError):
        bridge.from_dp_accounting(single(probs))


def test_what_does_not_fit_is_refused(monkeypatch):
    ours = pld.mixture_of_gaussians(*LAW)
    with pytest.raises(MethodError, match="pessimistic_estimate=True"):
        bridge.from_dp_accounting(single([1.0], pessimistic=False))
    for wrong in (None, 3, "pld", GridLoss(0.1, 0, np.ones(2), 0.0)):
        with pytest.raises(ParameterError):
            bridge.to_dp_accounting(wrong)
        with pytest.raises(ParameterError):
            bridge.from_dp_accounting(wrong)
    for spacing in (0, -1, math.nan, 2.0, "x"):
        with pytest.raises(ParameterError):
            bridge.to_dp_accounting(ours, spacing=spacing)
    one, two = (bridge.from_dp_accounting(single([1.0], spacing=h)) for h in (0.1, 0.2))
    with pytest.raises(ParameterError, match="spacings"):
        one.compose(two)
    with pytest.raises(ParameterError):
        one.compose(3)
    with pytest.raises(MethodError, match="adjacency"):
        one.epsilon(1e-5, "sideways")
    with pytest.raises(ParameterError):
        one.self_compose(0)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    for crossing in (bridge.to_dp_accounting, bridge.from_dp_accounting):
        with pytest.raises(MethodError, match=r"pip install 'mmcc\[bridge\]'"):
            crossing(ours)
