"""The chain on a grid: finitely many states v, finitely many outputs u at each, all masses upper.

In: a `Chain` and how fine to be.  Out: a `Lattice`.
Rounding: every mass is rounded up; a larger positive measure gives a larger delta.

*States.*  For fixed outputs u the joint density is, as a function of one v_J, a product of Gaussian
factors; on the line Im v_J = a its modulus grows by e^{a^2 B/2}, B = `Chain.growth`.  So the
trapezoidal sum with step h over all multiples of h has a *relative* error of at most
kappa = 2 e^{a^2 B/2} / (e^{2 pi a/h} - 1), coordinate by coordinate, whatever non-negative function
of u, or exponential of a v, it is multiplied with; with m blocks,

    (1 - kappa)^m  E  <=  E_grid  <=  (1 + kappa)^m  E.

*Outputs.*  Given v, delta is a convex function of each x_j = e^{u_j} (see `factors`), so the mass
of each cell of x goes to its two ends, mean kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.chain.domination import ROUND, UP, Chain
from mmcc.accounting._bounds.chain.exits import (
    Ceiling,
    ceiling,
    log_output_moment,
    log_state_moment,
    passing,
)

SPECIAL = 2e-14
"""Relative accuracy relied on from exp and erfcx and the few operations around them."""
MASS_ERROR = 1e-11
"""Relative error of exp(-a^2/2) for |a| <= 38: a times the rounding of a, which is below 2e-13
(a difference of numbers below 100 over a deviation above 0.05), with room to spare."""
FLOOR = 1e-120
"""No transition has less mass than this: rounded up, so that powers do not underflow."""
FAR = 38.0
"""Deviations after which a normal mass is below the smallest float."""
SPAN = 6.0
"""Deviations of u up to which cells are narrow where it is not an exit."""
TINY = float(np.finfo(float).tiny)
MAX_STATES, MAX_OUTPUTS = 320, 2000
DIGITS = 12
"""Binary digits after the point of the grid in v: its points are exact."""


@dataclass(frozen=True, slots=True)
class Fineness:
    """How fine the lattice is: any choice is valid."""

    trapezoid: float = 1e-7
    """Aimed at for m kappa, the relative error of the sums over v."""
    cell: float = 0.08
    """Width of the cells of u, in standard deviations of u."""


FINE = Fineness()
COARSE = Fineness(trapezoid=1e-2, cell=0.25)


@dataclass(frozen=True, eq=False, slots=True)
class Lattice:
    """Masses of states, transitions and outputs; what leaving the lattice costs."""

    states: FloatArray
    entrance: FloatArray
    kernel: FloatArray
    logs: FloatArray
    """u at the nodes; the first is -infinity."""
    masses: FloatArray
    """masses[a, i]: mass of output node i given state a."""
    inflation: float
    """Logarithm of (1 - kappa)^-m: what the sums over v may have lost."""
    exits: float
    """Bound on the mass, under the law that counts, of ever leaving the lattice."""


def mills(x: FloatArray) -> FloatArray:
    """Phi(-x) / phi(x)."""
    return math.sqrt(math.pi / 2) * np.asarray(special.erfcx(x / math.sqrt(2)))


def piece(m: FloatArray, width: float) -> FloatArray:
    """The integral of e^{-m y - y^2/2} over 0 <= y <= width, without cancelling large numbers.

    R(m) - e^{-m w - w^2/2} R(m + w) with Mills' ratio R where the integrand falls, and the
    reflection y -> w - y where it rises.
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
    """A step h with few binary digits, and an upper bound on kappa for it.

    At a = 2 pi / (h B), with X = 2 pi^2 / (h^2 B): kappa = 2 / (e^X - e^-X).
    """
    h = math.pi * math.sqrt(2 / (chain.growth * math.log(2 * chain.blocks / wanted)))
    h = math.ldexp(math.floor(math.ldexp(h, DIGITS)), -DIGITS)
    if h == 0:
        return 0.0, math.inf
    exponent = 2 * math.pi**2 / (h * h * chain.growth)
    return h, UP / math.sinh(exponent * (1 - 8 * ROUND))


