r"""The chain on a grid: finitely many states q and outputs x, with all masses rounded up.

In: a `Chain` and a `Fineness`.  Out: a `Lattice`.
Rounding: every mass is rounded up; a larger positive measure gives a larger delta.

Backwards in time, at each step of a block x = q + w + s g_0 with w ~ N(0, omega), and q grows by
kappa s; then q <- N(rho q, kappa (1 - rho^2)) for the block before.

*States.*  Given participations and outputs the joint density is, as a function of one q, a product
of Gaussian factors; on the line Im q = sqrt(kappa) a its modulus grows by e^{a^2 B/2}, B =
`Chain.growth`.  So the trapezoidal sum with step sqrt(kappa) h over all multiples has a *relative*
error of at most eta = 2 e^{a^2 B/2} / (e^{2 pi a/h} - 1), block by block, whatever non-negative
function of participations and outputs, or exponential of a q, it is multiplied with: with m blocks,

    (1 - eta)^m  E  <=  E_grid  <=  (1 + eta)^m  E.

*Outputs.*  All else fixed, the likelihood ratio is a F(x), F increasing, and a cell of outputs is
replaced by its two ends.  `add`: (1/(a F) - E)_+ is convex in F, so the mean of F is kept: the
upper end gets the share theta = (E[F | cell] - F_0)/(F_1 - F_0).
`remove`: (1 - E/(a F))_+ is, per unit of Q~, convex in F, so the mean of 1/F is kept or lowered:
E[1/F] >= 1/E[F] gives the share theta F_1/(F_0 + theta (F_1 - F_0)).  Delta grows with the share
for `remove`, falls for `add`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.chains.centring import Centring
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.chains.exits import (
    OUT_OF_REACH,
    ceiling,
    crowded,
    log_fake_odds,
    log_fallen_moment,
    log_output_moment,
    log_state_moment,
    passing,
)
from mmcc.accounting._bounds.reveal.inversion import ROUND, UP

SPECIAL = 2e-14
"""Relative accuracy assumed of exp, erfcx and the few operations around them."""
MASS_ERROR = 1e-11
"""Relative error of exp(-a^2/2) for |a| <= 38: a times the rounding of a, which is below 2e-13
(a difference of numbers below 100 over a deviation above 0.05), generously."""
FLOOR = 1e-120
"""The least mass of a transition, rounded up to it so that powers do not underflow."""
FAR = 38.0
"""Standard deviations beyond which a normal mass is below the smallest float."""
SPAN = 6.0
"""Standard deviations of x up to which cells are narrow on sides without an exit."""
TINY = float(np.finfo(float).tiny)
MAX_STATES, MAX_OUTPUTS = 400, 3000
MOST_IN_A_BLOCK = 40
DIGITS = 12
"""Binary digits after the point of the grid in q / sqrt(kappa), so its points are exact."""
SIDES = 0.05
"""The fraction of the budget for exits spent where they hardly matter."""


@dataclass(frozen=True, slots=True)
class Fineness:
    """How fine a lattice should be; any choice is valid."""

    trapezoid: float = 1e-4
    """The target for m eta, the relative error of the sums over q."""
    cell: float = 0.05
    """The width of the cells of x, in standard deviations of x."""


FINE = Fineness()
COARSE = Fineness(trapezoid=1e-2, cell=0.2)


@dataclass(frozen=True, eq=False, slots=True)
class Lattice:
    """Masses of states, transitions and outputs, and the cost of leaving the lattice."""

    states: FloatArray
    """The states, q / sqrt(kappa)."""
    entrance: FloatArray
    kernels: FloatArray
    """kernels[c, a, b]: mass of the move from state a to b with c participations in the block."""
    places: FloatArray
    """The outputs x at the middles of the cells."""
    logs: FloatArray
    """logs[s, i]: logarithm of the factor F e^{m_s} at the end of a cell, rounded up for `remove`
    and down for `add`; first the lower ends of all cells, then the upper, then x = -infinity."""
    masses: FloatArray
    """masses[s, c, a, i]: chance of s at a step and mass of the end i, given state a and c
    participations later in the block."""
    inflation: float
    """Logarithm of (1 - eta)^-m, which the sums over q may have lost."""
    exits: float
    """Bound on the mass, under the law that counts, of ever leaving the lattice."""
    pause: FloatArray = field(default_factory=lambda: np.ones((1, 1)))
    """pause[a, b]: mass of the move from state a to b over the gap - 1 steps that are blocked."""


def mills(x: FloatArray) -> FloatArray:
    """Mills' ratio Phi(-x) / phi(x)."""
    return math.sqrt(math.pi / 2) * np.asarray(special.erfcx(x / math.sqrt(2)))


