r"""Pairs of laws that dominate a mechanism and whose loss is cheap: participations are revealed.

In: a `Mechanism`.  Out: samples of the privacy loss.  With A = C / sigma (the columns of one
group), P = sum_s pi(s) N(A s, I), Q = N(0, I) and any conditional law q(s | y),

    P~(dy, s) = pi(s) N(A s, I)(dy),    Q~(dy, s) = Q(dy) q(s | y)

have P and Q as laws of y, so (P, Q) is a post-processing of (P~, Q~): delta(P, Q) <= delta(P~, Q~)
for every epsilon, and delta(Q, P) <= delta(Q~, P~).  The logarithm of their ratio

    log Lhat = log pi(s) + <A s, y> - |A s|^2 / 2 - log q(s | y)

is known exactly, whatever q is; the closer q is to the law of s given y, the less is lost.

*Tilted.*  Along a unit vector d that has the same product a with all columns, the density
e^(kap <d, y>) relative to P~ shifts y by kap d and weights s with e^(kap a |s|); relative to Q~ it
only shifts y.  The loss as a function of y and s, and the kernel, are as before.

Rounding: losses are plain numbers, off by at most `rounding`; see there.  Draws are those of an
ideal random number generator, except for coins of 53 bits, which `dropped` pays for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._simulation.one_example import Mechanism
from mmcc.accounting._parallel import one_thread
from mmcc.sampling import Chances
from mmcc.strategies._toeplitz import FEW_BANDS

NUMBERS = 2**18
"""Noise values that are held at once."""
LARGEST_NORMAL = 14.0
"""No normal number that is drawn is larger: the ziggurat's tail ends earlier."""
UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class Tilt:
    """How draws are shifted, and their positions along the direction of the shift."""

    weights: FloatArray
    """The direction is A times these: with u = A^T z, z has the position <weights, u>."""
    shift: FloatArray
    """The shift of A^T y."""
    start: float
    """The position of the shift alone."""
    pull: float
    """The position that the column of one participation adds."""
    law: Chances | None = None
    """The law by which participations are drawn; None for the scheme's own."""


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

        A coin of 53 bits is off by at most 2^-53, and each column has at most 2 `draws`.
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
        """The loss of tilted draws, and the position of y; the latter is 0 without a tilt."""
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
        """Columns further apart do not affect each other."""
        return self.columns

    @property
    def looked_at(self) -> int:
        """Number of columns on which each c_l depends."""
        return 0

    @property
    def added_up(self) -> int:
        """Numbers that are added up at each column, besides those that are counted below."""
        return 0

    def aimed(self, epsilon: float) -> Pair:
        """The same pair; a loss below epsilon may be returned as any number between the two."""
        return self

    @cached_property
    def rounding(self) -> float:
        """An upper bound on a loss's rounding error.

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
        a few u of a factor, so the loss by as much: 60 a column with the logarithms of products,
        which are at most 345, and 8 for each column looked at, or one for each number added up; and
        where columns are certain, sums of their x_l, whose parts are at most columns X.  In an
        epoch, or over positions, the logarithm of a mean of e^x has slopes that sum to 1: the same
        with less.  The whole is doubled for terms of second order.
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
        rest = 60 + 8 * self.looked_at + self.added_up + columns * largest * self._certain
        return float(2 * UNIT * columns * ((1 + self.looked_at) * one + rest))

    @property
    def _certain(self) -> bool:
        """Whether a column may be certain to be taken."""
        return True

    @abstractmethod
    def tilted_law(self, weight: float) -> tuple[float, Chances | None]:
        """Log E e^(weight |s|), and the tilted participations; None where |s| is constant."""

    @abstractmethod
    def _reveal(
        self, noise: FloatArray, remove: bool, rng: np.random.Generator, law: Chances | None
    ) -> tuple[FloatArray, IntArray]:
        """Logarithms of Lhat for each row of noise, which may be overwritten.

        For `remove`, participations are drawn by `law`, or by the scheme if there is none, and the
        second array holds their numbers.
        """
