"""Schemes on a few steps, with the law of their participation sets, worked out set by set."""

from __future__ import annotations

import itertools

import numpy as np
from extending.exactly import Exactly
from oracles.allocation import allocation_sets
from oracles.separation import law_of_sets

from mmcc.sampling import (
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    RandomAllocation,
)


def marks(sets, columns):
    """Rows of zeros and ones."""
    found = np.zeros((len(sets), columns), np.int64)
    for row, members in zip(found, sets, strict=True):
        row[list(members)] = 1
    return found


def every(columns):
    return np.array(list(itertools.product((0, 1), repeat=columns)))


def independent(columns, p):
    sets = every(columns)
    sizes = sets.sum(axis=1)
    return sets, p**sizes * (1 - p) ** (columns - sizes)


def apart(columns, p, gap, warm):
    law = {s: chance for s, chance in law_of_sets(columns, p, gap, warm).items() if chance > 1e-15}
    return marks(list(law), columns), np.array(list(law.values()))


def equally(sets):
    return np.asarray(sets, np.int64), np.full(len(sets), 1 / len(sets))


def chosen(columns, times):
    return equally(marks(list(itertools.combinations(range(columns), times)), columns))


def in_bins(columns, bins):
    return equally(marks([range(r, columns, bins) for r in range(bins)], columns))


STEPS = 6
LAWS = {
    Poisson(0.3): independent(STEPS, 0.3),
    Poisson(1.0): (np.ones((1, STEPS), np.int64), np.ones(1)),
    CyclicPoisson(0.4, 2): independent(STEPS // 2, 0.4),
    MinSeparation(0.3, 3): apart(STEPS, 0.3, 3, False),
    MinSeparation(0.3, 3, True): apart(STEPS, 0.3, 3, True),
    MinSeparation(0.2, 9, True): apart(STEPS, 0.2, 9, True),
    MinSeparation(1.0, 2, True): apart(STEPS, 1.0, 2, True),
    RandomAllocation(3): equally(allocation_sets(3, 1, 2)),
    RandomAllocation(3, 2): equally(allocation_sets(3, 2, 2)),
    RandomAllocation(6, 3): equally(allocation_sets(6, 3, 1)),
    BallsInBins(3): in_bins(STEPS, 3),
    Exactly(2): chosen(STEPS, 2),
}
"""For each scheme sets of columns as rows of marks, and their chances."""
