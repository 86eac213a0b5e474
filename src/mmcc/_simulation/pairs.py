r"""Pairs of laws that dominate a mechanism and whose loss is exact and cheap: who took part, told.

In: a `Problem`.  Out: samples of the privacy loss.  With A = C / sigma (the columns of one group),
G = A^T A, P = sum_s pi(s) N(A s, I), Q = N(0, I) and any conditional law q(s | y),

    P~(dy, s) = pi(s) N(A s, I)(dy),    Q~(dy, s) = Q(dy) q(s | y)

have P and Q as laws of y, so (P, Q) is a post-processing of (P~, Q~): delta(P, Q) <= delta(P~, Q~)
for every epsilon, and delta(Q, P) <= delta(Q~, P~).  The logarithm of their ratio

    log Lhat = log pi(s) + <A s, y> - |A s|^2 / 2 - log q(s | y)

is known exactly, whatever q is; the closer q is to the law of s given y, the less is lost.

*Column by column.*  With u = A^T y and x_l = u_l - sum_(i<l) s_i G_il - G_ll / 2 the exponent is
sum_l s_l x_l.  Let p_l be the chance of column l given s_1 .. s_(l-1), and c_l any function of y
and of these.  Drawing s_l = 1 with chance p_l e^(x_l + c_l) / D_l,
D_l = 1 - p_l + p_l e^(x_l + c_l), makes the factor of Lhat

    D_l if s_l = 0,   D_l e^(-c_l) if s_l = 1.

Under P~ u = A^T A s + g, g ~ N(0, G), so x_l = g_l + sum_(j>=l) G_lj s_j - G_ll / 2.
*Centring*: c_l = -m_l, m_l the mean of the kicks sum_(j>l) G_lj s_j that are still to come.
*Look-ahead*: with s_l = 1 the columns after l have to explain less, x_j - G_lj instead of x_j; if
they were independent of each other, the chance of what is left would change by the factor
e^(c_l) = prod_(j>l) (1 - p_j + p_j e^(x_j - G_lj)) / (1 - p_j + p_j e^(x_j)).  x_j is what the
columns revealed so far leave of it, so c_l is a function of y and s_1 .. s_(l-1): a kernel as good
as any.  Where a participation changes the chances of later columns, messages from the last column
back, B_j(k) = (1 - p) B_(j+1)(k') + p e^(x_j) B_(j+1)(k'') over the states k, stand for the
products: exact, if columns that may both take part do not move each other.  Beyond the columns
looked at the kicks are centred.

*Epoch by epoch*, where every epoch has its own random columns: each is drawn from the columns left
with chances e^(x_j - m_j) / sum, and the factor is e^(m_j) times the mean of e^(x_i - m_i) over the
columns left; an order of the epoch's columns is drawn first, so that all have the same chance.
*One position for all epochs*: Lhat is the exact ratio, a mean over the positions.

*Tilted.*  Along a unit vector d that has the same product a with all columns, the density
e^(kap <d, y>) relative to P~ shifts y by kap d and weighs s with e^(kap a |s|); relative to Q~ it
shifts y alone.  The loss as a function of y and s, and the kernel, are as before.

Rounding: losses are plain numbers, off by at most `rounding`; see there.  Draws are those of an
ideal generator of numbers, but for coins of 53 bits, which `dropped` pays for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._simulation import reveal_loops as loops
from mmcc._simulation.one_example import Mechanism
from mmcc.accounting._bounds.base import Problem
from mmcc.accounting._parallel import one_thread
from mmcc.errors import MethodError, SamplingError, StrategyError
from mmcc.sampling import Allocation, Chances
from mmcc.sampling._scheme import undrawn
from mmcc.strategies._toeplitz import FEW_BANDS, Toeplitz

NUMBERS = 2**18
"""Noise that is held at once."""
MOST_KICKS = 2**24
"""Inner products that are kept, 128 megabytes."""
MOST_COLUMNS = 4096
MOST_AHEAD = 16
"""Columns that a look-ahead looks at; the rest is centred."""
MOST_EPOCH_STATES = 64
SOME_SETS = 64
MOST_RENEWED = 64
"""Columns whose messages are made anew after a participation."""
MOST_CENTRE = 36.0
LARGEST_NORMAL = 14.0
"""No normal number that is drawn is larger: the ziggurat's tail ends before."""
UNIT = 2.0**-53
NONE = np.empty((0, 0), np.int64)