def piece(m: FloatArray, width: float) -> FloatArray:
    """The integral of e^{-m y - y^2/2} over 0 <= y <= width, without cancelling large numbers.

    It is R(m) - e^{-m w - w^2/2} R(m + w) with Mills' ratio R where the integrand falls; where it
    rises, y is reflected to w - y.
    """
    rises = m + 0.5 * width < 0
    near = np.where(rises, -(m + width), m)
    integral = mills(near) - np.exp(-width * (near + 0.5 * width)) * mills(near + width)
    lift = np.where(rises, -width * (m + 0.5 * width), 0.0)
    return np.asarray(integral * np.exp(lift))


def cell_law(low: FloatArray, width: float, tilt: float) -> tuple[FloatArray, FloatArray]:
    """Mass of N(0,1) in [low, low + width], and the share of the upper end if e^{tilt t} is kept.

    mass = phi(a) piece(a) and E[e^{tilt (t - a)}; cell] = phi(a) piece(a - tilt) with a = low; the
    densities cancel in the quotient.  Cells left of 0 are reflected.
    """
    right = low + 0.5 * width >= 0
    near = np.where(right, low, -(low + width))
    slope = np.where(right, tilt, -tilt)
    bare = piece(near, width)
    mass = np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi) * bare
    # E[e^{slope (t - near)} | cell]: from 1 at the near end to e^{slope width} at the far one.
    share = (piece(near - slope, width) / bare - 1) / np.expm1(slope * width)
    return mass, np.where(right, share, 1 - share)


def state_step(chain: Chain, wanted: float) -> tuple[float, float]:
    """A step h with few binary digits, and an upper bound on eta for it.

    At a = 2 pi / (h B), with X = 2 pi^2 / (h^2 B): eta = 2 / (e^X - e^-X).
    """
    h = math.pi * math.sqrt(2 / (chain.growth * math.log(2 * chain.blocks / wanted)))
    h = math.ldexp(math.floor(math.ldexp(h, DIGITS)), -DIGITS)
    return h, trapezoid_error(chain.growth, h) if h > 0 else math.inf


def trapezoid_error(growth: float, h: float) -> float:
    """Upper bound on eta for the step h."""
    exponent = 2 * math.pi**2 / (h * h * growth)
    return UP / math.sinh(min(exponent * (1 - 8 * ROUND), 700.0))


def lattice_for(
    chain: Chain, centring: Centring, adjacency: str, budget: float, fineness: Fineness = FINE
) -> Lattice | None:
    """The lattice whose exits cost about `budget`; None if it needs too many states.

    Leaving is charged under the law whose excess is measured: P~ for `remove`, Q~ for `add`.
    """
    most, crowds = _most_in_a_block(chain, centring, adjacency, SIDES * budget)
    if most > MOST_IN_A_BLOCK:
        return None
    if chain.shared > 0:
        h, eta = state_step(chain, fineness.trapezoid)
        low, high, exits = reach(chain, centring, adjacency, budget)
        if not high - low <= (MAX_STATES - 2) * h:
            return None
        # The cost was counted beyond the first points that are left out.
        count = math.ceil((high - low) / h) - 1
        states = high - h * np.arange(float(max(count, 1)), 0.0, -1.0)
        entrance, kernels = moves(chain, states, h, most)
        pause = pause_moves(chain, states, h)
    else:
        eta, exits = 0.0, 0.0
        states, entrance, kernels = np.zeros(1), np.ones(1), np.ones((most + 1, 1, 1))
        pause = np.ones((1, 1))
    nodes, leaving = output_nodes((chain,), adjacency, SIDES * budget, fineness)
    if nodes is None:
        return None
    places = 0.5 * (nodes[1:] + nodes[:-1])
    # Later participations in the block: none if it is a single step.
    crowd = np.arange(most + 1 if chain.block > 1 else 1)
    means = math.sqrt(chain.shared) * states + chain.shared * crowd[:, None]
    logs, masses = output_masses(
        chain.white, chain.diagonal, chain.prior, means, nodes, centring.at(places), adjacency
    )
    # Exits happen on the grid, where they cost (1 + eta)^m times what they cost on the line.
    grown = (exits + crowds + leaving) * math.exp(chain.blocks * eta) * UP
    lost = -chain.blocks * math.log1p(-eta) * UP
    return Lattice(states, entrance, kernels, places, logs, masses, lost, grown, pause)


