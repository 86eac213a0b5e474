"""Claim: conditional composition adds the bad event to delta, and rescales nothing."""

from __future__ import annotations

import pytest
from oracles import truth

import mmcc


@pytest.mark.parametrize("bad", [0.0, 1e-7, 1e-4])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0])
def test_delta_is_the_composition_plus_the_bad_event(bad, epsilon):
    parts = [mmcc.pld.mixture_of_gaussians([1.0], [1.0], sigma) for sigma in (3.0, 4.0)]
    found = mmcc.pld.conditional_composition(parts, bad).delta(epsilon)
    exact = truth.gaussian_delta(5, 12, epsilon) + bad  # 1/9 + 1/16 = (5/12)^2
    assert exact <= found <= 1.005 * exact


def test_epsilon_is_read_off_at_what_the_bad_event_leaves():
    parts = [mmcc.pld.mixture_of_gaussians([1.0], [1.0], sigma) for sigma in (3.0, 4.0)]
    found = mmcc.pld.conditional_composition(parts, 4e-7).epsilon(1e-6)
    assert truth.gaussian_delta(5, 12, found) + 4e-7 <= 1e-6
    assert truth.gaussian_delta(5, 12, found / 1.001) + 4e-7 > 1e-6


def test_bad_events_of_nested_compositions_add_up():
    part = mmcc.pld.mixture_of_gaussians([1.0], [1.0], 3.0)
    inner = mmcc.pld.conditional_composition([part], 1e-5)
    found = mmcc.pld.conditional_composition([inner, inner], 1e-5).delta(1.0)
    assert found >= truth.gaussian_delta(2**0.5, 3, 1.0) + 3e-5 * (1 - 1e-15)
