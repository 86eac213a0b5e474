"""A certified delta(epsilon) of a chain, one adjacency.

In: a `Chain` and the delta near which the curve should be good.  Out: a `Curve`.
Rounding: results are upper bounds; every choice made here is valid, so the searches may be rough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from mmcc.accounting._bounds.reveal.chains import operator, separation
from mmcc.accounting._bounds.reveal.chains.centring import Centring, best_centring, mean_centring
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.chains.lattice import (
    COARSE,
    FINE,
    Fineness,
    Lattice,
    lattice_for,
)
from mmcc.accounting._bounds.reveal.inversion import HOPELESS, Curve, Inversion, Line, line_for

EXIT_SHARE = 0.002
"""The fraction of delta that leaving the lattice may cost."""
BLUR = 1e-4
"""What smoothing may cost in epsilon, relative to the larger of epsilon and a deviation."""
DROP = 9.0
"""The integrand is evaluated until its smoothing factor has fallen by e^-DROP."""
PERIODS = 6.0
"""Period of the Fourier sum in standard deviations of log Lhat."""
LEFT = 7.0
MAX_NODES = 1500
LARGEST_SMOOTHING = 1000.0
"""Largest tau^2 al^2: e to half of it must be within floats."""
TURNS = 5


def log_moment(lattice: Lattice, chain: Chain, adjacency: str, order: float) -> float:
    """Roughly log E_Q~[Lhat^order] (remove) or log E_P~[Lhat^-order] (add); may be infinite."""
    power = powers(adjacency, np.array([complex(order)]))
    if chain.gap > 1:
        return separation.rough_moment(lattice, chain, float(power[0].real))
    found = operator.moments(lattice, chain, power)
    if found is None:
        return math.inf
    return math.log(float(found.values[0].real)) + found.log_scale


def powers(adjacency: str, z: np.ndarray) -> np.ndarray:
    """The powers of Lhat under P~ that give E_Q~[Lhat^z] for `remove`, E_P~[Lhat^-z] for `add`."""
    return z - 1 if adjacency == "remove" else -z


def renyi_epsilon(log_moment: float, order: float, delta: float) -> float:
    """Solve E (X - e^eps)_+ <= M(al) e^{(1-al) eps} (1-1/al)^{al-1} / al for eps."""
    gain = (order - 1) * math.log1p(-1 / order) - math.log(order)
    return min((log_moment + gain - math.log(delta)) / (order - 1), HOPELESS)


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """A chain with its free settings: how fakes are drawn, and an order for the inversion."""

    chain: Chain
    adjacency: str
    centring: Centring
    order: float
    epsilon: float
    """Roughly the epsilon that it leads to."""

    def lattice(self, delta: float, fineness: Fineness = FINE) -> Lattice | None:
        """The lattice on which moments are computed; None if it would be too large."""
        return lattice_for(self.chain, self.centring, self.adjacency, EXIT_SHARE * delta, fineness)


def good_setting(
    chain: Chain, adjacency: str, delta: float, near: Setting | None = None
) -> Setting | None:
    """Settings that are good near delta; `near` was good for a similar chain.

    On a coarse lattice it alternates between the order whose moment alone gives the smallest
    epsilon and the centring that is best for it.  None if no lattice fits.
    """
    setting = Setting(chain, adjacency, mean_centring(chain), 0.0, HOPELESS)
    if near is not None:
        setting = replace(setting, centring=near.centring, order=near.order)
    best: Setting | None = None
    for _ in range(TURNS):
        lattice = setting.lattice(delta, COARSE)
        if lattice is None or not lattice.exits < delta:
            break
        setting = _ordered(setting, lattice, delta)
        if best is not None and not setting.epsilon < best.epsilon * (1 - 1e-4):
            break
        best = setting
        if chain.shared == 0:
            break
        power = setting.order - 1 if adjacency == "remove" else -setting.order
        engine = operator if chain.gap == 1 else separation
        weights = engine.output_weights(lattice, chain, power)
        centring = best_centring(
            chain.prior, chain.diagonal, lattice.places, weights, adjacency, setting.order
        )
        centring = centring or mean_centring(chain)
        setting = replace(setting, centring=centring)
    return best


def _ordered(setting: Setting, lattice: Lattice, delta: float) -> Setting:
    """The setting with its best order; an order of 0 means that there is no first guess yet."""

    def value(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        found = log_moment(lattice, setting.chain, setting.adjacency, order)
        return renyi_epsilon(found, order, delta)

    if setting.order:
        centre, width = math.log(setting.order - 1), 0.5
    else:
        grid = np.linspace(math.log(0.02), math.log(2e4), 15)
        centre = float(grid[int(np.argmin([value(float(x)) for x in grid]))])
        width = float(grid[1] - grid[0])
    found = optimize.minimize_scalar(
        value, bounds=(centre - width, centre + width), method="bounded", options={"xatol": 0.02}
    )
    return replace(setting, order=1 + math.exp(float(found.x)), epsilon=float(found.fun))


def curve_near(setting: Setting, delta: float) -> Curve | None:
    """A curve that is tight near delta; None if its moments leave the range of floats."""
    chain, adjacency = setting.chain, setting.adjacency
    lattice = setting.lattice(delta) if setting.epsilon < HOPELESS else None
    if lattice is None:
        return None

    def log_moment_at(order: float) -> float:
        return log_moment(lattice, chain, adjacency, order)

    order, deviation = saddle(log_moment_at, setting.order, delta)
    line = line_near(order, deviation, delta, BLUR * max(setting.epsilon, deviation))
    if line is None:
        return None
    engine = operator if chain.gap == 1 else separation
    found = engine.moments(lattice, chain, powers(adjacency, line.nodes()))
    if found is None:
        return None
    notes = {
        "kappa": chain.shared,
        "rho": chain.decay,
        "omega": chain.white,
        "block": chain.block,
        "order": line.order,
        "exits": lattice.exits,
        "states": lattice.states.size,
        "nodes": line.count,
    }
    inversion = Inversion(line, found)
    return Curve(inversion, lattice.exits, lattice.inflation, setting.epsilon, notes)


def line_near(
    order: float, deviation: float, delta: float, blur: float, most: int = MAX_NODES
) -> Line | None:
    """A line on which aliases from the left, at most e^{-(order-1) period}, are small beside delta.

    None if that would take too much smoothing.
    """
    period = max(PERIODS * deviation, (math.log(1 / delta) + LEFT) / (order - 1))
    line = line_for(order, period, blur, DROP)
    if line.count > most:
        line = line_for(order, period, blur * (line.count / most) ** 2, DROP)
    return line if line.smoothing * line.order**2 < LARGEST_SMOOTHING else None


def saddle(log_moment: Callable[[float], float], order: float, delta: float) -> tuple[float, float]:
    """An order for the inversion and the deviation of log Lhat there, from second differences.

    Just below the order at which moments explode the deviation is huge; a smaller order is better.
    """
    deviation = 1.0
    for _ in range(12):
        step = 0.05 * (order - 1)
        low, middle, high = (log_moment(order + shift) for shift in (-step, 0.0, step))
        variance = (low - 2 * middle + high) / step**2
        if variance > 0 and math.sqrt(variance) * (order - 1) < 2 * math.sqrt(-math.log(delta)) + 4:
            return order, math.sqrt(variance)
        deviation = math.log(1 / delta) / (order - 1)
        order = 1 + 0.85 * (order - 1)
    return order, deviation
