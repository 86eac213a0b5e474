"""MMCC: the matrix mechanism by conditional composition (Algorithm 1), and its generalised form.

In: strategy, scheme, sigma, an order of analysis, the share delta_1 for bad events.
Out: an upper bound on epsilon at delta_1 + delta_2, or on delta_2 at an epsilon.
Rounding: upper bounds.

Rows (under `CyclicPoisson`: blocks of the rows released in one round) are taken in the order of
analysis.  Outside the bad events the example's conditional law in each of them is dominated by
independent participation with probabilities p~, so the losses of the resulting product mixtures
compose.  The dominating pair depends on C only through C^T C, so any order is valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mmcc._methods import UNAMPLIFIED
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._bounds.base import Answer
from mmcc.accounting._bounds.mmcc.conditional import bound_probabilities
from mmcc.accounting._losses.composed import Question
from mmcc.accounting._losses.engine import Effort, bound, bound_at_least
from mmcc.accounting._losses.laws import Law, ProductLaw
from mmcc.errors import MethodError
from mmcc.sampling import Rounds
from mmcc.strategies._base import Order, Strategy
from mmcc.strategies._geometry import Geometry

MAX_WORK = 2 * 10**10
MAX_GROUPS = 10_000


def geometries(strategy: Strategy, rounds: Rounds, order: Order) -> Iterator[tuple[int, Geometry]]:
    """The geometry of every group of columns that can be the worst case."""
    groups = strategy.groups(rounds.separation)
    if len(groups) > MAX_GROUPS:
        raise MethodError(
            f"{strategy!r} has {len(groups)} groups of steps to analyse one by one, more than "
            f"{MAX_GROUPS}. Use a smaller separation, a Toeplitz strategy, or "
            f"method={UNAMPLIFIED!r}."
        )
    for group in groups:
        geometry = strategy.geometry(order, rounds.separation, group)
        if geometry.work > MAX_WORK:
            raise MethodError(
                f"{strategy!r} has {geometry.work:.2g} entries to analyse, more than "
                f"{MAX_WORK:.0g}. Use a banded or tree strategy, a larger separation, or "
                f"method={UNAMPLIFIED!r}."
            )
        yield group, geometry


def has_events(strategy: Strategy, rounds: Rounds, order: Order) -> bool:
    """Whether any conditional probability has to be bounded at all."""
    if rounds.probability == 1.0:
        return False
    return any(geometry.events > 0 for _, geometry in geometries(strategy, rounds, order))


def analyse(
    strategy: Strategy,
    rounds: Rounds,
    sigma: float,
    question: Question,
    *,
    order: Order,
    delta_1: float,
    effort: Effort,
) -> Answer:
    """The largest epsilon at `question.delta` (= delta_2), or delta_2 at epsilon, over all groups.

    The maximum is taken for each adjacency, since the group with the largest remove side need not
    have the largest add side (which is only bounded roughly if it is smaller, and not at all when
    scouting).  The notes have the number of bad events, and `blow_up`, the maximum of p~/p over all
    entries of the worst group, which shows roughly how far epsilon can be from the truth.
    """
    found = [
        _group(geometry, group, rounds.probability, sigma, question, delta_1, effort)
        for group, geometry in geometries(strategy, rounds, order)
    ]
    worst = max(found, key=lambda outcome: (outcome.value, outcome.remove))
    return replace(
        worst,
        remove=max(outcome.remove for outcome in found),
        add=max(outcome.add for outcome in found),
    )


def uncorrelated(
    strategy: Strategy,
    rounds: Rounds,
    sigma: float,
    question: Question,
    *,
    order: Order,
    group: int,
    effort: Effort,
) -> float:
    """The answer with all p~ = p, as if rows were independent: a diagnostic, not a bound."""
    geometry = strategy.geometry(order, rounds.separation, group)

    def laws() -> Iterator[tuple[Law, int]]:
        for block in geometry.blocks():
            values = block.values / sigma
            probs = np.full(values.size, rounds.probability)
            yield ProductLaw(values, probs, block.repeats), block.count

    return bound(
        laws, geometry.rows, "remove", question, replace(effort, tolerance=10 * effort.tolerance)
    )


def _group(
    geometry: Geometry,
    group: int,
    probability: float,
    sigma: float,
    question: Question,
    delta_1: float,
    effort: Effort,
) -> Answer:
    budget = delta_1 / geometry.events if geometry.events else 0.0
    largest = probability

    def laws(adjacency: Adjacency) -> Iterator[tuple[Law, int]]:
        nonlocal largest
        for block in geometry.blocks():
            probs = bound_probabilities(
                block, probability, sigma, budget, geometry.error, adjacency
            )
            largest = max(largest, float(probs.max()))
            values = block.values / sigma * (1 + geometry.error)
            yield ProductLaw(values, probs, block.repeats), block.count

    def notes() -> dict[str, float]:
        return {"events": geometry.events, "blow_up": largest / probability}

    if effort.scouting:
        effort = replace(effort, tolerance=8 * effort.tolerance)
        rough = bound(lambda: laws("remove"), geometry.rows, "remove", question, effort)
        return Answer(rough, math.inf, group, notes())
    remove = bound(lambda: laws("remove"), geometry.rows, "remove", question, effort)
    add = bound_at_least(lambda: laws("add"), geometry.rows, question, effort, remove)
    return Answer(remove, add, group, notes())
