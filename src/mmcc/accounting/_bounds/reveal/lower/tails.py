r"""From transforms to tails of the test, certified on either side.

In: E[e^{zT}] on a line Re z = al > 0.  Out: bounds on P(T + tau N > t), N a standard normal.
Rounding: `above` rounds up, `below` down; each source of error has a sign or is added.

    P(T + tau N > t) = (1/2 pi) \int E[e^{zT}] e^{-zt + tau^2 z^2/2} / z d om,     z = al + i om.

*Step.*  f(t) = e^{al t} P(T + tau N > t) has the Fourier transform E[e^{zT}] e^{tau^2 z^2/2}/z.  By
Poisson's summation the trapezoidal sum with step 2 pi/L is sum_m f(t + m L).  The aliases, m != 0,
are positive: good for `above`.  For `below` those with m < 0 are at most
e^{-al L} / (1 - e^{-al L}) times e^{al t}, and by Chernoff's bound with any be > al those with
m > 0 at most E[e^{be T}] e^{tau^2 be^2/2 - (be-al)(t + L)} / (1 - e^{-(be-al) L}).
*End.*  Terms at nodes that were not computed are at most a bound on their transforms times
`Line.rest` in all; beyond the last the sum is at most
E[e^{al T}] e^{tau^2 (al^2 - om^2)/2} / (pi tau^2 om^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.lower.operator import ROUND, Transform


@dataclass(frozen=True, slots=True)
class Line:
    """A line of nodes: real part, step, number of nodes, tau."""

    order: float
    step: float
    count: int
    blur: float

    @property
    def period(self) -> float:
        """L, the distance between aliases."""
        return 2 * math.pi / self.step

    def nodes(self) -> ComplexArray:
        """The nodes z_k = al + i k step, k = 0, 1, ...; the others are conjugates."""
        return np.asarray(self.order + 1j * self.step * np.arange(self.count), dtype=complex)

    def weights(self) -> ComplexArray:
        """Factors of the transforms, without e^{-zt}; nodes k and -k together."""
        z = self.nodes()
        pairs = np.full(z.size, 2.0)
        pairs[0] = 1.0
        return pairs * np.exp(0.5 * self.blur**2 * z * z) / z * (self.step / (2 * math.pi))

    def beyond(self) -> float:
        """The sum over all further nodes, relative to the real transform."""
        last = self.step * (self.count - 1)
        spread = self.blur * last
        return math.exp(0.5 * ((self.blur * self.order) ** 2 - spread**2)) / (math.pi * spread**2)


@dataclass(frozen=True, eq=False, slots=True)
class Tail:
    """A transform at the first nodes of a line, and a bound on it at the others."""

    line: Line
    transform: Transform
    others: float
    """Bound on the transforms at the nodes not computed, relative to the real one."""

    def above(self, t: FloatArray) -> FloatArray:
        """Upper bounds on the tail at each t."""
        total, error, scale = self._sum(t)
        return np.asarray(np.maximum(total + error, 0.0) * np.exp(scale + self._slack(t)))

    def below(self, t: FloatArray, higher: FloatArray, log_moments: FloatArray) -> FloatArray:
        """Lower bounds, given upper bounds on log E[e^{be T}] at some be > al."""
        total, error, scale = self._sum(t)
        slack = self._slack(t)
        found = np.maximum(total - error, 0.0) * np.exp(scale - slack)
        line = self.line
        left = math.exp(-line.order * line.period) / -math.expm1(-line.order * line.period)
        more = higher - line.order
        right = log_moments + 0.5 * (line.blur * higher) ** 2
        right = right - np.log(-np.expm1(-more * line.period))
        outer = right - higher * t[:, None] - more * line.period
        alias = np.exp(np.minimum(outer.min(axis=1) + 2 * slack, 700.0))
        return np.asarray(
            found - 1.01 * (left + alias)
        )  # on the lattice masses are a little larger

    def _sum(self, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The sum at each t, its error, and the logarithm of the factor of both."""
        line, values = self.line, self.transform.values
        weights = line.weights()
        used = weights[: values.size]
        waves = np.exp(-1j * np.outer(t, line.step * np.arange(values.size)))
        total = (waves @ (used * values)).real
        phases = 8 * ROUND * (64 + values.size + line.step * line.count * np.abs(t))
        error = (np.abs(used) * self.transform.errors).sum() + np.abs(used).sum() * phases
        error = error + self.others * np.abs(weights[values.size :]).sum() + line.beyond()
        scale = self.transform.log_real - line.order * t
        return total, error, scale

    def _slack(self, t: FloatArray) -> FloatArray:
        """Rounding of the exponents, which are sums of a few numbers of this size."""
        size = abs(self.transform.log_real) + self.line.order * np.abs(t)
        return np.asarray(256 * ROUND * (1 + size))
