r"""The pair (P, Q) itself, where columns affect few others: nothing is revealed, nothing is lost.

In: a `Mechanism`, its law of participation.  Out: a `Pair` whose loss is log dP/dQ.  With u = A^T y
and x_l = u_l - G_ll / 2,

    dP/dQ (y) = sum_s pi(s) exp( sum_l s_l x_l - sum_(i<l) s_i s_l G_il )

is a sum over paths: where G_il = 0 for l - i > r, what a participation in column l costs depends on
who took part in the r columns before, and its chance on the state of the law.  Both together are a
state, of which there must be few: 2^r where columns are independent, hardly more than the pause
where there is one.

*A quick look.*  For independent columns, with D_l = 1 - p_l + p_l e^(x_l), v_l = p_l e^(x_l) / D_l,

    sum_l log D_l - sum_(i<l) v_i v_l G_il  <=  log dP/dQ  <=  sum_l log D_l:

without the products, and by Gibbs' inequality with independent s_l of means v_l, which holds for
every v.  If this shows that a loss is below the epsilon in question, the loss is not computed: its
upper end suffices, since h = (1 - e^(eps - loss))_+ is 0 for both.

Rounding: as in `dominating`.  log dP/dQ has slopes between 0 and 1 in each x_l, and those of the
lower end, in which any v will do, are v_l.  All else are sums and products of non-negative numbers,
which are off by a few units in the last place of the result, and by as many as states are added up.
Masses that underflow: a sample with an |x_l| above `FARTHEST` = 40 counts as if its loss were
infinite.  Masses are divided by their sum every four columns, and for independent columns with
p <= .999 that sum falls by less than e^-28 between, so what is lost is below e^-670 of it, once for
each column and state.  Later columns multiply it by at most prod (1 + p e^40 / (1 - p)) < e^376
more than what is kept, over the r <= 8 columns until all paths have the same future, because costs
only lessen: less than 2^-53 in all by far.  In other automata masses below 1e-200 are moved up to
that for remove, and dropped for add, which does not lower a loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._simulation import likelihood_loops as loops
from mmcc._simulation.dominating import Pair
from mmcc._simulation.kicks import Kicks, kicks_of
from mmcc._simulation.one_example import Mechanism
from mmcc.sampling import Chances

MOST_STATES = 256
MOST_FACTORS = 2**20
"""Most states times kinds of columns."""
LARGEST_CHANCE = 0.999
"""The largest probability of independent columns; see above."""
DEVIATIONS = 9.0
"""Noise values that may come before an exponent is too large."""


@dataclass(frozen=True, eq=False)
class Paths:
    """States: `places` in the law of participation, `follow`ing states, costs of participations."""

    places: IntArray
    follow: IntArray
    factors: FloatArray
    """factors[kind of column, state] = e^(-sum of kicks)."""


@dataclass(frozen=True, eq=False)
class ExactPair(Pair):
    """P and Q themselves, computed over the states of the last columns."""

    mechanism: Mechanism
    chances: Chances
    kicks: Kicks
    paths: Paths
    extra: float = 0.0
    above: float = -math.inf
    """Losses that are certainly below this need not be exact."""

    def aimed(self, epsilon: float) -> ExactPair:
        return replace(self, above=epsilon)

    @property
    def reach(self) -> int:
        return self.kicks.reach

    @property
    def added_up(self) -> int:
        return len(self.paths.places)

    @property
    def independent(self) -> bool:
        """Whether states are those of the last columns alone, in their order."""
        chances = self.chances.probability
        return self.chances.states == 1 and float(chances.max()) <= LARGEST_CHANCE

    @cached_property
    def _law(self) -> tuple[FloatArray, IntArray]:
        """The law for compiled loops, to which read-only arrays are of another type."""
        return self.chances.probability.copy(), self.chances.after.copy()

    def tilted_law(self, weight: float) -> tuple[float, Chances | None]:
        return self.chances.tilted(np.full(self.columns, weight))

    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        kicks, paths, (probability, after) = self.kicks, self.paths, self._law
        drawing = probability if law is None else law.probability.copy()
        numbers = np.zeros(len(noise), np.int64)
        drawn = (noise, rng, remove, drawing, numbers, probability, after)
        moved = (kicks.flat, kicks.starts, kicks.reach, kicks.kinds, paths.factors)
        if self.independent:
            return loops.log_ratios(*drawn, *moved, self.above), numbers
        return loops.log_ratios_of_states(*drawn, *moved, paths.places, paths.follow), numbers


def exact_pair(mechanism: Mechanism, chances: Chances, extra: float) -> ExactPair | None:
    """The pair itself, if it needs few states and exponents are moderate."""
    toeplitz = mechanism.strategy.toeplitz
    if toeplitz is None:
        return None
    memory = min((toeplitz.bands - 1) // mechanism.separation, mechanism.columns - 1)
    if chances.states == 1 and 2**memory > MOST_STATES:
        return None
    kicks = kicks_of(mechanism)
    if kicks.reach == 0:  # revealing columns one by one is exact too, and faster
        return None
    sizes = kicks.flat[kicks.starts]
    every = mechanism.adjoint(mechanism.encode(np.ones((1, mechanism.columns))))
    if not float(every.max()) + DEVIATIONS * math.sqrt(float(sizes.max())) <= loops.FARTHEST:
        return None
    paths = paths_of(kicks, chances)
    return None if paths is None else ExactPair(mechanism, chances, kicks, paths, extra)


def paths_of(kicks: Kicks, chances: Chances) -> Paths | None:
    """All states that can be reached, or None if there are too many.

    For independent columns all 2^r, numbered by their bits: bit 0 is the preceding column.
    """
    memory = kicks.reach
    if chances.states == 1:
        bits = np.arange(2**memory)
        places = np.zeros(bits.size, np.int64)
        moved = (bits << 1) & (bits.size - 1)
        follow = np.stack([moved, moved | 1], axis=1)
    else:
        found = _reachable(chances, memory)
        if found is None:
            return None
        bits, places, follow = found
    _, first = np.unique(kicks.starts, return_index=True)
    if first.size * bits.size > MOST_FACTORS:
        return None
    costs = np.zeros((first.size, bits.size))
    for distance in range(1, kicks.reach + 1):
        taken = (bits >> (distance - 1)) & 1
        costs += np.multiply.outer(kicks.flat[kicks.starts[first] - distance], taken)
    return Paths(places, follow, np.exp(-costs))


def _reachable(chances: Chances, memory: int) -> tuple[IntArray, IntArray, IntArray] | None:
    """Bits, places and followers of all states from the first one on."""
    mask = (1 << memory) - 1
    ever, always = chances.probability.max(axis=0) > 0, chances.probability.min(axis=0) >= 1
    index, states, follow = {(0, 0): 0}, [(0, 0)], []
    for place, bits in states:
        after = []
        for taking in (0, 1):
            can = ever[place] if taking else not always[place]
            then = int(chances.after[place, taking]), ((bits << 1) | taking) & mask
            if can and then not in index:
                index[then] = len(states)
                states.append(then)
                if len(states) > MOST_STATES:
                    return None
            after.append(index[then] if can else 0)
        follow.append(after)
    places, memories = np.array(states, np.int64).T
    return memories.copy(), places.copy(), np.array(follow, np.int64)
