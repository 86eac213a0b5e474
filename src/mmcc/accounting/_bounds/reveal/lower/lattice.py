r"""The chain on a lattice and its outputs in cells: measures above Q and below P.

In: an `Ended` chain.  Out: a `Walk` for Q, all masses rounded up, and one for P, rounded down.
Rounding: as stated; the floats then *are* the measures.

*Test.*  It records which cell each output u_l is in, and adds up a number f for each cell: a fixed
function of the output, so its laws under P and Q bound delta from below, whatever f is.
*States.*  For fixed outputs, sums over the lattice h Z in place of integrals over v have a relative
error of at most (1 + kappa_h)^n - 1, docs/theory-reveal.md section 4; dP/dQ is a function of the
outputs, so this holds for P as well as for Q.
*Ends.*  P may lose what leaves the lattice.  What Q loses is at most `Walk.exits`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.chains.lattice import FAR, MASS_ERROR, mills, piece
from mmcc.accounting._bounds.reveal.lower.ended import Ended

TRAPEZOID = 1e-5
"""The target for n kappa_h."""
CELL = 0.08
"""The width of the cells of u, in standard deviations of u."""
LOWEST, HIGHEST = 5.5, 6.5
"""The range of the cells of u, in standard deviations of u."""
FLOOR = 1e-200
"""The least mass of a transition of Q."""
MAX_STATES = 320


@dataclass(frozen=True, eq=False, slots=True)
class Walk:
    """Masses of v at the start, of its moves, and of the cells given v."""

    chain: Ended
    states: FloatArray
    entrance: FloatArray
    kernel: FloatArray
    """kernel[a, b]: mass of the move from state a to state b."""
    rest: FloatArray
    """rest[a, i]: mass of cell i given state a, without participation."""
    kick: FloatArray | None
    """The same with participation, except the interaction with other participations; None for Q."""
    spread: float
    """n log(1 + kappa_h) and -n log(1 - kappa_h) are at most this."""
    exits: float = 0.0
    """The mass of leaving the lattice, on the lattice."""


@dataclass(frozen=True, eq=False, slots=True)
class Cells:
    """Inner edges of the cells, and a place in each cell, including those beyond the edges."""

    edges: FloatArray
    width: float

    @property
    def places(self) -> FloatArray:
        """The middles of the cells; half a cell beyond the edges for the two unbounded ones."""
        half = 0.5 * self.width
        return np.concatenate([[self.edges[0] - half], self.edges + half])

    def evidence(self, chain: Ended, lift: float = 0.0) -> FloatArray:
        """Return log(1 - p + p e^{u - g/2 - m}) at the places, with u raised by `lift`.

        m is what other participations add to u on average, p times a row's sum.
        """
        p = chain.probability
        others = min(2 * chain.rho / (1 - chain.rho), chain.steps - 1.0)
        others *= p * chain.kappa
        chosen = math.log(p) + self.places + lift - 0.5 * chain.diagonal - others
        return np.asarray(np.logaddexp(math.log1p(-p), chosen))


def cells_of(chain: Ended) -> Cells:
    """Cells for outputs with and without participation."""
    deviation = math.sqrt(chain.diagonal)
    width = CELL * deviation
    span = (LOWEST + HIGHEST) * deviation + 1.5 * chain.diagonal
    places = np.arange(float(math.ceil(span / width))) - math.ceil(LOWEST / CELL)
    return Cells(np.asarray(width * places), width)


def lattice_step(chain: Ended) -> tuple[float, float]:
    """The step h, with few binary digits, and n kappa_h/(1 - kappa_h), rounded up.

    kappa_h = 1/sinh(2 pi^2/(h^2 B)).
    """
    h = math.pi * math.sqrt(2 / (chain.growth * math.log(2 * chain.steps / TRAPEZOID)))
    digits = 20 - math.frexp(h)[1]
    h = math.ldexp(math.floor(math.ldexp(h, digits)), -digits)
    exponent = 2 * math.pi**2 / (h * h * chain.growth)
    error = 1 / math.sinh(exponent * (1 - 2.0**-40))
    return h, chain.steps * error / (1 - error) * (1 + 2.0**-40)


def walk_above(chain: Ended, cells: Cells, reach: float) -> Walk | None:
    """A measure above Q on |v| <= reach standard deviations; None if that takes too many states.

    Leaving: Var v_l <= kappa, so each place is left with mass 2 e^{-reach^2/2} by Chernoff's bound.
    """
    bare = _bare(chain, reach, reach)
    if bare is None:
        return None
    up = 1 + 2 * MASS_ERROR
    masses = cell_masses(chain, cells, bare.states) * up
    outer = min(-float(bare.states[0]), float(bare.states[-1])) / math.sqrt(chain.kappa)
    exits = 2 * chain.steps * math.exp(bare.spread - 0.5 * (outer * (1 - 1e-12)) ** 2)
    return replace(
        bare,
        entrance=np.maximum(bare.entrance * up, FLOOR),
        kernel=np.maximum(bare.kernel * up, FLOOR),
        rest=np.maximum(masses, FLOOR),
        exits=exits,
    )


def walk_below(chain: Ended, cells: Cells, below: float, above: float) -> Walk | None:
    """A measure below P without the interaction, on -below <= v <= above standard deviations.

    Participation has weight p e^{u - g/2}: with u = v + w this shifts w by omega and leaves the
    factor p e^{v + omega/2 - g/2}.
    """
    bare = _bare(chain, below, above)
    if bare is None:
        return None
    down = 1 - 2 * MASS_ERROR
    rest = cell_masses(chain, cells, bare.states) * (down * (1 - chain.probability))
    factor = chain.probability * np.exp(bare.states - 0.5 * chain.kappa) * down
    kick = cell_masses(chain, cells, bare.states + chain.omega) * down
    return replace(
        bare,
        entrance=bare.entrance * down,
        kernel=bare.kernel * down,
        rest=rest,
        kick=kick * factor[:, None],
    )


def _bare(chain: Ended, below: float, above: float) -> Walk | None:
    """States with masses h N(v; 0, kappa_end) and h N(v'; rho v, innovation); 0 in far tails."""
    h, spread = lattice_step(chain)
    deviation = math.sqrt(chain.kappa)
    first, last = -math.ceil(below * deviation / h), math.ceil(above * deviation / h)
    if last - first + 1 > MAX_STATES:
        return None
    states = h * np.arange(first, last + 1.0)
    away = np.abs(states[None, :] - chain.rho * states[:, None]) / math.sqrt(chain.innovation)
    kernel = _density(away) * (h / math.sqrt(chain.innovation))
    entrance = _density(np.abs(states) / math.sqrt(chain.kappa_end))
    entrance = entrance * (h / math.sqrt(chain.kappa_end))
    return Walk(chain, states, entrance, kernel, np.zeros((0, 0)), None, spread)


def _density(away: FloatArray) -> FloatArray:
    bell = np.exp(-0.5 * np.minimum(away, FAR) ** 2) / math.sqrt(2 * math.pi)
    return np.where(away < FAR, bell, 0.0)


def cell_masses(chain: Ended, cells: Cells, centres: FloatArray) -> FloatArray:
    """Masses of the cells under N(centre, omega) to a relative 1e-11; 0 in the far tails."""
    deviation = math.sqrt(chain.omega)
    places = (cells.edges[None, :] - centres[:, None]) / deviation
    width = cells.width / deviation
    low = places[:, :-1]
    near = np.where(low + 0.5 * width >= 0, low, -(low + width))
    inner = _density(np.abs(near)) * piece(np.minimum(near, FAR), width)
    outer = [_beyond(-places[:, :1]), _beyond(places[:, -1:])]
    return np.concatenate([outer[0], inner, outer[1]], axis=1)


def _beyond(x: FloatArray) -> FloatArray:
    """P(N > x)."""
    tail = _density(np.abs(x)) * mills(np.clip(x, 0.0, FAR))
    return np.where(x > 0, tail, special.ndtr(-x))
