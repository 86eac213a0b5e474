"""Claim: the nonlinear test closes the bracket of one-buffer BLTs from below.

n = 2000, p = 0.01, delta = 1e-5.  Beside each lower end stands the reveal bound's upper end of the
prototype, .9925 / 1.9548 / 3.6929 / 6.5457 / 7.9904, and how far apart they may be.
"""

from __future__ import annotations

import pytest

from mmcc import strategies
from mmcc.accounting._bounds.reveal import lower
from mmcc.sampling import Rounds

ROUNDS = Rounds(0.01, 1)


@pytest.mark.parametrize(
    ("decay", "scale", "sigma", "upper", "apart"),
    [
        (0.859, 0.181, 3.945, 0.9925, 1.0015),
        (0.899, 0.171, 2.587, 1.9548, 1.0015),
        pytest.param(0.940, 0.126, 1.766, 3.6929, 1.0025, marks=pytest.mark.slow),
        pytest.param(0.958, 0.0995, 1.249, 6.5457, 1.005, marks=pytest.mark.slow),
        pytest.param(0.9616, 0.131, 1.4064, 7.9904, 1.0085, marks=pytest.mark.slow),
    ],
)
def test_one_buffer(decay, scale, sigma, upper, apart):
    strategy = strategies.blt(2000, decay=[decay], scale=[scale])
    found = lower.lower_epsilon(strategy, ROUNDS, sigma, 1e-5)
    assert upper / apart <= found <= upper


def test_delta_and_epsilon_agree():
    strategy = strategies.blt(2000, decay=[0.859], scale=[0.181])
    epsilon = lower.lower_epsilon(strategy, ROUNDS, 3.945, 1e-5)
    assert 0.97e-5 <= lower.lower_delta(strategy, ROUNDS, 3.945, epsilon) <= 1.03e-5


def test_a_hundred_thousand_steps_cost_no_more():
    """The landed chain bound says 1.4143."""
    strategy = strategies.blt(10**5, decay=[0.9], scale=[0.1])
    assert 1.409 <= lower.lower_epsilon(strategy, Rounds(1e-3, 1), 2.0, 1e-6) <= 1.4143
