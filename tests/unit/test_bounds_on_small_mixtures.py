"""Claim: reveal bounds, chains of bins and bounds by counts answer each question safely.

Truth: mixtures of Gaussians in a plane by quadrature with its own error, and some in more
dimensions by enumeration, four standard errors to either side; nothing of it is the package's.
How little each bound loses is asserted apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
import pytest
from oracles import enumeration, separation, truth
from oracles.allocation import allocation_sets
from oracles.groups import bin_components, count_components
from oracles.scalar import scalar_delta

from mmcc import sampling, strategies
from mmcc.accounting import Answer, Bound, Problem
from mmcc.accounting._bounds import ByCounts, Mmcc
from mmcc.accounting._bounds.cascade import Cascade
from mmcc.accounting._bounds.projection import Projection
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.accounting._bounds.reveal.lower import apart
from mmcc.sampling import Renewal
from mmcc.strategies import Strategy

Ends = tuple[float, float]
Curve = Callable[[float, str], Ends]
Parts = tuple[np.ndarray, np.ndarray]
"""The components of a mixture, in units of sigma, and their weights."""
NEGLIGIBLE = 1e-9
"""How little is lost is not asserted of smaller deltas."""


@dataclass(frozen=True, eq=False)
class Small:
    """A mechanism, a bound, and the truth between two ends at (epsilon, adjacency)."""

    problem: Problem
    bound: Bound
    curve: Curve
    remove: float
    """The part of epsilon that the bound may lose."""
    add: float
    lower: float | None = None
    """The part of epsilon that the lower end may miss; None if nothing is known."""
    deltas: tuple[float, ...] = (1e-2, 1e-6)
    epsilons: tuple[float, ...] = (0.5,)

    def loss(self, side: str) -> float:
        return self.remove if side == "remove" else self.add

    @cached_property
    def epsilon_at(self) -> dict[float, Answer]:
        return {delta: self.bound.epsilon(self.problem, delta) for delta in self.deltas}

    @cached_property
    def delta_at(self) -> dict[float, Answer]:
        return {epsilon: self.bound.delta(self.problem, epsilon) for epsilon in self.epsilons}

    def worst(self, epsilon: float) -> Ends:
        """The true delta of the larger adjacency."""
        ends = [self.curve(epsilon, side) for side in truth.ADJACENCIES]
        return max(low for low, _ in ends), max(high for _, high in ends)


def in_a_plane(components: np.ndarray, weights: np.ndarray) -> Curve:
    """The truth of components >= 0 with two coordinates."""
    return cache(partial(truth.plane_bracket, components, np.log(weights)))


def enumerated(components: np.ndarray, weights: np.ndarray) -> Curve:
    """The truth in more dimensions, four standard errors to either side."""

    @cache
    def curve(epsilon: float, side: str) -> Ends:
        found = enumeration.mixture_delta(
            components, weights, epsilon, side, relative=0.004, absolute=1e-8, seed=5
        )
        return found.mean - 4 * found.error, found.mean + 4 * found.error

    return curve


def one_buffer(steps: int) -> strategies.Toeplitz:
    return strategies.blt(steps, decay=[0.8], scale=[0.4])


def coins(steps: int, p: float, sigma: float, **asked) -> Small:
    """A one-buffer BLT; the nonlinear test gives its lower end."""
    strategy = one_buffer(steps)
    parts = count_components(strategy.to_dense(), [1] * steps, p, sigma)
    curve = in_a_plane(*parts) if steps == 2 else enumerated(*parts)
    return Small(Problem(strategy, sampling.Poisson(p), sigma), Reveal(), curve, **asked)


def public_groups(p: float, sigma: float, **losses: float) -> Small:
    """Six steps in three public groups, of which the first has the longest columns."""
    strategy = one_buffer(6)
    curve = cache(partial(truth.two_row_bracket, strategy.to_dense()[:, ::3], p, sigma))
    return Small(Problem(strategy, sampling.CyclicPoisson(p, 3), sigma), Reveal(), curve, **losses)


def apart_by(
    gap: int, warm: bool, strategy: strategies.Toeplitz, p: float, sigma: float, **asked
) -> Small:
    parts = separation.components(strategy.to_dense(), p, gap, sigma, warm)
    curve = in_a_plane(*parts) if strategy.steps == 2 else enumerated(*parts)
    problem = Problem(strategy, sampling.MinSeparation(p, gap, warm), sigma)
    return Small(problem, Reveal(), curve, **asked)


def allocated(length: int, epochs: int, sigma: float, **asked) -> Small:
    """One step of each epoch."""
    strategy = one_buffer(length * epochs)
    sets = allocation_sets(length, 1, epochs)
    curve = enumerated(sets @ strategy.to_dense().T / sigma, np.full(len(sets), 1 / len(sets)))
    problem = Problem(strategy, sampling.RandomAllocation(length), sigma)
    return Small(problem, Reveal(), curve, **asked)


def three_bins(sigma: float, **losses: float) -> Small:
    matrix = np.array([[1.0, 0.6, 0.1], [0.1, 0.6, 1.1]])
    strategy = strategies.dense(matrix, adaptive=False)
    curve = in_a_plane(*bin_components(matrix, 3, 1, sigma))
    return Small(Problem(strategy, sampling.BallsInBins(3), sigma), Cascade(), curve, **losses)


def bins_in_two_epochs(sigma: float, **losses: float) -> Small:
    strategy = one_buffer(4)
    means, _ = bin_components(strategy.to_dense(), 2, 1, sigma)
    curve = cache(partial(truth.bins_bracket, means))
    return Small(Problem(strategy, sampling.BallsInBins(2), sigma), Cascade(), curve, **losses)


def two_directions(p: float, sigma: float, **losses: float) -> Small:
    """Six steps in a plane, of which an example takes part in most; half are nearly orthogonal."""
    matrix = np.array([[1.0, 0.9, 0.8, 0.2, 0.1, 0.1], [0.1, 0.1, 0.2, 0.7, 0.8, 1.0]])
    curve = cache(partial(truth.two_row_bracket, matrix, p, sigma))
    problem = Problem(strategies.dense(matrix, adaptive=False), sampling.Poisson(p), sigma)
    return Small(problem, Projection(), curve, **losses)


def members(count: int, bound: Bound, strategy: Strategy, sigma: float, **losses: float) -> Small:
    """A group whose members take part independently in two steps."""
    p = 0.15
    curve = in_a_plane(*count_components(strategy.to_dense(), [count] * 2, p, sigma))
    problem = Problem(strategy, sampling.Poisson(p), sigma, group_size=count)
    return Small(problem, bound, curve, **losses)


BANDS = strategies.toeplitz([1.0, 0.5], 2)
CASES = {
    "two steps": coins(2, 0.15, 1.4, remove=0.13, add=0.04, lower=0.007),
    "five steps": coins(
        5, 0.4, 2.5, remove=0.19, add=0.1, lower=0.004, deltas=(1e-3,), epsilons=(1.0,)
    ),
    "public groups": public_groups(0.2, 1.4, remove=0.055, add=0.025, lower=0.003),
    "a gap": apart_by(2, False, one_buffer(2), 0.15, 1.4, remove=0.21, add=0.07, lower=0.11),
    "a longer gap": apart_by(
        3, True, one_buffer(4), 0.15, 1.4, remove=0.4, add=0.25, lower=0.06, deltas=(1e-2,)
    ),
    "allocated": allocated(3, 1, 1.4, remove=0.1, add=0.11, deltas=(1e-2, 1e-4), epsilons=()),
    "allocated twice": allocated(2, 2, 2.0, remove=0.14, add=0.15, epsilons=(2.0,)),
    "three bins": three_bins(1.5, remove=0.1, add=0.1),
    "two epochs of bins": bins_in_two_epochs(2.0, remove=0.003, add=0.003),
    "two members": members(2, Reveal(), one_buffer(2), 2.0, remove=0.13, add=0.05),
    "three members": members(
        3, ByCounts(Mmcc()), strategies.identity(2), 2.0, remove=1e-3, add=0.35
    ),
    "two members, projected": members(
        2, ByCounts(Projection()), BANDS, 2.0, remove=0.04, add=0.04, lower=0.01
    ),
    "two directions": two_directions(0.7, 3.0, remove=0.013, add=0.013, lower=4e-4),
    "a gap, stationary": apart_by(
        2, True, BANDS, 0.15, 1.4, remove=0.53, add=0.22, lower=0.07, deltas=(1e-3,), epsilons=()
    ),
}


@pytest.mark.parametrize("side", truth.ADJACENCIES)
@pytest.mark.parametrize("name", CASES)
def test_epsilon_holds(name, side):
    case = CASES[name]
    for delta, found in case.epsilon_at.items():
        assert case.curve(getattr(found, side), side)[0] <= delta


@pytest.mark.parametrize("side", truth.ADJACENCIES)
@pytest.mark.parametrize("name", CASES)
def test_little_epsilon_is_lost(name, side):
    case = CASES[name]
    for delta, found in case.epsilon_at.items():
        epsilon = getattr(found, side)
        assert epsilon == 0.0 or case.curve(epsilon / (1 + case.loss(side)), side)[1] >= delta


@pytest.mark.parametrize("side", truth.ADJACENCIES)
@pytest.mark.parametrize("name", CASES)
def test_delta_holds(name, side):
    case = CASES[name]
    for epsilon, found in case.delta_at.items():
        assert getattr(found, side) >= case.curve(epsilon, side)[0]


@pytest.mark.parametrize("side", truth.ADJACENCIES)
@pytest.mark.parametrize("name", CASES)
def test_little_delta_is_lost(name, side):
    case = CASES[name]
    for epsilon, found in case.delta_at.items():
        less = epsilon / (1 + case.loss(side))
        assert getattr(found, side) <= max(1.1 * case.curve(less, side)[1], NEGLIGIBLE)


KNOWN = [name for name, case in CASES.items() if case.lower is not None]


@pytest.mark.parametrize("name", CASES)
def test_lower_ends_lie_below_the_truth(name):
    case = CASES[name]
    for delta in case.deltas:
        found = case.bound.lower_epsilon(case.problem, delta).value
        assert found == 0.0 if case.lower is None else found > 0.0
        assert found == 0.0 or case.worst(found)[1] >= delta
        if case.lower is not None:  # and near it
            assert case.worst(found * (1 + case.lower))[0] <= delta
    for epsilon in case.epsilons:
        least = case.bound.lower_delta(case.problem, epsilon).value
        assert 0.0 <= least <= case.worst(epsilon)[1]
        if case.lower is not None:
            assert least >= 0.98 * case.worst(epsilon * (1 + case.lower))[0]


def along_all_columns(parts: Parts, matrix: np.ndarray) -> Parts:
    """The output along the sum of all columns: a mixture on a line."""
    direction = matrix.sum(axis=1)
    return parts[0] @ direction / np.linalg.norm(direction), parts[1]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("gap", "p"), [(2, 0.3), (3, 0.05), (9, 0.1)])
def test_one_direction_reveals_what_it_reveals(gap, p, warm):
    """The lower end for participations a gap apart against the same output's own delta."""
    strategy, sigma = one_buffer(7), 1.1
    matrix = strategy.to_dense()
    parts = along_all_columns(separation.components(matrix, p, gap, sigma, warm), matrix)
    sums = apart.sums_along(strategy.gram(1, 0, sigma), Renewal(p, gap, warm))
    assert sums is not None
    for epsilon in (0.2, 2.0):
        exact = scalar_delta(*parts, 1.0, epsilon, "remove")
        assert 0.96 * exact <= apart.lower_delta(sums, epsilon) <= exact
    for delta in (1e-2, 1e-5):
        epsilon = apart.lower_epsilon(sums, delta)
        assert scalar_delta(*parts, 1.0, epsilon, "remove") >= delta
        assert scalar_delta(*parts, 1.0, 1.02 * epsilon, "remove") <= delta
    # Some of the tail at each threshold, rounded down.
    thresholds = np.array([-1.0, 0.5, 3.0])
    tails = [
        parts[1] @ [math.erfc((t - s) / math.sqrt(2)) / 2 for s in parts[0]] for t in thresholds
    ]
    assert (sums.above(thresholds) <= tails).all()
    assert sums.above(thresholds) == pytest.approx(tails, rel=0.02)
