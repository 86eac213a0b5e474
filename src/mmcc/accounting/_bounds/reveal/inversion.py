r"""From moments to delta: a certified Mellin inversion.

In: E[X^z] on a line Re z = al > 1.  Out: an upper bound on E (X - e^eps)_+ for any eps.
Rounding: up.  Each source of error either has a sign or is added.

    E (X - E)_+ = (1/2 pi) \int M(z) E^{1-z} / (z (z-1)) d om,     z = al + i om.

*Smoothing.*  X is multiplied with an independent lognormal of mean one: larger in convex order, and
M gets the factor e^{tau^2 (z^2 - z)/2}, which makes the integral end.
*Step.*  As a function of eps, f = e^{(al-1) eps} delta has the Fourier transform M(z)/(z(z-1)).  By
Poisson's summation the trapezoidal sum with step w is sum_m f(eps + 2 pi m/w): f plus terms >= 0.
*End.*  Beyond om_K the terms add up to at most (1/pi) times the integral of their moduli, which is
M(al) e^{tau^2 (al^2 - al - om_K^2)/2} / (pi tau^2 om_K^3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmcc._arrays import ComplexArray

ROUND = 2.0**-52
UP = 1 + 2.0**-40
"""Covers a few hundred rounded operations on positive numbers."""
HOPELESS = 1e9
"""Larger epsilons are not searched for."""


@dataclass(frozen=True, eq=False, slots=True)
class Moments:
    """e^log_scale values[k] = E[X^{z_k}] up to error e^log_scale values[0], z_0 real."""

    values: ComplexArray
    log_scale: float
    error: float


@dataclass(frozen=True, slots=True)
class Line:
    """The line on which the integrand is evaluated: real part, step, number of nodes, tau^2."""

    order: float
    step: float
    count: int
    smoothing: float

    def nodes(self) -> ComplexArray:
        """The nodes z_k = al + i k step, k = 0, 1, ...; the others are conjugates."""
        return np.asarray(self.order + 1j * self.step * np.arange(self.count), dtype=complex)


def line_for(order: float, period: float, blur: float, drop: float) -> Line:
    """A line whose period in epsilon is `period`, and whose end is e^-drop of its start.

    Smoothing costs about al tau^2 / 2 in epsilon: `blur`.
    """
    smoothing = 2 * blur / order
    end = math.sqrt(2 * drop / smoothing + order * order)
    step = 2 * math.pi / period
    return Line(order, step, math.ceil(end / step) + 1, smoothing)


@dataclass(frozen=True, eq=False, slots=True)
class Inversion:
    """Moments along a line, ready for any epsilon."""

    line: Line
    moments: Moments

    def excess(self, epsilon: float) -> float:
        """Upper bound on E (X - e^epsilon)_+."""
        line, z = self.line, self.line.nodes()
        scale = self.moments.log_scale + (1 - line.order) * epsilon
        pairs = np.full(z.size, 2.0)
        pairs[0] = 1.0
        damped = pairs * np.exp(0.5 * line.smoothing * (z * z - z)) / (z * (z - 1))
        wave = np.exp(-1j * z.imag * epsilon)
        start = float(self.moments.values[0].real)
        weight = float(np.abs(damped).sum()) * start
        total = float((damped * wave * self.moments.values).real.sum())
        # Rounding of the sum itself: the phases om eps, and one operation per term.
        rounding = 8 * ROUND * (16 + line.count + float(z.imag[-1]) * abs(epsilon))
        relative = 2 * self.moments.error / (1 - self.moments.error) + rounding
        inside = line.step / (2 * math.pi) * (total + relative * weight)
        last = float(z.imag[-1])
        end = start * math.exp(0.5 * line.smoothing * (line.order**2 - line.order - last * last))
        outside = end / (math.pi * line.smoothing * last**3) * (1 + relative)
        # Rounding of the scale: a sum of a few large logarithms.
        size = 64 * ROUND * (1 + abs(self.moments.log_scale) + line.order * epsilon)
        exponent = scale + size
        bound = max(inside + outside, 0.0) * UP
        return bound * math.exp(exponent) if exponent < 700 else math.inf


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """A certified curve: delta(epsilon) <= e^inflation * (excess on the lattice + exits)."""

    inversion: Inversion
    exits: float
    inflation: float
    near: float
    """The epsilon at which searches start."""
    notes: dict[str, Any]
    """The settings behind the number."""

    def delta(self, epsilon: float) -> float:
        """Certified delta at epsilon."""
        total = self.inversion.excess(epsilon) + self.exits
        return min(total * math.exp(self.inflation) * UP, 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon found at which delta is certified, by bisection."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, max(self.near, 1e-12)
        while not self.delta(high) <= delta:
            low, high = high, 2 * high
            if high > HOPELESS:
                return math.inf
        while high - low > 1e-9 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high
