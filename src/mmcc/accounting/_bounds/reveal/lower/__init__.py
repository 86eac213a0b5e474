"""Lower ends by a nonlinear test, for one-buffer BLTs under independent rounds.

In: strategy, rounds, sigma, and a delta or an epsilon.  Out: a number below which no method can
prove anything.
Rounding: down.

Any test B shows delta(epsilon) >= P(B) - e^epsilon Q(B).  Here B = {T + tau N > t} with
T = sum_l f(u_l), f nearly log(1 - p + p e^{u - g/2}).  Q(B) is bounded from above, P(B) from below,
by transfer operators on a lattice and a certified Fourier inversion.  Proofs:
docs/theory-reveal-lower.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.lower.ended import Ended, ended_chain
from mmcc.accounting._bounds.reveal.lower.lattice import (
    Cells,
    Walk,
    cells_of,
    walk_above,
    walk_below,
)
from mmcc.accounting._bounds.reveal.lower.loads import loads_for
from mmcc.accounting._bounds.reveal.lower.operator import (
    Steps,
    Weights,
    bound_transforms,
    steps_for,
    transform,
)
from mmcc.accounting._bounds.reveal.lower.settings import (
    Setting,
    highest_load,
    setting_for,
)
from mmcc.accounting._bounds.reveal.lower.tails import Tail
from mmcc.accounting._parallel import one_thread
from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

__all__ = ("lower_delta", "lower_epsilon")

MAX_DIAGONAL = 60.0
LARGEST_EPSILON = 60.0
SILENT_ABOVE, SILENT_BELOW = 1e-9, 2e-6
"""Powers z are left out once their transforms are this small, relative to the real one."""
ROUGH, WIDE = 9.5, 5.5
"""The reach in standard deviations of v: for making choices, and for P."""
SMALL = 10.0
"""What leaves the lattice under Q costs roughly e^-SMALL times delta."""
HIGHER = np.array([0.5, 1.0, 2.0])
"""Orders for Chernoff's bound on aliases, divided by the standard deviation of T."""
DOWN = 1 - 2.0**-40
MAX_WORK = 2e9
"""Most states * loads * powers * columns, which take about half a minute."""


def lower_epsilon(strategy: Toeplitz, rounds: Rounds, sigma: float, delta: float) -> float:
    """A lower bound: no method can prove a smaller epsilon at delta; 0 if nothing is known."""
    chain = ended_chain(strategy, rounds, sigma)
    if chain is None or not chain.diagonal <= MAX_DIAGONAL or not 0 < delta < 1:
        return 0.0
    with one_thread():
        curve = _curve(chain, delta, 0.0)
    return 0.0 if curve is None else curve.epsilon(delta)


def lower_delta(strategy: Toeplitz, rounds: Rounds, sigma: float, epsilon: float) -> float:
    """A lower bound: no method can prove a smaller delta at epsilon; 0 if nothing is known."""
    chain = ended_chain(strategy, rounds, sigma)
    if chain is None or not chain.diagonal <= MAX_DIAGONAL or not 0 <= epsilon <= LARGEST_EPSILON:
        return 0.0
    with one_thread():
        curve = _curve(chain, None, epsilon)
    return 0.0 if curve is None else curve.delta(epsilon)


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """Chances to pass the test at each threshold: lower bounds under P, upper bounds under Q."""

    found: FloatArray
    false: FloatArray

    def epsilon(self, delta: float) -> float:
        """The largest log((P(B) - delta)/Q(B)): below it, P(B) - e^epsilon Q(B) > delta."""
        use = self.found > delta
        if not use.any():
            return 0.0
        gained = (self.found[use] - delta) * DOWN
        return max(float(np.log(gained / self.false[use]).max()) - 2.0**-40, 0.0)

    def delta(self, epsilon: float) -> float:
        """The largest lower bound on delta at epsilon over all thresholds."""
        gained = self.found * DOWN - self.false * math.exp(epsilon) / DOWN
        return max(float(gained.max()), 0.0)


