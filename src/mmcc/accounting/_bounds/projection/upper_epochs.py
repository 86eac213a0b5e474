"""Upper bounds on delta for random allocation: as for Poisson sampling, with k columns per epoch.

Nothing is truncated: every set has k columns of each of the E epochs.  Sums of non-negative terms
over sets are at most those over k independent draws in every epoch, divided by the chance that
these never coincide.  Shifts of the columns of an epoch by the same vector cancel if the shifts of
all epochs add up to zero, so that <A'_S, A'_S'> is a sum over pairs of draws of entries of the Gram
matrix G'' of the shifted columns, here those whose means agree.  Pairs of the i-th draw of epoch e
and the (i+c)-th of epoch e + d are independent over e and i: the even orders from four on, E f(s
sum_d,c Y_dc) with f(x) = cosh x - 1 - x^2/2 convex, lie below the mean of E f(s Y_dc / lam_dc) with
weights lam_dc, where the moment generating function of Y_dc is a product.  Proofs:
docs/theory-allocation-projection.md.  Rounding: upwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmcc._arrays import BoolArray, FloatArray
from mmcc.accounting._bounds.projection.epochs import EpochRest
from mmcc.accounting._bounds.projection.high_orders import S
from mmcc.accounting._bounds.projection.rest import SLACK, TINY
from mmcc.accounting._bounds.projection.upper import Projected

STRIDE = 32
"""Shifts are recomputed after this many nodes."""
LEAST = 1e-3
"""The smallest lam_k, relative to the largest."""
GAIN = 1e-5
"""The fraction of s set aside for the rounding of G''."""
UNIT = 2.0**-52


@dataclass(eq=False)
class Shifted:
    """G'' with the means of one node, and what sums of its entries imply at other nodes."""

    rest: EpochRest
    law: FloatArray
    """The law of one draw in every epoch, by node."""
    nodes: slice
    """The nodes that are covered; the means are those of the middle one."""

    @cached_property
    def matrix(self) -> FloatArray:
        """G'', with axes epoch, place, epoch, place."""
        rest, line = self.rest, self.rest.line
        epochs, length = line.rows.shape
        middle = (self.nodes.start + self.nodes.stop - 1) // 2
        shares = self.law[middle].reshape(epochs, length)
        own = np.zeros((epochs, length, epochs))
        own[np.arange(epochs), :, np.arange(epochs)] = shares
        means = own.reshape(-1, epochs) - shares.reshape(-1, 1) / epochs
        moved = rest.matrix @ means
        inner = means.T @ moved
        cube = rest.matrix.reshape(epochs, length, epochs, length)
        moved = moved.reshape(epochs, length, epochs)
        cube = cube - moved[..., None] - moved.transpose(2, 0, 1)[:, None]
        return np.asarray(cube + inner[:, None, :, None])

    @cached_property
    def error(self) -> float:
        """A bound on the rounding error of <A'_S, A'_S'> as a sum of entries of G''."""
        gram, draws = self.rest.gram, self.rest.line.epochs * self.rest.line.times
        relative = 64 * gram.error + (8 * self.rest.line.a.size + 64) * UNIT
        return float(draws**2 * relative * np.max(gram.diagonal()))

    def block(self, d: int) -> FloatArray:
        """G'' between epochs e and e + d, with axes epoch, place, place."""
        epochs = self.rest.line.epochs
        first = np.arange(epochs)
        return np.asarray(self.matrix[first, :, (first + d) % epochs])

    def means(self, block: FloatArray, d: int) -> FloatArray:
        """sum_(j in e, l in e + d) p_j p_l block_ejl by node and epoch, p the law of a draw."""
        epochs = self.rest.line.epochs
        u = self.law[self.nodes].reshape(-1, epochs, block.shape[1])
        first = u.swapaxes(0, 1)
        second = np.roll(first, -d, axis=0)
        return np.asarray(np.sum(np.matmul(first, block) * second, axis=2).T)

    @cached_property
    def seconds(self) -> list[FloatArray]:
        """E G''_(j_e, j'_(e+d))^2 for each d, by node and epoch."""
        return [self.means(self.block(d) ** 2, d) for d in self.shifts]

    @cached_property
    def squares(self) -> FloatArray:
        """E Y_d^2 for each d, from independent pairs, by node."""
        means = [self.means(self.block(d), d) for d in self.shifts]
        times = self.rest.line.times
        spreads = [np.sum(m2 - m**2, axis=1) for m2, m in zip(self.seconds, means, strict=True)]
        sums = [np.sum(m, axis=1) for m in means]
        return np.asarray(times * np.array(spreads) + times**2 * np.array(sums) ** 2)

    @property
    def shifts(self) -> range:
        """The values of d to consider; E - d gives the same as d."""
        return range(self.rest.line.epochs // 2 + 1)

    @cached_property
    def alike(self) -> FloatArray:
        """The number of values of d that give the same."""
        epochs = self.rest.line.epochs
        return np.array([1.0 if 2 * d % epochs == 0 else 2.0 for d in self.shifts])

    @cached_property
    def parts(self) -> FloatArray:
        """lam_d: any positive numbers that add up to one (with `alike`) are valid."""
        sizes = np.sqrt(np.maximum(self.squares[:, self.squares.shape[1] // 2], 0.0))
        sizes = sizes + LEAST * np.max(sizes) + TINY
        return np.asarray(sizes / (self.alike @ sizes) * (1 - 8 * UNIT))

    def even(self, s: float) -> FloatArray:
        """sum_(r = 4, 6, ...) s^r T_r of independent draws, rounded up, in units of Z^2.

        The k shifts c within epochs all give the same.
        """
        total = np.zeros(self.nodes.stop - self.nodes.start)
        for d, part, many in zip(self.shifts, self.parts, self.alike, strict=True):
            x = s * (1 + 2 * GAIN) * self.rest.line.times / part
            total += many * part * self._even_part(d, x)
        return np.asarray(total * (1 + SLACK) + GAIN * _remainder(s * self.error / GAIN))

    @np.errstate(divide="ignore", over="ignore", invalid="ignore")
    def _even_part(self, d: int, x: float) -> FloatArray:
        """E f(x Y_d) from means of e^(+-x g) - 1, each rounded up by the error of its sum.

        The sizes of the terms come from |e^y - 1| <= (e^y - 1) + (e^-y - 1) + |y|.
        """
        room = (4 * self.matrix.shape[1] + self.matrix.shape[0] + 64) * UNIT
        times = self.rest.line.times
        exponent = x * self.block(d)
        rise = np.expm1(np.abs(exponent))
        fall = -1 / (1 + 1 / rise)  # e^-y - 1 from e^y - 1, without cancellation
        up, down = np.where(exponent > 0, [rise, fall], [fall, rise])
        sides = [self.means(up, d), self.means(down, d)]
        sizes = x * np.sqrt(self.seconds[d])
        room_each = room * (sides[0] + sides[1] + sizes)
        value = -0.5 * x * x * self.squares[d]
        sums = times * np.sum(sizes**2, axis=1), times * np.sum(sizes, axis=1)
        value += room * (sums[0] + 2 * sums[1] ** 2)
        for side in sides:
            logs = times * np.log1p(side + room_each)
            top = np.expm1(np.sum(logs, axis=1))
            value += 0.5 * top + room * (1 + np.abs(top)) * np.sum(np.abs(logs), axis=1)
        return np.where(value < np.inf, np.maximum(value, 0.0), np.inf)  # infinite also for NaN


@dataclass(eq=False)
class ProjectedEpochs(Projected):
    """The bound for remove; every set has k columns per epoch, so nothing is set aside."""

    shares: Sequence[float] = (0.0,)

    @cached_property
    def limits(self) -> list[int]:
        """Every set has the same size."""
        return [self._rest.line.epochs]

    @property
    def _rest(self) -> EpochRest:
        rest = self.rest
        assert isinstance(rest, EpochRest)
        return rest

    def _even(self, law: FloatArray) -> FloatArray:
        """Even orders from four on of independent draws, by S and node."""
        nodes = len(law)
        even = np.empty((S.size, nodes))
        for start in range(0, nodes, STRIDE):
            shifted = Shifted(self._rest, law, slice(start, min(start + STRIDE, nodes)))
            for i, s in enumerate(S):
                even[i, shifted.nodes] = shifted.even(float(s))
        return even

    @cached_property
    def even(self) -> FloatArray:
        """Even orders from four on, by S and node.

        The smaller of two bounds: draws divided by the chance that they never coincide; or draws
        with the same chances of every column, whose moment generating function is larger, plus the
        excess of their second moment.  The latter at s' >= s bounds that at s, by f(s x) <= (s /
        s')^4 f(s' x).
        """
        rest, times = self._rest, self._rest.line.times
        law, apart = rest.slots
        if times == 1:
            return self._even(law)
        with np.errstate(over="ignore", invalid="ignore"):
            best = self._even(law) * np.exp(-2 * apart) * (1 + SLACK)
            larger = self._even(rest.weights.tilted / times)
            larger += 0.5 * np.multiply.outer(S**2, np.maximum(rest.gain, 0.0))
            for i, s in enumerate(S):
                shrunk = np.min(larger[i:] * ((s / S[i:]) ** 4)[:, None], axis=0) * (1 + SLACK)
                best[i] = np.fmin(best[i], shrunk)
        return best

    @cached_property
    def totals(self) -> tuple[FloatArray, FloatArray]:
        """Chaos sums from order two and from order three on: shape (1, S, nodes)."""
        even, second = self.even, np.multiply.outer(S**2, self.rest.quadratic)
        # Odd orders are at most the geometric mean of their even neighbours.
        with np.errstate(over="ignore", invalid="ignore"):
            third = (even + np.sqrt(4 / 3 * (second + even) * even)) * (1 + SLACK)
        third = np.where(third >= 0, third, np.inf)
        return (second * (1 + SLACK) + third)[None], third[None]

    @property
    def variance(self) -> FloatArray:
        """T_1 plus all higher orders; s = 1 is the first of S."""
        return np.asarray(self.rest.linear + self.totals[0][0, 0])

    @cached_property
    def lengths(self) -> tuple[FloatArray, FloatArray]:
        """All weights, and a bound on every |A'_S| from the largest entries of all pairs of epochs.

        Within an epoch these are k columns with themselves and k (k - 1) pairs of different
        columns.
        """
        shifted = Shifted(self._rest, self._rest.slots[0], slice(0, len(self.rest.weights.t)))
        times = self._rest.line.times
        largest = np.max(shifted.matrix, axis=(1, 3))
        inside = shifted.block(0)
        own = np.max(np.diagonal(inside, axis1=1, axis2=2), axis=1)
        others = np.where(np.eye(inside.shape[1], dtype=np.bool_), -np.inf, inside)
        np.fill_diagonal(largest, own / times)
        if times > 1:
            pairs = (times - 1) * np.max(others, axis=(1, 2))
            np.fill_diagonal(largest, (own + pairs) / times)
        square = times**2 * float(np.sum(largest))
        square = max(square, 0.0) * (1 + SLACK) + shifted.error + TINY
        return self.mass[:, None], np.array([math.sqrt(square)])

    @property
    def beyond(self) -> FloatArray:
        """Nothing."""
        return np.zeros(len(self.rest.weights.t))

    def cost(self, limit: int, share: float, threshold: FloatArray, here: BoolArray) -> FloatArray:
        """Nothing."""
        return np.zeros(int(np.count_nonzero(here)))


def _remainder(x: float) -> float:
    """Cosh x - 1 - x^2 / 2, rounded up; it is no more than x^4 cosh(x) / 24."""
    return x**4 * math.cosh(x) / 24 * (1 + SLACK) if x < 300 else math.inf
