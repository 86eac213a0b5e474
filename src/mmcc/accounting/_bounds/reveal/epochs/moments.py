r"""Moments of the revealed likelihood ratio under random allocation, by Laplace transforms.

In: an `EpochLattice` and powers -zeta.  Out: E_P~[Lhat^-zeta] on the lattice for many zeta at once.
Rounding: errors are stated relative to the moment at the real part of zeta (`Moments.error`).

One epoch is the matrix K(zeta) = E[F^-zeta], from state to state.  On the ray lam_n = e^{v_n + i
phi}, v_n = v_0 + n h, |phi| < pi/2, Poisson's summation gives, for Re zeta = al > 0,

    sum_n h lam_n^zeta e^{-lam_n F} = sum_m e^{-y_m phi} Gamma(zeta - i y_m) F^{i y_m - zeta} c_m,

y_m = 2 pi m/h, |c_m| = 1, c_0 = 1: F^-zeta up to a *relative* error that is a sum of quotients of
Gamma functions, whatever F is.  Below v_0 e^{-lam F} is its Taylor polynomial, whose terms sum to

    (-F)^k/k!  h lam_0^{zeta+k} / (e^{(zeta+k) h} - 1),

and with these the formula holds for al < 0 as well: Gamma(zeta) F^-zeta is then the transform of
e^{-lam F} less its first Taylor terms, and minus the sums of those from v_0 on have the same form.
*Errors*, each bounded entrywise by a multiple of K(al): the aliases m != 0; the rest of the Taylor
polynomial, at most |lam F|^k/k!; the end of the ray, by K at one real rate; rounding, which on the
ray is measured by K at real rates.  All but the first share the factor e^{-phi om}/|Gamma(zeta)|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import loggamma

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.epochs.kernels import laplace, powers, rounding
from mmcc.accounting._bounds.reveal.epochs.lattice import EpochLattice
from mmcc.accounting._bounds.reveal.inversion import ROUND, Moments

TERMS = 20
"""Terms of the Taylor polynomial."""
KEPT = 0.9
"""Rounding of e^{-a} is at most |a| times rounding, and a e^{-a} <= e^{-KEPT a}/(e (1 - KEPT))."""
ALIASES = 4
STEPS_AHEAD = 0.5
LARGEST_ERROR = 0.01
LEAST = 1e-200
"""Entries of the positive matrices stay above this, so no underflow goes unnoticed."""
WIDEST, NARROWEST = 0.45, 0.05
"""The range of pi/2 - phi."""
BATCH_ENTRIES = 2**22


@dataclass(frozen=True, slots=True)
class Ray:
    """lam_n = e^{start + n step + i angle} for n < count."""

    angle: float
    step: float
    start: float
    count: int

    @property
    def cosine(self) -> float:
        """Re lam / |lam|."""
        return math.cos(self.angle)

    def logs(self) -> ComplexArray:
        """The logarithms of the lam_n."""
        return np.asarray(self.start + self.step * np.arange(self.count) + 1j * self.angle)


def start_of(series: FloatArray, accuracy: float) -> float:
    """The log of lam at which the Taylor polynomial is roughly this accurate."""
    ratio = float((series[TERMS] / series[0]).max())
    return (math.log(0.01 * accuracy) - math.log(ratio)) / TERMS


def gap_for(
    lattice: EpochLattice, series: FloatArray, zeta: ComplexArray, epochs: int, allowed: float
) -> float:
    """A good pi/2 - phi, at which rounding at the last zeta, over all epochs, is about `allowed`.

    There e^{-phi om}/|Gamma(zeta)| is about e^{gap om} om^{1/2 - al}.  For al < 0 the start of the
    ray matters as well.
    """
    alpha, last = float(zeta[0].real), float(zeta[-1].imag)
    felt = (0.5 - alpha) * math.log(last)
    if alpha < 0:
        felt += alpha * (start_of(series, allowed) + math.log(float((series[1] / series[0]).min())))
    room = math.log(0.005 / rounding(lattice, 40.0)) + math.log(allowed) / epochs
    return min(max((room - felt) / last, NARROWEST), WIDEST)


def ray_for(
    lattice: EpochLattice, series: FloatArray, zeta: ComplexArray, gap: float, accuracy: float
) -> Ray:
    """A ray whose errors are roughly `accuracy`; any ray is valid."""
    alpha, last = float(zeta[0].real), float(zeta[-1].imag)
    digits = -math.log(accuracy)
    turns = max(digits / gap, (math.pi * last + digits) / (math.pi - gap))
    step = 2 * math.pi / (turns + max(alpha - 0.5, 0.0) * math.log(turns) / gap)
    start = start_of(series, accuracy)
    # Re lam grows until e^{-lam F} is negligible even for the least F.
    reach = math.exp(start) * math.sin(gap)
    least = float(lattice.parts[0]) * lattice.length
    count = math.ceil(max(math.log(60 / (reach * least)), 1.0) / STEPS_AHEAD)
    ahead = np.exp(STEPS_AHEAD * np.arange(float(count))) * reach
    chances = (laplace(lattice, ahead) / series[0]).max(axis=(1, 2)) * ahead ** max(alpha, 0.0)
    far = 1 + int(np.flatnonzero(chances >= 0.1 * accuracy).max(initial=0))
    return Ray(math.pi / 2 - gap, step, start, math.ceil(far * STEPS_AHEAD / step) + 1)


def alias_error(zeta: ComplexArray, ray: Ray) -> FloatArray:
    """Upper bound on the sum over m != 0 of |e^{-y_m phi} Gamma(zeta - i y_m) / Gamma(zeta)|.

    |Gamma(al + i Y)| falls in |Y|, and from Y to Y + y at least by e^{-y arctan(Y/a)}, a = max(al,
    1): the rest is a geometric series on either side.
    """
    first = 2 * math.pi / ray.step
    base = loggamma(zeta).real
    total = np.zeros(zeta.size)
    for side in (1, -1):
        term = total
        for m in range(1, ALIASES + 1):
            shift = side * m * first
            term = np.exp(loggamma(zeta - 1j * shift).real - shift * ray.angle - base)
            total = total + term
        away = ALIASES * first - float(zeta.imag.max())
        slope = ray.angle if side > 0 else math.atan(away / max(zeta[0].real, 1.0)) - ray.angle
        if not (away > 0 and slope > 0):
            return np.full(zeta.size, math.inf)
        total = total + term / math.expm1(min(first * slope, 700.0))
    return np.asarray(total * (1 + 2.0**-30))


@dataclass(frozen=True, eq=False, slots=True)
class Transform:
    """K_lam on a ray and Taylor coefficients at 0, which give K(zeta) for any zeta."""

    lattice: EpochLattice
    ray: Ray
    series: FloatArray
    values: ComplexArray
    beyond: FloatArray
    """K at the real rate Re lam of the first node left out."""

    def matrices(self, zeta: ComplexArray) -> ComplexArray:
        """K(zeta), rounded to nearest, as [zeta, state, state]."""
        logs, step = self.ray.logs(), self.ray.step
        gamma = loggamma(zeta)[:, None]
        nodes = step * np.exp(zeta[:, None] * logs - gamma)
        k = np.arange(TERMS)
        raised = zeta[:, None] + k
        terms = (-1.0) ** k * step * np.exp(raised * logs[0] - gamma) / np.expm1(raised * step)
        found = nodes @ self.values.reshape(len(logs), -1)
        found += terms @ self.series[:TERMS].reshape(TERMS, -1)
        states = self.lattice.states.size
        return np.asarray(found.reshape(-1, states, states))

    def errors(self, zeta: ComplexArray, real: FloatArray) -> FloatArray:
        """Upper bounds e with |computed - K(zeta)| <= e K(al); `real` is K(al) as computed."""
        alpha, ray = float(zeta[0].real), self.ray
        gamma = loggamma(zeta)
        size = float(np.abs(zeta).max()) * (abs(ray.start) + ray.step * ray.count + 2)
        weights = 8 * ROUND * (size + float(np.abs(gamma).max()) + ray.count + TERMS + 16)
        reach = 1 / (math.e * (1 - KEPT) * ray.cosine)
        on_ray = rounding(self.lattice, reach) + weights
        near = rounding(self.lattice, 0.0, TERMS) + weights
        k = np.arange(TERMS + 1)
        sums = ray.step * np.exp((alpha + k) * ray.start) / np.abs(np.expm1((alpha + k) * ray.step))
        bound = near * np.einsum("k,kab->ab", sums[:TERMS], self.series[:TERMS])
        bound += sums[TERMS] * self.series[TERMS] + self._end(alpha) * self.beyond
        if alpha < 0:
            bound += on_ray * sums[0] * self.series[0]
        felt = float((bound / real).max()) * (1 + LARGEST_ERROR) ** 2
        if alpha > 0:  # sum_n h r_n^al e^{-KEPT r_n cos(phi) F}, including its aliases
            felt += on_ray * 2 * math.gamma(alpha) * (KEPT * ray.cosine) ** -alpha
        factor = np.exp(-ray.angle * zeta.imag - gamma.real)
        return np.asarray((felt * factor + alias_error(zeta, ray)) * (1 + 2.0**-20))

    def _end(self, alpha: float) -> float:
        """Upper bound on sum_{n >= count} h r_n^al e^{-cos(phi) (r_n - r_count) F}, F the least."""
        least = (
            self.ray.cosine * float(self.lattice.parts[0]) * self.lattice.length * (1 - 2.0**-40)
        )
        first = math.exp(self.ray.start + self.ray.step * self.ray.count)
        most = math.ceil(math.log1p(800 / (least * first)) / self.ray.step) + 1
        ratios = np.exp(self.ray.step * np.arange(float(most)))
        terms = np.exp(alpha * np.log(first * ratios) - least * first * (ratios - 1))
        return float(terms.sum()) * self.ray.step * (1 + 2.0**-20)


def transform(lattice: EpochLattice, series: FloatArray, ray: Ray) -> Transform:
    """K_lam along the ray."""
    values = laplace(lattice, np.exp(ray.logs()))
    after = ray.cosine * math.exp(ray.start + ray.step * ray.count)
    beyond = laplace(lattice, np.array([after * (1 - 2.0**-40)]))[0]
    return Transform(lattice, ray, series, values, beyond * (1 + rounding(lattice, 700.0)))


def taylor(lattice: EpochLattice) -> FloatArray:
    """E[F^k]/k! for k <= TERMS."""
    return powers(lattice, TERMS + 1)


def whole_moment(lattice: EpochLattice, series: FloatArray, epochs: int, k: int) -> float:
    """Roughly the logarithm of E_P~[Lhat^k], for whole k."""
    vector = np.ones(lattice.states.size)
    scale = 0.0
    for _ in range(epochs):
        vector = series[k] @ vector
        top = float(vector.max())
        vector, scale = vector / top, scale + math.log(top)
    return scale + math.log(float(lattice.entrance @ vector)) + epochs * math.lgamma(k + 1)


def moments(found: Transform, epochs: int, zeta: ComplexArray) -> Moments | None:
    """E_P~[Lhat^-zeta] for zeta with one real part, the first real; None if errors dominate.

    With |K(zeta)| <= c K(al) entrywise and an error of e K(al) in each of E epochs, the error of
    the moment is at most E e (c + e)^{E-1} times the moment at al.
    """
    states = found.lattice.states.size
    real = np.abs(found.matrices(zeta[:1])[0])
    if not (real.min() > LEAST and np.isfinite(real).all()):
        return None
    errors = found.errors(zeta, real)
    if not errors[0] < LARGEST_ERROR:
        return None
    product = 16 * ROUND * (states + 8)
    size = max(BATCH_ENTRIES // states**2, 1)
    values, worst = [], 0.0
    for start in range(0, zeta.size, size):
        matrices = found.matrices(zeta[start : start + size])
        share = np.abs(matrices / real).max(axis=(1, 2)) * (1 + 2 * LARGEST_ERROR)
        wrong = errors[start : start + size] + product * share
        share = np.minimum(share + wrong, 1.0)
        worst = max(worst, float((epochs * wrong * (share + wrong) ** (epochs - 1)).max()))
        vectors = np.ones((len(matrices), states), dtype=complex)
        for _ in range(epochs):
            vectors = np.matmul(matrices, vectors[..., None])[..., 0]
        values.append(vectors @ found.lattice.entrance)
    together = np.concatenate(values)
    total = worst + product
    if not (total < LARGEST_ERROR and np.isfinite(together).all()):
        return None
    return Moments(together.astype(complex), 0.0, total)
