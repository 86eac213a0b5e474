r"""Which pair dominates a mechanism, and how it reveals participations: by columns, by epochs.

In: a `Problem`.  Out: a `Pair`; see there for P~, Q~ and Lhat.  As there, A = C / sigma has the
columns of one group; G = A^T A.

*Column by column.*  With u = A^T y and x_l = u_l - sum_(i<l) s_i G_il - G_ll / 2 the exponent is
sum_l s_l x_l.  Let p_l be the chance of column l given s_1 .. s_(l-1), and c_l any function of y
and of these.  Drawing s_l = 1 with chance p_l e^(x_l + c_l) / D_l,
D_l = 1 - p_l + p_l e^(x_l + c_l), makes the factor of Lhat

    D_l if s_l = 0,   D_l e^(-c_l) if s_l = 1.

Under P~ u = A^T A s + g, g ~ N(0, G), so x_l = g_l + sum_(j>=l) G_lj s_j - G_ll / 2.
*Centring*: c_l = -m_l, m_l the mean of the kicks sum_(j>l) G_lj s_j that are still to come.
*Look-ahead*: with s_l = 1 the columns after l have less to explain, x_j - G_lj instead of x_j; if
they were independent of each other, the probability of the rest would change by the factor
e^(c_l) = prod_(j>l) (1 - p_j + p_j e^(x_j - G_lj)) / (1 - p_j + p_j e^(x_j)).  x_j is what the
columns revealed so far leave of it, so c_l is a function of y and s_1 .. s_(l-1): a valid kernel.
Where a participation changes the probabilities of later columns, messages from the last column
back, B_j(k) = (1 - p) B_(j+1)(k') + p e^(x_j) B_(j+1)(k'') over the states k, replace the products:
they are exact if columns that may both take part do not affect each other.  Beyond the columns
looked at, the kicks are centred.

*Epoch by epoch*, where every epoch has its own random columns: each is drawn from the columns left
with chances e^(x_j - m_j) / sum, and the factor is e^(m_j) times the mean of e^(x_i - m_i) over the
columns left; an order of the epoch's columns is drawn first, so that all have the same chance.
*One position for all epochs*: Lhat is the exact ratio, a mean over the positions.

Rounding: as in `dominating`, which knows the slopes of all kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._methods import UNAMPLIFIED
from mmcc._simulation import epoch_loops, leaf_loops
from mmcc._simulation import reveal_loops as loops
from mmcc._simulation.chance_checks import check_chances
from mmcc._simulation.dominating import Pair
from mmcc._simulation.exact_pairs import exact_pair
from mmcc._simulation.kicks import MOST_COLUMNS, Kicks, kicks_of
from mmcc._simulation.one_example import Mechanism
from mmcc.accounting._bounds.base import Problem
from mmcc.errors import MethodError
from mmcc.sampling import Allocation, Chances
from mmcc.sampling._scheme import undrawn

MOST_AHEAD = 16
"""Columns that a look-ahead covers; the rest is centred."""
MOST_EPOCH_STATES = 64
MOST_RENEWED = 64
"""Columns whose messages are recomputed after a participation."""
MOST_CENTRE = 36.0
NONE = np.empty((0, 0), np.int64)


@dataclass(frozen=True, eq=False)
class SequentialPair(Pair):
    """Columns revealed one by one, with centring."""

    mechanism: Mechanism
    chances: Chances
    extra: float = 0.0

    @property
    def _certain(self) -> bool:
        return bool((self.chances.probability >= 1).any())

    @cached_property
    def law(self) -> tuple[FloatArray, IntArray]:
        """The automaton for compiled loops, to which read-only arrays are of another type."""
        return self.chances.probability.copy(), self.chances.after.copy()

    def tilted_law(self, weight: float) -> tuple[float, Chances | None]:
        return self.chances.tilted(np.full(self.columns, weight))

    def _drawing(self, law: Chances | None) -> FloatArray:
        """The probabilities of a law, for compiled loops."""
        return self.law[0] if law is None else law.probability.copy()


class ColumnPair(SequentialPair):
    """Columns revealed one by one, with a look-ahead over the next few columns."""

    @cached_property
    def kicks(self) -> Kicks:
        """How columns affect each other."""
        return kicks_of(self.mechanism)

    @cached_property
    def sums(self) -> FloatArray:
        """G 1."""
        every = self.mechanism.encode(np.ones((1, self.columns)))
        return np.asarray(self.mechanism.adjoint(every)[0])

    def louder(self, factor: float, size: float) -> ColumnPair:
        """The pair with columns `size` times as long and odds of participation times `factor`."""
        chance = self.chances.probability
        odds = chance * factor
        mechanism = replace(self.mechanism, sigma=self.mechanism.sigma / size)
        made = ColumnPair(mechanism, Chances(odds / (1 - chance + odds), self.chances.after))
        kicks = self.kicks if size == 1 else replace(self.kicks, flat=self.kicks.flat * size**2)
        made.__dict__["kicks"] = kicks  # avoids recomputation
        return made

    @property
    def reach(self) -> int:
        return self.kicks.reach

    @property
    def ahead(self) -> int:
        """Columns that the look-ahead covers."""
        return min(self.kicks.reach, MOST_AHEAD)

    @property
    def looked_at(self) -> int:
        """All columns if there are messages, which start at the last column."""
        return self.ahead if self.chances.probability.size == 1 else self.columns

    @cached_property
    def _centres(self) -> FloatArray:
        """e^(-m_l), beyond the columns that are looked at.

        After a participation if it changes probabilities in the same way everywhere, else on
        average.
        """
        kicks, chances = self.kicks, self.chances
        means = np.zeros(kicks.columns)
        rates = np.tile(chances.rates(kicks.columns), 2)
        if len(chances.probability) == 1 and kicks.reach > self.ahead:
            following = chances.forecast(kicks.reach)
            rates = following[chances.after[np.argmax(chances.probability[0] > 0), 1]]
        for d in range(self.ahead + 1, kicks.reach + 1):
            if len(chances.probability) == 1:
                means += kicks.ahead(d) * rates[d - 1]
            else:
                means += kicks.ahead(d) * rates[d : d + kicks.columns]
        return np.exp(-np.minimum(means, MOST_CENTRE))

    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        return self._revealed(noise, remove, rng, NONE, law)

    def reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, truth: IntArray
    ) -> FloatArray:
        """Losses; if `truth` is given, the noise is A^T y already, with these participations."""
        return self._revealed(noise, remove, rng, truth, None)[0]

    def _revealed(
        self,
        noise: FloatArray,
        remove: bool,
        rng: np.random.Generator,
        truth: IntArray,
        law: Chances | None,
    ) -> tuple[FloatArray, IntArray]:
        kicks, (probability, after) = self.kicks, self.law
        numbers = np.zeros(len(noise), np.int64)
        drawn = (remove, self._drawing(law), numbers, probability, after)
        places = (kicks.flat, kicks.starts, kicks.reach, self._centres, kicks.kinds)
        strengths = kicks.strengths(self.ahead)
        if probability.size == 1:
            losses = loops.reveal_columns(noise, rng, *drawn, *places, strengths, truth)
        else:
            renewed = min(kicks.reach, MOST_RENEWED)
            losses = loops.reveal_states(noise, rng, *drawn, *places, strengths, renewed, truth)
        return losses, numbers


class LeafPair(SequentialPair):
    """The leaves of a tree, in time O(n) per sample."""

    @cached_property
    def _leaves(self) -> tuple[IntArray, IntArray, int]:
        """Steps of the columns, how many nodes are above each, levels."""
        tree, mechanism = self.mechanism.strategy.tree, self.mechanism
        assert tree is not None
        steps = np.arange(mechanism.group, tree.leaves, mechanism.separation)
        complete = [steps >> level < tree.leaves >> level for level in range(tree.levels)]
        return steps, np.sum(complete, axis=0), tree.levels

    @cached_property
    def _centres(self) -> FloatArray:
        """e^(-m_l): in each node above, all leaves to come."""
        steps, depths, levels = self._leaves
        rates = np.concatenate([[0.0], np.cumsum(self.chances.rates(self.columns))])
        means = np.zeros(self.columns)
        for level in range(levels):
            ends = np.searchsorted(steps, ((steps >> level) + 1) << level)
            means += (rates[ends] - rates[1:]) * (level < depths)
        return np.exp(-np.minimum(means / self.mechanism.sigma**2, MOST_CENTRE))

    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        steps, depths, levels = self._leaves
        numbers = np.zeros(len(noise), np.int64)
        losses = leaf_loops.reveal_leaves(
            noise,
            rng,
            remove,
            self._drawing(law),
            numbers,
            *self.law,
            steps,
            depths,
            levels,
            self.mechanism.sigma**-2.0,
            self._centres,
        )
        return losses, numbers


@dataclass(frozen=True, eq=False)
class EpochPair(Pair):
    """Epochs with random columns of their own, each revealed from the columns that are left."""

    mechanism: Mechanism
    allocation: Allocation
    extra: float = 0.0

    @property
    def draws(self) -> int:
        return self.allocation.participations

    @cached_property
    def _kicks(self) -> Kicks:
        return kicks_of(self.mechanism)

    @property
    def reach(self) -> int:
        return self._kicks.reach

    @cached_property
    def _centres(self) -> tuple[FloatArray, FloatArray]:
        """What later epochs add on average, and what one more participation in the epoch does."""
        kicks, length = self._kicks, self.allocation.epoch_steps
        later, within = np.zeros(kicks.columns), np.zeros(kicks.columns)
        epoch = np.arange(kicks.columns) // length
        for d in range(1, kicks.reach + 1):
            ahead = kicks.ahead(d)[:-d]
            same = epoch[:-d] == epoch[d:]
            later[:-d] += np.where(same, 0.0, ahead)
            within[:-d] += np.where(same, ahead, 0.0)
            within[d:] += np.where(same, ahead, 0.0)
        return later * (self.allocation.participations / length), within / max(length - 1, 1)

    @property
    def number(self) -> int:
        """The number of participations."""
        return self.columns // self.allocation.epoch_steps * self.allocation.participations

    def tilted_law(self, weight: float) -> tuple[float, Chances | None]:
        return weight * self.number, None

    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        kicks, allocation = self._kicks, self.allocation
        losses = epoch_loops.reveal_epochs(
            noise,
            rng,
            remove,
            allocation.epoch_steps,
            allocation.participations,
            kicks.flat,
            kicks.starts,
            kicks.reach,
            *self._centres,
        )
        return losses, np.full(len(noise), self.number)


@dataclass(frozen=True, eq=False)
class PositionPair(Pair):
    """One random position for all epochs: P and Q themselves."""

    mechanism: Mechanism
    positions: int
    extra: float = 0.0

    @cached_property
    def _gram(self) -> FloatArray:
        gram = self.mechanism.strategy.bins_gram(self.positions, self.mechanism.sigma)
        return gram.matrix * gram.scale

    def tilted_law(self, weight: float) -> tuple[float, Chances | None]:
        return weight * (self.columns // self.positions), None

    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        x = noise.reshape(len(noise), -1, self.positions).sum(axis=1)
        if remove:
            x += self._gram[rng.integers(self.positions, size=len(x))]
        x -= np.diagonal(self._gram) / 2
        top = x.max(axis=1)
        losses = np.asarray(top + np.log(np.exp(x - top[:, None]).mean(axis=1)))
        return losses, np.full(len(noise), self.columns // self.positions)


def pair_of(problem: Problem, group: int = 0) -> Pair:
    """A pair that dominates the mechanism as seen by an example of the group."""
    if problem.group_size > 1:
        counts = problem.counts()
        if counts is None:
            raise MethodError(
                f"no pair is known for {problem.group_size} examples together under "
                f"{problem.scheme!r}. Use Poisson sampling, or method={UNAMPLIFIED!r}."
            )
        return pair_of(counts, group)
    if not problem.scheme.random:
        raise undrawn(problem.scheme)
    if problem.relaxed is not None:
        relaxed = problem.relaxed
        return _pair(problem.under(relaxed.scheme), group, relaxed.chance)
    return _pair(problem, group, 0.0)


def _pair(problem: Problem, group: int, extra: float) -> Pair:
    scheme, strategy = problem.scheme, problem.strategy
    scheme.check(problem.steps)
    if scheme.setting:
        raise MethodError(
            f"under {scheme!r} an example is not independent of the others, so no pair is "
            "proven to dominate. Use Poisson sampling or RandomAllocation, or "
            f"method={UNAMPLIFIED!r}."
        )
    mechanism = Mechanism(strategy, scheme, problem.sigma, group)
    if problem.positions is not None:
        return PositionPair(mechanism, problem.positions, extra)
    chances = scheme.chances(problem.steps)
    allocation = problem.allocation
    if allocation is not None:
        # Several in a short epoch are better revealed column by column, with messages over states.
        short = chances is not None and chances.states <= MOST_EPOCH_STATES
        if allocation.participations == 1 or not short:
            return EpochPair(mechanism, allocation, extra)
    if chances is None:
        raise MethodError(
            f"{scheme!r} does not say how likely an example is to take part given what happened "
            f"before. Define its `chances`, or use method={UNAMPLIFIED!r}."
        )
    check_chances(mechanism, chances)
    if strategy.tree is not None and (chances.states == 1 or mechanism.columns > MOST_COLUMNS):
        return LeafPair(mechanism, chances, extra)
    return exact_pair(mechanism, chances, extra) or ColumnPair(mechanism, chances, extra)
