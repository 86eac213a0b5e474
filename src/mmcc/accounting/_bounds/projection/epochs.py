"""Random allocation along one direction and beside it: one column of every epoch.

In every epoch of t columns one is drawn, all as likely, so that e^(z a_S) has the mean
prod_e mean_(j in e) e^(z a_j), and the tilted law draws j in its epoch with chance u_j.  Pair sums
V_jl vanish within an epoch but for V_jj = v_j; across epochs they are contour integrals, which
are interpolated in the overlap a.  Proofs: docs/theory-allocation-projection.md.  Rounding: `Rest`
rounds up, the line states its errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import chebyshev

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.projection.line import Contour
from mmcc.accounting._bounds.projection.rest import Rest
from mmcc.errors import MethodError
from mmcc.strategies._gram import DenseGram

POINTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 28)
"""Numbers of interpolation points in an epoch that are tried; the smallest that is good enough."""
GOOD = 1e-11
"""What interpolation may miss, relative to u_j u_l."""
MOST_COLUMNS, MOST_POINTS = 6000, 1200
"""More columns take too much memory, more points of all epochs together too much time."""
TRIED = 4
"""At so many nodes that is looked at; at all of them it is measured and paid for."""


@dataclass(frozen=True, eq=False, slots=True)
class EpochLine(Contour):
    """Overlaps of all columns, epoch after epoch, and how many epochs there are."""

    epochs: int

    @property
    def rows(self) -> FloatArray:
        """The overlaps, one epoch a row."""
        return self.a.reshape(self.epochs, -1)

    @property
    def largest(self) -> float:
        return float(np.sum(np.max(self.rows, axis=1)))

    def cumulant(self, theta: FloatArray) -> FloatArray:
        rows = self.rows
        return np.asarray(np.sum(self._log_sums(theta), axis=-1)) - self.epochs * math.log(
            rows.shape[1]
        )

    def tilted(self, theta: FloatArray) -> FloatArray:
        return self.densities(self.rows, theta).reshape(*np.shape(theta), -1)

    def densities(self, points: FloatArray, theta: FloatArray) -> FloatArray:
        """e^(theta x) / sum_(l in e) e^(theta a_l) at points x, a row of them an epoch e."""
        return np.asarray(
            np.exp(np.multiply.outer(theta, points) - self._log_sums(theta)[..., None])
        )

    def means(self, u: FloatArray, gammas: FloatArray) -> ComplexArray:
        """sum_(j in e) u_j e^(i gamma a_j): one table (gamma, epoch) for each row of u."""
        phases = self._phases(gammas)
        return np.array([self._means(row, phases) for row in u])

    def _log_sums(self, theta: FloatArray) -> FloatArray:
        """Log sum_(j in e) e^(theta a_j) for every epoch."""
        x = np.multiply.outer(theta, self.rows)
        top = np.max(x, axis=-1)
        return np.asarray(top + np.log(np.sum(np.exp(x - top[..., None]), axis=-1)))

    def _means(self, u: FloatArray, phases: ComplexArray) -> ComplexArray:
        """sum_(j in e) u_j e^(i gamma a_j): a row for each gamma."""
        moved = (u * phases).reshape(len(phases), self.epochs, -1)
        return np.asarray(1 + np.sum(moved, axis=2))

    def _moments(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        shares = u.reshape(*u.shape[:-1], self.epochs, -1)
        means = np.sum(shares * self.rows, axis=-1)
        spread = np.sum(shares * (self.rows - means[..., None]) ** 2, axis=(-2, -1))
        return np.sum(means, axis=-1), np.asarray(spread)

    def _products(self, u: FloatArray, phases: ComplexArray) -> ComplexArray:
        return np.asarray(np.prod(self._means(u, phases), axis=1))

    def _participation(
        self, u: FloatArray, phases: ComplexArray, nodes: ComplexArray
    ) -> tuple[FloatArray, FloatArray, float]:
        """An epoch's mean D has an absolute error, and pair sums are divided by two of them.

        With x the largest 1 / |D| at a node, the relative errors of all epochs together are x
        times those of a factor of size one.
        """
        means = self._means(u, phases)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            shares = nodes[:, None] / means
            worst = np.max(1 / np.abs(means), axis=1)
            size = float(np.sum(np.abs(nodes) * worst**3))
        length = u.size // self.epochs
        waves = np.sum(np.repeat(shares, length, axis=1) * (1 + phases), axis=0)
        single = u * waves.real
        return single, single, size if size >= 0 else math.inf  # also for NaN

    def _rounded(self, u: FloatArray) -> float:
        """One mean an epoch; phases gamma a_j have rounding errors of their own."""
        return self.epochs + self.largest

    def _cumulant_size(self, theta: float) -> float:
        return abs(theta) * self.largest + self.epochs * math.log(self.rows.shape[1])

    def _given(self, sign: float) -> float:
        """A given member takes another one's place."""
        return 2 * float(np.max(self.a))


@dataclass(frozen=True, eq=False, slots=True)
class _Cores:
    """Pair sums at points, zero within an epoch: one matrix a node, made when it is asked for."""

    densities: FloatArray
    waves: ComplexArray
    means: ComplexArray
    nodes: ComplexArray

    def __getitem__(self, node: int) -> FloatArray:
        ratios = self.densities[node] * self.waves / self.means[node][:, :, None]
        flat = ratios.reshape(len(ratios), -1)
        scaled = (flat * self.nodes[node][:, None]).T
        epochs, count = self.waves.shape[1:]
        outside = np.repeat(np.repeat(1 - np.eye(epochs), count, axis=0), count, axis=1)
        return np.asarray((scaled.real @ flat.real - scaled.imag @ flat.imag) * outside)


