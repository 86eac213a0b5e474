"""Before the main run: roughly how large epsilon is, along which direction, and how to draw.

In: a mechanism, an adjacency, delta.  Out: a plan for the main run around the epsilon found.  This
only affects efficiency: any direction, proposal and number of sets give valid intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation import set_mixtures as kernels
from mmcc._simulation.batches import (
    Batch,
    Direction,
    Plan,
    Proposal,
    limits,
    prepare,
    run_batch,
)
from mmcc._simulation.intervals import falls_to
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.revealed import RevealPlan, explore_pair, pair_to_reveal, worth_revealing
from mmcc._simulation.set_lists import SetList, all_sets, draw_sets, with_larger_sets
from mmcc._simulation.transfer_matrix import chain_of
from mmcc.errors import PrecisionError

FIRST_SETS = 2048
ROUNDS = 3
BATCHES = 8
KAPPAS = {True: (0.0, 1.0, 1.5, 2.5, 4.0), False: (0.0,)}
"""By adjacency, remove or add: below the level all columns are low, which the direction handles."""
MORE = 2.5
"""Ratio of successive probabilities of participation that are tried."""
LEAST_SHARE, LEAST_OWN = 0.05, 0.1
"""The least share of a component: what a pilot did not see may still matter."""
OUTPUT_NUMBERS = 2**21
POINTS = 64
SLOW_POINTS = 16
"""Outputs of a pilot where the integral over t takes many transfer matrices."""
SMALLEST, LARGEST = 1e-6, 1e5
"""The smallest and the largest epsilon that are searched for."""
LEAST = 1e-3
"""Below this epsilon, the grid goes down to 0."""
SPANS = (
    (0.5, 0.7, 1.0, 1.2, 1.45, 1.75, 2.1, 2.5, 3.0, 4.0),
    (0.6, 0.75, 0.87, 1.0, 1.15, 1.32, 1.52, 1.75),
    (0.8, 0.9, 1.0, 1.1, 1.21, 1.33),
)
"""Epsilons of the rounds, relative to the last guess."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """Results of the pilot: epsilon with its error, the bias of drawn sets, and a plan."""

    epsilon: float
    error: float
    gap: float
    """The difference between the epsilons of the upper and the lower means."""
    plan: Plan | RevealPlan


def explore(
    mechanism: Mechanism,
    remove: bool,
    delta: float,
    seed: int,
    exact: bool,
    reveal: bool = False,
) -> Pilot:
    """A few hundred outputs; direction, proposal and tilts are adapted to them."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, int(remove))))
    exact = exact and not reveal
    listed = all_sets(mechanism) if exact else None
    chain = chain_of(mechanism) if exact and listed is None else None
    pair = None
    if reveal or (exact and listed is None and chain is None):
        pair = pair_to_reveal(mechanism)
    if pair is not None and (reveal or worth_revealing(pair)):
        return Pilot(*explore_pair(pair, remove, delta, seed))
    renewal = mechanism.renewal
    law: tuple[float, ...] = () if renewal is None else (renewal.probability,)
    sets = listed or draw_sets(mechanism, FIRST_SETS, law, rng)
    epsilon, direction = _first_guess(mechanism, sets, remove, delta)
    choices = np.array(KAPPAS[remove])
    if chain is not None and remove:
        more = law[0] * MORE ** np.arange(1 + int(math.log(0.9 / law[0]) / math.log(MORE)))
        choices = np.concatenate([[0.0], more])
    points = max(min(OUTPUT_NUMBERS // (mechanism.strategy.rows + mechanism.columns), POINTS), 4)
    if chain is not None and not remove:
        points = min(points, SLOW_POINTS)
    plan = Plan(
        mechanism=mechanism,
        remove=remove,
        epsilons=np.zeros(1),
        direction=direction,
        proposal=Proposal(choices, np.full(choices.size, 1 / choices.size)),
        listed=listed,
        chain=chain,
        count=FIRST_SETS,
        tilts=law,
        points=points,
        seed=seed,
        stage=1 + int(remove),
    )
    for turn in range(ROUNDS):
        plan = replace(plan, stage=10 * (turn + 1) + int(remove))
        found = _measure(plan, delta, max(epsilon, LEAST), turn)
        assert isinstance(found.plan, Plan)
        epsilon = found.epsilon
        if renewal is not None and listed is None:
            sets = draw_sets(mechanism, FIRST_SETS, plan.tilts, rng)
        direction = find_direction(mechanism, sets, direction.weights, epsilon, remove)
        plan = replace(found.plan, direction=direction)
        if renewal is not None and listed is None:
            size = _typical_size(sets, direction)
            tilts = with_larger_sets(renewal, mechanism.columns, size)
            plan = replace(plan, tilts=tuple(tilts))
    return replace(found, plan=replace(plan, stage=100 + int(remove)))


def find_direction(
    mechanism: Mechanism, sets: SetList, start: FloatArray, epsilon: float, remove: bool
) -> Direction:
    """A direction along the mean of the sets that are likely at the ratio's level, by iteration."""
    weights = start
    for _ in range(4):
        direction = _along(mechanism, weights)
        slopes = sets.sums(direction.overlaps)
        level = epsilon if remove else -epsilon
        left, right = limits(remove, float(slopes.max()))
        threshold = _annealed(sets.logs, slopes, level, left, right)
        tilted = sets.logs + threshold * slopes - slopes**2 / 2
        weights = sets.mean(np.exp(tilted - kernels.log_sum(tilted)), mechanism.columns)
        direction = replace(direction, threshold=threshold)
    return direction


def _along(mechanism: Mechanism, weights: FloatArray) -> Direction:
    image = mechanism.encode(weights[None])[0]
    length = float(np.linalg.norm(image))
    overlaps = mechanism.adjoint(image[None])[0] / length
    return Direction(weights, length, np.maximum(overlaps, 0.0), 0.0)


def _annealed(
    logs: FloatArray, slopes: FloatArray, level: float, left: float, right: float
) -> float:
    """The t at which the mean of X_t over z reaches the level."""
    for _ in range(50):
        middle = 0.5 * (left + right)
        if kernels.log_sum(logs + middle * slopes - slopes**2 / 2) < level:
            left = middle
        else:
            right = middle
    return 0.5 * (left + right)


def _typical_size(sets: SetList, direction: Direction) -> float:
    slopes = sets.sums(direction.overlaps)
    tilted = sets.logs + direction.threshold * slopes - slopes**2 / 2
    return float(np.exp(tilted - kernels.log_sum(tilted)) @ np.diff(sets.edges))


def _first_guess(
    mechanism: Mechanism, sets: SetList, remove: bool, delta: float
) -> tuple[float, Direction]:
    """Epsilon of the output along d alone: less than the truth."""
    epsilon = 1.0
    weights = sets.mean(np.exp(sets.logs), mechanism.columns)
    for _ in range(3):
        direction = find_direction(mechanism, sets, weights, epsilon, remove)
        prepared = prepare(sets, len(sets), direction)
        left, right = limits(remove, float(prepared.slopes.max()))

        def curve(epsilons: FloatArray) -> FloatArray:
            values, _ = kernels.slices(
                np.zeros((1, mechanism.columns)),
                sets.columns,
                sets.edges,
                sets.logs,
                np.zeros(len(sets)),
                prepared.classes,  # noqa: B023
                prepared.residuals,  # noqa: B023
                prepared.centres,  # noqa: B023
                len(sets),
                prepared.drawn,  # noqa: B023
                np.zeros(1),
                np.ones(1),
                epsilons,
                remove,
                left,  # noqa: B023
                right,  # noqa: B023
                0.0,
            )
            return np.asarray(values[0, :, 0])

        epsilon = crossing(curve, delta, epsilon)
        weights = direction.weights
    return epsilon, find_direction(mechanism, sets, weights, epsilon, remove)


def crossing(curve: Callable[[FloatArray], FloatArray], delta: float, near: float) -> float:
    """The epsilon at which a falling curve reaches delta; 0 if it starts below."""
    if not curve(np.zeros(1))[0] > delta:
        return 0.0
    low = high = min(max(near, 10 * SMALLEST), LARGEST)
    while high < LARGEST and curve(np.array([high]))[0] > delta:
        low, high = high, 2 * high
    while low > SMALLEST and curve(np.array([low]))[0] <= delta:
        low, high = low / 2, low
    if high >= LARGEST:
        raise PrecisionError(
            f"epsilon is larger than {LARGEST:g} at this noise; use a larger sigma or delta."
        )
    for _ in range(3):
        grid = np.linspace(low, high, 9)
        below = np.flatnonzero(~(curve(grid) > delta))
        place = int(below[0]) if below.size else 8
        low, high = float(grid[max(place - 1, 0)]), float(grid[place])
    return 0.5 * (low + high)


def _measure(plan: Plan, delta: float, near: float, turn: int) -> Pilot:
    """Epsilon from a small run, and better shares for the next one."""
    last = turn == ROUNDS - 1
    for _ in range(40):
        plan = replace(plan, epsilons=np.concatenate([[0.0], near * np.array(SPANS[turn])]))
        batches = [run_batch(plan, i) for i in range(3 * BATCHES if last else BATCHES)]
        means = np.array([batch.values.mean(axis=0) for batch in batches])
        curve = means.mean(axis=(0, 2))
        epsilon = falls_to(curve, plan.epsilons, delta)
        if epsilon is not None and (epsilon == 0.0 or epsilon > plan.epsilons[1] or near < LEAST):
            break
        near *= 4 * SPANS[turn][-1] if epsilon is None else 0.25 * SPANS[turn][0]
        if near > LARGEST:
            raise PrecisionError(
                f"epsilon is larger than {LARGEST:g} at this noise; use a larger sigma or delta."
            )
    else:
        raise PrecisionError(
            "simulated outputs do not show where epsilon lies: their weights have collapsed. "
            "Use a larger sigma, or mmcc.epsilon."
        )
    place = int(np.clip(np.searchsorted(plan.epsilons, epsilon), 1, curve.size - 1))
    gap = plan.epsilons[place] - plan.epsilons[place - 1]
    slope = max((curve[place - 1] - curve[place]) / gap, 1e-3 * delta)
    here = means[:, place]
    error = here.mean(axis=1).std(ddof=1) / math.sqrt(len(batches)) / slope
    bias = max(here[:, :2].mean() - here[:, 2:].mean(), 0.0) / slope
    better = replace(plan, proposal=_fitted(plan.proposal, batches, place))
    return Pilot(epsilon, float(error), float(bias), better)


def _fitted(proposal: Proposal, batches: list[Batch], place: int) -> Proposal:
    """Shares that bring the proposal closest to the integrand, by a few steps of EM."""
    mass = np.concatenate([batch.values[:, place, :2].mean(axis=1) for batch in batches])
    logs = np.concatenate([batch.densities for batch in batches])
    mass = np.maximum(mass, 0.0)
    shares, choices = proposal.shares, proposal.choices
    if not mass.sum() > 0 or shares.size == 1:
        return proposal
    for _ in range(20):
        parts = logs + np.log(shares)
        parts = np.exp(parts - np.logaddexp.reduce(parts, axis=1)[:, None])
        shares = np.maximum(mass @ parts / mass.sum(), 1e-6)
        shares /= shares.sum()
    own = np.arange(shares.size) <= 1  # Q's law and P's: the weights stay bounded
    shares = np.maximum(shares, np.where(own, LEAST_OWN, LEAST_SHARE))
    return Proposal(choices, shares / shares.sum())
