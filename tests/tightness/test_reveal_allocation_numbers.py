"""Numbers of the reveal bound under random allocation, as promised in the docs."""

from __future__ import annotations

import pytest
from cases import reveal

from mmcc import sampling, strategies


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decay", "scale", "sigma", "remove", "add"),
    [(0.8975, 0.2165, 2.927, 1.901, 1.9005), (0.9609, 0.1309, 1.386, 6.618, 6.594)],
)
def test_twenty_epochs_of_a_hundred_steps(decay, scale, sigma, remove, add):
    strategy = strategies.blt(2000, decay=[decay], scale=[scale])
    found = reveal.bound_epsilon(strategy, sampling.RandomAllocation(100), sigma, 1e-5)
    assert 0.995 * remove < found.remove <= remove
    assert 0.995 * add < found.add <= add


def test_few_epochs_lose_little_but_the_end_of_the_run():
    """Enumeration of all sets finds 1e-3 at about 1.82 and 1.79; the chain goes on past the end."""
    strategy = strategies.blt(6, decay=[0.7], scale=[0.3])
    found = reveal.bound_epsilon(strategy, sampling.RandomAllocation(3), 2.0, 1e-3)
    assert found.remove <= 1.9155
    assert found.add <= 1.8956
