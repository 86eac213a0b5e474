"""Claim: every part of a simulation agrees with closed forms, enumeration and dense algebra."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from oracles.truth import mixture_delta
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from scipy.stats import t as student

from mmcc import sampling, strategies
from mmcc._simulation import batches, estimate, estimate_pilot
from mmcc._simulation import set_mixtures as kernels
from mmcc._simulation.batches import Batch, Direction, Plan, Proposal, prepare
from mmcc._simulation.intervals import ACCURACY, Crossing, Interval, Tally, interval
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.set_lists import SetList, all_sets, with_larger_sets
from mmcc._simulation.transfer_matrix import _states, chain_of

SIGMA, PROBABILITY = 0.8, 0.3
MECHANISM = Mechanism(strategies.toeplitz([1.0, 0.6], 4), sampling.Poisson(PROBABILITY), SIGMA)
COLUMNS = (np.eye(4) + 0.6 * np.eye(4, k=-1)) / SIGMA
MEMBERS = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
SHIFTS = MEMBERS @ COLUMNS.T
CHANCES = np.prod(np.where(MEMBERS, PROBABILITY, 1 - PROBABILITY), axis=1)
SETS = SetList(
    columns=np.nonzero(MEMBERS)[1],
    edges=np.append(0, np.cumsum(MEMBERS.sum(axis=1))).astype(np.int64),
    logs=np.log(CHANCES),
    squares=np.square(SHIFTS).sum(axis=1),
)
WEIGHTS = np.array([0.4, 0.9, 0.1, 0.7])
AXIS = COLUMNS @ WEIGHTS / np.linalg.norm(COLUMNS @ WEIGHTS)
ALONG = SHIFTS @ AXIS
ACROSS = SHIFTS - np.outer(ALONG, AXIS)


def direction(threshold: float = 1.3) -> Direction:
    return Direction(WEIGHTS, float(np.linalg.norm(COLUMNS @ WEIGHTS)), COLUMNS.T @ AXIS, threshold)


def plan_of(mechanism: Mechanism, towards: Direction, proposal: Proposal, points: int) -> Plan:
    return Plan(
        mechanism=mechanism,
        remove=True,
        epsilons=np.zeros(1),
        direction=towards,
        proposal=proposal,
        listed=all_sets(mechanism),
        chain=None,
        count=16,
        tilts=(),
        points=points,
        seed=3,
        stage=1,
    )


# Outputs and their densities.


def test_shifts_are_split_along_the_direction_and_across_it():
    found = prepare(SETS, len(SETS), direction())
    assert found.slopes == pytest.approx(ALONG)
    assert found.rests == pytest.approx(np.square(ACROSS).sum(axis=1), abs=1e-12)
    assert found.rests.min() >= 0.0
    assert found.centres[found.classes] + found.residuals == pytest.approx(ALONG)
    assert np.abs(found.residuals).max() <= 2 * kernels.HALF_CLASS
    chances = np.exp(found.drawn)
    assert chances.sum() == pytest.approx(1.0)
    assert (chances >= 0.5 * CHANCES * (1 - 1e-12)).all()  # weights stay bounded


def test_outputs_are_drawn_around_the_shifts_of_sets():
    """First and second moments of <z, A_j>; a quarter of the outputs are noise alone."""
    points, kappa, share = 8000, 1.5, 0.75
    proposal = Proposal(np.array([0.0, kappa]), np.array([1 - share, share]))
    plan = plan_of(MECHANISM, direction(), proposal, points)
    prepared = prepare(SETS, len(SETS), direction())
    u = batches._shadows(plan, prepared, np.random.default_rng(7))
    chances, moved = np.exp(prepared.drawn), kappa * ACROSS @ COLUMNS
    mean = share * chances @ moved
    second = COLUMNS.T @ (np.eye(4) - np.outer(AXIS, AXIS)) @ COLUMNS
    second += share * moved.T @ (chances[:, None] * moved)
    assert u @ WEIGHTS == pytest.approx(np.zeros(points), abs=1e-12)  # z is orthogonal to d
    assert (np.abs(u.mean(axis=0) - mean) <= 6 * u.std(axis=0) / math.sqrt(points)).all()
    products = u[:, :, None] * u[:, None, :]
    error = products.std(axis=0) / math.sqrt(points)
    assert (np.abs(products.mean(axis=0) - second) <= 6 * error).all()


def test_densities_of_a_proposal_are_those_of_shifted_gaussians():
    prepared = prepare(SETS, len(SETS), direction())
    kappas, out = np.array([0.0, 0.5, 1.0, 2.5]), np.empty(4)
    noise = np.random.default_rng(1).standard_normal(4)
    z = noise - (noise @ AXIS) * AXIS
    kernels.proposal_densities(
        MEMBERS @ (COLUMNS.T @ z), prepared.rests, prepared.drawn, kappas, out
    )
    for kappa, found in zip(kappas, out, strict=True):
        far = np.square(z - kappa * ACROSS).sum(axis=1)
        assert found == pytest.approx(logsumexp(prepared.drawn + (z @ z - far) / 2), abs=1e-12)


@dataclass(frozen=True)
class Offset:
    """A generator that returns this number; 0 can occur."""

    value: float

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize("offset", [0.0, 0.3, 0.999])
def test_every_way_of_drawing_has_its_share_of_the_points(offset):
    rng = Offset(offset)
    whole = batches._systematic(np.array([0.0, 0.25, 0.5, 0.0, 0.25]), 8, rng)
    assert np.bincount(whole, minlength=5).tolist() == [0, 2, 4, 0, 2]
    shares = np.random.default_rng(2).dirichlet(np.ones(6))
    counts = np.bincount(batches._systematic(shares, 100, rng), minlength=6)
    assert counts.sum() == 100
    assert (np.abs(counts - 100 * shares) < 1).all()


# The integral over t.

VALUES = np.array([0.0, 0.29, 0.31, 1.1, 1.98, 2.0, 2.03])
EXPONENTS = np.array([-0.4, -2.0, -1.0, -3.0, -2.5, -4.0, -1.7])
CLASSES = np.array([0, 1, 1, 2, 3, 3, 3])
CENTRES = np.array([0.0, 0.3, 1.1, 2.0, 5.0])  # nothing is in the last class


def expanded() -> tuple[float, np.ndarray]:
    coefficients = np.empty((CENTRES.size, kernels.ORDERS))
    residuals = VALUES - CENTRES[CLASSES]
    scale = kernels.expand(EXPONENTS, CLASSES, residuals, 0, VALUES.size, coefficients)
    return scale, coefficients


@pytest.mark.parametrize("t", [-6.0, -1.0, 0.0, 0.4, 2.0, 7.0])
def test_tails_of_classes_are_those_of_their_members(t):
    scale, coefficients = expanded()
    assert scale == pytest.approx(logsumexp(EXPONENTS), rel=1e-14)
    chances = np.exp(EXPONENTS - scale)
    beyond = kernels.tail(t, True, CENTRES, coefficients)
    before = kernels.tail(t, False, CENTRES, coefficients)
    assert beyond == pytest.approx(chances @ ndtr(VALUES - t), rel=1e-7)
    assert before == pytest.approx(chances @ ndtr(t - VALUES), rel=1e-7)


@pytest.mark.parametrize("t", [-3.0, 0.2, 2.5])
@pytest.mark.parametrize("epsilon", [0.0, 0.9])
def test_the_excess_is_the_gain_of_a_threshold(t, epsilon):
    """Remove: outputs beyond t speak for the mixture.  Add: those before t against it."""
    weight, factor = 0.7, math.exp(epsilon)
    scale, coefficients = expanded()
    given = scale, math.log(weight), CENTRES, coefficients
    remove = np.exp(EXPONENTS) @ ndtr(VALUES - t) - factor * ndtr(-t)
    add = ndtr(t) - factor * np.exp(EXPONENTS) @ ndtr(t - VALUES)
    assert kernels.excess(t, epsilon, True, *given) == pytest.approx(weight * remove, abs=1e-9)
    assert kernels.excess(t, epsilon, False, *given) == pytest.approx(weight * add, abs=1e-9)


@pytest.mark.parametrize("x", [6.0, 0.0, -3.0, -19.9, -20.0, -20.1, -25.0, -40.0, -1000.0])
def test_logarithms_of_the_normal_tail(x):
    with mpmath.workdps(40):
        exact = float(mpmath.log(mpmath.ncdf(x)))
    assert kernels.log_normal(x) == pytest.approx(exact, rel=1e-14, abs=1e-9)


def test_panels_give_the_integral_of_a_mixture():
    """Phi(t) - E sum_S c_S Phi(t - a_S) at the t where E X_t = 1; nothing where there is none."""
    epsilons = np.array([0.0, 0.6, 1.2, 3.0])
    noise = np.random.default_rng(5).standard_normal((4, 4))
    across = noise - np.outer(noise @ AXIS, AXIS)
    chain, towards = chain_of(MECHANISM), direction()
    found = chain.integrals(across @ COLUMNS, towards.overlaps, towards.threshold, epsilons)
    for z, row in zip(across, found, strict=True):
        logs = SETS.logs + ACROSS @ z - np.square(ACROSS).sum(axis=1) / 2
        for epsilon, value in zip(epsilons, row, strict=True):

            def level(t, logs=logs, epsilon=epsilon):
                return logsumexp(logs + t * ALONG - ALONG**2 / 2) + epsilon

            exact = 0.0
            if level(-30.0) < 0:
                t = brentq(level, -30.0, 30.0, xtol=1e-13)
                exact = ndtr(t) - np.exp(logs + epsilon) @ ndtr(t - ALONG)
            assert value == pytest.approx(exact, rel=1e-6, abs=1e-15)
    assert (found[:, 0] > 0.01).all()
    assert (found[:, -1] == 0.0).all()


def separated(steps: int, gap: int, probability: float):
    """All sets with their chances: who took part in a step does not in the next gap - 1."""
    for members in itertools.product((False, True), repeat=steps):
        chance = 1.0
        for j, here in enumerate(members):
            if any(members[max(j - gap + 1, 0) : j]):
                chance *= 0.0 if here else 1.0
            else:
                chance *= probability if here else 1 - probability
        if chance > 0:
            yield members, chance


@pytest.mark.parametrize("gap", [1, 2, 3, 4])
@pytest.mark.parametrize("bands", [1, 3])
def test_transfer_matrices_sum_over_all_sets_that_can_occur(bands, gap):
    """Some outputs are so large that numbers are scaled; several probabilities at once."""
    steps, sigma = 7, 0.9
    strategy = strategies.toeplitz([1.0, 0.5, 0.3][:bands], steps)
    columns = strategy.to_dense() / sigma
    mechanism = Mechanism(strategy, sampling.MinSeparation(0.3, gap), sigma)
    chain = chain_of(mechanism)
    outputs = np.random.default_rng(8).standard_normal((5, steps)) * [[0], [1], [3], [60], [-90]]
    probabilities = np.array([0.3, 0.0, 0.7])
    found = chain.log_ratios(outputs @ columns, probabilities)
    for y, row in zip(outputs, found, strict=True):
        for probability, value in zip(probabilities, row, strict=True):
            exact = 0.0
            if probability > 0:
                sets = separated(steps, gap, probability)
                members, chances = map(np.array, zip(*sets, strict=True))
                shifts = members @ columns.T
                exact = logsumexp(np.log(chances) + shifts @ y - np.square(shifts).sum(axis=1) / 2)
            assert value == pytest.approx(exact, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("gap", [1, 2, 3, 4])
def test_states_are_the_histories_that_can_occur(gap):
    for memory in range(max(gap - 1, 1), 6):
        histories = (members for members, _ in separated(memory, gap, 0.5))
        exact = {sum(1 << k for k, here in enumerate(h[::-1]) if here) for h in histories}
        assert _states(memory, gap) == sorted(exact)


# From batches to an interval.


def tally_of(above, below, epsilons, outputs: int = 5) -> Tally:
    """Batches whose means are these heights times e^(-3 epsilon)."""
    tally = Tally()
    for high, low in zip(above, below, strict=True):
        values = np.exp(-3 * epsilons)[:, None] * np.array([high, high, low, low])
        tally.add(Batch(np.repeat(values[None], outputs, axis=0), np.zeros((outputs, 1))))
    return tally


def test_ends_are_students_bounds_on_both_curves():
    epsilons, level = np.linspace(0.9, 1.1, 5), 0.05
    above, below = np.array([1.07, 1.02, 1.06, 1.05]), np.array([0.93, 0.96, 0.97, 0.95])
    tally = tally_of(above, below, epsilons)
    found = interval(tally, epsilons, math.exp(-3.0), level)
    reach = float(student.ppf(1 - level, 3))
    high = 1 + math.log(above.mean() + reach * above.std(ddof=1) / 2) / 3
    low = 1 + math.log(below.mean() - reach * below.std(ddof=1) / 2) / 3
    middle = 1 + math.log((above.mean() + below.mean()) / 2) / 3
    assert found.low == pytest.approx(low * (1 - ACCURACY), rel=1e-9)
    assert found.high == pytest.approx(high * (1 + ACCURACY), rel=1e-9)
    assert found.epsilon == pytest.approx(middle, rel=1e-9)
    assert found.bias == pytest.approx(math.log(above.mean() / below.mean()) / 3, rel=1e-6)
    assert found.coarse is None


def test_an_end_that_was_not_seen_is_open_and_the_other_is_not_narrowed():
    """Two batches that differ this much say nothing: from 0 to an end that is not known."""
    epsilons = np.linspace(0.0, 1.0, 5)
    noisy = tally_of([0.5, 1.5], [0.5, 1.5], epsilons)
    found = interval(noisy, epsilons, 0.2, 0.01)
    assert (found.low, found.high) == (0.0, None)
    assert found.epsilon == pytest.approx(math.log(5.0) / 3)
    low = np.full(5, 0.1)
    assert Crossing.of(low, epsilons, 0.2) == Crossing(0.0, 0.0, 0.0, True)
    assert Crossing.of(low, epsilons + 0.1, 0.2) is None


def test_a_sample_is_worth_as_many_outputs_as_have_equal_weight():
    values = np.zeros((10, 3, 4))
    values[:4, 0], values[:, 1] = 0.7, 1e-9
    tally = Tally()
    for _ in range(2):
        tally.add(Batch(values, np.zeros((10, 1))))
    assert tally.effective(0) == pytest.approx(8)
    assert tally.effective(1) == pytest.approx(20)
    assert tally.effective(2) == 0.0


@pytest.mark.parametrize("centre", [0.0, 0.1, 0.25, 0.26, 3.0])
def test_grids_reach_two_steps_to_both_sides_or_down_to_0(centre):
    found = estimate._grid(centre, 0.1)
    assert found[0] == 0.0 or found[0] == pytest.approx(centre - 0.2)
    assert found[0] <= max(centre - 0.2, 0.0) + 1e-12
    assert found[-1] == pytest.approx(centre + 0.2)
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("ends", [(None, 1.2), (0.8, None), (None, None)])
def test_runs_start_anew_on_a_wider_grid_until_both_ends_are_seen(ends, monkeypatch):
    plan = plan_of(MECHANISM, direction(), Proposal(np.zeros(1), np.ones(1)), 4)
    low, high = ends
    answers = [Interval(low, 1.05, high, 0.0)] * 2 + [Interval(0.9, 1.0, 1.1, 0.0)]
    grids = []

    def accumulate(plan, _delta, _budget, _level, spent, _last, _executor, _progress):
        grids.append(plan.epsilons)
        return estimate.Run(plan, Tally(), answers[len(grids) - 1], spent + 10)

    monkeypatch.setattr(estimate, "_accumulate", accumulate)
    found = estimate_pilot.Pilot(1.0, 0.01, 0.0, plan)
    budget = estimate.Budget(10_000, 0.01, 0.99, 0)
    run = estimate._run(found, 1e-5, budget, 1e-3, None, None)
    assert run.found is answers[2]
    assert run.spent == 30
    assert [np.ptp(grid) for grid in grids] == pytest.approx([0.08, 0.16, 0.32])
    assert [np.mean(grid) for grid in grids] == pytest.approx([1.0, 1.05, 1.05])


# The estimate_pilot.


def batch_of(masses, logs) -> Batch:
    return Batch(np.repeat(np.array(masses)[:, None, None], 4, axis=2), np.array(logs))


def test_shares_follow_the_mass_that_each_way_of_drawing_finds():
    """Outputs that only one way of drawing reaches: its share is its part of the mass."""
    logs = np.where(np.eye(4, dtype=bool)[[0, 1, 1, 2, 3]], 0.0, -80.0)
    proposal = Proposal(np.array([0.0, 1.0, 1.5, 2.5]), np.full(4, 0.25))
    seen = [batch_of([0.2, 0.1], logs[:2]), batch_of([0.2, 0.1, 0.4], logs[2:])]
    found = estimate_pilot._fitted(proposal, seen, 0)
    assert found.choices.tolist() == proposal.choices.tolist()
    assert found.shares == pytest.approx([0.2, 0.3, 0.1, 0.4], rel=1e-5)


def test_shares_make_what_was_seen_most_likely():
    """Two ways that overlap: the best of all shares, tried one by one."""
    rng = np.random.default_rng(4)
    logs, mass = rng.normal(0, 3, (200, 2)), rng.random(200)
    proposal = Proposal(np.array([0.0, 1.0]), np.array([0.9, 0.1]))
    share = estimate_pilot._fitted(proposal, [batch_of(mass, logs)], 0).shares[1]
    grid = np.linspace(0.01, 0.99, 99)
    likely = [
        mass @ np.logaddexp(logs[:, 0] + math.log1p(-s), logs[:, 1] + math.log(s)) for s in grid
    ]
    assert share == pytest.approx(grid[np.argmax(likely)], abs=0.02)


def test_no_way_of_drawing_is_given_up_for_lack_of_mass():
    proposal = Proposal(np.array([0.0, 1.0, 2.5]), np.array([0.2, 0.5, 0.3]))
    logs = np.zeros((3, 3))
    assert estimate_pilot._fitted(proposal, [batch_of([0.0, 0.0, -1e-20], logs)], 0) is proposal
    logs[:, :2] = -60.0
    shares = estimate_pilot._fitted(proposal, [batch_of([1.0, 2.0, 0.0], logs)], 0).shares
    assert shares == pytest.approx(np.array([0.1, 0.1, 1.0]) / 1.2, rel=1e-5)


@pytest.mark.parametrize("turn", range(estimate_pilot.ROUNDS))
@pytest.mark.parametrize("off", [0.03, 0.9, 20.0])
def test_pilots_find_epsilon_from_a_bad_guess(off, turn):
    """One column: nothing is left to chance."""
    one = Mechanism(strategies.identity(1), sampling.Poisson(0.1), 1.0)
    towards = Direction(np.ones(1), 1.0, np.ones(1), 0.0)
    plan = plan_of(one, towards, Proposal(np.zeros(1), np.ones(1)), 4)
    exact = brentq(
        lambda e: float(mixture_delta([0.0, 1.0], [0.9, 0.1], 1.0, e, "remove")) - 1e-4, 0.1, 5.0
    )
    found = estimate_pilot._measure(plan, 1e-4, off * exact, turn)
    assert (np.diff(found.plan.epsilons) > 0).all()
    assert found.epsilon == pytest.approx(exact, rel=0.02)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.gap == 0.0


@pytest.mark.parametrize("probability", [1e-12, 1e-5, 2e-3])
def test_sets_between_the_usual_and_the_wanted_size_are_drawn_as_well(probability):
    columns, size = 1000, 16.0
    law, middle, wanted = with_larger_sets(sampling.Renewal(probability), columns, size)
    assert law == probability
    usual, between, largest = (
        columns * p / -math.expm1(columns * math.log1p(-p)) for p in (law, middle, wanted)
    )
    assert largest == pytest.approx(size, rel=1e-6)
    assert 1.5 * usual <= between <= largest / 1.5
