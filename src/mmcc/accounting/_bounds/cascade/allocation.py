r"""Random allocation in epochs that share nothing: k of t steps, drawn anew in each.

In: epochs, how often an example takes part in each, sigma.  Out: bounds on both sides of delta at
epsilon, and of epsilon. Rounding: according to each function's name.

One participation uses the epochs' own laws, for both ends.  Several, in epochs of independent
noise: the steps in random order are dealt out to k blocks, and one step is drawn in each.  By
symmetry the steps drawn are a uniform k-subset, so P is a mixture of P_B over the blocks B, against
the same Q, and delta is convex: at most the largest delta(P_B, Q), which is that of k independent
epochs of t/k steps each as long as the longest.  The lower end is a test (`count_test`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._bounds.base import Answer
from mmcc.accounting._bounds.cascade import count_test
from mmcc.accounting._bounds.cascade.count_test import Kind
from mmcc.accounting._bounds.cascade.epochs import EpochsBracket
from mmcc.accounting._bounds.cascade.law import VARIANCES
from mmcc.strategies._hierarchy import Epochs, Node, apart


@dataclass(eq=False)
class AllocationBracket:
    """The bracket of random allocation in epochs that share nothing."""

    epochs: Epochs
    times: int
    sigma: float
    delta: float
    """Roughly the delta of interest, which sets how far the laws reach."""
    upper: EpochsBracket = field(init=False)

    def __post_init__(self) -> None:
        blocks = self.epochs if self.times == 1 else in_blocks(self.epochs, self.times)
        self.upper = EpochsBracket(blocks, self.sigma, self.delta)

    def bound_epsilon(self, delta: float) -> Answer:
        """Certified epsilon at delta."""
        return self.upper.bound_epsilon(delta)

    def bound_delta(self, epsilon: float) -> Answer:
        """Certified delta at epsilon."""
        return self.upper.bound_delta(epsilon)

    def lower_epsilon(self, delta: float) -> Answer:
        """Certified lower bounds on epsilon at delta."""
        if self.times == 1:
            return self.upper.lower_epsilon(delta)
        return self._lower_by_test(
            self.upper.bound_epsilon(delta),
            lambda kinds, side, about: count_test.lower_epsilon(kinds, delta, side, about),
        )

    def lower_delta(self, epsilon: float) -> Answer:
        """Certified lower bounds on delta at epsilon."""
        if self.times == 1:
            return self.upper.lower_delta(epsilon)
        return self._lower_by_test(
            self.upper.bound_delta(epsilon),
            lambda kinds, side, about: count_test.lower_delta(kinds, epsilon, side, about),
        )

    def _lower_by_test(
        self, about: Answer, ask: Callable[[list[Kind], Adjacency, float], float]
    ) -> Answer:
        """Lower ends by a test, with upper ends as starting points.

        All steps are taken to be as long as the shortest of their epoch, since delta grows with
        every length.
        """
        kinds = [
            Kind(
                many,
                tree.leaves,
                self.times,
                math.sqrt(min(_lengths(tree))) / self.sigma * (1 - VARIANCES),
            )
            for many, tree in self.epochs
        ]

        def end(side: Adjacency, guess: float) -> float:
            return ask(kinds, side, guess) if 0 < guess < math.inf else 0.0

        return Answer(end("remove", about.remove), end("add", about.add))


def in_blocks(epochs: Epochs, times: int) -> Epochs:
    """Each epoch as `times` blocks of steps, as even as possible, with one step drawn in each."""
    found: list[tuple[int, Node]] = []
    for many, tree in epochs:
        size, larger = divmod(tree.leaves, times)
        longest = max(_lengths(tree))
        for blocks, steps in ((larger, size + 1), (times - larger, size)):
            if blocks:
                found.append((many * blocks, apart([(longest, steps)])))
    return tuple(found)


def _lengths(tree: Node) -> list[float]:
    """Squared lengths of the steps of an epoch of independent noise."""
    return [child.variance for _, child in tree.children]
