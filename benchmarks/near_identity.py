"""True delta near the identity: two steps by quadrature, slopes for any number of steps.

In: a Gram matrix `G = C^T C / sigma^2` of two steps, or a number of steps and sigma; Poisson
probability, epsilon.  Out: the true delta of the pair, and the derivatives that
docs/theory-identity.md calls K and rho.  Rounding: none; these are numerical values, with about
ten correct digits for two steps, not certified bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

ADJACENCIES = ("remove", "add")
REACH = 12.0  # standard deviations kept; the mass beyond is below 1e-32
LEGENDRE = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True)
class Gram:
    """The Gram matrix of two steps, noise included."""

    first: float
    cross: float
    second: float

    def __post_init__(self) -> None:
        if not (self.first > 0 and self.second > 0 and self.cross >= 0):
            raise ValueError(f"need a positive diagonal and a cross term >= 0, got {self}")
        if not self.cross**2 < self.first * self.second:
            raise ValueError(f"not positive definite: {self}")

    def scaled(self, factor: float) -> Gram:
        return Gram(self.first * factor, self.cross * factor, self.second * factor)


def level(epsilon: float, adjacency: str) -> float:
    """The value of X = dP/dQ at which the worst event begins."""
    return math.exp(epsilon if adjacency == "remove" else -epsilon)


def _nodes(gram: Gram, p: float, x: float, remove: bool) -> tuple[np.ndarray, ...]:
    """Gauss-Legendre panels for w = u_2 ~ N(0, G_22): w, weights, and x - X without step 1.

    For small p the curve X = x turns a corner of width p where the sets without step 1 reach the
    level by themselves, so panels shrink geometrically towards that point, and the difference is
    taken from its distance, not by subtraction.
    """
    deviation = math.sqrt(gram.second)
    low = -REACH * deviation
    high = REACH * deviation + (gram.second + gram.cross if remove else 0.0)
    room = x / (1 - p) - (1 - p)  # p e^(w - G_22/2) at the corner
    corner = gram.second / 2 + math.log(room / p) if room > 0 else low
    edges = np.linspace(low, high, 97) - corner
    near = deviation * 2.0 ** -np.arange(-2.0, 45.0)
    edges = np.unique(np.concatenate([edges, near, -near, [0.0]]))
    edges = edges[(edges >= low - corner) & (edges <= high - corner)]
    half = np.diff(edges)[:, None] / 2
    t = (edges[:-1, None] + half * (1 + LEGENDRE[0])).ravel()  # w - corner
    w = t + corner
    weight = (half * LEGENDRE[1]).ravel() * np.exp(-0.5 * (w / deviation) ** 2)
    weight /= deviation * math.sqrt(2 * math.pi)
    if room > 0:
        strike = -(1 - p) * room * np.expm1(t)
    else:
        strike = x - (1 - p) * (1 - p + p * np.exp(w - gram.second / 2))
    return w, weight, strike


def two_step_delta(gram: Gram, p: float, epsilon: float, adjacency: str) -> float:
    """True delta of two steps: given u_2, the mean over u_1 is a call or a put in closed form."""
    remove = adjacency == "remove"
    w, weight, strike = _nodes(gram, p, level(epsilon, adjacency), remove)
    slope = gram.cross / gram.second
    deviation = math.sqrt(gram.first - slope * gram.cross)
    # share: mean over u_1, given u_2 = w, of the sets with step 1.
    share = p * np.exp(slope * w - slope * gram.cross / 2)
    share *= (1 - p) + p * np.exp(w - gram.second / 2 - gram.cross)
    live = strike > 0
    d = np.full(w.size, np.inf)
    d[live] = np.log(share[live] / strike[live]) / deviation
    if remove:
        call = share * ndtr(d + deviation / 2) - strike * ndtr(d - deviation / 2)
        return float(weight @ call)
    put = strike * ndtr(deviation / 2 - d) - share * ndtr(-d - deviation / 2)
    return math.exp(epsilon) * float(weight @ put)


def two_step_worst(gram: Gram, p: float, epsilon: float) -> float:
    return max(two_step_delta(gram, p, epsilon, adjacency) for adjacency in ADJACENCIES)


def two_step_scale(gram: Gram, p: float, epsilon: float, delta: float) -> float:
    """The factor on the Gram matrix (1/sigma^2) at which the true delta is `delta`."""
    if not delta < 1 - (1 - p) ** 2:
        raise ValueError(
            f"delta={delta} is not below {1 - (1 - p) ** 2}, the chance of taking part at all: "
            "no noise is needed. Use a smaller delta or a larger probability."
        )

    def excess(log_factor: float) -> float:
        found = two_step_worst(gram.scaled(math.exp(log_factor)), p, epsilon)
        return math.log(max(found, 1e-300) / delta)

    top = math.log(max(gram.first, gram.second))
    return math.exp(brentq(excess, -14.0 - top, 5.0 - top, xtol=1e-12))


def two_step_sensitivity(p: float, sigma: float, epsilon: float, adjacency: str) -> np.ndarray:
    """K at the identity: d delta = (1/2) sum_jl K_jl dG_jl, as an integral along X = level."""
    g = sigma**-2.0
    x = level(epsilon, adjacency)
    w, weight, first = _nodes(Gram(g, 0.0, g), p, x, adjacency == "remove")
    inside = first > 0
    w, weight, first = w[inside], weight[inside], first[inside]  # first: dX/du_1 where X = x
    other = 1 - p + p * np.exp(w - g / 2)
    u = np.log(first / (p * other)) + g / 2
    density = weight * np.exp(-(u**2) / (2 * g)) / math.sqrt(2 * math.pi * g)
    second = x * p * np.exp(w - g / 2) / other  # dX/du_2
    outer = 1.0 if adjacency == "remove" else math.exp(epsilon)
    k11, k12, k22 = density @ first, density @ second, density @ (second**2 / first)
    return outer * np.array([[k11, k12], [k12, k22]])


def alignment(steps: int, p: float, sigma: float, epsilon: float, adjacency: str) -> float:
    """rho = K_12 / K_11 at the identity, for any number of steps >= 2."""
    if steps == 2:
        k = two_step_sensitivity(p, sigma, epsilon, adjacency)
        return float(k[0, 1] / k[0, 0])
    return contour_alignment(steps, p, sigma, math.log(level(epsilon, adjacency)))


def contour_alignment(steps: int, p: float, sigma: float, log_level: float) -> float:
    """The same by Fourier inversion: X is a product of independent factors F(u_j).

    K_12 and K_11 are, up to one factor, the integrals over z = alpha + i omega of
    `M_1^2 M_0^(n-2) e^(-z log x)` and `M_2 M_0^(n-1) e^(-z log x)`, `M_k(z) = E[r^k F^z]`, alpha
    the saddle point.  The range of omega grows until four digits have settled; if after the longest
    range not even two have, the answer is NaN.
    """
    u = np.linspace(-REACH / sigma, (REACH + 30 / sigma) / sigma, 2501)

    def tilted(u: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        log_odds = math.log(p) + u - 0.5 / sigma**2
        log_f = np.logaddexp(math.log1p(-p), log_odds)
        exponent = alpha * log_f - 0.5 * (u * sigma) ** 2
        mass = np.exp(exponent - exponent.max())
        return mass / mass.sum(), log_f, log_odds

    def mean_loss(alpha: float) -> float:
        mass, log_f, _ = tilted(u, alpha)
        return steps * float(mass @ log_f)

    alpha = brentq(lambda a: mean_loss(a) - log_level, -1e4, 1e4, xtol=1e-6)
    used = u[tilted(u, alpha)[0] > 1e-20]
    mass, log_f, log_odds = tilted(np.linspace(used[0], used[-1], 2501), alpha)
    centred = log_f - mass @ log_f
    weighted = (mass * np.exp(log_odds - log_f) ** np.arange(3)[:, None]).T
    spacing = 0.06 / math.sqrt(steps * (mass @ centred**2))
    off_saddle = steps * (mass @ log_f) - log_level
    apart = same = 0.0
    answers: list[float] = []
    for block in range(64):
        omega = spacing * np.arange(block * 512, (block + 1) * 512)
        one, first, second = (np.exp(1j * np.multiply.outer(omega, centred)) @ weighted).T
        turn = np.exp(1j * omega * off_saddle)
        if block == 0:
            turn[0] *= 0.5
        apart += (first**2 * one ** (steps - 2) * turn).real.sum()
        same += (second * one ** (steps - 1) * turn).real.sum()
        answers.append(float(apart / same))
        recent = answers[block // 2 :]  # all partial sums since half the range
        if block and max(recent) - min(recent) <= 1e-4 * abs(answers[-1]):
            return answers[-1]
    settled = max(recent) - min(recent) <= 1e-2 * abs(answers[-1])
    return answers[-1] if settled else math.nan
