"""The mechanism along one direction d: a scalar Gaussian mixture, computed to many digits.

In: overlaps a_j = <d, A_j> >= 0 and the law of the participation set S.  Under P the coordinate
t = <d, y> is a_S + N(0, 1); under Q it is N(0, 1).

With L(z) = log E e^(z a_S), which is sum_j log(1 - p + p e^(z a_j)) for Poisson sampling with
probability p, everything is an integral along theta + i gamma, where theta + L'(theta) = t.  The
trapezoidal rule with step h errs upwards: by Poisson summation its error is a sum of non-negative
copies a period 2 pi / h away, which Chernoff's bound makes small.

Rounding: `tail` returns a value and the error on both sides of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc._methods import MMCC
from mmcc.accounting._bounds.projection.phases import participation, relative_products
from mmcc.errors import PrecisionError
from mmcc.sampling import Allocation

CUT = 9.5
"""The Gaussian factor exp(-gamma^2 / 2) is below 2^-65 from here on."""
ALIAS = 1e-16
"""What the copies a period away may add, relative to the saddle point's value."""
MAX_NODES = 20_000
LARGE = 30.0
NEWTON_STEPS = 80
TILTS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)

Side = Literal["above", "below"]
Chance = float | None | Allocation
"""How likely each column is; None means exactly one column, all equally likely (balls-in-bins).

An allocation means a fixed number of columns from every epoch, all sets equally likely.
"""


@dataclass(frozen=True, eq=False, slots=True)
class Weights:
    """Sums of omega_S = pi_S e^(t a_S - a_S^2/2) at each t, divided by Z.

    Z = e^((t - theta)^2/2 + L(theta)).

    `mass` = sum_S omega_S, `single` = sum_(S with j) omega_S.  Pairs j != l are contour integrals
    of a function of a_j and a_l (`sum_k nodes_k r_k(a_j) r_k(a_l)` for Poisson sampling); `spare`
    is `single` minus that function at j = l.
    """

    t: FloatArray
    theta: FloatArray
    log_scale: FloatArray
    """log Z."""
    exponent: FloatArray
    """log of phi(t) Z sqrt(2 pi): Chernoff's bound on P(T > t) for theta > 0."""
    tilted: FloatArray
    """u_j such that omega_S is at most Z times the chance of S if j is in S with chance u_j.

    Under Poisson sampling members are independent: prod_(j in S) u_j prod_(j not in S) (1 - u_j).
    """
    error: FloatArray
    """Error in units of Z: of `mass`; times u_j, of `single`; times u_j u_l, of double sums."""
    mass: FloatArray
    single: FloatArray
    spare: FloatArray
    nodes: ComplexArray
    gammas: FloatArray


