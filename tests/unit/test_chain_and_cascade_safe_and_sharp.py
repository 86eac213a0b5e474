"""Claim: each part of the chain bound and of the cascade is as safe, and as sharp, as it says.

Truth: closed forms, plain sums and searches over all choices, with many digits where rounding is
what is claimed.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracles import truth
from scipy.special import ndtr

from mmcc import sampling, strategies
from mmcc.accounting._bounds import chain as chain_bound
from mmcc.accounting._bounds.cascade.law import Law, TreeBracket, _Builder, _deviation
from mmcc.accounting._bounds.chain import exits, operator
from mmcc.accounting._bounds.chain.domination import Chain
from mmcc.accounting._bounds.chain.factors import Tangent, add_factors, remove_factors, strength
from mmcc.accounting._bounds.chain.lattice import COARSE, Lattice, _outputs, lattice_for, state_step
from mmcc.accounting._bounds.chain.operator import Factors, Moments, moments
from mmcc.accounting._bounds.chain.settings import Setting, renyi_epsilon
from mmcc.accounting._bounds.reveal.inversion import Inversion, Line, line_for
from mmcc.errors import PrecisionError
from mmcc.strategies._hierarchy import Node

# The cascade.


@pytest.mark.parametrize("variance", [0.25, 1.0, 4.0])
def test_one_bin_is_the_gaussian_mechanism_also_far_beyond_its_delta(variance):
    """Where e^epsilon is an edge no cell costs anything under remove: only rounding is left."""
    cascade = TreeBracket(Node(variance), 1.0, 1e-6)
    last = round(math.log(cascade._law("upper", "remove").values[-1]) / cascade.width)
    for edge in np.linspace(0, last - 1, 60).astype(int).tolist():
        epsilon = edge * cascade.width
        exact = truth.gaussian_delta(math.sqrt(variance), 1.0, epsilon)
        lower, upper = cascade.lower_delta(epsilon), cascade.bound_delta(epsilon)
        for adjacency in truth.ADJACENCIES:
            low, high = getattr(lower, adjacency), getattr(upper, adjacency)
            assert low <= exact <= high
            if exact > 1e-7:
                assert high <= exact * (1 + 1e-3)
                assert low >= exact * (1 - 1e-3)


@pytest.mark.parametrize("bins", [64, 1024])
def test_the_mean_of_many_bins_has_cells_as_fine_as_it_is_narrow(bins):
    """The mean of n ratios of variance e - 1 has a deviation of sqrt((e - 1)/n) around 1."""
    cascade = TreeBracket(Node(0.0, ((bins, Node(1.0)),)), 1.0, 1e-6)
    epsilon = math.log1p(math.sqrt(math.expm1(1.0) / bins))
    low, high = cascade.lower_delta(epsilon), cascade.bound_delta(epsilon)
    assert low.remove <= high.remove <= low.remove * 1.01
    assert low.add <= high.add <= low.add * 1.01


@pytest.mark.parametrize("count", [2, 3, 5, 6, 7])
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_means_have_a_variance_between_those_of_both_laws(count, adjacency):
    """Var X = (e - 1)/n exactly; it is a convex function of X, so it is bounded from both sides."""
    cascade = TreeBracket(Node(0.0, ((count, Node(1.0)),)), 1.0, 1e-9)
    exact = math.expm1(1.0) / count
    low, high = (
        float((law.values - 1) ** 2 @ law.masses)
        for law in (cascade._law("lower", adjacency), cascade._law("upper", adjacency))
    )
    assert low <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-5) <= high <= exact * (1 + 1e-2)  # but for what is cut off above
    assert low >= exact * (1 - 1e-2)


@pytest.mark.parametrize("variance", [4.0, 9.0])
def test_factors_one_above_another_are_the_gaussian_mechanism_also_far_out(variance):
    """One bin below two nodes: variances add up.  Under add X below e^-15 counts."""
    cascade = TreeBracket(Node(variance / 3, ((1, Node(variance * 2 / 3)),)), 1.0, 1e-9)
    for epsilon in (1.0, 6.0, 12.0, 16.0, 20.0):
        exact = truth.gaussian_delta(math.sqrt(variance), 1.0, epsilon)
        low, high = cascade.lower_delta(epsilon), cascade.bound_delta(epsilon)
        for adjacency in truth.ADJACENCIES:
            assert getattr(low, adjacency) <= exact <= getattr(high, adjacency)
            if exact > 1e-9:
                assert getattr(high, adjacency) <= exact * 1.01
                assert getattr(low, adjacency) >= exact * 0.99


@pytest.mark.parametrize(("bound", "side"), [("upper", 1), ("lower", -1)])
def test_masses_cover_the_rounding_of_every_addition(bound, side):
    """Masses so small beside the first that each is lost, or counts for nearly two, when added."""
    small = {"upper": 1.0, "lower": 1.3}[bound] * 2.0**-53
    masses = np.concatenate([[1.0], np.full(999, small)])
    law = Law(1 + 1e-6 * np.arange(1000.0), masses)
    builder = _Builder(TreeBracket(Node(1.0), 1.0), bound, "remove")
    found = builder._combined(law, law, 0.5, 0.5, 0.0)
    exact = sum(map(Fraction, masses.tolist())) ** 2
    total = sum(map(Fraction, found.masses.tolist()))
    assert side * (total - exact) >= 0
    assert abs(total / exact - 1) <= Fraction(1, 10**9)


def test_the_deviation_is_that_of_the_sum_or_of_the_product():
    """Two independent variables of mean 1, all pairs of values."""
    first = Law(np.array([0.5, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]))
    second = Law(np.array([0.9, 1.1]), np.array([0.5, 0.5]))
    pairs = np.outer(first.masses, second.masses)
    for share, other in ((0.25, 0.75), (0.9, 0.1), (0.0, 0.0)):
        values = np.add.outer(share * first.values, other * second.values)
        if not share:
            values = np.outer(first.values, second.values)
        exact = math.sqrt(float(np.sum(pairs * (values - 1) ** 2)))
        assert _deviation(first, second, share, other) == pytest.approx(exact, rel=1e-12)


def test_a_law_with_no_number_is_not_read_as_privacy():
    cascade = TreeBracket(Node(1.0), 1.0)
    for adjacency in truth.ADJACENCIES:
        cascade._laws["upper", adjacency] = Law(np.ones(2), np.array([1.0, math.nan]))
    with pytest.raises(PrecisionError, match="beyond floating point"):
        cascade.bound_delta(0.0)


# Inversion.


@pytest.mark.parametrize(
    ("order", "step", "count", "epsilon"),
    [(1.5, 500.0, 6, 30.0), (4.0, 500.0, 6, 150.0), (1.5, 0.1, 800, 30.0)],
)
def test_phases_of_many_turns_are_paid_for(order, step, count, epsilon):
    """X = 1: the bound is at least the sum over all nodes, of which it has the first."""
    line = Line(order, step, count, smoothing=80 / ((count - 1) * step) ** 2)
    found = Inversion(line, Moments(np.ones(count, complex), 0.0, 0.0)).excess(epsilon)
    with mpmath.workdps(30):
        total = mpmath.mpf(0)
        for k in range(count + count // 4 + 4):
            z = mpmath.mpc(order, k * mpmath.mpf(step))
            damped = mpmath.exp(mpmath.mpf(line.smoothing) / 2 * (z * z - z)) / (z * (z - 1))
            total += (2 if k else 1) * (damped * mpmath.expj(-z.imag * epsilon)).real
        exact = step / (2 * mpmath.pi) * mpmath.exp((1 - order) * epsilon) * total
        assert found >= exact > 0


@pytest.mark.parametrize("order", [1.2, 3.0, 40.0])
@pytest.mark.parametrize("period", [0.7, 5.0, 31.0])
@pytest.mark.parametrize("blur", [1e-4, 1e-2])
def test_lines_end_at_the_first_node_where_smoothing_has_fallen_enough(order, period, blur):
    """The size of e^(tau^2 z^2 / 2), which is more than one on the real axis, is below e^-9."""
    line = line_for(order, period, blur, 9.0)
    logs = 0.5 * line.smoothing * (order**2 - line.nodes().imag ** 2)
    assert logs[-1] <= -9.0 * (1 - 1e-12)
    assert logs[-2] > -9.0


# Moments.


@pytest.mark.parametrize("blocks", [1, 2, 7, 100])
def test_the_scale_of_huge_moments_is_rounded_up(blocks):
    """One state, and outputs that all count the same: X is a constant."""
    chain = Chain(blocks, 1, 0.1, 1.0, 0.5, 0.5)
    one, two = np.ones((1, 1)), np.full((1, 2), 0.5)
    lattice = Lattice(np.zeros(1), np.ones(1), one, np.array([-np.inf, 0.0]), two, 0.0, 0.0)
    factors = Factors(np.full(1, 17.1), np.full((1, 2), 333.3), 13.7 * one)
    found = moments(lattice, factors, chain, np.array([3.0 + 0j]))
    with mpmath.workdps(40):
        entry, step, move = map(mpmath.mpf, (17.1, 333.3, 13.7))
        exact = 3 * (entry + blocks * step + (blocks - 1) * move)
        size = found.log_scale + mpmath.log(found.values[0].real)
        assert size + mpmath.log1p(found.error) >= exact
        assert size <= exact * (1 + mpmath.mpf(1e-10))


def test_powers_that_fit_are_one_batch_and_batches_change_nothing(monkeypatch):
    chain = Chain(6, 1, 0.1, 0.3, 0.6, 0.8)
    lattice = lattice_for(chain, "remove", 1e-3, COARSE)
    tangent = Tangent(lattice.states, np.full(lattice.states.size, 0.2), 0.3)
    factors = remove_factors(chain, lattice, tangent)
    powers = 2.5 + 1j * np.arange(9.0)
    sizes, batch = [], operator._batch

    def counted(lattice, factors, chain, powers):
        sizes.append(powers.size)
        return batch(lattice, factors, chain, powers)

    monkeypatch.setattr(operator, "_batch", counted)
    whole = moments(lattice, factors, chain, powers)
    assert sizes == [9]
    entries = lattice.states.size * max(lattice.states.size, factors.step.shape[1])
    monkeypatch.setattr(operator, "BATCH_ENTRIES", 2 * entries)
    parts = moments(lattice, factors, chain, powers)
    assert sizes == [9, 2, 3, 3, 3, 2]
    assert parts.values.size == 9
    turned = parts.values * math.exp(parts.log_scale - whole.log_scale)
    assert np.abs(turned - whole.values).max() <= 2 * whole.error * whole.values[0].real


# The lattice.


@pytest.mark.parametrize("decay", [0.0, 0.6, 1 - 1e-4, 1 - 1e-9])
@pytest.mark.parametrize("wanted", [1e-2, 1e-7])
def test_steps_of_the_states_have_the_error_that_is_said(decay, wanted):
    """kappa = 1 / sinh(2 pi^2 / (h^2 B)); without a step nothing is known of it."""
    chain = Chain(40, 1, 0.1, 1.0, 0.5, decay)
    h, kappa = state_step(chain, wanted)
    if decay == 1 - 1e-9:
        assert (h, kappa) == (0.0, math.inf)
        assert lattice_for(chain, "remove", 1e-6) is None
        return
    with mpmath.workdps(30):
        exact = 1 / mpmath.sinh(2 * mpmath.pi**2 / (mpmath.mpf(h) ** 2 * chain.growth))
        assert exact <= kappa <= exact * (1 + mpmath.mpf(1e-9))
    assert 40 * kappa <= wanted * (1 + 1e-3)


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("budget", [1e-3, 1e-9])
def test_leaving_the_lattice_of_add_costs_at_least_its_chance(share, budget):
    """Under N(0) every u and every v is normal; one step alone, and steps that are independent."""
    chain = Chain(30, 1, 0.1, 2.0, share, 0.3)
    found = lattice_for(chain, "add", budget, COARSE)
    out = float(ndtr(found.logs[1] / math.sqrt(2.0)))
    chance = -math.expm1(30 * math.log1p(-out))
    if share:
        h = float(found.states[1] - found.states[0])
        chance = out + float(ndtr(found.states[0] - h) + ndtr(-found.states[-1] - h))
    assert 0 < chance <= found.exits <= 1.5 * budget


@pytest.mark.parametrize("bottom", [-5.0, -1.5, 0.2])
@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_outputs_keep_their_mass_and_their_mean(adjacency, bottom):
    """Of x = e^u, u normal around sqrt(s g) v: what is below, between and above the nodes."""
    chain = Chain(5, 1, 0.1, 1.2, 0.4, 0.5)
    states, top = np.array([-2.0, 0.0, 1.5]), 2.5
    logs, masses = _outputs(chain, states, bottom, top, 0.1, adjacency)
    deviation, centres = math.sqrt(chain.white), math.sqrt(chain.common) * states
    low, high = (bottom - centres) / deviation, (top - centres) / deviation
    lift = np.exp(centres + deviation**2 / 2)
    mean = lift * ndtr(high - deviation)
    mass = ndtr(high)
    if adjacency == "add":  # below has left, above moves down to the last node
        mean = mean - lift * ndtr(low - deviation) + math.exp(top) * ndtr(-high)
        mass = ndtr(-low)
    found = masses @ np.exp(logs)
    assert masses.sum(axis=1) == pytest.approx(mass, rel=1e-9)
    assert found == pytest.approx(mean, rel=1e-9)
    assert (masses.sum(axis=1) >= mass * (1 - 1e-14)).all()


# Exits, and the strength of cross terms.


@pytest.mark.parametrize("chance", [1e-3, 1e-12])
@pytest.mark.parametrize("p", [1e-3, 0.3])
@pytest.mark.parametrize("diagonal", [1e-10, 1e-4, 1.0, 50.0])
def test_levels_are_the_lowest_that_some_rate_certifies(diagonal, p, chance):
    """One step: its output is N(0, g) or, with chance p, N(g, g)."""
    chain = Chain(1, 1, p, diagonal, 0.0, 0.0)
    found = exits.ceiling(exits.log_output_moment, chain, chance)
    deviation = math.sqrt(diagonal)
    rates = np.geomspace(1e-3, 1e3, 20_001) / deviation
    logs = np.logaddexp(math.log1p(-p), math.log(p) + rates * diagonal) + rates**2 * diagonal / 2
    assert found.level <= float(np.min((logs - math.log(chance)) / rates)) * (1 + 1e-6)
    passed = (1 - p) * ndtr(-found.level / deviation)
    passed += p * ndtr(deviation - found.level / deviation)
    assert passed <= chance
    certified = exits.passing(exits.log_output_moment, chain, found.level, found.rate)
    assert passed <= certified <= chance * (1 + 1e-6)


@pytest.mark.parametrize("cap", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("diagonal", [1e-3, 1.0, 30.0])
def test_cross_terms_are_as_strong_as_the_better_of_two_proofs(diagonal, cap):
    """Janson's is best among all thinnings in (0, 1], of which many are tried here."""
    for chain in (Chain(9, 1, 0.1, diagonal, 0.6, 0.8), Chain(9, 4, 0.1, diagonal, 0.3, 0.5)):
        c = diagonal * chain.share * (chain.block - 1 + 2 * chain.block / (1 / chain.decay - 1))
        largest = diagonal * chain.share * (chain.decay if chain.block == 1 else 1.0)
        finner = -math.expm1(-c) / c
        f = -math.expm1(-largest) / largest
        q = np.linspace(1e-4, 1.0, 10_000)
        janson = float(np.max(f * q * (1 - q * f * c * cap)))
        assert strength(chain, cap) == pytest.approx(max(finner, janson), rel=1e-5)
        assert strength(chain, cap) >= finner * (1 - 1e-10)


