"""Choosing the free numbers of the bound: decay, cap, exit share, order and the function q(v).

In: the Gram profile, p, delta.  Out: a `Setting`.
Rounding: none; every setting is valid, so the search may be rough.  It minimises the epsilon that
the real moment alone gives (Renyi), on a coarse lattice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mmcc.accounting.chain.domination import Chain, Profile, chain_at, lightest_decay
from mmcc.accounting.chain.factors import (
    Tangent,
    add_factors,
    remove_factors,
    tilted,
)
from mmcc.accounting.chain.lattice import COARSE, Lattice, lattice_for
from mmcc.accounting.chain.operator import Factors, moments

EXIT_SHARE = 0.02
CAPS = (0.02, 0.05, 0.15, 1.0)
ROUNDS = 4
HOPELESS = 1e9


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """One valid choice, and roughly the epsilon it leads to."""

    chain: Chain
    adjacency: str
    exit_share: float
    order: float
    epsilon: float
    tangent: Tangent

    def factors(self, lattice: Lattice) -> Factors:
        """The factors of this setting on any lattice."""
        if self.adjacency == "add":
            return add_factors(self.chain, lattice)
        return remove_factors(self.chain, lattice, self.tangent.on(lattice.states))

    def log_moment(self, lattice: Lattice, factors: Factors, order: float) -> float:
        """Return log E[X^order] (remove) or log E[X^(1 - order)] (add); or infinity."""
        power = order if self.adjacency == "remove" else 1 - order
        found = moments(lattice, factors, self.chain, np.array([complex(power)]))
        if found is None:
            return math.inf
        return math.log(float(found.values[0].real)) + found.log_scale


def renyi_epsilon(log_moment: float, order: float, delta: float) -> float:
    """E (X - e^eps)_+ <= M(al) e^{(1-al) eps} (1-1/al)^{al-1} / al, solved for eps."""
    gain = (order - 1) * math.log1p(-1 / order) - math.log(order)
    return min((log_moment + gain - math.log(delta)) / (order - 1), HOPELESS)


def best_setting(
    profile: Profile, probability: float, adjacency: str, delta: float
) -> Setting | None:
    """A good setting: coordinate by coordinate from the chain with the smallest row sum.

    None if no chain dominates the profile, or none fits on a lattice.
    """
    decay = lightest_decay(profile)
    chain = chain_at(profile, probability, decay)
    if chain is None:
        return None
    if adjacency == "add" or chain.share == 0:
        return _settled(chain, adjacency, 1.0, EXIT_SHARE, delta, None)
    best: Setting | None = None
    for cap in CAPS:
        best = _better(best, _settled(chain, adjacency, cap, EXIT_SHARE, delta, best))
    if best is None:
        return None
    for cap in (best.tangent.cap * 1.6, best.tangent.cap / 1.6):
        best = _better(best, _settled(chain, adjacency, min(cap, 1.0), EXIT_SHARE, delta, best))
    for other in _other_decays(profile, probability, decay):
        best = _better(best, _settled(other, adjacency, best.tangent.cap, EXIT_SHARE, delta, best))
    for share in (0.1, 0.004):
        best = _better(best, _settled(best.chain, adjacency, best.tangent.cap, share, delta, best))
    return best


def _better(old: Setting | None, new: Setting | None) -> Setting:
    """The setting with the smaller epsilon; at least one is there."""
    found = [setting for setting in (old, new) if setting is not None]
    return min(found, key=lambda setting: setting.epsilon)


def _other_decays(profile: Profile, probability: float, decay: float) -> Iterator[Chain]:
    """Chains with faster and slower decay than the lightest."""
    for factor in (0.8, 1.25):
        other = chain_at(profile, probability, 1 - (1 - decay) * factor)
        if other is not None:
            yield other


def _settled(
    chain: Chain,
    adjacency: str,
    cap: float,
    exit_share: float,
    delta: float,
    start: Setting | None,
) -> Setting | None:
    """The best order and q for a chain, a cap and an exit share, by alternating between them."""
    lattice = lattice_for(chain, adjacency, exit_share * delta, COARSE)
    if lattice is None or not lattice.exits < delta:
        return None
    rest = delta - lattice.exits
    if start is None:
        level = 2 * chain.block * chain.probability * (1 + chain.decay) / (1 - chain.decay)
        tangent = Tangent(lattice.states, np.full(lattice.states.size, level), cap)
        order = 0.0
    else:
        tangent = Tangent(start.tangent.states, start.tangent.q, cap).on(lattice.states)
        order = start.order
    best = _ordered(Setting(chain, adjacency, exit_share, order, HOPELESS, tangent), lattice, rest)
    if adjacency == "add" or chain.share == 0:
        return best
    for _ in range(ROUNDS):
        tangent = improved(chain, lattice, best.tangent, best.order)
        new = Setting(chain, adjacency, exit_share, best.order, HOPELESS, tangent)
        new = _ordered(new, lattice, rest)
        if not new.epsilon < best.epsilon * (1 - 1e-4):
            break
        best = new
    return best


def _ordered(setting: Setting, lattice: Lattice, delta: float) -> Setting:
    """The setting with its best order; an order of 0 is a first guess yet to be made."""
    factors = setting.factors(lattice)

    def value(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return renyi_epsilon(setting.log_moment(lattice, factors, order), order, delta)

    if setting.order:
        centre, width = math.log(setting.order - 1), 0.5
    else:
        grid = np.linspace(math.log(0.02), math.log(2e4), 15)
        centre = float(grid[int(np.argmin([value(float(x)) for x in grid]))])
        width = float(grid[1] - grid[0])
    found = optimize.minimize_scalar(
        value, bounds=(centre - width, centre + width), method="bounded", options={"xatol": 0.02}
    )
    return Setting(
        setting.chain,
        setting.adjacency,
        setting.exit_share,
        1 + math.exp(float(found.x)),
        float(found.fun),
        setting.tangent,
    )


def improved(chain: Chain, lattice: Lattice, tangent: Tangent, order: float) -> Tangent:
    """A better q(v): the conditional mean of R r' given v under the law tilted to this order.

    (1+rho^2) q(v) - rho E[q(next) + q(last) | v] = (1-rho^2) E[R_J | v], R_J the sum of r' over the
    block: where the quadratic form is stationary among functions of v, for the chain that the
    leading eigenvectors define.
    """
    factors = remove_factors(chain, lattice, tangent)
    lowered = tangent.lowered(tilted(chain, lattice.logs)[1])
    weights = lattice.masses * np.exp(order * (factors.step - factors.step.max()))
    mean = weights.sum(axis=1)
    taken = chain.block * (weights * lowered).sum(axis=1) / mean
    transfer = (mean / mean.max())[:, None] ** chain.block * lattice.kernel
    transfer *= np.exp(order * (factors.move - factors.move.max()))
    power = transfer / transfer.max()
    for _ in range(12):
        power = power @ power
        power /= power.max()
    right, left = power.sum(axis=1), power.sum(axis=0)
    ahead = transfer * right[None, :]
    ahead /= ahead.sum(axis=1)[:, None]
    back = (left[:, None] * transfer).T
    back /= back.sum(axis=1)[:, None]
    rho = chain.decay
    system = (1 + rho * rho) * np.eye(mean.size) - rho * (ahead + back)
    q = np.maximum(np.linalg.solve(system, (1 - rho * rho) * taken), 0.0)
    return Tangent(tangent.states, q, tangent.cap)