class AnyLine(Protocol):
    """The mechanism along one direction, whatever the law of the participation set."""

    @property
    def a(self) -> FloatArray:
        """The overlaps, by class."""
        ...

    def tail(self, t: float, side: Side) -> tuple[float, float]:
        """P(T > t), or P(T <= t): the computed value and a bound on its error."""
        ...

    def weights(self, t: FloatArray) -> Weights:
        """Sums over all participation sets at each t."""
        ...

    def chernoff(self, t: FloatArray) -> FloatArray:
        """Log of a bound on P(T > t)."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Contour(ABC):
    """A line whose sums over participation sets are contour integrals."""

    a: FloatArray

    @property
    @abstractmethod
    def largest(self) -> float:
        """A bound on a_S."""

    @abstractmethod
    def cumulant(self, theta: FloatArray) -> FloatArray:
        """L(theta) for real theta."""

    @abstractmethod
    def tilted(self, theta: FloatArray) -> FloatArray:
        """u_j, the chance of j under the law of S tilted by e^(theta a_S): one row per theta."""

    def law(self, theta: FloatArray) -> FloatArray:
        """The chances from which the tilted law is computed, with one row per theta."""
        return self.tilted(theta)

    @abstractmethod
    def _moments(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The mean and roughly the variance of a_S under the tilted law."""

    @abstractmethod
    def _products(self, law: FloatArray, phases: ComplexArray) -> ComplexArray:
        """E e^(i gamma a_S) under the tilted law, for every gamma, the first of which is 0."""

    @abstractmethod
    def _participation(
        self, law: FloatArray, phases: ComplexArray, nodes: ComplexArray
    ) -> tuple[FloatArray, FloatArray, float | None]:
        """`single` and `spare` of `Weights`; the size of pair sums relative to u_j u_l.

        Rounding errors are proportional to that size.  If it is None nothing is known: both arrays
        are 0, and so are all pair sums.
        """

    @abstractmethod
    def _rounded(self, u: FloatArray) -> float:
        """Rounding errors of powers and phases, all factors together, in units of about 2^-48."""

    @abstractmethod
    def _cumulant_size(self, theta: float) -> float:
        """The size of the terms of L(theta)."""

    @abstractmethod
    def _given(self, sign: float) -> float:
        """The most that a_S moves up or down once two of its members are given."""

    def saddle(self, t: FloatArray) -> FloatArray:
        """The theta with theta + L'(theta) = t; any theta is valid, and this one is best."""
        low, high = t - self.largest, t.copy()
        theta = 0.5 * t
        for _ in range(NEWTON_STEPS):
            mean, variance = self._moments(theta)
            excess = theta + mean - t
            low, high = np.where(excess < 0, theta, low), np.where(excess < 0, high, theta)
            step = theta - excess / (1 + variance)
            step = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
            moved = float(np.max(np.abs(step - theta)))
            theta = step
            if moved <= 1e-9 * (1 + float(np.max(np.abs(t)))):
                break
        return theta

    def tail(self, t: float, side: Side) -> tuple[float, float]:
        """P(T > t), or P(T <= t): the computed value and a bound on its error."""
        sign = 1.0 if side == "above" else -1.0
        saddle = float(self.saddle(np.array([t]))[0])
        if sign * saddle >= 0:
            return self._tail(t, sign, sign * max(sign * saddle, 0.25))
        value, error = self._tail(t, -sign, -sign * max(-sign * saddle, 0.25))
        return 1 - value, error + 2.0**-52

    def _tail(self, t: float, sign: float, theta: float) -> tuple[float, float]:
        """(1/2pi) int e^(z^2/2 + L(z) - z t) / (+-z) d gamma along Re z = theta, +-theta > 0."""
        level = float(self._exponent(theta, t))
        # Copies on the near side: e^(-|theta| P j); on the far side Chernoff at theta +- tau.
        near = (math.log(1 / ALIAS) - level) / abs(theta)
        gains = self._exponent(theta + sign * np.array(TILTS), t) - level
        far = float(np.min((gains + math.log(1 / ALIAS)) / np.array(TILTS)))
        period = max(near, far, 8.0)
        if level > 700 or period > 2 * math.pi * MAX_NODES / CUT:
            return 0.0, math.inf  # beyond the range of floats: no bound
        gammas = self._gammas(period)
        law = self.law(np.array([theta]))[0]
        products = self._products(law, self.phases(gammas))
        b = t - theta
        terms = np.exp(-0.5 * gammas**2 - 1j * gammas * b) * products
        terms /= sign * (theta + 1j * gammas)
        step = gammas[1] - gammas[0]
        total = step / (2 * math.pi) * (terms[0].real + 2 * float(np.sum(terms[1:].real)))
        size = self._roundoff(theta, t) + 3 * ALIAS
        scale = math.exp(level)
        return scale * total, scale * (abs(total) * size + size / abs(theta))

    def weights(self, t: FloatArray) -> Weights:
        """Sums over all participation sets at each t."""
        theta = self.saddle(t)
        b = t - theta
        cumulant = self.cumulant(theta)
        gammas = self._gammas(self._period(theta, b, cumulant))
        phases = self.phases(gammas)
        step = gammas[1] - gammas[0]
        tilted = self.tilted(theta)
        nodes = np.exp(-0.5 * gammas**2 - 1j * np.multiply.outer(b, gammas))
        nodes *= step / math.sqrt(2 * math.pi)
        nodes[:, 1:] *= 2
        single, spare = np.empty_like(tilted), np.empty_like(tilted)
        # Aliasing and cut-off, then one rounding a factor and those of powers and phases; relative
        # to the sum of absolute values.
        factors = self._rounded(tilted)
        unit = 4 * ALIAS + (16 * self.a.size + 64 * factors + 4096) * 2.0**-52
        error = np.empty(len(t))
        for i, law in enumerate(self.law(theta)):
            nodes[i] *= self._products(law, phases)
            single[i], spare[i], size = self._participation(law, phases, nodes[i])
            # Chances are between 0 and u_j, those of pairs between 0 and u_j u_l.
            error[i] = 1.0 if size is None else unit * (2 + size)
        return Weights(
            t=t,
            theta=theta,
            log_scale=0.5 * b**2 + cumulant,
            exponent=0.5 * theta**2 - theta * t + cumulant,
            tilted=tilted,
            error=error,
            mass=np.sum(nodes.real, axis=1),
            single=single,
            spare=spare,
            nodes=nodes,
            gammas=gammas,
        )

    def chernoff(self, t: FloatArray) -> FloatArray:
        """Log of Chernoff's bound on P(T > t), at the best tilt; 0 below the mean."""
        theta = self.saddle(t)
        exponent = 0.5 * theta**2 - theta * t + self.cumulant(theta)
        return np.where(theta > 0, np.minimum(exponent, 0.0), 0.0)

    def _exponent(self, theta: FloatArray | float, t: float) -> FloatArray:
        theta = np.asarray(theta, dtype=float)
        return 0.5 * theta**2 - theta * t + self.cumulant(theta)

    def _period(self, theta: FloatArray, b: FloatArray, cumulant: FloatArray) -> float:
        """A period at which copies are below ALIAS: a_S is rarely half a period from its mean.

        Copies weigh exp(-(a_S - b - P k)^2 / 2) under the tilted law: at most exp(-P^2 / 8) plus
        the chance that |a_S - b| > P / 2, for which Chernoff's bound is solved for P.  Given that
        two steps are in S, a_S moves by no more than `_given`.
        """
        wanted = math.log(4 / ALIAS)
        halves = [math.sqrt(2 * wanted)]
        for sign in (1.0, -1.0):
            costs = [
                (self.cumulant(theta + sign * tau) - cumulant - sign * tau * b + wanted) / tau
                for tau in TILTS
            ]
            halves.append(float(np.max(np.min(costs, axis=0))) + self._given(sign))
        return 2 * max(halves)

    def _gammas(self, period: float) -> FloatArray:
        """Nodes from 0 to the cut for a trapezoid of the given period."""
        step = 2 * math.pi / period
        count = math.ceil(CUT / step) + 2
        if not count <= MAX_NODES:
            raise PrecisionError(
                f"the participation sums would need {count:.2g} nodes: the noise is too small "
                f"against the columns of the strategy. Use a larger sigma, or method={MMCC!r}."
            )
        return np.asarray(step * np.arange(count, dtype=np.float64))

    def phases(self, gammas: FloatArray) -> ComplexArray:
        """e^(i gamma a_j) - 1, with one row per gamma."""
        x = np.multiply.outer(gammas, self.a)
        return np.asarray(-2 * np.sin(0.5 * x) ** 2 + 1j * np.sin(x))

    def _roundoff(self, theta: float, t: float) -> float:
        """Rounding error relative to the peak: one rounding per factor, and the exponent's."""
        size = 0.5 * theta**2 + abs(theta * t) + self._cumulant_size(theta)
        size += 4 * self._rounded(self.tilted(np.array(theta)))
        return (8 * self.a.size + 64 + 8 * size) * 2.0**-52