def _curve(chain: Ended, delta: float | None, epsilon: float) -> Curve | None:
    """Tails of the test near the best threshold for delta or, if that is None, for epsilon."""
    cells = cells_of(chain)
    numbers = cells.evidence(chain)
    numbers = numbers - numbers.min()  # a constant in T only shifts the threshold
    rough = walk_above(chain, cells, ROUGH)
    if rough is None:
        return None
    setting = setting_for(rough, cells, numbers, delta=delta, epsilon=epsilon)
    if setting is None:
        return None
    false = _false(chain, cells, numbers, setting)
    found = None if false is None else _found(chain, cells, numbers, setting)
    return None if false is None or found is None else Curve(found, false)


def _false(chain: Ended, cells: Cells, numbers: FloatArray, setting: Setting) -> FloatArray | None:
    """Upper bounds on Q(B), from what is on the lattice and what leaves it."""
    exits = math.log(chain.steps / setting.delta) + setting.epsilon + SMALL
    walk = walk_above(chain, cells, math.sqrt(2 * exits))
    if walk is None:
        return None
    line = setting.line(setting.order)
    steps = steps_for(walk, None, numbers, line.nodes())
    there = transform(steps, line.nodes(), float(numbers.max()), SILENT_ABOVE)
    if there is None:
        return None
    tail = Tail(line, there, 0.0).above(setting.thresholds)
    return np.asarray((tail + walk.exits) * math.exp(walk.spread) * (1 + 2.0**-40))


def _found(chain: Ended, cells: Cells, numbers: FloatArray, setting: Setting) -> FloatArray | None:
    """Lower bounds on P(B)."""
    shift = math.sqrt(chain.kappa) * (2 * setting.rate / (1 - chain.rho) + 2)
    walk = walk_below(chain, cells, WIDE, WIDE + shift)
    loads = loads_for(chain, highest_load(chain, setting.rate))
    if walk is None or loads is None:
        return None
    line = setting.line(setting.order - 1)
    weights = steps_for(walk, loads, numbers, line.nodes())
    computed = _computed(walk, weights)
    turns = min(chain.steps, 30 / (1 - chain.rho))
    if walk.states.size * loads.nodes.size * computed * turns > MAX_WORK:
        return None
    some = weights.only(np.arange(computed))
    there = transform(some, line.nodes()[:computed], float(numbers.max()), SILENT_BELOW)
    if there is None:
        return None
    higher = line.order + HIGHER / setting.deviation
    logs = bound_transforms(_positive(weights, computed, numbers, higher))
    others = math.exp(min(logs[0] - there.log_real, 0.0)) * (1 + 4 * there.errors[0])
    tail = Tail(line, there, others).below(setting.thresholds, higher, logs[1:])
    return np.asarray(tail * math.exp(-walk.spread) * DOWN)


def _positive(weights: Steps, computed: int, numbers: FloatArray, higher: FloatArray) -> Steps:
    """Columns of positive weights: the largest moduli at nodes not computed, and higher orders."""
    real = steps_for(weights.walk, weights.loads, numbers, higher)
    rest = np.column_stack([_largest(weights.rest, computed), real.rest])
    if weights.kick is None or real.kick is None:
        return Steps(weights.walk, weights.loads, rest, None)
    kick = np.column_stack([_largest(weights.kick, computed), real.kick])
    return Steps(weights.walk, weights.loads, rest, kick)


def _largest(weights: Weights, computed: int) -> FloatArray:
    """The largest modulus at the nodes not computed, its rounding paid for."""
    real, sizes = np.abs(weights[:, 0]), np.abs(weights[:, computed:])
    return np.asarray((sizes.max(axis=1) if sizes.shape[1] else real) + 2.0**-34 * real)


def _computed(walk: Walk, weights: Steps) -> int:
    """How many nodes to compute so that the others can be bounded by their weights' moduli."""
    count = int(weights.rest.shape[1])
    firsts = np.unique(np.round(np.geomspace(min(6, count), count, 60)).astype(int))[:-1]
    if not firsts.size:
        return count
    columns = [_largest(weights.rest, int(first)) for first in firsts]
    alone = Steps(walk, None, np.column_stack([weights.rest[:, 0].real, *columns]), None)
    logs = bound_transforms(alone)
    small = np.flatnonzero(logs[1:] - logs[0] < math.log(SILENT_BELOW))
    return int(firsts[small[0]]) if small.size else count