# The search, and the whole.


@pytest.mark.parametrize("delta", [1e-2, 1e-9])
@pytest.mark.parametrize("order", [1.05, 2.0, 17.0])
@pytest.mark.parametrize("log_moment", [0.01, 3.0, 80.0])
def test_a_moment_alone_gives_the_epsilon_of_the_worst_value(log_moment, order, delta):
    """(x - E)_+ / x^order is largest somewhere; times the moment that is delta."""
    epsilon = renyi_epsilon(log_moment, order, delta)
    above = np.geomspace(1e-4, 1e4, 200_001)  # x = E (1 + above)
    best = float(np.max(np.log(above) - order * np.log1p(above)))
    assert log_moment + (1 - order) * epsilon + best == pytest.approx(math.log(delta), abs=1e-6)


@pytest.mark.parametrize("order", [1.3, 4.0])
def test_moments_are_those_of_the_ratio_or_of_its_inverse(order):
    """Without anything shared steps are independent: E_Q X^order, or E_Q X^(1 - order) for add."""
    chain = Chain(5, 1, 0.1, 0.5, 0.0, 0.0)
    none = Tangent(np.zeros(1), np.zeros(1), 1.0)
    y, h = np.linspace(-12, 12, 4001, retstep=True)
    ratio = 0.9 + 0.1 * np.exp(math.sqrt(0.5) * y - 0.25)
    density = np.exp(-0.5 * y * y) * h / math.sqrt(2 * math.pi)
    for adjacency, power in (("remove", order), ("add", 1 - order)):
        setting = Setting(chain, adjacency, 0.1, order, 1.0, none)
        lattice = lattice_for(chain, adjacency, 1e-9, COARSE)
        exact = 5 * math.log(float(density @ ratio**power))
        found = setting.log_moment(lattice, setting.factors(lattice), order)
        assert exact * (1 - 1e-6) <= found <= exact * 1.1
    assert np.array_equal(setting.factors(lattice).step, add_factors(chain, lattice).step)


@pytest.mark.parametrize("separation", [1, 3])
def test_taking_part_in_every_step_is_the_gaussian_mechanism(separation):
    strategy = strategies.toeplitz([1.0, 0.5, 0.2], 8)
    scheme = sampling.Poisson(1.0) if separation == 1 else sampling.CyclicPoisson(1.0, separation)
    length = float(np.linalg.norm(strategy.to_dense()[:, ::separation].sum(axis=1)))
    sides = chain_bound.bound_epsilon(strategy, scheme, 3.0, 1e-5)
    assert sides.remove == sides.add
    assert truth.gaussian_delta(length, 3.0, sides.add) <= 1e-5
    assert truth.gaussian_delta(length, 3.0, sides.add * (1 - 1e-9)) > 1e-5
    found = chain_bound.bound_delta(strategy, scheme, 3.0, sides.add)
    assert found.remove == found.add == pytest.approx(1e-5, rel=1e-8)
