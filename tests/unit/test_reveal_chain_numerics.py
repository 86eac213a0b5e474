"""Claim: each numerical piece of the chains' bound is as exact as it says, on the side it says.

Truth: many digits, closed forms, sums over all paths, and quadrature.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from oracles import truth
from scipy.special import ndtr
from scipy.stats import binom

from mmcc.accounting._bounds.reveal.chains import exits, operator
from mmcc.accounting._bounds.reveal.chains.centring import Centring, best_centring, mean_centring
from mmcc.accounting._bounds.reveal.chains.chain import Chain, binomial_prior
from mmcc.accounting._bounds.reveal.chains.curve import renyi_epsilon
from mmcc.accounting._bounds.reveal.chains.lattice import (
    COARSE,
    SPECIAL,
    Lattice,
    cell_law,
    lattice_for,
    output_masses,
    state_step,
)
from mmcc.accounting._bounds.reveal.chains.operator import moments

CHAINS = [
    Chain(7, 1, 0.18, 0.8, 0.12, binomial_prior(1, 0.1)),
    Chain(4, 2, 0.45, 0.5, 1.05, binomial_prior(2, 0.3)),
    Chain(9, 1, 4.5, 0.3, 0.5, binomial_prior(3, 0.02)),
]

# Cells of outputs.


@pytest.mark.parametrize("tilt", [1e-5, 0.2, 1.5, 5.0])
@pytest.mark.parametrize("width", [0.08, 0.4])
@pytest.mark.parametrize("low", [-37.0, -9.3, -1.0, -0.03, 0.0, 0.7, 4.0, 12.0, 36.5])
def test_cells_against_many_digits(low, width, tilt):
    mass, share = (float(part[0]) for part in cell_law(np.array([low]), width, tilt))
    with mpmath.workdps(60):
        a, w, t = (mpmath.mpf(x) for x in (low, width, tilt))
        plain = between(a, a + w)
        tilted = mpmath.exp(t * (t / 2 - a)) * between(a - t, a + w - t)
        exact = (tilted / plain - 1) / mpmath.expm1(t * w)
    error = SPECIAL * (1 + 8 / width)
    assert abs(mass / float(plain) - 1) <= error + 1e-12
    assert abs(share - float(exact)) <= 4 * error / -math.expm1(-tilt * width)


def between(low: mpmath.mpf, high: mpmath.mpf) -> mpmath.mpf:
    """The normal mass between two numbers, without cancelling."""
    if low * high < 0:
        return 1 - mpmath.ncdf(-abs(low)) - mpmath.ncdf(-abs(high))
    near, far = sorted((abs(low), abs(high)))
    return mpmath.ncdf(-near) - mpmath.ncdf(-far)


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_outputs_keep_mass_and_mean_with_the_rounding_on_the_safe_side(adjacency, members):
    """`add`: no more mean of F, given the cell; `remove`: no more mean of 1/F than 1/E F."""
    rng = np.random.default_rng(members)
    chain = Chain(5, 1, 0.4, 0.5, 0.7, binomial_prior(members, 0.15))
    nodes = np.linspace(-3.0, 4.0, 71)
    centres = np.vstack([np.zeros(70), rng.normal(0, 1, (members, 70))])
    means = np.array([[-1.3, 0.2, 2.0]])
    logs, masses = output_masses(
        chain.white, chain.diagonal, chain.prior, means, nodes, centres, adjacency
    )
    cells, count, g = 70, members + 1, mpmath.mpf(chain.diagonal)
    remove = adjacency == "remove"
    with mpmath.workdps(40):
        deviation = mpmath.sqrt(mpmath.mpf(chain.white))
        prior = [mpmath.mpf(float(x)) for x in chain.prior]

        def factor(x: float, i: int) -> mpmath.mpf:
            return mpmath.fsum(
                prior[m] * mpmath.exp(m * mpmath.mpf(x) - m * m * g / 2 - float(centres[m, i]))
                for m in range(count)
            )

        for s, a, i in itertools.product(range(count), range(3), (0, 1, 33, 69)):
            ends = [factor(float(nodes[i]), i), factor(float(nodes[i + 1]), i)]
            for end, column in zip(ends, (i, cells + i), strict=True):
                exact = mpmath.log(end) + float(centres[s, i])
                gap = mpmath.mpf(float(logs[s, column])) - exact
                assert (gap > 0) == remove
                assert abs(gap) < 1e-11
            centre = mpmath.mpf(float(means[0, a])) + s * g
            low, high = ((mpmath.mpf(float(x)) - centre) / deviation for x in nodes[i : i + 2])
            exact = prior[s] * between(low, high)
            tail = mpmath.mpf(0)
            if remove and i == 0:
                tail = prior[s] * mpmath.ncdf(low)
            elif not remove and i == 69:
                tail = prior[s] * mpmath.ncdf(-high)
            lower, upper = (mpmath.mpf(float(masses[s, 0, a, k])) for k in (i, cells + i))
            assert exact + tail <= lower + upper <= (exact + tail) * (1 + mpmath.mpf(1e-8))
            if tail > 0:
                continue
            mean = mpmath.fsum(
                prior[m]
                * mpmath.exp(-m * m * g / 2 - float(centres[m, i]) + m * centre)
                * mpmath.exp((m * deviation) ** 2 / 2)
                * between(low - m * deviation, high - m * deviation)
                for m in range(count)
            ) / between(low, high)
            share = upper / (lower + upper)
            found = ends[0] + share * (ends[1] - ends[0])
            if remove:
                found = 1 / ((1 - share) / ends[0] + share / ends[1])
                assert mean <= found <= mean * (1 + mpmath.mpf(1e-8))
            else:
                assert mean * (1 - mpmath.mpf(1e-8)) <= found <= mean
        if not remove:
            for s, a in itertools.product(range(count), range(3)):
                low = (mpmath.mpf(-3) - mpmath.mpf(float(means[0, a])) - s * g) / deviation
                assert masses[s, 0, a, -1] >= prior[s] * mpmath.ncdf(low)
                assert logs[s, -1] <= mpmath.log(prior[0]) + float(centres[s, 0])


# States.


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("wanted", [1e-1, 1e-3])
def test_the_state_grid_has_the_stated_relative_error(chain, wanted):
    """One q between two neighbours and its outputs, at many offsets: all within eta."""
    h, eta = state_step(chain, wanted)
    assert eta <= wanted / chain.blocks * 1.01
    rng = np.random.default_rng(3)
    variance, ratio = 1 - chain.decay**2, chain.shared / chain.white
    grid = h * np.arange(-4000, 4001)
    for _ in range(50):
        left, right = rng.normal(0, 3, 2)
        outputs = rng.normal(0, 3, chain.block)  # over sqrt(kappa), as the grid
        logs = -((grid - chain.decay * left) ** 2) / (2 * variance)
        logs -= (right - chain.decay * grid) ** 2 / (2 * variance)
        for x in outputs:
            logs -= (x - grid) ** 2 * ratio / 2
        # The exact integral of a Gaussian from its three coefficients.
        square = (1 + chain.decay**2) / variance + chain.block * ratio
        linear = chain.decay * (left + right) / variance + outputs.sum() * ratio
        constant = (chain.decay**2 * left**2 + right**2) / variance + (outputs**2).sum() * ratio
        exact = math.sqrt(2 * math.pi / square) * math.exp(linear**2 / (2 * square) - constant / 2)
        assert abs(h * np.exp(logs).sum() / exact - 1) <= eta * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("decay", [0.0, 0.6, 1 - 1e-4, 1 - 1e-9])
@pytest.mark.parametrize("wanted", [1e-2, 1e-7])
def test_steps_of_the_states_have_the_error_that_is_said(decay, wanted):
    """eta = 1 / sinh(2 pi^2 / (h^2 B)); without a step nothing is known of it."""
    chain = Chain(40, 1, 0.5, decay, 0.5, binomial_prior(1, 0.1))
    h, eta = state_step(chain, wanted)
    if decay == 1 - 1e-9:
        assert (h, eta) == (0.0, math.inf)
        assert lattice_for(chain, mean_centring(chain), "remove", 1e-6) is None
        return
    with mpmath.workdps(30):
        exact = 1 / mpmath.sinh(2 * mpmath.pi**2 / (mpmath.mpf(h) ** 2 * chain.growth))
        assert exact <= eta <= exact * (1 + mpmath.mpf(1e-9))
    assert 40 * eta <= wanted * (1 + 1e-3)


def test_the_growth_is_the_curvature_of_one_state():
    """The precision of q_2 given all others, from the joint one of a chain and its outputs."""
    for chain in CHAINS:
        place = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
        precision = np.linalg.inv(chain.shared * chain.decay**place)[2, 2]
        exact = chain.shared * precision + chain.block * chain.shared / chain.white
        assert exact <= chain.growth * (1 + 1e-13)
        assert chain.growth <= exact * (1 + 1e-9)


# Exits.


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("rate", [0.3, 1.5, 4.0])
def test_exit_cumulants_against_enumeration(chain, rate):
    """All numbers of participations in three blocks: states and outputs of the first block."""
    short = Chain(3, chain.block, chain.shared, chain.decay, chain.white, chain.prior)
    place = np.arange(short.steps) // short.block
    gram = short.shared * short.decay**place + short.white * (np.arange(short.steps) == 0)
    state = short.shared * short.decay**place * (place > 0)
    counts = np.array(list(itertools.product(range(short.prior.size), repeat=short.steps)))
    weights = short.prior[counts].prod(axis=1)
    for moment, pulls, variance in (
        (exits.log_state_moment, state, short.shared),
        (exits.log_output_moment, gram, short.diagonal),
    ):
        exact = math.log(weights @ np.exp(rate * counts @ pulls)) + rate**2 * variance / 2
        assert exact <= moment((short,), rate) <= exact * (1 + 1e-9)
        longer = Chain(400, chain.block, chain.shared, chain.decay, chain.white, chain.prior)
        assert moment((short,), rate) <= moment((longer,), rate)


def test_what_far_blocks_add_is_bounded():
    """Terms that are not summed one by one, against all of them with many digits."""
    chain = Chain(10**6, 3, 0.4, 0.999, 0.2, binomial_prior(2, 0.01))
    for rate in (1e-3, 0.5, 10.0):
        pulls = rate * 0.4 * 0.999 ** np.arange(1.0, 10**5)
        exact = 3 * math.fsum(2 * np.log1p(0.01 * np.expm1(pulls))) + rate**2 * 0.2
        assert exact <= exits.log_state_moment((chain,), rate) <= exact * 1.001


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("rate", [2.0, 5.0])
@pytest.mark.parametrize("shared", [1e-6, 0.3, 2.0])
def test_fakes_of_one_step_pull_states_down_by_no_more_than_is_said(shared, rate, members):
    """E e^{-rate q} after one step, by quadrature over r and w."""
    chain = Chain(1, 1, shared, 0.5, 0.4, binomial_prior(members, 0.2))
    places = np.array([-1.0, 0.5, 2.0])
    centres = np.random.default_rng(members).normal(0, 0.3, (members, 3))
    centring = Centring(places, centres)
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    r, w = (x.ravel() for x in np.meshgrid(node * math.sqrt(shared), node * math.sqrt(0.4)))
    mass = np.outer(weight, weight).ravel() / weight.sum() ** 2
    chances = fake_chances(chain, centring, r + w)
    fallen = np.exp(-rate * (r - shared * np.arange(members + 1)[:, None]))
    exact = float((mass * chances * fallen).sum())
    assert math.log(exact) <= exits.log_fallen_moment(chain, rate, centring.lowest)


def fake_chances(chain: Chain, centring: Centring, x: np.ndarray) -> np.ndarray:
    counts = np.arange(chain.prior.size)[:, None]
    rows = [np.zeros_like(x), *(np.interp(x, centring.places, row) for row in centring.centres)]
    g = chain.prior[:, None] * np.exp(counts * x - counts**2 * chain.diagonal / 2 - np.array(rows))
    return g / g.sum(axis=0)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("centre", [-0.5, 0.0, 1.0])
def test_fakes_of_many_steps_are_as_rare_and_pull_as_little_as_is_said(chain, centre):
    """Forwards under Q~: states after each block, and blocks with many fakes; 4 errors."""
    rng = np.random.default_rng(5)
    centring = Centring(np.zeros(1), np.full((chain.most, 1), centre))
    size = 40_000
    v = rng.normal(0, math.sqrt(chain.shared), size)
    pulled = np.zeros(size)
    rates = chain.most + np.array([0.0, 0.5, 2.0])
    bounds = [exits.log_fallen_moment(chain, float(rate), centring.lowest) for rate in rates]
    weights = np.exp([0.0, *exits.log_fake_odds(chain, centring.lowest)])
    for block in range(chain.blocks):
        if block:
            fresh = math.sqrt(chain.shared * (1 - chain.decay**2))
            v = chain.decay * v + fresh * rng.standard_normal(size)
            pulled *= chain.decay
        fakes = np.zeros(size)
        for _ in range(chain.block):
            x = v - pulled + math.sqrt(chain.white) * rng.standard_normal(size)
            chances = fake_chances(chain, centring, x).cumsum(axis=0)
            s = (rng.random(size) > chances[:-1]).sum(axis=0)
            pulled += chain.shared * s
            fakes += s
        for rate, bound in zip(rates, bounds, strict=True):
            value = np.exp(-rate * (v - pulled))
            assert value.mean() - 4 * value.std() / math.sqrt(size) <= math.exp(bound)
        for most in range(3):
            crowd = (fakes > most).mean()
            low = crowd - 4 * math.sqrt(crowd / size)
            assert low <= exits.crowded(weights, chain.block, most)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("block", "p"), [(4, 0.2), (64, 0.01), (1000, 1e-3)])
def test_crowded_blocks_cost_at_least_their_chance(block, p, members):
    for most in (0, 2, 5, 11):
        found = exits.crowded(binomial_prior(members, p), block, most)
        exact = float(binom.sf(most, block * members, p))
        assert exact <= found <= 1 + 1e-9
        assert most <= block * members * p or found < 1


@pytest.mark.parametrize("chance", [1e-3, 1e-12])
@pytest.mark.parametrize("p", [1e-3, 0.3])
@pytest.mark.parametrize("diagonal", [1e-10, 1e-4, 1.0, 50.0])
def test_levels_are_the_lowest_that_some_rate_certifies(diagonal, p, chance):
    """One step: its output is N(0, g) or, with chance p, N(g, g)."""
    chain = Chain(1, 1, 0.0, 0.0, diagonal, binomial_prior(1, p))

    def moment(rate: float) -> float:
        return exits.log_output_moment((chain,), rate)

    deviation = math.sqrt(diagonal)
    found = exits.ceiling(moment, deviation, chance)
    rates = np.geomspace(1e-3, 1e3, 20_001) / deviation
    logs = np.logaddexp(math.log1p(-p), math.log(p) + rates * diagonal) + rates**2 * diagonal / 2
    assert found.level <= float(np.min((logs - math.log(chance)) / rates)) * (1 + 1e-6)
    passed = (1 - p) * ndtr(-found.level / deviation)
    passed += p * ndtr(deviation - found.level / deviation)
    certified = exits.passing(moment, found.level, found.rate)
    assert passed <= certified <= chance * (1 + 1e-6)


@pytest.mark.parametrize("shared", [0.0, 1.0])
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
@pytest.mark.parametrize("budget", [1e-3, 1e-9])
def test_leaving_the_lattice_costs_at_least_a_normal_chance(shared, budget, adjacency):
    """On the side to which nobody pushes states are normal; outputs under P~ are at least so."""
    chain = Chain(30, 1, shared, 0.3, 2.0 - shared, binomial_prior(1, 0.1))
    found = lattice_for(chain, mean_centring(chain), adjacency, budget, COARSE)
    remove = adjacency == "remove"
    chance = 0.0
    if shared:
        h = float(found.states[1] - found.states[0])
        free = found.states[0] - h if remove else -found.states[-1] - h
        chance = -math.expm1(30 * math.log1p(-float(ndtr(free)) * 0.01))
    if remove:
        half = 0.5 * float(found.places[1] - found.places[0])
        top = float(found.places[-1]) + half
        chance += float(ndtr(-top / math.sqrt(2.0)))
    assert chance <= found.exits <= 1.5 * budget
    assert (found.exits > 0) == bool(shared or remove)


# Moments.


def some_lattice(chain: Chain, most: int, seed: int) -> Lattice:
    """Any positive numbers will do."""
    rng = np.random.default_rng(seed)
    states, outputs, counts = 2, 3, chain.prior.size
    crowd = most + 1 if chain.block > 1 else 1
    return Lattice(
        states=np.arange(float(states)),
        entrance=rng.random(states) + 0.1,
        kernels=rng.random((most + 1, states, states)) + 0.1,
        places=np.zeros(1),
        logs=rng.normal(0, 1, (counts, outputs)),
        masses=rng.random((counts, crowd, states, outputs)) + 0.1,
        inflation=0.0,
        exits=0.0,
    )


def brute_force(lattice: Lattice, chain: Chain, z: complex) -> complex:
    """The sum over all paths of states, participations and outputs, one after the other."""
    counts, outputs = lattice.logs.shape
    most = lattice.kernels.shape[0] - 1
    step = list(itertools.product(range(counts), range(outputs)))

    def block_weights(a: int) -> np.ndarray:
        found = np.zeros(most + 1, complex)
        for path in itertools.product(step, repeat=chain.block):
            term, crowd = 1 + 0j, 0
            for s, i in path:
                if crowd + s > most:
                    term = 0j
                    break
                place = crowd if chain.block > 1 else 0
                term *= lattice.masses[s, place, a, i] * np.exp(z * lattice.logs[s, i])
                crowd += s
            if term:
                found[crowd] += term
        return found

    blocks = [block_weights(a) for a in range(lattice.states.size)]
    total = 0j
    for path in itertools.product(range(lattice.states.size), repeat=chain.blocks):
        term = lattice.entrance[path[0]] + 0j
        for a, b in itertools.pairwise(path):
            term *= sum(blocks[a][c] * lattice.kernels[c, a, b] for c in range(most + 1))
        total += term * blocks[path[-1]].sum()
    return total


@pytest.mark.parametrize(
    ("blocks", "block", "members", "most"),
    [(1, 1, 1, 1), (6, 1, 1, 1), (5, 1, 3, 3), (1, 3, 1, 2), (4, 3, 1, 1), (3, 2, 2, 3)],
)
def test_moments_are_sums_over_paths(blocks, block, members, most):
    chain = Chain(blocks, block, 0.3, 0.5, 0.2, binomial_prior(members, 0.3))
    lattice = some_lattice(chain, most, seed=blocks)
    powers = 1.5 + 1j * np.array([0.0, 0.7, 5.0, 40.0])
    found = moments(lattice, chain, powers)
    scale = math.exp(found.log_scale)
    for value, z in zip(found.values, powers, strict=True):
        exact = brute_force(lattice, chain, z)
        assert abs(scale * value - exact) <= 2 * found.error * scale * found.values[0].real


@pytest.mark.parametrize("blocks", [1, 2, 7, 100])
@pytest.mark.parametrize("block", [1, 5])
def test_the_scale_of_huge_moments_is_rounded_up(blocks, block):
    """One state, and outputs that all count the same: the ratio is a constant."""
    chain = Chain(blocks, block, 0.5, 0.5, 0.5, np.array([1.0]))
    lattice = Lattice(
        np.zeros(1),
        np.ones(1),
        np.ones((1, 1, 1)),
        np.zeros(1),
        np.full((1, 2), 333.3),
        np.full((1, 1, 1, 2), 0.5),
        0.0,
        0.0,
    )
    found = moments(lattice, chain, np.array([3.0 + 0j]))
    with mpmath.workdps(40):
        exact = 3 * blocks * block * mpmath.mpf(333.3)
        size = found.log_scale + mpmath.log(found.values[0].real)
        assert size + mpmath.log1p(found.error) >= exact
        assert size <= exact * (1 + mpmath.mpf(1e-10))


def test_powers_that_fit_are_one_batch_and_batches_change_nothing(monkeypatch):
    chain = CHAINS[0]
    lattice = lattice_for(chain, mean_centring(chain), "remove", 1e-3, COARSE)
    powers = 1.5 + 1j * np.arange(9.0)
    sizes, batch = [], operator._batch

    def counted(lattice, chain, powers):
        sizes.append(powers.size)
        return batch(lattice, chain, powers)

    monkeypatch.setattr(operator, "_batch", counted)
    whole = moments(lattice, chain, powers)
    assert sizes == [9]
    entries = max(2 * lattice.logs.size, lattice.states.size**2)
    monkeypatch.setattr(operator, "BATCH_ENTRIES", 2 * entries)
    parts = moments(lattice, chain, powers)
    assert sizes == [9, 2, 3, 3, 3, 2]
    turned = parts.values * math.exp(parts.log_scale - whole.log_scale)
    assert np.abs(turned - whole.values).max() <= 2 * whole.error * whole.values[0].real


def test_moments_out_of_the_range_of_floats_certify_nothing():
    chain = Chain(3, 1, 0.5, 0.5, 0.5, np.array([1.0]))
    even = np.full((1, 2, 2), 0.5)

    def found(second: float):
        masses = np.array([[[[0.5, 0.5], [second, second]]]])
        lattice = Lattice(
            np.zeros(2), even[0, 0], even, np.zeros(1), np.zeros((1, 2)), masses, 0.0, 0.0
        )
        return moments(lattice, chain, np.array([2.0 + 0j]))

    assert found(0.5) is not None
    assert found(1e-260) is None
    assert found(math.nan) is None
    assert found(math.inf) is None


# Choices.


@pytest.mark.parametrize("delta", [1e-2, 1e-9])
@pytest.mark.parametrize("order", [1.05, 2.0, 17.0])
@pytest.mark.parametrize("log_moment", [0.01, 3.0, 80.0])
def test_a_moment_alone_gives_the_epsilon_of_the_worst_value(log_moment, order, delta):
    """(x - E)_+ / x^order is largest somewhere; times the moment that is delta."""
    epsilon = renyi_epsilon(log_moment, order, delta)
    above = np.geomspace(1e-4, 1e4, 200_001)  # x = E (1 + above)
    best = float(np.max(np.log(above) - order * np.log1p(above)))
    assert log_moment + (1 - order) * epsilon + best == pytest.approx(math.log(delta), abs=1e-6)


@pytest.mark.parametrize("order", [1.4, 5.0])
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_no_other_centre_is_better(adjacency, order):
    """sum_s A_s (g_s/q_s)^power at one output: q_s moved by a little in every direction."""
    chain = Chain(5, 1, 0.4, 0.5, 0.7, binomial_prior(2, 0.15))
    weights, place = np.array([[0.7], [0.2], [0.05]]), np.array([0.8])
    centring = best_centring(chain.prior, chain.diagonal, place, weights, adjacency, order)
    counts = np.arange(3.0)
    g = chain.prior * np.exp(counts * 0.8 - counts**2 * chain.diagonal / 2)
    power = order - 1 if adjacency == "remove" else -order

    def value(centres: np.ndarray) -> float:
        q = g * np.exp(-centres)
        return float(weights[:, 0] @ (g * q.sum() / q) ** power)

    best = centring.at(place)[:, 0]
    assert best[0] == 0
    for change in itertools.product((-0.01, 0, 0.01), repeat=2):
        assert value(best + np.array([0, *change])) >= value(best)


def test_weights_that_say_nothing_give_no_centring():
    chain = CHAINS[1]
    places, empty = np.linspace(-1, 1, 5), np.full((3, 5), math.nan)
    for weights in (empty, np.zeros((3, 5))):
        found = best_centring(chain.prior, chain.diagonal, places, weights, "remove", 2.0)
        assert found is None


def test_the_mean_centring_is_the_mean_of_later_kicks():
    chain = CHAINS[1]
    later = chain.mean * sum(0.45 * 0.5**k for k in range(1, 200)) * 2
    assert mean_centring(chain).lowest == pytest.approx([later, 2 * later])


def test_numbers_of_participations_are_binomial():
    for members, p in ((1, 0.3), (4, 0.01)):
        found = binomial_prior(members, p)
        assert found == pytest.approx(binom.pmf(np.arange(members + 1), members, p), rel=1e-12)