@dataclass(frozen=True, eq=False, slots=True)
class Line(Contour):
    """The line under Poisson sampling: overlaps, columns in each class, sampling probability."""

    counts: FloatArray
    p: float

    @property
    def largest(self) -> float:
        return float(self.a @ self.counts)

    def cumulant(self, theta: FloatArray) -> FloatArray:
        """L(theta) for real theta."""
        x = np.multiply.outer(theta, self.a)
        if self.p == 1.0:
            return np.asarray(x @ self.counts)
        change = self.p * np.expm1(np.minimum(x, LARGE))
        small = np.log1p(np.maximum(change, -0.5))
        if (change < -0.5).any():  # 1 + change would cancel; a sum of positive numbers does not
            small = np.where(
                change < -0.5, np.log(1 - self.p + self.p * np.exp(np.minimum(x, 0.0))), small
            )
        if (x > LARGE).any():
            over = np.maximum(x, LARGE)
            large = over + math.log(self.p) + np.log1p((1 - self.p) / self.p * np.exp(-over))
            small = np.where(x > LARGE, large, small)
        return np.asarray(small @ self.counts)

    def tilted(self, theta: FloatArray) -> FloatArray:
        """u_j = p e^(theta a_j) / (1 - p + p e^(theta a_j)), a row for each theta."""
        if self.p == 1.0:
            return np.ones((*np.shape(theta), self.a.size))
        x = np.multiply.outer(theta, self.a) + math.log(self.p) - math.log1p(-self.p)
        return np.asarray(1 / (1 + np.exp(-np.clip(x, -700, 700))))

    def ratios(self, u: FloatArray, phases: ComplexArray) -> ComplexArray:
        """r_j at theta + i gamma from u_j = r_j at theta: a row for each gamma."""
        return np.asarray(u * (1 + phases) / (1 + u * phases))

    def _moments(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        u = self.tilted(theta)
        mean = u @ (self.a * self.counts)
        return mean, np.asarray((u * (1 - u)) @ (self.a**2 * self.counts))

    def _products(self, law: FloatArray, phases: ComplexArray) -> ComplexArray:
        return relative_products(law, phases, self.counts)

    def _participation(
        self, law: FloatArray, phases: ComplexArray, nodes: ComplexArray
    ) -> tuple[FloatArray, FloatArray, float]:
        single, second, size = participation(law, phases, nodes)
        return single, single - second, size

    def _rounded(self, u: FloatArray) -> float:
        """Logarithms of powers add up to at most twice the mean size of a set."""
        return float(np.max(u @ self.counts))

    def _cumulant_size(self, theta: float) -> float:
        return abs(float(self.cumulant(np.array(theta))))

    def _given(self, sign: float) -> float:
        """Two given members add their overlaps."""
        return 2 * float(np.max(self.a)) if sign > 0 else 0.0
