"""Claim: certified numbers with a pause between participations are as small as promised.

n = 2000, 20 expected participations, delta 1e-5.
"""

from __future__ import annotations

import pytest
from cases import reveal

from mmcc import sampling, strategies, utility

STEPS, RATE, DELTA = 2000, 0.01, 1e-5


def apart(separation: int, warm: bool = False) -> sampling.MinSeparation:
    """The scheme with the rate."""
    return sampling.MinSeparation(RATE / (1 - RATE * (separation - 1)), separation, warm)


@pytest.mark.parametrize(
    ("decay", "scale", "separation", "error", "epsilon"),
    [
        (0.9374, 0.1695, 5, 17.2, 4.0),
        pytest.param(0.9609, 0.1309, 10, 10.4, 8.0, marks=pytest.mark.slow),
    ],
)
def test_errors_of_one_buffer_blts(decay, scale, separation, error, epsilon):
    """Less than under Poisson sampling, where they are 17.22 and 10.46."""
    strategy = strategies.blt(STEPS, decay=[decay], scale=[scale])
    sigma = error / utility.rmse(strategy, 1.0)
    found = reveal.bound_epsilon(strategy, apart(separation), sigma, DELTA)
    assert found.value <= epsilon