@dataclass(eq=False)
class EpochRest(Rest):
    """What is left beside the direction: pair sums across epochs, interpolated in each epoch."""

    gram: DenseGram
    line: EpochLine

    @cached_property
    def points(self) -> FloatArray:
        """Where pair sums are interpolated, a row an epoch; all overlaps where those are few."""
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
        """Values of the interpolating polynomials: epoch, column, point."""
        return _functions(self.line.rows, self.points)

    @cached_property
    def basis(self) -> FloatArray:
        """One polynomial of one epoch a column."""
        epochs, length, count = self._functions.shape
        basis = np.zeros((epochs, length, epochs, count))
        basis[np.arange(epochs), :, np.arange(epochs)] = self._functions
        return basis.reshape(epochs * length, epochs * count)

    @cached_property
    def core(self) -> _Cores:
        """Pair sums at the points, zero within an epoch."""
        weights = self.weights
        return _Cores(
            self.line.densities(self.points, weights.theta),
            np.exp(1j * np.multiply.outer(weights.gammas, self.points)),
            self._means,
            weights.nodes,
        )

    @cached_property
    def _means(self) -> ComplexArray:
        """Means of every epoch: node, gamma, epoch."""
        return self.line.means(self.weights.tilted, self.weights.gammas)

    @cached_property
    def quadratic_norm(self) -> FloatArray:
        """sqrt(T_2) as computed: a loop over nodes, for the cores are large."""
        image, single = self.image, self.weights.single
        squares = self.gram.power_sums(self.line.a, single.T, [2])[0]
        total = np.einsum("ti,it->t", single, squares)
        inner = self.basis.T @ image
        for i, v in enumerate(single):
            core = self.core[i]
            left = core @ inner
            total[i] += 2 * np.vdot(core, image.T @ (v[:, None] * image))
            total[i] += np.vdot(left.T, left)
        return np.asarray(np.sqrt(0.5 * np.maximum(total, 0.0)))

    def centred(self, vectors: FloatArray) -> FloatArray:
        """K x: with it A'K has the columns A'_j less the mean of their epoch, plus a common one."""
        epochs, u = self._middle
        parts = vectors.reshape(epochs, -1, vectors.shape[1])
        sums = np.sum(parts, axis=1)
        moved = sums - np.mean(sums, axis=0)
        return np.asarray((parts - u[:, :, None] * moved[:, None, :]).reshape(vectors.shape))

    def centred_back(self, vectors: FloatArray) -> FloatArray:
        """K^T x."""
        epochs, u = self._middle
        parts = vectors.reshape(epochs, -1, vectors.shape[1])
        means = np.sum(u[:, :, None] * parts, axis=1)
        moved = means - np.mean(means, axis=0)
        return np.asarray((parts - moved[:, None, :]).reshape(vectors.shape))

    @cached_property
    def matrix(self) -> FloatArray:
        """G'."""
        return np.concatenate([rows for _, rows in self.gram.rest_rows(self.line.a)])

    @property
    def _middle(self) -> tuple[int, FloatArray]:
        """The tilted law of the node in the middle."""
        shape = self.line.rows.shape
        return shape[0], self.weights.tilted[len(self.weights.t) // 2].reshape(shape)

    @cached_property
    def residual(self) -> FloatArray:
        """Norm of the part of A' V A'^T that interpolation misses, or that rounding adds.

        |V - V~|_jl <= room u_j u_l makes it at most room (sum_j u_j |A'_j|)^2 / sqrt 2.
        """
        weights = self.weights
        room = weights.error.copy()
        if self.points.shape != self.line.rows.shape:
            room += self._missed(self.points, range(len(room)))
        own = weights.error * (weights.tilted @ self.diagonal)
        return np.asarray(room * self.reach**2 + own)

    def _missed(self, points: FloatArray, nodes: Sequence[int]) -> FloatArray:
        """A bound on what interpolation in these points misses of V_jl, relative to u_j u_l."""
        weights, rows = self.weights, self.line.rows
        exact = np.exp(1j * np.multiply.outer(weights.gammas, rows))
        waves = np.exp(1j * np.multiply.outer(weights.gammas, points))
        functions = _functions(rows, points).swapaxes(1, 2)
        found = np.empty(len(nodes))
        for i, node in enumerate(nodes):
            densities = self.line.densities(points, weights.theta[node])
            u = weights.tilted[node].reshape(rows.shape)
            near = np.matmul((densities * waves).swapaxes(0, 1), functions).swapaxes(0, 1)
            size = 1 / np.abs(self._means[node])
            worst = np.max(np.max(np.abs(near / u - exact), axis=2) * size, axis=1)
            size = np.max(size, axis=1)
            found[i] = np.abs(weights.nodes[node]) @ (worst * (2 * size + worst))
        return found


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
    """Lagrange polynomials of the points at the overlaps: epoch, column, point."""
    if points.shape == rows.shape:  # all overlaps themselves
        return np.broadcast_to(np.eye(rows.shape[1]), (*rows.shape, rows.shape[1]))
    count = points.shape[1]
    centre = 0.5 * (np.min(rows, axis=1) + np.max(rows, axis=1))
    to_values = chebyshev.chebvander(_chebyshev(count), count - 1)
    places = (rows - centre[:, None]) / _half(rows)[:, None]
    powers = chebyshev.chebvander(places, count - 1)
    return np.asarray(np.linalg.solve(to_values.T, powers.reshape(-1, count).T).T).reshape(
        *rows.shape, count
    )
