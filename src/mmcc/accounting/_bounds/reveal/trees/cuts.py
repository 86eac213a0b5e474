"""The largest count of participations considered below a node of each height.

In: a forest and what larger counts may cost.  Out: `Cuts`.
Rounding: the cost is rounded up.

Any kernel may draw what is revealed; this one draws no count above the cut of its height. Then Q~
has no mass above the cuts, and P~ has the prior's mass there, at most the sum over heights of
(number of nodes) P(Bin(2^h, p) > cut).  Under `remove` that is added to delta; under `add`, an
expectation under Q~, nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmcc.accounting._bounds.reveal.trees.forest import Forest
from mmcc.accounting._bounds.reveal.trees.priors import count_cut, tail

UNDERFLOW = 1e-280
"""Bound on the chance of all counts too unlikely for floats, in at most 2^40 trees."""


@dataclass(frozen=True, slots=True)
class Cuts:
    """The largest count at each height, and a bound on the chance that one is exceeded."""

    counts: tuple[int, ...]
    exits: float


def cuts_for(forest: Forest, budget: float) -> Cuts | None:
    """Cuts that are exceeded with about this chance; None if counts would be too large."""
    counts, exits = [1], 0.0
    for height in range(1, forest.height + 1):
        high = [grove for grove in forest.groves if grove.height >= height]
        nodes = sum(grove.count << (grove.height - height) for grove in high)
        share = budget / forest.height / nodes
        cut = count_cut(1 << height, forest.probability, share)
        if cut is None:
            return None
        exits += nodes * tail(1 << height, forest.probability, cut)
        # If a count is above twice the cut below, a child's count is above its own cut.
        counts.append(min(cut, 2 * counts[-1]))
    return Cuts(tuple(counts), exits * (1 + 2.0**-40) + UNDERFLOW)
