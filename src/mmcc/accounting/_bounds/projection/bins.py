"""Balls-in-bins along one direction and orthogonal to it: every sum is explicit.

One of b equally likely components N(m_r, I) is drawn.  Columns of the Gram matrix are the m_r; sums
over participation sets are sums over r, so only rounding has to be bounded:
omega_r = e^(t a_r - a_r^2/2) / b, Z = m(t) = sum_r omega_r, V = diag(omega).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.projection.line import Side, Weights
from mmcc.accounting._bounds.projection.rest import SLACK, TINY, Rest
from mmcc.strategies._gram import DenseGram

UNIT = 2.0**-52


@dataclass(frozen=True, eq=False, slots=True)
class BinsLine:
    """The mechanism along the direction, given by the overlaps a_r of the components."""

    a: FloatArray

    def tail(self, t: float, side: Side) -> tuple[float, float]:
        """P(T > t), or P(T <= t): the computed value and a bound on its error."""
        shifts = self.a - t if side == "above" else t - self.a
        value = float(np.mean(special.ndtr(shifts)))
        # scipy's normal tails are accurate to 1e-13; the mean adds a rounding per component.
        return value, value * (1e-12 + self.a.size * UNIT)

    def weights(self, t: FloatArray) -> Weights:
        """omega_r / m(t) at each t."""
        exponents = np.multiply.outer(t, self.a) - 0.5 * self.a**2
        top = np.max(exponents, axis=1)
        terms = np.exp(exponents - top[:, None])
        totals = np.sum(terms, axis=1)
        shares = terms / totals[:, None]
        log_scale = top + np.log(totals / self.a.size)
        sizes = np.max(np.abs(exponents), axis=1)
        return Weights(
            t=t,
            theta=t - float(np.max(self.a)),
            log_scale=log_scale,
            exponent=log_scale - 0.5 * t**2,
            tilted=shares,
            error=(8 * sizes + self.a.size + 64) * UNIT,
            mass=np.ones(len(t)),
            single=shares,
            spare=shares,
            nodes=np.empty((len(t), 0), np.complex128),
            gammas=np.empty(0),
        )

    def chernoff(self, t: FloatArray) -> FloatArray:
        """The logarithm of P(T > t)."""
        logs = special.log_ndtr(self.a - t[:, None])
        return np.asarray(special.logsumexp(logs, axis=1) - math.log(self.a.size))


@dataclass(eq=False)
class BinsRest(Rest):
    """What is left orthogonal to the direction: V is diagonal."""

    gram: DenseGram

    @cached_property
    def basis(self) -> FloatArray:
        """Empty: no basis is needed."""
        return np.empty((self.line.a.size, 0))

    @cached_property
    def core(self) -> FloatArray:
        """Empty: V is its diagonal."""
        return np.empty((len(self.weights.t), 0, 0))

    @cached_property
    def quadratic_norm(self) -> FloatArray:
        """T_2 = (1/2) sum_rs omega_r omega_s H'_rs^2."""
        shares = self.weights.single
        squares = self.gram.power_sums(self.line.a, shares.T, [2])[0]
        return np.asarray(np.sqrt(0.5 * np.einsum("tr,rt->t", shares, squares)))

    @cached_property
    def residual(self) -> FloatArray:
        """What rounding of the weights and of H' can add to the norm of A' V A'^T."""
        relative = 2 * self.weights.error + 16 * self.gram.error
        return np.asarray(relative * float(np.max(self.gram.diagonal())) + TINY)

    def higher(self, s: float) -> FloatArray:
        """sum_(r >= 2) s^r T_r = sum omega omega' psi(s H'), psi(x) = e^x - 1 - x, rounded up.

        Rounding of H' is paid for by |psi(x + e) - psi(x)| <= |e| (psi(x) + |x|) (1 + |e|), and
        that of the difference of e^x - 1 and x by 2^-52 |x|.
        """
        shares = self.weights.single
        total = np.zeros(len(self.weights.t))
        for rows, rest in self.gram.rest_rows(self.line.a):
            rest *= s
            if float(np.max(rest)) > 600.0:
                return np.full(len(total), np.inf)
            psi = np.maximum(np.expm1(rest) - rest, 0.0)
            total += np.einsum("tr,rt->t", shares[:, rows], psi @ shares.T)
        largest = s * float(np.max(self.gram.diagonal()))
        room = (32 * self.gram.error + 1e-14) * largest
        error = room * (total + 2 * largest) * math.exp(min(room, 1.0)) + UNIT * largest
        return np.asarray((total + error) * (1 + SLACK + 2 * self.weights.error))
