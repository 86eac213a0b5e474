"""Claim: losses on a given grid, and curves read off them, lie above the truth and near it.

Truth: convolutions and convex hulls with many digits.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracles import truth

from mmcc.accounting._bounds.mmcc.conditional import bound_participation
from mmcc.accounting._bounds.mmcc.independent import lower_delta, lower_epsilon
from mmcc.accounting._losses.compose import compose
from mmcc.accounting._losses.distribution import add_slacks
from mmcc.accounting._losses.dots import connect
from mmcc.accounting._losses.expansions import SERIES_ORDERS
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.gridded import GridDistribution, put_on_grid
from mmcc.accounting._losses.laws import ProductLaw
from mmcc.errors import ParameterError, PrecisionError
from mmcc.pld import PrivacyLossDistribution, mixture_of_gaussians
from mmcc.strategies._geometry import Block

SPACING = 0.05
EPSILONS = np.linspace(-1.0, 3.0, 17)


def random_loss(seed: int, size: int = 30) -> GridLoss:
    rng = np.random.default_rng([seed, 5])
    masses = rng.dirichlet(np.ones(size)) * (1 - 1e-5)
    return GridLoss(SPACING, -size // 3, masses, 1e-5)


def exact_curve(parts, epsilon: float) -> mpmath.mpf:
    """Delta of the sum, by plain convolution with exact masses."""
    first, law, finite = 0, [mpmath.mpf(1)], mpmath.mpf(1)
    for loss, count in parts:
        for _ in range(count):
            first += loss.first
            finite *= 1 - mpmath.mpf(loss.infinite)
            new = [mpmath.mpf(0)] * (len(law) + loss.masses.size - 1)
            for i, a in enumerate(law):
                for j, b in enumerate(loss.masses.tolist()):
                    new[i + j] += a * mpmath.mpf(b)
            law = new
    total = 1 - finite
    for k, mass in enumerate(law, first):
        if SPACING * k > epsilon:
            total -= mass * mpmath.expm1(epsilon - mpmath.mpf(SPACING) * k)
    return total


PARTS = ((random_loss(0), 2), (random_loss(1), 1))


@pytest.mark.parametrize("tilt", [0.5, 4.0])
def test_a_curve_in_one_pass_is_the_curve_point_by_point(tilt):
    composed = compose(PARTS, tilt, float(EPSILONS[0]))
    found = composed.deltas(EPSILONS)
    for epsilon, delta in zip(EPSILONS.tolist(), found.tolist(), strict=True):
        with mpmath.workdps(40):
            assert delta >= exact_curve(PARTS, epsilon)
        if epsilon >= composed.lowest:
            assert delta == pytest.approx(composed.delta(epsilon), rel=1e-9)


def test_below_the_window_a_curve_is_one():
    composed = compose(PARTS, 2.0, 1.0)
    below = np.array([composed.lowest - 1.0, composed.lowest - 0.1])
    assert composed.deltas(below).tolist() == [1.0, 1.0]
    both = composed.deltas(np.append(below, composed.lowest + 0.5))
    assert both[:2].tolist() == [1.0, 1.0]
    assert both[2] < 1.0
    with pytest.raises(PrecisionError, match="below the composed window"):
        composed.delta(composed.lowest - 0.1)


def distribution(slack: float = 0.0) -> GridDistribution:
    """Different losses for both adjacencies."""
    return GridDistribution(PARTS, ((random_loss(2), 3),), slack)


@pytest.mark.parametrize("slack", [0.0, 1e-3])
def test_answers_on_a_grid_lie_above_the_exact_ones_and_near(slack):
    given = distribution(slack)
    parts = {"remove": given.remove, "add": given.add}
    for side in truth.ADJACENCIES:
        curve = given.curve(EPSILONS, side)
        for place in (4, 8, 14):
            epsilon = float(EPSILONS[place])
            exact = float(exact_curve(parts[side], epsilon)) + slack
            assert exact * (1 - 1e-13) <= curve[place] <= exact * (1 + 1e-4)
            if epsilon >= 0:
                assert exact * (1 - 1e-13) <= given.delta(epsilon, side) <= exact * (1 + 1e-4)
        delta = 0.02
        found = given.epsilon(delta, side)
        assert exact_curve(parts[side], found) + slack <= delta
        assert exact_curve(parts[side], found * (1 - 1e-4)) + slack > delta
    assert given.epsilon(0.02) == max(given.epsilon(0.02, side) for side in truth.ADJACENCIES)
    assert given.delta(0.5) == max(given.delta(0.5, side) for side in truth.ADJACENCIES)


def test_what_is_left_of_delta_must_be_something():
    with pytest.raises(PrecisionError, match="leave too little of delta"):
        distribution(1e-3).epsilon(1e-3)
    assert distribution(0.999).delta(0.0) == 1.0


def test_composing_adds_parts_and_slacks_of_both_adjacencies():
    one, other = distribution(1e-4), distribution(2e-4)
    both = one.compose(other)
    assert (both.remove, both.add) == (one.remove + other.remove, one.add + other.add)
    assert both.rows == one.rows + other.rows == 6
    assert both.slack == pytest.approx(3e-4)
    thrice = one.self_compose(3)
    assert [count for _, count in thrice.remove] == [6, 3]
    assert [count for _, count in thrice.add] == [9]
    assert thrice.slack == pytest.approx(3e-4)
    coarse = GridDistribution(((GridLoss(0.1, 0, np.ones(1), 0.0), 1),) * 1, one.add)
    with pytest.raises(ParameterError, match="spacings of the two grids differ"):
        one.compose(coarse)
    with pytest.raises(ParameterError, match="another distribution"):
        one.compose(3)


@pytest.mark.parametrize("count", [1, 40])
def test_laws_put_on_a_grid_lie_above_the_composed_gaussians(count):
    """A Gaussian of ratio 0.3, so many times, is one of ratio 0.3 sqrt(count)."""
    gaussian = mixture_of_gaussians([0.3], [1.0], 1.0).self_compose(count)
    put = put_on_grid(gaussian, 1e-3)
    assert put.spacing == 1e-3
    assert put.rows == count
    for epsilon in (0.0, 0.5, 2.0):
        exact = float(truth.gaussian_delta(0.3 * math.sqrt(count), 1.0, epsilon))
        for side in truth.ADJACENCIES:
            found = put.delta(epsilon, side)
            assert exact <= found <= exact * (1 + 1e-2) + 1e-12
    mixed = put.compose(mixture_of_gaussians([0.3], [1.0], 1.0))
    exact = float(truth.gaussian_delta(0.3 * math.sqrt(count + 1), 1.0, 0.5))
    assert exact <= mixed.delta(0.5) <= exact * (1 + 1e-2) + 1e-12


@pytest.mark.parametrize("slacks", [[0.1] * 3, [1e-17, 1.0 - 1e-16], [0.7, 0.7], [3e-300] * 7, []])
@pytest.mark.parametrize("times", [1, 3, 10])
def test_slacks_are_added_up_and_no_digit_is_lost_downwards(slacks, times):
    exact = min(times * sum(map(Fraction, slacks), Fraction(0)), Fraction(1))
    found = add_slacks(slacks, times)
    assert exact <= Fraction(found) <= 1
    assert Fraction(math.nextafter(found, 0.0)) < exact or found == 0.0 == exact


# Dots.


def dots(seed: int, count: int = 25) -> tuple[np.ndarray, np.ndarray]:
    """Dots at and above a true curve: that of a random loss, on which some lie exactly."""
    rng = np.random.default_rng([seed, 23])
    places = np.sort(rng.choice(np.arange(-40, 60), count, replace=False))
    loss = random_loss(seed, 40)
    heights = [float(exact_curve([(loss, 1)], SPACING * k)) for k in places]
    above = np.where(rng.random(count) < 0.5, 0.0, 0.05 * rng.random(count))
    return places, np.minimum.accumulate(np.asarray(heights) + above)


def below_lines(x: np.ndarray, heights: np.ndarray, at: float) -> float:
    """The largest convex function below the dots, by all lines through two of them."""
    best = min((h for p, h in zip(x, heights, strict=True) if p == at), default=math.inf)
    for i in range(x.size):
        for j in range(x.size):
            if x[i] < at < x[j]:
                share = (at - x[i]) / (x[j] - x[i])
                best = min(best, (1 - share) * heights[i] + share * heights[j])
    return best


@pytest.mark.parametrize("seed", range(5))
def test_losses_through_dots_have_the_hull_as_their_curve(seed):
    places, heights = dots(seed)
    found = connect(places, heights, SPACING)
    assert found.spacing == SPACING
    assert found.first >= places[0]
    x = np.append(0.0, np.exp(places * SPACING))
    tops = np.append(1.0, heights)
    for epsilon in np.linspace(places[0], places[-1], 41)[1:-1] * SPACING:
        hull = below_lines(x, tops, math.exp(epsilon))
        curve = found.infinite + math.fsum(
            mass * max(-math.expm1(epsilon - SPACING * k), 0.0)
            for k, mass in enumerate(found.masses.tolist(), found.first)
        )
        assert hull * (1 - 1e-13) <= curve <= hull * (1 + 1e-9) + 1e-11
    assert 1.0 <= math.fsum(found.masses) + found.infinite <= 1 + 1e-9


def test_dots_of_which_all_is_infinite_are_refused():
    with pytest.raises(PrecisionError, match="nearly all"):
        connect(np.arange(3), np.ones(3), SPACING)
    alone = connect(np.array([4]), np.array([0.25]), SPACING)
    assert (alone.first, alone.masses.size) == (4, 1)
    assert alone.masses[0] == pytest.approx(0.75)
    assert 0.25 <= alone.infinite <= 0.25 * (1 + 1e-9)


# Rows of very many equal columns, and what is known of columns that are equal.


@pytest.mark.parametrize("adjacency", truth.ADJACENCIES)
def test_a_row_of_many_equal_columns_is_a_binomial_mixture(adjacency):
    """More columns than a series has orders: it is raised to a power."""
    value, p, columns = 0.02, 0.05, max(SERIES_ORDERS) + 40
    law = ((ProductLaw(np.array([value]), np.array([p]), columns), 1),)
    found = PrivacyLossDistribution(law, law)
    most = 40  # more participations have a chance below 1e-15
    weights = [math.comb(columns, k) * p**k * (1 - p) ** (columns - k) for k in range(most)]
    for epsilon in (0.0, 0.1, 0.3):
        exact = float(
            truth.mixture_delta([value * k for k in range(most)], weights, 1.0, epsilon, adjacency)
        )
        assert exact * (1 - 1e-9) <= found.delta(epsilon, adjacency) <= exact * 1.001 + 1e-15


@pytest.mark.parametrize("tail", [0.3, 1e-3, 1e-9])
def test_equal_overlaps_may_be_counted(tail):
    """Seven columns of three kinds, written out or counted: the same largest few are taken."""
    overlaps, counts = np.array([[0.9, 0.5, 0.2], [0.6, 0.3, 0.1]]), np.array([2, 4, 1])
    sums, peaks = overlaps @ counts, overlaps.max(axis=1)
    one = np.ones(2)
    counted = Block(1, one, one, sums, peaks, overlaps=overlaps, overlap_counts=counts)
    written = Block(1, one, one, sums, peaks, overlaps=np.repeat(overlaps, counts, axis=1))
    ours, theirs = (bound_participation(block, 0.1, tail) for block in (counted, written))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    for row, bound in zip(np.repeat(overlaps, counts, axis=1), ours, strict=True):
        over = math.fsum(
            0.1 ** sum(taken) * 0.9 ** (7 - sum(taken))
            for taken in itertools.product((0, 1), repeat=7)
            if float(np.dot(taken, row)) > bound
        )
        assert over <= tail


@pytest.mark.parametrize("p", [1e-2, 1e-4])
@pytest.mark.parametrize("a", [0.7, 2.5])
def test_rare_participation_moves_the_grid_of_a_lower_bound(p, a):
    """Nearly all outputs have the loss log(1 - p): hardly a grid point would be as low."""
    for scale in (0.5, 5.0):
        epsilon = scale * p
        exact = float(truth.mixture_delta([0.0, a], [1 - p, p], 1.0, epsilon, "remove"))
        found = lower_delta([(a, 1)], p, epsilon, "remove", exact)
        assert 0.9 * exact <= found <= exact
        least = lower_epsilon([(a, 1)], p, exact, "remove", 3 * epsilon)
        assert 0.9 * epsilon <= least <= epsilon * (1 + 1e-9)
