r"""What past participations weigh, on finitely many nodes, rounded so that P only loses.

In: an `Ended` chain, how far to go.  Out: `Loads`.
Rounding: weights of participation sets are never above the true ones.

Going through the columns, b_{l+1} = rho (b_l + kappa s_l), and s_l = 1 weighs e^{-b_l} less than if
it were alone.  Everything to come multiplies, given the participations, to e^{-b theta} with
theta = sum_{i >= 0} rho^i s_{l+i} (b at column l), so a load between two nodes b - x and b + y may
be divided among them with shares lam and 1 - lam if

    lam e^{theta x} + (1 - lam) e^{-theta y} <= 1       for all theta in [0, Theta].

The left side is convex in theta and 1 at theta = 0, so theta = Theta decides:

    lam = (1 - e^{-Theta y}) / (e^{Theta x} - e^{-Theta y}).

Rounding up would be lam = 0 and cost theta y; this costs theta x y (Theta - theta) / 2.
*Theta.*  A participation that leads beyond the last node is killed, so from each node only finitely
much can come: `_most_to_come`, a maximum over all ways, shares included.
*Periods.*  At phase t of a period, node i stands for the load nodes[i] rho^t; between periods the
geometric nodes move down by whole places.  So only participations are divided, and the lowest node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._bounds.reveal.lower.ended import Ended

RATIO = 0.955
"""Of neighbouring nodes, about."""
LOWEST = 0.03
"""The first node above 0, in units of kappa."""
MAX_NODES = 400
SAFE = 1 - 2.0**-36
"""Shares are lowered by this: their rounding, and that of the nodes, Theta b times 2^-50."""
LARGEST_EXPONENT = 2.0**13
"""Of Theta b; beyond it nothing is certified."""


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """From node i: to node index[i] with weight low[i] and the next with weight high[i]."""

    index: IntArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Loads:
    """Nodes, and for each phase where a participation leads, its weight e^{-b} included."""

    nodes: FloatArray
    period: int
    turn: Split
    """Without participation, from the end of a period to the next."""
    kicks: tuple[Split, ...]


def loads_for(chain: Ended, highest: float) -> Loads | None:
    """Loads up to `highest` kappa, which need not be enough; None if they need too many nodes."""
    slow = math.log(chain.rho) / math.log(RATIO)
    period = max(1, round(1 / slow))
    places = max(1, round(slow))
    ratio = chain.rho ** (period / places)
    highest = min(highest, chain.rho / (1 - chain.rho))
    count = max(math.ceil(math.log(LOWEST / highest) / math.log(ratio)), 1)
    if count > MAX_NODES:
        return None
    top = chain.kappa * highest * (1 + 2.0**-40)
    nodes = np.concatenate([[0.0], top * ratio ** np.arange(count, -1.0, -1.0)])
    turn_index = _below(nodes, nodes * chain.rho**period)
    targets = [nodes + chain.kappa * chain.rho**-t for t in range(period)]
    indices = [_below(nodes, target) for target in targets]
    most = _most_to_come(chain, nodes, turn_index, targets, indices)
    if most[0].max() * top > LARGEST_EXPONENT:
        return None
    # theta of the column after a phase, times what a unit of the nodes is there.
    turn = _split(nodes, nodes * chain.rho**period, turn_index, most[0])
    kicks = []
    for t, (target, index) in enumerate(zip(targets, indices, strict=True)):
        split = _split(nodes, target, index, most[t + 1] * chain.rho ** (t + 1))
        weight = np.where(target <= nodes[-1], np.exp(-nodes * chain.rho**t), 0.0) * SAFE
        kicks.append(Split(split.index, split.low * weight, split.high * weight))
    return Loads(nodes, period, turn, tuple(kicks))


def _below(nodes: FloatArray, targets: FloatArray) -> IntArray:
    """The last node not above each target, but never the last of all."""
    found = np.searchsorted(nodes, targets, side="right") - 1
    return np.clip(found, 0, nodes.size - 2)


def _split(nodes: FloatArray, targets: FloatArray, index: IntArray, most: FloatArray) -> Split:
    """Shares of both neighbours, Theta being `most` of either."""
    theta = np.maximum(most[index], most[index + 1])
    x = np.maximum(targets - nodes[index], 0.0)
    y = np.maximum(nodes[index + 1] - targets, 0.0)
    down, up = np.expm1(theta * x), -np.expm1(-theta * y)
    low = np.where(x > 0, up / np.maximum(down + up, 1e-300), 1.0)
    high = np.where(low < 1 - 2.0**-40, 1 - low, 0.0)  # dropping what is tiny is safe, and faster
    return Split(index, low * SAFE, high * SAFE)


def _most_to_come(
    chain: Ended,
    nodes: FloatArray,
    turn: IntArray,
    targets: list[FloatArray],
    indices: list[IntArray],
) -> list[FloatArray]:
    """For each phase, and the end of the period, an upper bound on theta at each node.

    theta_t(i) = max(rho theta_{t+1}(i), 1 + rho theta_{t+1}(where a participation may lead)),
    the latter if it is not killed.  Iterated from 1/(1 - rho), which is above: all iterates are.
    """
    most = [np.full(nodes.size, 1 / (1 - chain.rho) * (1 + 2.0**-40))] * (len(targets) + 1)
    for _ in range(math.ceil(-8 / math.log(chain.rho) / len(targets))):
        later = np.maximum(most[0][turn], most[0][turn + 1])
        most[-1] = later
        for t in reversed(range(len(targets))):
            index = indices[t]
            there = 1 + chain.rho * np.maximum(later[index], later[index + 1])
            allowed = targets[t] <= nodes[-1]
            later = np.maximum(chain.rho * later, np.where(allowed, there, 0.0)) * (1 + 2.0**-50)
            most[t] = later
    return most
