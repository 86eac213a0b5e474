r"""One scalar mixture on a lattice of outputs: the law of (output, what is revealed), tilted.

In: a prior of what is revealed, amplitudes, a power s = power + i om.  Out: a `Table`.
Rounding: every moment made from a table is within `Table.error` of the exact one, relative to the
moment at om = 0.

Given what is revealed, i with prior c_i, an output is D = m_i a + N(0,1), and the factor of Lhat is
f(D) = sum_i c_i e^{m_i a D - (m_i a)^2/2}.  We need the integrals of g(D) = phi(D - m_i a) f^s.

*Lattice.*  Let |m_i a - b| <= half for some b and |m_i a| <= turn.  On the line Im D = y with half
|y| < pi/2, f e^{-bD} has a positive real part, so f^s is analytic, |f| <= f(Re D), |f| >= f(Re D)
cos(half y), |arg f| <= turn |y|, |phi(D - m_i a)| = e^{y^2/2} phi(Re D - m_i a).  So \int |g| over
that line is at most C = e^{y^2/2 + |om| turn |y|} cos(half y)^{min(power, 0)} times the integral of
g at om = 0, and the trapezoidal sum with step h errs by 2 C / (e^{2 pi y/h} - 1) relative to it.
*Ends.*  If log g falls outwards with a slope of MARGIN or more from the last point on, the terms
beyond it add up to less than 1 / (MARGIN h) times its own, which is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._bounds.reveal.trees.priors import ROUND
from mmcc.accounting._bounds.waves import WAVE_ERROR

MARGIN = 9.0
BINARY_DIGITS = 12
"""Binary digits of a lattice step, so that lattice points are exact."""
FRACTIONS = np.linspace(0.04, 1.0, 25)
"""Fractions of the widest strip that are tried."""
MOST_POINTS = 2**17
NEGLIGIBLE = 1e-18
"""Points and parts with less than this share of the tilted law are left out and paid for."""
LARGEST_EXPONENT = 1e6
LEAST_LOG = 700.0
"""Logarithms of priors are above the negative of this."""


@dataclass(frozen=True, slots=True)
class Power:
    """s = real + i om for all |om| <= frequency, and how small the quadrature error should be."""

    real: float
    frequency: float
    digits: float
    """The error of the lattice is e^-digits."""

    @property
    def size(self) -> float:
        """An upper bound on |s|."""
        return abs(self.real) + self.frequency


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """log f at the points; joint[n, i], the tilted law of (point, part); log of its total mass."""

    logs: FloatArray
    joint: FloatArray
    parts: IntArray
    """The parts that were kept: indices of the columns of `joint` among all parts."""
    log_total: float
    error: float


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """What may be revealed at an output: priors c_i, means m_i a, logarithms of what follows.

    If `folded`, a part represents itself and its mirror image, and the prior is that of both.
    """

    priors: FloatArray
    means: FloatArray
    log_below: FloatArray
    folded: bool
    prior_error: float

    @property
    def half(self) -> float:
        """Half of the range of the means, including mirror images."""
        top = float(self.means.max())
        return top if self.folded else 0.5 * top

    @property
    def turn(self) -> float:
        """The largest mean; the smallest is 0 or its negative."""
        return float(self.means.max())


def step_for(parts: Parts, power: Power) -> float:
    """A lattice step with relative error e^-digits; 0 if it would be too small.

    2 pi y / h >= digits + log 2 + log C(y) + 1/8 for the best y found.
    """
    widest = 3 * math.sqrt(2 * power.digits)
    y = FRACTIONS * min(1.5 / max(parts.half, 1e-9), widest)
    needed = power.digits + 0.82 + 0.5 * y * y + power.frequency * parts.turn * y
    needed -= -min(power.real, 0.0) * np.log(np.cos(parts.half * y))
    step = float(np.max(2 * math.pi * y / needed))
    mantissa, exponent = math.frexp(step)
    return math.ldexp(math.floor(math.ldexp(mantissa, BINARY_DIGITS)), exponent - BINARY_DIGITS)


def lattice_points(parts: Parts, power: Power) -> tuple[FloatArray, float] | None:
    """The points and their distance; None if there would be too many.

    The slope of log g at D is m_i a - D + real (log f)'.  Means are between -top and top if folded
    (points >= 0 then represent both signs), else between 0 and top; (log f)' grows with D and is at
    most top.
    """
    step, top = step_for(parts, power), parts.turn
    if not step > 0:
        return None
    above = top + MARGIN + max(power.real, 0.0) * top
    below = 0.0 if parts.folded else _lower_end(parts, power)
    if not above + below <= MOST_POINTS * step:
        return None
    first, last = math.floor(-below / step), math.ceil(above / step)
    return step * np.arange(float(first), last + 1.0), step


def _lower_end(parts: Parts, power: Power) -> float:
    """How far points go below 0: to where the slope of log g is MARGIN, and larger beyond.

    For D < 0 the slope is at least -D + min(real, 0) (log f)'(D), which falls as D rises.
    """
    if power.real >= 0:
        return MARGIN
    low, high = MARGIN, MARGIN - power.real * parts.turn
    while high - low > 1.0:
        middle = 0.5 * (low + high)
        logs = -0.5 * parts.means**2 - middle * parts.means
        weights = parts.priors * np.exp(logs - logs.max())
        slope = float(weights @ parts.means) / float(weights.sum())
        steep = middle + power.real * slope * (1 + 2.0**-20) >= MARGIN
        low, high = (low, middle) if steep else (middle, high)
    return high + 4.0


def log_mixture(parts: Parts, points: FloatArray) -> FloatArray:
    """Return log f at the points."""
    tilts = points[:, None] * parts.means[None, :]
    exponents = tilts - 0.5 * parts.means**2
    peak = exponents.max(axis=1)
    terms = np.exp(exponents - peak[:, None])
    if parts.folded:
        terms *= 0.5 * (1 + np.exp(-2 * tilts))
    return np.asarray(np.log(terms @ parts.priors) + peak)


def table_for(parts: Parts, power: Power) -> Table | None:
    """The table; None if it would be too large or leaves the range of floats."""
    lattice = lattice_points(parts, power)
    if lattice is None:
        return None
    points, step = lattice
    logs = log_mixture(parts, points)
    with np.errstate(divide="ignore"):
        weights = np.log(parts.priors) + parts.log_below  # -infinity: not considered
    away = points[:, None] - parts.means[None, :]
    exponents = power.real * logs[:, None] - 0.5 * away * away + weights
    shift = float(exponents.max())
    if not abs(shift) < LARGEST_EXPONENT:
        return None
    joint = np.exp(exponents - shift)
    if parts.folded:
        joint *= 0.5 * (1 + np.exp(-2 * points[:, None] * parts.means[None, :]))
        joint[1:] *= 2  # the point 0 represents itself only
    total = float(joint.sum())
    joint /= total
    ends = float(joint[-1].sum()) + (0.0 if parts.folded else float(joint[0].sum()))
    rows = np.flatnonzero(joint.sum(axis=1) > NEGLIGIBLE)
    columns = np.flatnonzero(joint.sum(axis=0) > NEGLIGIBLE)
    log_total = shift + math.log(total * step / math.sqrt(2 * math.pi))
    return Table(
        logs[rows],
        np.ascontiguousarray(joint[np.ix_(rows, columns)]),
        columns,
        log_total,
        _error(parts, power, points, logs) + 2 * ends / (MARGIN * step),
    )


def _error(parts: Parts, power: Power, points: FloatArray, logs: FloatArray) -> float:
    """The error from lattice, ends, omissions and rounding, twice: in a moment and in the total."""
    far = float(np.abs(points).max()) + parts.turn
    count = points.size + parts.means.size
    missing = math.exp(-power.digits) + count * NEGLIGIBLE
    of_log = parts.prior_error + ROUND * (4 * parts.turn * far + 4 * parts.means.size + 16)
    of_log += (2 * ROUND + WAVE_ERROR) * float(np.abs(logs).max())
    of_rest = parts.prior_error + ROUND * (4 * far * far + count + 64)
    of_rest += 4 * ROUND * (LEAST_LOG + float(np.abs(parts.log_below).max())) + WAVE_ERROR
    return 2 * (missing + power.size * of_log + of_rest)
