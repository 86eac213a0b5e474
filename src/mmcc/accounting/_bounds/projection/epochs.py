"""Random allocation along one direction and orthogonal to it: k columns of every epoch.

In every epoch of t columns k are drawn, all sets equally likely, so e^(z a_S) has the mean
prod_e e_k(e^(z a_j), j in e) / C(t, k), e_k the elementary symmetric polynomial.  Pair sums V_jl
are contour integrals of functions of a_j and a_l, those of two epochs of products, and are
interpolated in the overlap a; V_jj = v_j.  Proofs: docs/theory-allocation-projection.md.
Rounding: `Rest` rounds up, the line states its errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.polynomial import chebyshev
from scipy import special

from mmcc._arrays import BoolArray, ComplexArray, FloatArray
from mmcc.accounting._bounds.projection.line import Contour
from mmcc.accounting._bounds.projection.rest import SLACK, Cores, Rest
from mmcc.accounting._bounds.projection.subsets import coefficients, participation, tilt
from mmcc.errors import MethodError
from mmcc.strategies._gram import DenseGram

POINTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 28)
"""Numbers of interpolation points per epoch to try; the smallest good enough is used."""
GOOD = 1e-11
"""The interpolation error allowed, relative to u_j u_l."""
MOST_COLUMNS, MOST_POINTS = 6000, 1200
"""More columns take too much memory; more points in all epochs together take too much time."""
MOST_DIFFERENCE = 1e9
"""If cancelling terms exceed their sum by more than this factor, the sum is unknown."""
TRIED = 4
"""Nodes at which interpolation is tried; at all nodes its error is measured and paid for."""


@dataclass(frozen=True, eq=False, slots=True)
class EpochLine(Contour):
    """Overlaps of all columns, epoch after epoch; the number of epochs; columns drawn in each."""

    epochs: int
    times: int = 1
    """Columns drawn in each epoch, fewer than it has."""

    @property
    def rows(self) -> FloatArray:
        """The overlaps, with one row per epoch."""
        return self.a.reshape(self.epochs, -1)

    @property
    def largest(self) -> float:
        return float(np.sum(np.sort(self.rows, axis=1)[:, -self.times :]))

    def cumulant(self, theta: FloatArray) -> FloatArray:
        return np.asarray(np.sum(self._tilt(theta)[1], axis=-1)) - self.epochs * self._log_choices

    def tilted(self, theta: FloatArray) -> FloatArray:
        return self._tilt(theta)[2].reshape(*np.shape(theta), -1)

    def law(self, theta: FloatArray) -> FloatArray:
        """Chances q_j of independent draws; S is such a draw given k members in every epoch."""
        x = np.multiply.outer(theta, self.rows) + self._tilt(theta)[0][..., None]
        return np.asarray(special.expit(x)).reshape(*np.shape(theta), -1)

    def odds(self, points: FloatArray, theta: float) -> FloatArray:
        """The odds o_j at points, with one row of points per epoch."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(theta * points + self._tilt(np.array(theta))[0][:, None]))

    def coefficients(self, theta: float, phases: ComplexArray) -> ComplexArray:
        """P_0, ..., P_k of `subsets`, with axes gamma, epoch and i."""
        return coefficients(self.law(np.array(theta)), phases, self.epochs, self.times)

    def slots(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The law of one draw in an epoch, and the log of the chance that no draws coincide.

        The tilted law of S is that of k independent draws in every epoch, given that no two of them
        coincide.
        """
        x = np.multiply.outer(theta, self.rows)
        sums = special.logsumexp(x, axis=-1)
        shares = np.exp(x - sums[..., None]).reshape(*np.shape(theta), -1)
        orders = math.lgamma(self.times + 1)
        apart = np.sum(self._tilt(theta)[1] - self.times * sums + orders, axis=-1)
        return shares, np.minimum(apart, 0.0)

    def _tilt(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Shifts, logs of sums over all subsets, and chances u_j, for every epoch."""
        rows = self.rows
        x = np.multiply.outer(theta, rows)
        shifts, logs, chances = tilt(x.reshape(-1, rows.shape[1]), self.times)
        shape = x.shape[:-1]
        return shifts.reshape(shape), logs.reshape(shape), chances.reshape(x.shape)

    @property
    def _log_choices(self) -> float:
        """Log of the number of subsets of an epoch."""
        return math.log(math.comb(self.rows.shape[1], self.times))

    def _moments(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and rough variance of a_S; the variance is that of independent draws."""
        chances = self._tilt(theta)[2]
        means = np.sum(chances * self.rows, axis=-1)
        apart = self.rows - means[..., None] / self.times
        return np.sum(means, axis=-1), np.asarray(np.sum(chances * apart**2, axis=(-2, -1)))

    def _products(self, law: FloatArray, phases: ComplexArray) -> ComplexArray:
        table = coefficients(law, phases, self.epochs, self.times)[:, :, self.times]
        return np.asarray(np.prod(table / table[0].real, axis=1))

    def _participation(
        self, law: FloatArray, phases: ComplexArray, nodes: ComplexArray
    ) -> tuple[FloatArray, FloatArray, float | None]:
        """An epoch's mean D has an absolute error, and pair sums are divided by two such means.

        With x the largest 1 / |D| at a node, the relative errors of all epochs together are x times
        those of a factor of size one.  Columns are left out by differences, whose terms are larger
        than the result.
        """
        table = coefficients(law, phases, self.epochs, self.times)
        with np.errstate(all="ignore"):
            odds = law / (1 - law)
            single, twice = participation(odds, phases, table, nodes)
            means = table[:, :, self.times] / table[0, :, self.times].real
            worst = np.max(1 / np.abs(means), axis=1)
            size = float(np.sum(np.abs(nodes) * worst**3))
            size *= _differences(odds.reshape(self.rows.shape), table[0].real)
        if size <= MOST_DIFFERENCE:  # not for NaN
            return single, single - twice, size
        return np.zeros_like(single), np.zeros_like(single), None

    def twice(self, law: FloatArray) -> FloatArray:
        """The formula for the chance of a pair, with j as both members."""
        phases = np.zeros((1, self.a.size), np.complex128)
        table = coefficients(law, phases, self.epochs, self.times)
        with np.errstate(all="ignore"):
            return participation(law / (1 - law), phases, table, np.ones(1, np.complex128))[1]

    def _rounded(self, u: FloatArray) -> float:
        """One mean per epoch; the phases gamma a_j have their own rounding errors."""
        return self.epochs * self.times + self.largest

    def _cumulant_size(self, theta: float) -> float:
        """Logs of the odds' common factor, which is about that of the last member's weight."""
        size = abs(theta) * float(np.max(self.a)) + math.log(self.rows.shape[1]) + 2
        return 4 * self.epochs * self.times * size

    def _given(self, sign: float) -> float:
        """A given member replaces another one."""
        return 2 * float(np.max(self.a))


@dataclass(frozen=True, eq=False, slots=True)
class _Cores:
    """Pair sums at points: one matrix per node, made on demand; zero if not known."""

    line: EpochLine
    points: FloatArray
    theta: FloatArray
    known: BoolArray
    nodes: ComplexArray
    phases: ComplexArray
    waves: ComplexArray
    """e^(i gamma x) at the points."""
    repeated: bool = False
    """Whether draws are independent with the same chances, k(k - 1) pairs of them in an epoch."""

    def __getitem__(self, node: int) -> FloatArray:
        if not self.known[node]:
            return np.zeros((self.points.size, self.points.size))
        line, theta, nodes = self.line, float(self.theta[node]), self.nodes[node]
        table = line.coefficients(theta, self.phases)[..., None]
        x = self.waves * line.odds(self.points, theta)
        whole = table[:, :, line.times]
        epochs, count = self.points.shape
        without = [table[:, :, 0] + 0 * x]
        for i in range(1, line.times):
            without.append(table[:, :, i] - x * without[-1])
        flat = (x * without[-1] / whole).reshape(len(x), -1)
        scaled = (flat * nodes[:, None]).T
        core = scaled.real @ flat.real - scaled.imag @ flat.imag
        blocks = core.reshape(epochs, count, epochs, count)
        own = np.arange(epochs)
        if self.repeated:
            blocks[own, :, own] *= 1 - 1 / line.times
            return np.asarray(core)
        both = np.zeros((*x.shape, x.shape[2]), np.complex128)
        for rest in without[:-1]:
            both = rest[..., None] - x[:, :, None] * both
        both *= x[..., None] * x[:, :, None] / whole[..., None]
        inside = np.tensordot(nodes, both, 1).real
        blocks[own, :, own] = 0.5 * (inside + inside.swapaxes(1, 2))
        return np.asarray(core)


@dataclass(eq=False)
class EpochRest(Rest):
    """What is left orthogonal to the direction: pair sums, interpolated in each epoch."""

    gram: DenseGram
    line: EpochLine

    @cached_property
    def points(self) -> FloatArray:
        """The interpolation points, one row per epoch; all overlaps if these are few."""
        points = self._enough_points()
        if self.line.a.size > MOST_COLUMNS or points.size > MOST_POINTS:
            raise MethodError(
                f"the projection under random allocation keeps {self.line.a.size} columns and "
                f"{points.size} points of {self.line.epochs} epochs in memory, at most "
                f"{MOST_COLUMNS} and {MOST_POINTS}. Use another method."
            )
        return points

    def _enough_points(self) -> FloatArray:
        nodes = len(self.weights.t)
        some = sorted({*range(0, nodes, max(nodes // TRIED, 1)), nodes - 1})
        for count in POINTS:
            if count >= self.line.rows.shape[1]:
                return self.line.rows
            points = _points(self.line.rows, count)
            if np.all(self._missed(points, some) <= GOOD):
                break
        return points

    @cached_property
    def _functions(self) -> FloatArray:
        """Values of the interpolating polynomials, with axes epoch, column and point."""
        return _functions(self.line.rows, self.points)

    @cached_property
    def basis(self) -> FloatArray:
        """The basis: each column is one polynomial of one epoch."""
        epochs, length, count = self._functions.shape
        basis = np.zeros((epochs, length, epochs, count))
        basis[np.arange(epochs), :, np.arange(epochs)] = self._functions
        return basis.reshape(epochs * length, epochs * count)

    @cached_property
    def core(self) -> _Cores:
        """Pair sums at the points; within an epoch, as if all its columns were different."""
        weights = self.weights
        waves = np.exp(1j * np.multiply.outer(weights.gammas, self.points))
        return _Cores(
            self.line,
            self.points,
            weights.theta,
            self._known,
            weights.nodes,
            self._phases,
            waves,
        )

    @property
    def _known(self) -> BoolArray:
        """The nodes at which sums are known; elsewhere they are given as zero."""
        return np.asarray(np.any(self.weights.single != 0, axis=1))

    @cached_property
    def _phases(self) -> ComplexArray:
        return self.line.phases(self.weights.gammas)

    @cached_property
    def slots(self) -> tuple[FloatArray, FloatArray]:
        """The law of one draw in an epoch, by node, and log of the chance that none coincide."""
        return self.line.slots(self.weights.theta)

    @cached_property
    def quadratic_norm(self) -> FloatArray:
        """sqrt(T_2) as computed, in a loop over nodes because the cores are large."""
        return np.asarray(self._norm(self.weights.spare, self.core) / math.sqrt(2))

    def _norm(self, spare: FloatArray, cores: Cores) -> FloatArray:
        """|A' V A'^T| as computed, V = diag(spare) + Y M Y^T; a loop, because cores are large."""
        image = self.image
        squares = self.gram.power_sums(self.line.a, spare.T, [2])[0]
        total = np.einsum("ti,it->t", spare, squares)
        inner = self.basis.T @ image
        for i, v in enumerate(spare):
            core = cores[i]
            left = core @ inner
            total[i] += 2 * np.vdot(core, image.T @ (v[:, None] * image))
            total[i] += np.vdot(left.T, left)
        return np.asarray(np.sqrt(np.maximum(total, 0.0)))

    @cached_property
    def gain(self) -> FloatArray:
        """E Y'^2 - E Y^2 for Y = <A'_S, A'_S'> of the tilted law, rounded up.

        Y' is Y for independent draws with the same chances u_j / k, so both V are known at gamma =
        0, where the interpolation error is at most what is paid for over all gammas.
        """
        weights, line = self.weights, self.line
        twice = np.array([line.twice(law) for law in line.law(weights.theta)])
        twice = np.where(self._known[:, None], twice, 0.0)
        ones = np.ones((len(weights.t), 1), np.complex128)
        start = np.zeros((1, line.a.size), np.complex128)
        still = _Cores(
            line, self.points, weights.theta, self._known, ones, start, ones[:1, :, None]
        )
        sets = self._norm(weights.tilted - twice, still) * (1 - SLACK)
        draws = self._norm(weights.tilted, replace(still, repeated=True)) * (1 + SLACK)
        missed = self.residual / np.abs(weights.nodes[:, 0])
        gain = (draws + missed) ** 2 - np.maximum(sets - missed, 0.0) ** 2
        return np.where(self._known, gain, np.inf)

    def centred(self, vectors: FloatArray) -> FloatArray:
        """K x, where A'K has the columns A'_j minus their epoch's mean, plus a common column."""
        u = self._middle
        parts = vectors.reshape(*u.shape, vectors.shape[1])
        sums = np.sum(parts, axis=1)
        moved = sums - np.mean(sums, axis=0)
        return np.asarray((parts - u[:, :, None] * moved[:, None, :]).reshape(vectors.shape))

    def centred_back(self, vectors: FloatArray) -> FloatArray:
        """K^T x."""
        u = self._middle
        parts = vectors.reshape(*u.shape, vectors.shape[1])
        means = np.sum(u[:, :, None] * parts, axis=1)
        moved = means - np.mean(means, axis=0)
        return np.asarray((parts - moved[:, None, :]).reshape(vectors.shape))

    @cached_property
    def matrix(self) -> FloatArray:
        """G'."""
        return np.concatenate([rows for _, rows in self.gram.rest_rows(self.line.a)])

    @property
    def _middle(self) -> FloatArray:
        """The tilted law at the middle node, as each column's share of its epoch."""
        shape = self.line.rows.shape
        chances = self.weights.tilted[len(self.weights.t) // 2]
        return np.asarray(chances.reshape(shape) / self.line.times)

    @cached_property
    def residual(self) -> FloatArray:
        """Norm of the part of A' V A'^T that interpolation misses or rounding adds.

        |V - V~|_jl <= room u_j u_l makes it at most room (sum_j u_j |A'_j|)^2 / sqrt 2.
        """
        weights = self.weights
        room = weights.error.copy()
        if self.points.shape != self.line.rows.shape:
            room += self._missed(self.points, range(len(room)))
        own = weights.error * (weights.tilted @ self.diagonal)
        return np.asarray(room * self.reach**2 + own)

    @np.errstate(all="ignore")
    def _missed(self, points: FloatArray, nodes: Sequence[int]) -> FloatArray:
        """A bound on the error of interpolating V_jl in these points, relative to u_j u_l.

        Everything is a sum of powers x^i, x = o_j w_j, whose interpolation errors are measured.
        """
        weights, line = self.weights, self.line
        rows, times = line.rows, line.times
        waves = [np.exp(1j * np.multiply.outer(weights.gammas, p)) for p in (rows, points)]
        functions = _functions(rows, points).swapaxes(1, 2)
        found = np.empty(len(nodes))
        for i, node in enumerate(nodes):
            theta = float(weights.theta[node])
            chances = weights.tilted[node].reshape(rows.shape)
            table = line.coefficients(theta, self._phases)
            real = table[0].real
            exact, given = (
                line.odds(p, theta) * w for p, w in zip((rows, points), waves, strict=True)
            )
            powers, values = np.ones_like(exact), np.ones_like(given)
            missed = np.empty((*table.shape[:2], times))
            most = np.empty((line.epochs, times))
            for k in range(times):
                powers, values = powers * exact, values * given
                near = np.matmul(values.swapaxes(0, 1), functions).swapaxes(0, 1)
                missed[..., k] = np.max(np.abs(near - powers) / chances, axis=2)
                most[:, k] = np.max(np.abs(powers[0]) / chances, axis=1)
            size = real[:, times] / np.abs(table[:, :, times])
            alone, pairs = _terms(real)
            worst = np.max(np.einsum("gei,ei->ge", missed, alone) * size, axis=1)
            inside = np.einsum("gei,eil,el->ge", missed, pairs, most)
            inside = 2 * inside + np.einsum("gei,eil,gel->ge", missed, pairs, missed)
            inside = np.max(inside * size, axis=1)
            across = worst * (2 * np.max(size, axis=1) + worst)
            found[i] = np.abs(weights.nodes[node]) @ np.maximum(across, inside)
        return np.where(self._known[nodes], found, 0.0)


def _terms(real: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sizes of the coefficients of x^(i+1) in r_j and of x^(i+1) y^(l+1) in pairs, by epoch.

    They are P_(k-1-i) / P_k with the sign (-1)^i, and P_(k-2-i-l) / P_k with (-1)^(i+l).
    """
    times = real.shape[1] - 1
    ratios = real[:, ::-1] / real[:, -1:]
    sums = np.add.outer(np.arange(times), np.arange(times))
    pairs = ratios[:, np.minimum(sums + 2, times)] * (sums + 2 <= times)
    return ratios[:, 1:], np.asarray(pairs)


def _differences(odds: FloatArray, real: FloatArray) -> float:
    """Bound on the terms of r_j squared and of pairs at gamma = 0, relative to u_j and u_j u_l."""
    alone, pairs = _terms(real)
    orders = np.arange(alone.shape[1])
    powers = odds[..., None] ** (orders + 1)
    chances = powers @ (alone * (-1.0) ** orders)[..., None]
    most = np.max(powers / chances, axis=1)
    sizes = np.sum(most * alone, axis=1) ** 2, np.einsum("ei,eil,el->e", most, pairs, most)
    return float(np.max(sizes)) if np.all(chances > 0) else math.inf


def _points(rows: FloatArray, count: int) -> FloatArray:
    """Chebyshev points between the smallest and the largest overlap of every epoch."""
    low, high = np.min(rows, axis=1), np.max(rows, axis=1)
    return np.asarray(
        (0.5 * (low + high))[:, None] + np.multiply.outer(_half(rows), _chebyshev(count))
    )


def _half(rows: FloatArray) -> FloatArray:
    low, high = np.min(rows, axis=1), np.max(rows, axis=1)
    return np.asarray(np.maximum(0.5 * (high - low), 1e-9 * (high + low) + 1e-300))


def _chebyshev(count: int) -> FloatArray:
    return np.asarray(np.cos(math.pi * (np.arange(count) + 0.5) / count))


def _functions(rows: FloatArray, points: FloatArray) -> FloatArray:
    """Lagrange polynomials of the points at the overlaps, with axes epoch, column and point."""
    if points.shape == rows.shape:  # the points are the overlaps themselves
        return np.broadcast_to(np.eye(rows.shape[1]), (*rows.shape, rows.shape[1]))
    count = points.shape[1]
    centre = 0.5 * (np.min(rows, axis=1) + np.max(rows, axis=1))
    to_values = chebyshev.chebvander(_chebyshev(count), count - 1)
    places = (rows - centre[:, None]) / _half(rows)[:, None]
    powers = chebyshev.chebvander(places, count - 1)
    return np.asarray(np.linalg.solve(to_values.T, powers.reshape(-1, count).T).T).reshape(
        *rows.shape, count
    )
