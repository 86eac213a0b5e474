"""Choosing the free numbers of the bound: decay, cap, exit share, order and the function q(v).

In: the Gram profile, p, delta.  Out: a `Setting`.
Rounding: none; every setting is valid, so the search may be rough.  It minimises the epsilon that
the real moment alone gives (Renyi), on a coarse lattice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import optimize

from mmcc.accounting._bounds.chain.domination import Chain, Profile, chain_at, lightest_decay
from mmcc.accounting._bounds.chain.factors import (
    Tangent,
    add_factors,
    remove_factors,
    tilted,
)
from mmcc.accounting._bounds.chain.lattice import COARSE, Lattice, lattice_for
from mmcc.accounting._bounds.chain.operator import Factors, moments

EXIT_SHARE = 0.004
MORE_FOR_EXITS = (0.05, 0.25)
"""Shares of delta for exits; more of it makes the range of v smaller."""
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


def good_settings(
    profile: Profile, probability: float, adjacency: str, delta: float
) -> list[Setting]:
    """Good settings, coordinate by coordinate from the chain with the smallest row sum.

    With a small share for exits, and with a larger one if that looks better; which is best in the
    end only the inversion says.  None if no chain dominates the profile or fits on a lattice.
    """
    decay = lightest_decay(profile)
    chain = chain_at(profile, probability, decay)
    if chain is None:
        return []

    def settled(chain: Chain, cap: float, share: float, start: Setting | None) -> Setting | None:
        return _settled(chain, adjacency, cap, share, delta, start)

    if adjacency == "add" or chain.share == 0:
        only = settled(chain, 1.0, EXIT_SHARE, None)
        return [] if only is None else [only]
    best: Setting | None = None
    for cap in CAPS:
        best = _better(best, settled(chain, cap, EXIT_SHARE, best))
    if best is None:
        return []
    for cap in (best.tangent.cap * 1.6, best.tangent.cap / 1.6):
        best = _better(best, settled(chain, min(cap, 1.0), EXIT_SHARE, best))
    for other in _other_decays(profile, probability, decay):
        best = _better(best, settled(other, best.tangent.cap, EXIT_SHARE, best))
    found = [best]
    for share in MORE_FOR_EXITS:
        more = settled(best.chain, best.tangent.cap, share, best)
        if more is not None and more.epsilon < best.epsilon:
            found.append(more)
    return found


T = TypeVar("T", Setting, "Setting | None")


def _better(old: T, new: Setting | None) -> T:
    """The setting with the smaller epsilon."""
    if new is None or (old is not None and old.epsilon <= new.epsilon):
        return old
    return new


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
