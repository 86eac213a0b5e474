"""What is left orthogonal to the direction: the first two chaos norms of X_t, and lengths.

In: the Gram matrix, overlaps a, weights at each t.  Out, in units of Z^2 at each t:

    linear     T_1 = |A' v|^2                                  v_j = sum_(S with j) omega_S
    quadratic  T_2 = tr(V G' V G') / 2                         V_jl = sum_(S with j, l) omega_S

T_r = (1/r!) sum_(S, S') omega_S omega_S' <A'_S, A'_S'>^r is the squared norm of the r-th Hermite
chaos.  Proofs: docs/theory.md.  Rounding: upwards, see SLACK.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.polynomial import chebyshev

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.projection.line import AnyLine, Line, Weights
from mmcc.strategies._gram import Gram

BASIS = 28
"""The number of Chebyshev points in the overlap a; the residual is measured and paid for."""
SLACK = 1e-9
"""Relative margin for rounding in sums of up to 12,000 terms, at most 1e-11 each."""
TINY = 1e-25
TOP = 96
"""Entries of a row of G' that are sorted; further ones count as the mean of these."""


class Cores(Protocol):
    """A sequence with one matrix per node."""

    def __getitem__(self, node: int, /) -> FloatArray: ...


@dataclass(eq=False)
class Rest(ABC):
    """The rest of a mechanism orthogonal to one direction, at every t of `weights`."""

    gram: Gram
    line: AnyLine
    weights: Weights
    direction: FloatArray

    @property
    @abstractmethod
    def basis(self) -> FloatArray:
        """Y with V = diag(spare) + Y M Y^T; each column is a function of a."""

    @property
    @abstractmethod
    def core(self) -> Cores:
        """The matrix M at each node."""

    @property
    @abstractmethod
    def quadratic_norm(self) -> FloatArray:
        """sqrt(T_2) as computed, without margins."""

    @property
    @abstractmethod
    def residual(self) -> FloatArray:
        """Norm of the part of A' V A'^T that basis and core miss, or that rounding adds."""

    @cached_property
    def linear(self) -> FloatArray:
        """T_1 = |A'v|^2, rounded up."""
        return np.asarray((self._linear_parts[0] * (1 + SLACK) + self.linear_error) ** 2)

    @cached_property
    def _linear_parts(self) -> tuple[FloatArray, FloatArray]:
        """|A'(v - c w)|, which equals |A'v| for any c since A'w = 0, and the size of its terms.

        If v is near c w, there is little cancellation.
        """
        counts, w = self.gram.counts, self.direction
        v = self.weights.single
        c = (v @ (counts * w)) / float((counts * w) @ w)
        left = v - np.multiply.outer(c, w)
        norms = np.einsum("ti,it->t", left * counts, self.gram.rest_product(self.line.a, left.T))
        size = np.einsum("ti,it->t", np.abs(left) * counts, self.gram.product(np.abs(left).T))
        return np.sqrt(np.maximum(norms, 0.0)), size

    @cached_property
    def linear_error(self) -> FloatArray:
        """Bound on the error of |A'v| as computed, from errors of v and of G'."""
        room = (16 * self.gram.error + 1e-14) * self._linear_parts[1] + TINY
        return np.asarray(self.weights.error * self.reach + np.sqrt(room))

    @cached_property
    def reach(self) -> FloatArray:
        """A bound on sum_j u_j |A'_j|."""
        return np.asarray((self.weights.tilted * np.sqrt(self.diagonal)) @ self.gram.counts)

    @cached_property
    def trace(self) -> FloatArray:
        """tr(V G') = sum_S omega_S |A'_S|^2, rounded up, in units of Z."""
        counts, spare = self.gram.counts, self.weights.spare
        own = np.maximum(self.gram.diagonal() - self.line.a**2, 0.0)
        inner = (self.basis * counts[:, None]).T @ self.image
        total = (spare * counts) @ own
        total += [np.vdot(self.core[i], inner.T) for i in range(len(total))]
        size = np.abs(spare * counts) @ self.gram.diagonal()
        return np.asarray(np.maximum(total, 0.0) * (1 + SLACK) + self.residual + 1e-12 * size)

    @cached_property
    def image(self) -> FloatArray:
        """The product G' Y."""
        return self.gram.rest_product(self.line.a, self.basis)

    def centred(self, vectors: FloatArray) -> FloatArray:
        """K x, for a K that makes the columns of A'K shorter; any K is valid."""
        return vectors

    def centred_back(self, vectors: FloatArray) -> FloatArray:
        """The product K^T x."""
        return vectors

    @cached_property
    def quadratic(self) -> FloatArray:
        """T_2, including the residual of interpolation."""
        with np.errstate(over="ignore"):  # infinite: no bound
            return np.asarray((self.quadratic_norm * (1 + SLACK) + self.residual) ** 2 + TINY)

    @cached_property
    def lower_quadratic(self) -> FloatArray:
        """T_2, rounded down."""
        norm = self.quadratic_norm * (1 - SLACK) - self.residual
        return np.asarray(np.maximum(norm, 0.0) ** 2)

    @cached_property
    def diagonal(self) -> FloatArray:
        """A bound on |A'_j|^2, the same for all j."""
        return np.full(self.line.a.size, self.tops[0] * (1 + SLACK) + TINY)

    @cached_property
    def tops(self) -> FloatArray:
        """Bounds on the sum of the k largest positive entries of any row of G', k = 1, 2, ..."""
        return self.gram.top_sums(self.line.a, TOP) * (1 + SLACK) + TINY

    def top_sum(self, sizes: FloatArray) -> FloatArray:
        """A bound on the sum of the k largest positive entries of any row of G'.

        Beyond TOP each entry is at most the mean of the TOP largest of its row.
        """
        tops = np.concatenate([[0.0], self.tops])
        inside = np.minimum(sizes, tops.size - 1).astype(np.int64)
        return np.asarray(tops[inside] + (sizes - inside) * (tops[-1] / self.tops.size))

    def square_length(self, sizes: FloatArray) -> FloatArray:
        """A bound on |A'_S|^2 for |S| = k: k times the k largest entries of a row."""
        return np.asarray(sizes * self.top_sum(sizes))