def _most_in_a_block(
    chain: Chain, centring: Centring, adjacency: str, budget: float
) -> tuple[int, float]:
    """The most participations a block may have, and the cost of more in any block.

    Under Q~ the chance of fakes s_1, ..., s_L in a block is at most the product of
    (pi_s/pi_0) e^{-m_s} over those that are not 0: given all before, the mean of
    e^{sum s x - s^2 g_0/2} is one for full inner products, and smaller for what was revealed.
    """
    if chain.block == 1:
        return chain.most, 0.0
    weights = chain.prior
    if adjacency == "add":
        weights = np.exp([0.0, *log_fake_odds(chain, centring.lowest)])
    for most in range(chain.most, MOST_IN_A_BLOCK + 1):
        cost = chain.blocks * crowded(weights, chain.block, most)
        if cost <= budget:
            return most, cost
    return MOST_IN_A_BLOCK + 1, math.inf


def reach(
    chain: Chain, centring: Centring, adjacency: str, budget: float, beside: float = 0.0
) -> tuple[float, float, float]:
    """The range of q / sqrt(kappa), on the binary grid, and the cost of ever leaving it.

    Under P~ participation only pushes q up, under Q~ only down; the other side is Gaussian.
    `beside` is the variance of another chain in the outputs.
    """
    deviation = math.sqrt(chain.shared)

    def moment(rate: float) -> float:
        if adjacency == "remove":
            return log_state_moment((chain,), rate)
        return log_fallen_moment(chain, rate, centring.lowest, beside)

    far = ceiling(moment, deviation, budget / chain.blocks)
    if not far.level < OUT_OF_REACH:
        return 0.0, math.inf, math.inf
    driven = grid_up(far.level / deviation)
    free = grid_up(math.sqrt(-2 * math.log(SIDES * budget / chain.steps)))
    exits = passing(moment, driven * deviation, far.rate) + math.exp(-0.5 * free * free)
    low, high = (-free, driven) if adjacency == "remove" else (-driven, free)
    return low, high, chain.blocks * exits * UP


def grid_up(value: float) -> float:
    """The value rounded up to a point of the binary grid."""
    return math.ldexp(math.ceil(math.ldexp(value, DIGITS)), -DIGITS)


def output_nodes(
    chains: Sequence[Chain], adjacency: str, budget: float, fineness: Fineness
) -> tuple[FloatArray | None, float]:
    """The ends of the cells of x, and the cost of outputs beyond; None if there are too many.

    x is the sum of the chains' states and the white noise; both ends are exact.
    """
    first = chains[0]
    diagonal = math.fsum(chain.shared for chain in chains) + first.white
    bottom, top, leaving = _output_range(chains, diagonal, adjacency, budget)
    cell = fineness.cell * math.sqrt(diagonal)
    if not top - bottom <= MAX_OUTPUTS * cell:
        return None, math.inf
    return np.linspace(bottom, top, math.ceil((top - bottom) / cell) + 1), leaving


def _output_range(
    chains: Sequence[Chain], diagonal: float, adjacency: str, budget: float
) -> tuple[float, float, float]:
    """The range in which cells of x are narrow, and the cost of outputs beyond.

    For `remove`, outputs above the top leave, and those below the bottom move up to it.  For `add`,
    those above move down to the top and those below to x = -infinity, so nothing leaves.
    """
    deviation, steps = math.sqrt(diagonal), chains[0].steps
    if adjacency == "add":
        bottom = -deviation * math.sqrt(-2 * math.log(budget / steps))
        return bottom, SPAN * deviation + diagonal, 0.0

    def moment(rate: float) -> float:
        return log_output_moment(chains, rate)

    roof = ceiling(moment, deviation, budget / steps)
    leaving = steps * passing(moment, roof.level, roof.rate)
    return -SPAN * deviation, roof.level, leaving


def moves(chain: Chain, states: FloatArray, h: float, most: int) -> tuple[FloatArray, FloatArray]:
    """Masses h phi(v) and h N(v'; rho (v + sqrt(kappa) c), 1 - rho^2) of v = q / sqrt(kappa)."""
    grow = h / math.sqrt(2 * math.pi) * (1 + MASS_ERROR)
    entrance = np.exp(-0.5 * states * states) * grow
    pushed = states + math.sqrt(chain.shared) * np.arange(most + 1)[:, None]
    variance = (1 - chain.decay) * (1 + chain.decay)
    kernels = _gaussian_moves(states, chain.decay * pushed, variance, h)
    return np.maximum(entrance, FLOOR), kernels


def pause_moves(chain: Chain, states: FloatArray, h: float) -> FloatArray:
    """Masses of the move over gap - 1 steps without participation: N(rho^k v, 1 - rho^2k)."""
    if chain.gap == 1:
        return np.eye(states.size)
    exponent = (chain.gap - 1) * math.log(chain.decay)
    return _gaussian_moves(states, math.exp(exponent) * states, -math.expm1(2 * exponent), h)


