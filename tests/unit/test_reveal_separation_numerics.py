"""Claim: the recursion for participations a gap apart is what it says, and jumps cost what it says.

Truths: every path on the lattice written out; the powers of the transfer matrix at a gap of one;
the same recursion without jumps; mean exponentials over all participation sets.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import separation as truth

from mmcc.accounting._bounds.reveal.chains import operator, separation
from mmcc.accounting._bounds.reveal.chains.centring import mean_centring
from mmcc.accounting._bounds.reveal.chains.chain import Chain, binomial_prior
from mmcc.accounting._bounds.reveal.chains.exits import (
    log_output_moment,
    log_state_moment,
)
from mmcc.accounting._bounds.reveal.chains.lattice import (
    COARSE,
    FINE,
    Fineness,
    Lattice,
    lattice_for,
)

LINE = 2.5 + 0.4j * np.arange(5)


def chain_with(steps: int, gap: int, warm: bool, p: float = 0.1) -> Chain:
    return Chain(steps, 1, 0.05, 0.8, 0.03, binomial_prior(1, p), gap, warm)


def lattice_of(chain: Chain, adjacency: str = "remove", fineness: Fineness = COARSE) -> Lattice:
    found = lattice_for(chain, mean_centring(chain), adjacency, 1e-9, fineness)
    assert found is not None
    return found


def moment(lattice: Lattice, chain: Chain, powers: np.ndarray, allowed: float = 1e-9) -> np.ndarray:
    found = separation.moments(lattice, chain, powers, allowed)
    assert found is not None
    return found.values * math.exp(found.log_scale)


@pytest.mark.parametrize(("steps", "gap"), [(1, 2), (2, 2), (6, 2), (7, 3), (5, 5), (4, 7)])
@pytest.mark.parametrize("warm", [False, True])
def test_the_recursion_is_the_sum_over_all_sets(steps, gap, warm):
    """Backwards over the steps that are not blocked, moves over the others in one."""
    chain = chain_with(steps, gap, warm)
    lattice = lattice_of(chain)
    p, z = 0.1, 1.7
    cells = np.exp(z * lattice.logs)
    site = np.array([lattice.masses[s, 0] @ cells[s] for s in range(2)])  # with chances 1 - p, p
    total = 0.0
    starts = truth.stationary(p, gap) if warm else np.eye(gap)[0]
    for first, weight in enumerate(starts):
        for members in truth.law_of_sets(max(steps - first, 0), p, gap, False):
            total += weight * _along(lattice, site, {first + m for m in members}, first, steps, gap)
    found = moment(lattice, chain, np.array([complex(z)]))[0].real
    assert found == pytest.approx(total, rel=1e-10)


def _along(lattice, site, members, first, steps, gap):
    vector, step = lattice.entrance, steps - 1
    while step >= first:
        covering = [m for m in members if m <= step < m + gap]
        if not covering:
            vector = vector * site[0]
            after = step - 1
        else:
            if covering[0] + gap - 1 == step:
                vector = vector @ lattice.pause  # else the end of the run: still the entrance
            vector, after = vector * site[1], covering[0] - 1
        if after < first:
            return float(vector.sum())
        vector = vector @ lattice.kernels[1 if covering else 0]
        step = after
    return 1.0


@pytest.mark.parametrize("adjacency", ["remove", "add"])
@pytest.mark.parametrize(("steps", "gap"), [(40, 3), (300, 7), (10, 30), (20_000, 4)])
@pytest.mark.parametrize("warm", [False, True])
def test_the_total_mass_is_one(steps, gap, warm, adjacency):
    """Under P~ for `remove`, under Q~ for `add`, where cells add what 1/F gains by their width."""
    chain = chain_with(steps, gap, warm)
    lattice = lattice_of(chain, adjacency, FINE)
    power = np.zeros(1, complex) if adjacency == "remove" else -np.ones(1, complex)
    mass = moment(lattice, chain, power)[0].real
    assert mass <= math.exp(lattice.inflation) * (1.0001 if adjacency == "remove" else 1.01)
    assert mass >= (1 - lattice.exits) * math.exp(-2 * lattice.inflation)


@pytest.mark.parametrize("steps", [1, 2, 500])
def test_a_gap_of_one_is_a_power_of_the_transfer_matrix(steps):
    chain = chain_with(steps, 1, False)
    lattice = lattice_of(chain)
    found = operator.moments(lattice, chain, LINE)
    assert found is not None
    expected = found.values * math.exp(found.log_scale)
    assert moment(lattice, chain, LINE) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("gap", [2, 9])
def test_jumps_cost_no_more_than_they_say(gap, warm):
    chain = chain_with(3000, gap, warm)
    lattice = lattice_of(chain)
    slow = separation.moments(lattice, chain, LINE, -1.0)  # never settled
    for allowed in (1e-9, 1e-3):
        fast = separation.moments(lattice, chain, LINE, allowed)
        assert fast is not None
        assert slow is not None
        values = slow.values * math.exp(slow.log_scale - fast.log_scale)
        gaps = np.abs(fast.values - values) / fast.values[0].real
        assert gaps.max() <= fast.error + slow.error
        assert fast.error < 3 * allowed + 2 * slow.error


def test_long_runs_take_hardly_more_steps(monkeypatch):
    turns = []
    advance = separation.Run.advance
    monkeypatch.setattr(separation.Run, "advance", lambda run: (turns.append(1), advance(run))[1])
    moment_of = {}
    for steps in (5_000, 1_000_000):
        turns.clear()
        chain = chain_with(steps, 5, False)
        found = separation.moments(lattice_of(chain_with(5_000, 5, False)), chain, LINE)
        assert found is not None
        moment_of[steps] = len(turns)
    assert moment_of[1_000_000] < 2 * moment_of[5_000] < 2000


@pytest.mark.parametrize("gap", [2, 3, 8])
@pytest.mark.parametrize("p", [0.05, 0.6])
def test_exponential_moments_lie_above_those_of_all_sets(gap, p):
    """E e^{rate q} and E e^{rate x} of the first step, at any start, over all sets after it."""
    steps = 9
    for warm in (False, True):
        chain = chain_with(steps, gap, warm, p)
        pulls = chain.shared * chain.decay ** np.arange(steps)
        for rate in (0.5, 5.0, 40.0):
            law = truth.law_of_sets(steps, p, gap, warm)
            state = math.log(
                sum(
                    chance * math.exp(rate * sum(pulls[m] for m in members if m))
                    for members, chance in law.items()
                )
            )
            own = np.array([chain.diagonal, *pulls[1:]])  # x grows by g_0 in its own step
            output = math.log(
                sum(
                    chance * math.exp(rate * sum(own[m] for m in members))
                    for members, chance in truth.law_of_sets(steps, p, gap, False).items()
                )
            )
            assert log_state_moment((chain,), rate) >= state + rate**2 * chain.shared / 2
            assert log_output_moment((chain,), rate) >= output + rate**2 * chain.diagonal / 2
            assert log_output_moment((chain,), rate) <= output + rate**2 * chain.diagonal / 2 + 1e-6