@dataclass(eq=False)
class PoissonRest(Rest):
    """Poisson sampling: pair sums are interpolated in the overlap a."""

    line: Line

    @cached_property
    def basis(self) -> FloatArray:
        """Lagrange polynomials at Chebyshev points of a, one per column; or the unit vectors."""
        a = self.line.a
        if a.size <= BASIS:
            return np.eye(a.size)
        centre, half = 0.5 * (a.min() + a.max()), 0.5 * (a.max() - a.min())
        half = max(half, 1e-9 * centre)
        points = np.cos(math.pi * (np.arange(BASIS) + 0.5) / BASIS)
        to_values = chebyshev.chebvander(points, BASIS - 1)
        return np.asarray(
            np.linalg.solve(to_values.T, chebyshev.chebvander((a - centre) / half, BASIS - 1).T).T
        )

    @cached_property
    def points(self) -> FloatArray:
        """The overlaps at which the basis interpolates."""
        a = self.line.a
        if a.size <= BASIS:
            return a
        centre, half = 0.5 * (a.min() + a.max()), 0.5 * (a.max() - a.min())
        half = max(half, 1e-9 * centre)
        return np.asarray(centre + half * np.cos(math.pi * (np.arange(BASIS) + 0.5) / BASIS))

    @cached_property
    def core(self) -> FloatArray:
        """M with V = diag(spare) + Y M Y^T, one matrix per node."""
        weights = self.weights
        sub = Line(self.points, np.ones(self.points.size), self.line.p)
        u, phases = sub.tilted(weights.theta), sub.phases(weights.gammas)
        cores = np.empty((len(weights.t), self.points.size, self.points.size))
        for i in range(len(weights.t)):
            ratios = sub.ratios(u[i], phases)
            cores[i] = ((ratios.T * weights.nodes[i]) @ ratios).real
        return cores

    @cached_property
    def quadratic_norm(self) -> FloatArray:
        """sqrt(T_2) as computed, with V interpolated."""
        counts, spare, image, core = self.gram.counts, self.weights.spare, self.image, self.core
        squares = self.gram.power_sums(self.line.a, spare.T, [2])[0]
        heavy = spare * counts
        inner = (self.basis * counts[:, None]).T @ image
        left = core @ inner
        total = np.einsum("ti,it->t", heavy, squares)
        outer = (image[:, :, None] * image[:, None, :]).reshape(len(counts), -1)
        total += 2 * np.einsum("tq,tq->t", heavy @ outer, core.reshape(len(core), -1))
        total += np.einsum("tqr,trq->t", left, left)
        return np.asarray(np.sqrt(0.5 * np.maximum(total, 0.0)))

    @cached_property
    def residual(self) -> FloatArray:
        """Norm of the part of A' V A'^T that the basis misses, or that rounding adds.

        |V - V~|_jl <= room u_j u_l makes it at most room (sum_j u_j |A'_j|)^2 / sqrt 2.
        """
        weights = self.weights
        room = weights.error.copy()
        if self.line.a.size > BASIS:
            sub = Line(self.points, np.ones(self.points.size), self.line.p)
            u, phases = sub.tilted(weights.theta), sub.phases(weights.gammas)
            all_phases = self.line.phases(weights.gammas)
            for i in range(len(weights.t)):
                exact = self.line.ratios(weights.tilted[i], all_phases)
                missed = np.abs(sub.ratios(u[i], phases) @ self.basis.T - exact)
                worst = np.max(missed / weights.tilted[i], axis=1)
                size = np.max(np.abs(exact) / weights.tilted[i], axis=1)
                room[i] += float(np.abs(weights.nodes[i]) @ (worst * (2 * size + worst)))
        # The diagonal of V has the error of v, in units of u_j only.
        own = weights.error * ((weights.tilted * self.diagonal) @ self.gram.counts)
        return np.asarray(room * self.reach**2 + own)
