"""The chain on a grid: finitely many states v, finitely many outputs u at each, all masses upper.

In: a `Chain` and how fine to be.  Out: a `Lattice`.
Rounding: every mass is rounded up; a larger positive measure gives a larger delta.

*States.*  For fixed outputs u the joint density is, as a function of one v_j, a product of
Gaussian factors; on the line Im v_j = a its modulus grows by exp(a^2 B/2) at most,
B = (1+rho^2)/(1-rho^2) + s/(1-s).  So the trapezoidal sum with step h over all multiples of h has
a *relative* error of at most kappa = 2 exp(a^2 B/2) / (exp(2 pi a/h) - 1), coordinate by coordinate,
whatever non-negative function of u, or exponential of v, it is multiplied with:

    (1 - kappa)^n  E  <=  E_grid  <=  (1 + kappa)^n  E.

*Outputs.*  Given v_j, the factor of step j is a convex function (for `remove`; the functional of
`add` is one too) of x_j = e^{u_j}, so the mass of each cell of x goes to its two ends, mean kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc.accounting.chain.domination import (
    ROUND,
    UP,
    Ceiling,
    Chain,
    ceiling_for,
    log_output_moment,
    log_state_moment,
)
from mmcc.arrays import FloatArray

SPECIAL = 2e-14
"""Relative accuracy relied on from exp and erfcx and the few operations around them."""
MASS_ERROR = 1e-11
"""Relative error of exp(-a^2/2) for |a| <= 38: a times the rounding of a, which is below 2e-13
(a difference of numbers below 100 over a deviation above 0.05), with room to spare."""
FLOOR = 1e-120
"""No transition has less mass than this: rounded up, so that powers do not underflow."""
FAR = 38.0
"""Deviations after which a normal mass is below the smallest float."""
TINY = float(np.finfo(float).tiny)
MAX_STATES = 320


@dataclass(frozen=True, slots=True)
class Fineness:
    """How fine the lattice is: any choice is valid."""

    trapezoid: float = 1e-7
    """Aimed at for n kappa, the relative error of the sums over v."""
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
    """log of (1 - kappa)^-n: what the sums over v may have lost."""
    exits: float
    """Bound on the mass, under the law that counts, of ever leaving the lattice."""


def mills(x: FloatArray) -> FloatArray:
    """Phi(-x) / phi(x)."""
    return math.sqrt(math.pi / 2) * np.asarray(special.erfcx(x / math.sqrt(2)))


def cell_law(low: FloatArray, width: float, tilt: float) -> tuple[FloatArray, FloatArray]:
    """Mass of N(0,1) in [low, low + width], and the share of the upper end if e^{tilt t} is kept.

    With R Mills' ratio, b = a + width: mass = phi(a) (R(a) - e^{(a^2-b^2)/2} R(b)), and
    E[e^{tilt (t - a)}; cell] = phi(a) (R(a-tilt) - e^{((a-tilt)^2 - (b-tilt)^2)/2} R(b-tilt)): the
    exponentials cancel in the quotient.  Cells left of 0 are reflected.
    """
    right = low + 0.5 * width >= 0
    near = np.where(right, low, -(low + width))
    slope = np.where(right, tilt, -tilt)
    bare = mills(near) - np.exp(-width * (near + 0.5 * width)) * mills(near + width)
    moved = near - slope
    tilted = mills(moved) - np.exp(-width * (moved + 0.5 * width)) * mills(moved + width)
    mass = np.exp(-0.5 * near * near) / math.sqrt(2 * math.pi) * bare
    # E[e^{slope (t - near)} | cell]: from 1 at the near end to e^{slope width} at the far one.
    share = (tilted / bare - 1) / np.expm1(slope * width)
    return mass, np.where(right, share, 1 - share)


def state_step(chain: Chain, wanted: float) -> tuple[float, float]:
    """A step h with few binary digits, and an upper bound on kappa for it.

    At a = 2 pi / (h B), with X = 2 pi^2 / (h^2 B): kappa = 2 / (e^X - e^-X).
    """
    decay, share = chain.decay, chain.share
    growth = ((1 + decay * decay) / ((1 - decay) * (1 + decay)) + share / (1 - share)) * UP
    exponent = math.log(2 * chain.steps / wanted)
    h = math.pi * math.sqrt(2 / (growth * exponent))
    h = math.ldexp(math.floor(math.ldexp(h, 12)), -12) if h > 2.0**-8 else h
    return h, 1 / math.sinh(2 * math.pi**2 / (h * h * growth) * (1 - 8 * ROUND)) * UP


def lattice_for(
    chain: Chain, adjacency: str, budget: float, fineness: Fineness = FINE
) -> Lattice | None:
    """The lattice whose exits cost about `budget`; None if it needs too many states.

    Leaving is charged under the law whose excess is measured: for `remove` the mixture P (by
    (X - E)_+ <= X), for `add` N(0) (by (1 - E X)_+ <= 1), where v only has to stay in range.
    """
    if chain.share > 0:
        h, kappa = state_step(chain, fineness.trapezoid)
        span = math.sqrt(2 * math.log(chain.steps / (0.01 * budget)))
        top = Ceiling(span, span)
        if adjacency == "remove":
            top = ceiling_for(log_state_moment, chain, budget, span)
        first, last = math.ceil(-span / h), math.floor(top.level / h)
        if last - first + 1 > MAX_STATES:
            return None
        states = h * np.arange(first, last + 1)
        below, above = h * (first - 1), h * (last + 1)
        exits = math.exp(-0.5 * below * below)
        if adjacency == "remove":
            exits += math.exp(log_state_moment(chain, top.rate) - top.rate * above)
        else:
            exits += math.exp(-0.5 * above * above)
        entrance, kernel = _moves(chain, states, h)
    else:
        kappa, exits = 0.0, 0.0
        states, entrance, kernel = np.zeros(1), np.ones(1), np.ones((1, 1))
    spread = math.sqrt(chain.diagonal)
    roof = Ceiling(6 * spread, 1.0)
    if adjacency == "remove":
        roof = ceiling_for(log_output_moment, chain, 0.01 * budget, 5 / spread)
        exits += math.exp(log_output_moment(chain, roof.rate) - roof.rate * roof.level)
    logs, masses = _outputs(chain, states, roof.level, fineness.cell * spread, adjacency)
    # Exits happen on the grid: (1 + kappa)^n times what they cost on the line.
    grown = chain.steps * exits * math.exp(chain.steps * kappa) * UP
    lost = -chain.steps * math.log1p(-kappa) * UP
    return Lattice(states, entrance, kernel, logs, masses, lost, grown)


def _moves(chain: Chain, states: FloatArray, h: float) -> tuple[FloatArray, FloatArray]:
    """h phi(v) and h N(v'; rho v, 1 - rho^2), rounded up."""
    grow = h / math.sqrt(2 * math.pi) * (1 + MASS_ERROR)
    variance = (1 - chain.decay) * (1 + chain.decay)
    entrance = np.exp(-0.5 * states * states) * grow
    away = states[None, :] - chain.decay * states[:, None]
    away = np.minimum(np.abs(away) / math.sqrt(variance), FAR)
    kernel = np.exp(-0.5 * away * away) * (grow / math.sqrt(variance))
    return np.maximum(entrance, FLOOR), np.maximum(kernel, FLOOR)


def _outputs(
    chain: Chain, states: FloatArray, top: float, cell: float, adjacency: str
) -> tuple[FloatArray, FloatArray]:
    """Nodes of u and their masses given each state.

    Below the first finite node the cell is x in [0, e^u].  Above the last, `remove` has left the
    lattice and `add` moves down to the node.  The share of a cell's upper end is rounded to the side
    on which delta grows: up for `remove`, down for `add`.
    """
    bottom = -6 * math.sqrt(chain.diagonal)
    count = math.ceil((top - bottom) / cell)
    logs = top - cell * np.arange(count, -1, -1.0)
    cell = float(np.min(np.diff(logs)))  # cells differ in their last digits; see slack
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
    # The lowest cell, [0, e^bottom]: E[x; cell] / e^bottom goes up, the rest to x = 0.
    edge = places[:, 0]
    under = np.asarray(special.ndtr(edge))
    lift = np.exp(np.minimum(deviation * (0.5 * deviation - edge), 700.0))
    rise = np.minimum(lift * special.ndtr(edge - deviation), under)
    if adjacency == "remove":
        rise = np.where(edge < -FAR + 8, under, np.minimum(rise * (1 + 1e-10), under))
    else:
        rise = np.where(edge < -FAR + 8, 0.0, rise * (1 - 1e-10))
        masses[:, -1] += special.ndtr(-places[:, -1]) * (1 + MASS_ERROR)
    masses[:, 1] += rise * (1 + MASS_ERROR)
    masses[:, 0] += (under - rise) * (1 + MASS_ERROR) + TINY
    return np.concatenate([[-np.inf], logs]), masses