def lattice_for(
    chain: Chain, adjacency: str, budget: float, fineness: Fineness = FINE
) -> Lattice | None:
    """The lattice whose exits cost about `budget`; None if it needs too many states.

    Leaving is charged under the law whose excess is measured: for `remove` the mixture P, by
    (X - E)_+ <= X; for `add` N(0), by (1 - E X)_+ <= 1.  Outputs leave upwards under `remove` and
    downwards under `add`, where likelihood ratios are large.
    """
    deviation = math.sqrt(chain.diagonal)
    if chain.share > 0:
        h, kappa = state_step(chain, fineness.trapezoid)
        span = math.sqrt(-2 * math.log(0.01 * budget / chain.blocks))
        top = Ceiling(span, span)
        if adjacency == "remove":
            top = ceiling(log_state_moment, chain, budget / chain.blocks)
        if not (top.level + span) <= (MAX_STATES - 2) * h:
            return None
        # The grid may start anywhere: the first point left out is where the cost is the budget.
        above = math.ldexp(math.ceil(math.ldexp(top.level, DIGITS)), -DIGITS)
        count = math.ceil((above + span) / h)
        states: FloatArray = above - h * np.arange(float(count), 0.0, -1.0)
        below = above - h * (count + 1)
        # X only pushes v up, so below N(0) is the worst for both adjacencies.
        exits = chain.blocks * math.exp(-0.5 * below * below)
        if adjacency == "remove":
            exits += chain.blocks * passing(log_state_moment, chain, above, top.rate)
        else:
            exits += chain.blocks * math.exp(-0.5 * above * above)
        entrance, kernel = _moves(chain, states, h)
    else:
        kappa, exits = 0.0, 0.0
        states, entrance, kernel = np.zeros(1), np.ones(1), np.ones((1, 1))
    bottom, top_output = -SPAN * deviation, SPAN * deviation
    if adjacency == "remove":
        roof = ceiling(log_output_moment, chain, 0.01 * budget / chain.steps)
        exits += chain.steps * passing(log_output_moment, chain, roof.level, roof.rate)
        top_output = roof.level
    else:
        bottom = -deviation * math.sqrt(-2 * math.log(0.01 * budget / chain.steps))
        exits += chain.steps * math.exp(-0.5 * bottom * bottom / chain.diagonal)
    cell = fineness.cell * deviation
    if not top_output - bottom <= MAX_OUTPUTS * cell:
        return None
    logs, masses = _outputs(chain, states, bottom, top_output, cell, adjacency)
    # Exits happen on the grid: (1 + kappa)^m times what they cost on the line.
    grown = exits * math.exp(chain.blocks * kappa) * UP
    lost = -chain.blocks * math.log1p(-kappa) * UP
    return Lattice(states, entrance, kernel, logs, masses, lost, grown)


def _moves(chain: Chain, states: FloatArray, h: float) -> tuple[FloatArray, FloatArray]:
    """Masses h phi(v) and h N(v'; rho v, 1 - rho^2), rounded up."""
    grow = h / math.sqrt(2 * math.pi) * (1 + MASS_ERROR)
    variance = (1 - chain.decay) * (1 + chain.decay)
    entrance = np.exp(-0.5 * states * states) * grow
    away = states[None, :] - chain.decay * states[:, None]
    away = np.minimum(np.abs(away) / math.sqrt(variance), FAR)
    kernel = np.exp(-0.5 * away * away) * (grow / math.sqrt(variance))
    return np.maximum(entrance, FLOOR), np.maximum(kernel, FLOOR)


def _outputs(
    chain: Chain, states: FloatArray, bottom: float, top: float, cell: float, adjacency: str
) -> tuple[FloatArray, FloatArray]:
    """Nodes of u and their masses given each state.

    Below the first finite node the cell of `remove` is x in [0, e^u]; `add` has left the lattice.
    Above the last, `remove` has left and `add` moves down to the node.  The share of a cell's upper
    end is rounded to the side on which delta grows: up for `remove`, down for `add`.
    """
    count = math.ceil((top - bottom) / cell)
    logs = np.linspace(bottom, top, count + 1)  # both ends exact: beyond them are exits
    cell = (top - bottom) / count
    deviation = math.sqrt(chain.white)
    centres = math.sqrt(chain.common) * states[:, None]
    places = (logs[None, :] - centres) / deviation
    width = cell / deviation
    low = np.clip(places[:, :-1], -FAR, FAR)
    mass, share = cell_law(low, width, deviation)
    error = SPECIAL * (1 + 8 / width)
    slack = 4 * error / -math.expm1(-cell) + 4 * ROUND * (abs(bottom) + abs(top)) / cell
    share = np.clip(share + slack if adjacency == "remove" else share - slack, 0.0, 1.0)
    share[np.abs(places[:, :-1]) >= FAR] = 1.0 if adjacency == "remove" else 0.0
    mass = np.maximum(mass, TINY) * (1 + MASS_ERROR + 4 * error)
    masses = np.zeros((states.size, logs.size + 1))
    masses[:, 2:] += mass * share
    masses[:, 1:-1] += mass * (1 - share)
    if adjacency == "add":
        masses[:, -1] += special.ndtr(-places[:, -1]) * (1 + MASS_ERROR) + TINY
        return np.concatenate([[-np.inf], logs]), masses
    # The lowest cell, [0, e^bottom]: E[x; cell] / e^bottom goes up, the rest to x = 0.
    edge = places[:, 0]
    under = np.asarray(special.ndtr(edge))
    lift = np.exp(np.minimum(deviation * (0.5 * deviation - edge), 700.0))
    rise = np.minimum(lift * special.ndtr(edge - deviation), under)
    rise = np.where(edge < -FAR + 8, under, np.minimum(rise * (1 + 1e-10), under))
    masses[:, 1] += rise * (1 + MASS_ERROR)
    masses[:, 0] += (under - rise) * (1 + MASS_ERROR) + TINY
    return np.concatenate([[-np.inf], logs]), masses
