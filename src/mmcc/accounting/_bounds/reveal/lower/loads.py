r"""The weight of past participations, on finitely many nodes, rounded so that P only loses mass.

In: an `Ended` chain, the highest load.  Out: `Loads`.
Rounding: weights of participation sets are never above the true ones.

Going through the columns, b_{l+1} = rho (b_l + kappa s_l), and s_l = 1 has e^{-b_l} times the
weight it would have alone.  Given the participations, all later factors multiply to e^{-b theta}
with theta = sum_{i >= 0} rho^i s_{l+i} (b at column l), so a load between two nodes b - x and b + y
may be divided among them with shares lam and 1 - lam if

    lam e^{theta x} + (1 - lam) e^{-theta y} <= 1       for all theta in [0, Theta].

The left side is convex in theta and 1 at theta = 0, so theta = Theta decides:

    lam = (1 - e^{-Theta y}) / (e^{Theta x} - e^{-Theta y}).

Rounding up would be lam = 0 and cost theta y; this costs theta x y (Theta - theta) / 2.
*Theta.*  A participation that leads beyond the last node is dropped, so theta is bounded from each
node: `_Paths.most_to_come`, a maximum over all paths, including both neighbours.
*Periods.*  At phase t of a period, node i stands for the load nodes[i] rho^t; between periods the
geometric nodes move down by whole places.  So only participations and the lowest node are divided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._bounds.reveal.lower.ended import Ended

RATIO = 0.955
"""Roughly the ratio of neighbouring nodes."""
LOWEST = 0.03
"""The first node above 0, in units of kappa."""
MAX_NODES = 400
SAFE = 1 - 2.0**-36
"""The factor that lowers shares, for their rounding and that of the nodes, Theta b 2^-50."""
LARGEST_EXPONENT = 2.0**13
"""The largest Theta b; beyond it nothing is certified."""


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """From node i: to node index[i] with weight low[i] and the next with weight high[i]."""

    index: IntArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Loads:
    """Nodes, and where participations lead, including their weights e^{-b}."""

    nodes: FloatArray
    period: int
    turn: Split
    """The split without participation, from the end of a period to the next."""
    kicks: tuple[Split, ...]
    """The split with participation, at each phase of a period."""
    near_end: tuple[Split, ...]
    """`kicks` for the first places, at the end of the run, where kappa_l is smaller."""

    def kick(self, place: int) -> Split:
        """The split with participation at this place."""
        if place < len(self.near_end):
            return self.near_end[place]
        return self.kicks[place % self.period]


def loads_for(chain: Ended, highest: float) -> Loads | None:
    """Loads up to `highest` kappa, which may be too low; None if they need too many nodes."""
    slow = math.log(chain.rho) / math.log(RATIO)
    period = max(1, round(1 / slow))
    places = max(1, round(slow))
    ratio = chain.rho ** (period / places)
    highest = min(highest, chain.rho / (1 - chain.rho))
    count = max(math.ceil(math.log(LOWEST / highest) / math.log(ratio)), 1)
    if count > MAX_NODES:
        return None
    top = chain.kappa * highest * chain.rho**-period * (1 + 2.0**-40)
    nodes = np.concatenate([[0.0], top * ratio ** np.arange(count, -1.0, -1.0)])
    lower = nodes * chain.rho**period
    ways = _Paths(chain, nodes, period, _below(nodes, lower))
    most = ways.most_to_come()
    if most[0].max() * top > LARGEST_EXPONENT:
        return None
    turn = _split(nodes, lower, ways.turn, most[0])
    kicks = tuple(ways.kick(t, chain.kappa, most[t + 1]) for t in range(period))
    near_end: list[Split] = []
    later = most[chain.end % period]
    for place in reversed(range(chain.end)):
        later = ways.turn_back(later) if place % period == period - 1 else later
        size = (chain.kappa - chain.shortfall(place)) * (1 + 2.0**-45)
        near_end.append(ways.kick(place % period, size, later))
        later = ways.before(place % period, size, later)
    return Loads(nodes, period, turn, kicks, tuple(reversed(near_end)))


@dataclass(frozen=True, eq=False, slots=True)
class _Paths:
    """Which nodes lead to which; `later` is theta of the next column, by its nodes."""

    chain: Ended
    nodes: FloatArray
    period: int
    turn: IntArray

    def target(self, phase: int, size: float) -> FloatArray:
        """Where a participation with kappa_l = size leads, in units of the next phase."""
        return np.asarray(self.nodes + size * self.chain.rho**-phase)

    def turn_back(self, later: FloatArray) -> FloatArray:
        """Theta moved from a period's first phase back to the end of the previous period."""
        return np.maximum(later[self.turn], later[self.turn + 1])

    def before(self, phase: int, size: float, later: FloatArray) -> FloatArray:
        """theta(i) = max(rho later(i), 1 + rho later(target)), the latter unless it is dropped."""
        target = self.target(phase, size)
        index = _below(self.nodes, target)
        there = 1 + self.chain.rho * np.maximum(later[index], later[index + 1])
        there = np.where(target <= self.nodes[-1], there, 0.0)
        return np.maximum(self.chain.rho * later, there) * (1 + 2.0**-50)

    def most_to_come(self) -> list[FloatArray]:
        """For each phase, and the end of the period, an upper bound on theta at each node.

        It is iterated from 1/(1 - rho), an upper bound, so all iterates are upper bounds.
        """
        most = [np.full(self.nodes.size, 1 / (1 - self.chain.rho) * (1 + 2.0**-40))]
        most *= self.period + 1
        for _ in range(math.ceil(-8 / math.log(self.chain.rho) / self.period)):
            most[-1] = self.turn_back(most[0])
            for t in reversed(range(self.period)):
                most[t] = self.before(t, self.chain.kappa, most[t + 1])
        return most

    def kick(self, phase: int, size: float, later: FloatArray) -> Split:
        """The split with participation; theta is the next column's, times the unit of its nodes."""
        target = self.target(phase, size)
        index = _below(self.nodes, target)
        split = _split(self.nodes, target, index, later * self.chain.rho ** (phase + 1))
        weight = np.exp(-self.nodes * self.chain.rho**phase) * SAFE
        weight = np.where(target <= self.nodes[-1], weight, 0.0)
        return Split(index, split.low * weight, split.high * weight)


def _below(nodes: FloatArray, targets: FloatArray) -> IntArray:
    """The last node not above each target, excluding the very last node."""
    found = np.searchsorted(nodes, targets, side="right") - 1
    return np.clip(found, 0, nodes.size - 2)


def _split(nodes: FloatArray, targets: FloatArray, index: IntArray, most: FloatArray) -> Split:
    """The shares of both neighbours, with Theta the larger `most` of the two."""
    theta = np.maximum(most[index], most[index + 1])
    x = np.maximum(targets - nodes[index], 0.0)
    y = np.maximum(nodes[index + 1] - targets, 0.0)
    down, up = np.expm1(theta * x), -np.expm1(-theta * y)
    low = np.where(x > 0, up / np.maximum(down + up, 1e-300), 1.0)
    high = np.where(low < 1 - 2.0**-40, 1 - low, 0.0)  # dropping tiny shares is safe and faster
    return Split(index, low * SAFE, high * SAFE)