@dataclass(frozen=True, eq=False)
class Tilt:
    """How draws are shifted, and where they lie in the direction of the shift."""

    weights: FloatArray
    """The direction is A times these: with u = A^T z, z lies at <weights, u>."""
    shift: FloatArray
    """Of A^T y."""
    start: float
    """Where the shift alone lies."""
    pull: float
    """Where the column of a participation lies."""
    law: Chances | None = None
    """By which participations are drawn; None for the scheme's own."""


class Pair(ABC):
    """A pair (P~, Q~) that dominates the mechanism (P, Q) of one group, in both directions."""

    mechanism: Mechanism
    extra: float
    """What a relaxed scheme adds to delta."""

    @property
    def columns(self) -> int:
        """Columns that the example may take part in."""
        return self.mechanism.columns

    @property
    def dropped(self) -> float:
        """delta(eps) <= E[(1 - e^(eps - loss))_+] + dropped, where losses are free of rounding.

        A coin of 53 bits is off by at most 2^-53, and each column has at most two `draws` times.
        """
        return (self.extra + 4 * UNIT * self.columns * self.draws) * (1 + 4 * UNIT)

    @property
    def draws(self) -> int:
        """How often each column is drawn from, or not."""
        return 1

    def losses(self, remove: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """The loss: log Lhat under P~ (remove), -log Lhat under Q~ (add)."""
        return self.tilted_losses(remove, count, rng, None)[0]

    def tilted_losses(
        self, remove: bool, count: int, rng: np.random.Generator, tilt: Tilt | None
    ) -> tuple[FloatArray, FloatArray]:
        """The loss where draws are tilted, and where y lies; 0 without a tilt."""
        found, places = np.empty(count), np.zeros(count)
        size = max(NUMBERS // (self.mechanism.strategy.rows + self.columns), 1)
        with one_thread():
            for first in range(0, count, size):
                part = slice(first, min(first + size, count))
                noise = self._noise(part.stop - first, rng)
                if tilt is not None:
                    places[part] = noise @ tilt.weights + tilt.start
                    noise += tilt.shift
                law = None if tilt is None else tilt.law
                found[part], numbers = self._reveal(noise, remove, rng, law)
                if tilt is not None and remove:
                    places[part] += tilt.pull * numbers
        return found if remove else -found, places

    def _noise(self, count: int, rng: np.random.Generator) -> FloatArray:
        """A^T z for standard normal z, one a row."""
        rows = self.mechanism.strategy.rows
        return self.mechanism.adjoint(rng.standard_normal((count, rows)))

    @property
    def reach(self) -> int:
        """Columns further apart do not move each other."""
        return self.columns

    @property
    def looked_at(self) -> int:
        """Columns on which each c_l rests."""
        return 0

    @cached_property
    def rounding(self) -> float:
        """At most so far is a loss off, by rounding alone.

        All of A is non-negative and no normal number exceeds 14, so every x_l on the way is at most
        X = max_l (14 |A_l|_1 + 2 sum_j G_lj) in size.  With u = 2^-53, inner products with z are
        off by u terms 14 |A_l|_1, or, by three Fourier transforms of length N, by
        40 log2(N) u |z| |A_l| with |z| <= 14 sqrt(rows); inner products of columns by a relative
        u (terms + 16); and the additions, at most two for each column within reach, by u X each.
        Given the participations and the c_l, log D_l - s_l c_l has a slope between -1 and 1 in x_l,
        so the loss moves by no more than the sum of this over all columns.  A change of c_l moves
        it by as much or less, and c_l has slopes between -1 and 1 in each x_j on which it rests:
        logarithms of sums of e^(sums of x_j) have slopes between 0 and 1, and their differences
        slopes between -1 and 1.  What remains are exponentials, divisions and products, each off by
        a few u of a factor, so of the loss by as much: 60 a column with the logarithms of products,
        which are at most 345, and 8 for each column looked at; and where columns are certain, sums
        of their x_l, whose parts are at most columns X.  In an epoch, or over positions, the
        logarithm of a mean of e^x has slopes that sum to 1: less of the same.  The whole is doubled
        for terms of second order.
        """
        mechanism = self.mechanism
        rows, columns, toeplitz = mechanism.strategy.rows, self.columns, mechanism.strategy.toeplitz
        terms = rows if toeplitz is None else toeplitz.bands
        sums = float(mechanism.adjoint(np.ones((1, rows))).max())
        products = float(mechanism.adjoint(mechanism.encode(np.ones((1, columns)))).max())
        largest = LARGEST_NORMAL * sums + 2 * products
        one = (2 * terms + 4 * (2 * self.reach + 1) + 64) * largest
        if toeplitz is not None and toeplitz.bands > FEW_BANDS:
            # |A_l| <= |A_l|_1
            one += 40 * math.log2(4 * rows + 4) * LARGEST_NORMAL * math.sqrt(rows) * sums
        rest = 60 + 8 * self.looked_at + columns * largest * self._certain
        return float(2 * UNIT * columns * ((1 + self.looked_at) * one + rest))

    @property
    def _certain(self) -> bool:
        """Whether a column may be certain."""
        return True

    @abstractmethod
    def tilted_law(self, weight: float) -> tuple[float, Chances | None]:
        """Log E e^(weight |s|), and participations tilted so; None where |s| is always the same."""

    @abstractmethod
    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        """Logarithms of Lhat for each row of noise, which may be overwritten.

        For `remove` who takes part is drawn by the law, or else by the scheme, and the second array
        is how often.
        """


@dataclass(frozen=True, eq=False)
class Kicks:
    """By how much a participation in column l moves the others: `flat[starts[l] + d]` = G_(l, l+d).

    Columns whose rows are the same share them.
    """

    flat: FloatArray
    starts: IntArray
    reach: int
    """G_(l, l+d) is 0 for larger distances d."""

    def __post_init__(self) -> None:
        if not self.flat.flags.writeable:
            object.__setattr__(self, "flat", self.flat.copy())

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.starts)

    def ahead(self, distance: int) -> FloatArray:
        """G_(l, l+d) for each column, 0 past the end."""
        found = np.zeros(self.columns)
        found[: self.columns - distance] = self.flat[
            self.starts[: self.columns - distance] + distance
        ]
        return found

    @cached_property
    def kinds(self) -> IntArray:
        """Columns with the same row have the same number."""
        return np.unique(self.starts, return_inverse=True)[1]

    def strengths(self, ahead: int) -> FloatArray:
        """1 - e^(-G_(l, l+k)), k = 1 .. ahead, for one column of each kind."""
        _, first = np.unique(self.starts, return_index=True)
        places = self.starts[first][:, None] + np.arange(1, ahead + 1)
        return np.asarray(-np.expm1(-self.flat[np.minimum(places, self.flat.size - 1)]))


def kicks_of(mechanism: Mechanism) -> Kicks:
    """From coefficients, where the matrix is Toeplitz and has few; else from the full matrix."""
    toeplitz = mechanism.strategy.toeplitz
    if toeplitz is not None:
        reach = min((toeplitz.bands - 1) // mechanism.separation, mechanism.columns - 1)
        different = 2 * reach + 3
        if different < mechanism.columns and different * (2 * reach + 1) <= MOST_KICKS:
            return _toeplitz_kicks(mechanism, toeplitz, reach)
    columns, matrix = mechanism.columns, inner_products(mechanism)
    reach = max(d for d in range(columns) if np.diagonal(matrix, d).any())
    return Kicks(matrix.reshape(-1), np.arange(columns) * (columns + 1), reach)


def _toeplitz_kicks(mechanism: Mechanism, toeplitz: Toeplitz, reach: int) -> Kicks:
    """G_(j, j+d) = sum of c_i c_(i + |d| b) over the rows that the later column has left.

    With b the separation, reach = (bands - 1) div b: but for the last 2 reach + 2 columns, each and
    its neighbours have all their rows.
    """
    c, b, columns = toeplitz.coefficients, mechanism.separation, mechanism.columns
    own = 2 * reach + 2
    places = np.concatenate([[0], np.arange(columns - own, columns)])
    distances = np.arange(-reach, reach + 1)
    others = places[:, None] + distances
    later = np.maximum(places[:, None], others) * b + mechanism.group
    left = toeplitz.steps - 1 - later
    left[0] = toeplitz.bands  # the row that all others share is that of a column in the middle
    table = np.zeros((own + 1, 2 * reach + 1))
    for d in distances:
        sums = np.cumsum(c[: c.size - abs(d) * b] * c[abs(d) * b :]) / mechanism.sigma**2
        there = (others[:, d + reach] < columns) & (left[:, d + reach] >= 0)
        table[there, d + reach] = sums[np.minimum(left[there, d + reach], sums.size - 1)]
    kinds = np.maximum(np.arange(columns) - (columns - own) + 1, 0)
    return Kicks(table.reshape(-1), kinds * (2 * reach + 1) + reach, reach)


def inner_products(mechanism: Mechanism) -> FloatArray:
    """G as an array."""
    if mechanism.columns > MOST_COLUMNS:
        raise StrategyError(
            f"{mechanism.strategy!r} has {mechanism.columns} columns without a structure that "
            f"simulations use; inner products are kept for at most {MOST_COLUMNS}. Use fewer steps "
            "or bands, or mmcc.epsilon."
        )
    if mechanism.gram is not None:
        return mechanism.gram
    return mechanism.adjoint(mechanism.encode(np.eye(mechanism.columns)))


@dataclass(frozen=True, eq=False)
class SequentialPair(Pair):
    """Columns one by one, centred."""

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
        """The chances of a law for compiled loops."""
        return self.law[0] if law is None else law.probability.copy()


class ColumnPair(SequentialPair):
    """With a look-ahead over the next few columns."""

    @cached_property
    def kicks(self) -> Kicks:
        """How columns move each other."""
        return kicks_of(self.mechanism)

    @cached_property
    def sums(self) -> FloatArray:
        """G 1."""
        every = self.mechanism.encode(np.ones((1, self.columns)))
        return np.asarray(self.mechanism.adjoint(every)[0])

    def louder(self, factor: float, size: float) -> ColumnPair:
        """Columns `size` times as long, taken part in with `factor` times the odds."""
        chance = self.chances.probability
        odds = chance * factor
        mechanism = replace(self.mechanism, sigma=self.mechanism.sigma / size)
        made = ColumnPair(mechanism, Chances(odds / (1 - chance + odds), self.chances.after))
        kicks = self.kicks if size == 1 else replace(self.kicks, flat=self.kicks.flat * size**2)
        made.__dict__["kicks"] = kicks  # not computed again
        return made

    @property
    def reach(self) -> int:
        return self.kicks.reach

    @property
    def ahead(self) -> int:
        """Columns that the look-ahead looks at."""
        return min(self.kicks.reach, MOST_AHEAD)

    @property
    def looked_at(self) -> int:
        """Messages come from the last column."""
        return self.ahead if self.chances.probability.size == 1 else self.columns

    @cached_property
    def _centres(self) -> FloatArray:
        """e^(-m_l), beyond the columns that are looked at.

        After a participation if that changes chances in the same way everywhere, else on average.
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
        """Losses; where `truth` is given, noise is A^T y already, which these took part in."""
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
    """The leaves of a tree, in a time of O(n) a sample."""

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
        losses = loops.reveal_leaves(
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
        """Of participations."""
        return self.columns // self.allocation.epoch_steps * self.allocation.participations

    def tilted_law(self, weight: float) -> tuple[float, Chances | None]:
        return weight * self.number, None

    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        kicks, allocation = self._kicks, self.allocation
        losses = loops.reveal_epochs(
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
    """A pair that dominates the mechanism as an example of the group sees it."""
    if problem.group_size > 1:
        counts = problem.counts()
        if counts is None:
            raise MethodError(
                f"no pair is known for {problem.group_size} examples together under "
                f"{problem.scheme!r}. Use Poisson sampling, or method='unamplified'."
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
            f"under {scheme!r} an example is not independent of the others, so that no pair is "
            "proven to dominate. Use Poisson sampling or RandomAllocation, or "
            "method='unamplified'."
        )
    mechanism = Mechanism(strategy, scheme, problem.sigma, group)
    if problem.positions is not None:
        return PositionPair(mechanism, problem.positions, extra)
    chances = scheme.chances(problem.steps)
    allocation = problem.allocation
    if allocation is not None:
        # Several of a short epoch are better told column by column, with messages over states.
        short = chances is not None and chances.states <= MOST_EPOCH_STATES
        if allocation.participations == 1 or not short:
            return EpochPair(mechanism, allocation, extra)
    if chances is None:
        raise MethodError(
            f"{scheme!r} does not say how likely an example is to take part given what happened "
            "before. Define its `chances`, or use method='unamplified'."
        )
    check_chances(mechanism, chances)
    if strategy.tree is not None and (chances.states == 1 or mechanism.columns > MOST_COLUMNS):
        return LeafPair(mechanism, chances, extra)
    return ColumnPair(mechanism, chances, extra)


def check_chances(mechanism: Mechanism, chances: Chances) -> None:
    """Refuse chances under which sets that the scheme draws cannot happen."""
    drawn = mechanism.draw(SOME_SETS, np.random.default_rng(0))
    marks = np.zeros((SOME_SETS, mechanism.columns), np.int64)
    marks[drawn.owners(), drawn.steps] = 1
    if not chances.possible(marks).all():
        raise SamplingError(
            f"{mechanism.scheme!r} draws a set that cannot happen by its `chances`. Correct one of "
            "the two: they must have the same law."
        )