def _gaussian_moves(states: FloatArray, means: FloatArray, variance: float, h: float) -> FloatArray:
    """Masses h N(state; mean, variance), rounded up."""
    grow = h / math.sqrt(2 * math.pi) * (1 + MASS_ERROR)
    away = np.minimum(np.abs(states - means[..., None]) / math.sqrt(variance), FAR)
    return np.maximum(np.exp(-0.5 * away * away) * (grow / math.sqrt(variance)), FLOOR)


def output_masses(
    white: float,
    diagonal: float,
    prior: FloatArray,
    means: FloatArray,
    nodes: FloatArray,
    centres: FloatArray,
    adjacency: str,
) -> tuple[FloatArray, FloatArray]:
    """Factors at the ends of the cells, and the ends' masses given means of x and participation.

    Outputs below the first node move up to it for `remove`, and down to -infinity for `add`; those
    above the last leave for `remove`, and move down to it for `add`.
    """
    remove = adjacency == "remove"
    deviation = math.sqrt(white)
    counts = np.arange(prior.size)
    means = means + diagonal * counts[:, None, None]
    away = (nodes - means[..., None]) / deviation
    ends, rises = _factors(diagonal, prior, nodes, centres)
    mass, theta = _cell_masses(away, nodes, deviation, rises, remove)
    if remove:
        steep = np.exp(ends[1] - ends[0])
        theta = np.minimum(theta * steep / (1 + theta * (steep - 1)) * (1 + 64 * ROUND), 1.0)
    lower, upper = mass * (1 - theta), mass * theta
    below = special.ndtr(away[..., :1]) * (1 + MASS_ERROR) + TINY
    if remove:
        lower[..., :1] += below
    else:
        upper[..., -1] += special.ndtr(-away[..., -1]) * (1 + MASS_ERROR) + TINY
    masses = np.concatenate([lower, upper] if remove else [lower, upper, below], axis=-1)
    masses *= prior[:, None, None, None] * (1 + 4 * ROUND)
    logs = np.concatenate(ends) + np.tile(centres, 2)
    if not remove:
        bottom = math.log(prior[0]) + centres[:, :1]
        logs = np.concatenate([logs, bottom], axis=1)
    slip = 32 * ROUND * (1 + np.abs(nodes).max() * counts[-1] + np.abs(centres).max())
    slip += 32 * ROUND * (counts[-1] ** 2 * diagonal - np.log(prior[prior > 0].min()))
    return logs + (slip if remove else -slip), masses


def _factors(
    diagonal: float, prior: FloatArray, nodes: FloatArray, centres: FloatArray
) -> tuple[tuple[FloatArray, FloatArray], FloatArray]:
    """The logarithm of F at both ends of each cell, and each term's share of its rise.

    F = sum_m pi_m e^{m x - m^2 g_0/2 - m_s}, the centres constant in a cell; m = 0 does not rise.
    """
    counts = np.arange(float(prior.size))[:, None]
    with np.errstate(divide="ignore"):
        weights = np.log(prior)[:, None] - 0.5 * counts**2 * diagonal - centres
    low, high = weights + counts * nodes[:-1], weights + counts * nodes[1:]
    rises = low[1:] + np.log(np.expm1(counts[1:] * np.diff(nodes)))
    rises = np.exp(rises - np.logaddexp.reduce(rises, axis=0))
    return (np.logaddexp.reduce(low, axis=0), np.logaddexp.reduce(high, axis=0)), rises


def _cell_masses(
    away: FloatArray, nodes: FloatArray, deviation: float, rises: FloatArray, remove: bool
) -> tuple[FloatArray, FloatArray]:
    """Masses of the cells, rounded up, and the shares of their upper ends that keep the mean of F.

    The share is rounded to the side on which delta grows.
    """
    cell = float(nodes[-1] - nodes[0]) / (nodes.size - 1)
    width = cell / deviation
    low = np.clip(away[..., :-1], -FAR, FAR)
    theta = np.zeros_like(low)
    mass = theta
    for m, part in enumerate(rises, start=1):
        mass, share = cell_law(low, width, m * deviation)
        theta = theta + part * share
    error = SPECIAL * (1 + 8 / width)
    slack = 4 * error / -math.expm1(-cell) + 4 * ROUND * float(np.abs(nodes).max()) / cell
    slack += 16 * ROUND * (len(rises) + 1)
    theta = np.clip(theta + slack if remove else theta - slack, 0.0, 1.0)
    theta[np.abs(away[..., :-1]) >= FAR] = 1.0 if remove else 0.0
    return np.maximum(mass, TINY) * (1 + MASS_ERROR + 4 * error), theta
