"""Lower ends by a nonlinear test, for one-buffer BLTs under independent rounds.

In: strategy, rounds, sigma, and a delta or an epsilon.  Out: a number that no method can go below.
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
from mmcc.accounting._bounds.reveal.lower.loads import Loads, loads_for
from mmcc.accounting._bounds.reveal.lower.operator import (
    Steps,
    bound_transforms,
    steps_for,
    transform,
)
from mmcc.accounting._bounds.reveal.lower.settings import (
    FAR,
    Setting,
    highest_load,
    setting_for,
)
from mmcc.accounting._bounds.reveal.lower.tails import Line, Tail
from mmcc.accounting._parallel import one_thread
from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

__all__ = ("lower_delta", "lower_epsilon")

MAX_DIAGONAL = 60.0
LARGEST_EPSILON = 60.0
SILENT_ABOVE, SILENT_BELOW = 1e-9, 2e-6
DOWN = 1 - 2.0**-40


def lower_epsilon(strategy: Toeplitz, rounds: Rounds, sigma: float, delta: float) -> float:
    """No method can prove a smaller epsilon at delta; 0 where nothing is known."""
    chain = ended_chain(strategy, rounds, sigma)
    if chain is None or not chain.diagonal <= MAX_DIAGONAL or not 0 < delta < 1:
        return 0.0
    with one_thread():
        curve = _curve(chain, delta, None)
    return 0.0 if curve is None else curve.epsilon(delta)


def lower_delta(strategy: Toeplitz, rounds: Rounds, sigma: float, epsilon: float) -> float:
    """No method can prove a smaller delta at epsilon; 0 where nothing is known."""
    chain = ended_chain(strategy, rounds, sigma)
    if chain is None or not chain.diagonal <= MAX_DIAGONAL or not 0 <= epsilon <= LARGEST_EPSILON:
        return 0.0
    with one_thread():
        curve = _curve(chain, None, epsilon)
    return 0.0 if curve is None else curve.delta(epsilon)


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """At each threshold: the test is passed with at least `found` under P, at most `false` under Q."""

    found: FloatArray
    false: FloatArray

    def epsilon(self, delta: float) -> float:
        """For epsilon < log((P(B) - delta)/Q(B)), P(B) - e^epsilon Q(B) > delta."""
        use = self.found > delta
        if not use.any():
            return 0.0
        gained = (self.found[use] - delta) * DOWN
        return max(float(np.log(gained / self.false[use]).max()) - 2.0**-40, 0.0)

    def delta(self, epsilon: float) -> float:
        """The best of the thresholds."""
        gained = self.found * DOWN - self.false * math.exp(epsilon) / DOWN
        return max(float(gained.max()), 0.0)


def _curve(chain: Ended, delta: float | None, epsilon: float | None) -> Curve | None:
    """Tails of the test near the threshold that is best for delta or epsilon."""
    cells = cells_of(chain)
    numbers = cells.evidence(chain)
    floor = float(numbers.min())
    numbers = numbers - floor
    likely = delta if delta is not None else 1e-5
    reach = math.sqrt(2 * (math.log(chain.steps / likely) + (epsilon or 0.0) + 24))
    above = walk_above(chain, cells, reach)
    if above is None:
        return None
    setting = setting_for(above, cells, numbers, delta=delta, epsilon=epsilon or 0.0)
    if setting is None:
        return None
    period = setting.period(likely)
    blur = setting.blur(period)
    step = 2 * math.pi / period
    count = math.ceil(FAR / (blur * step)) + 1
    around = np.linspace(-4.0, 2.0, 1201) * max(setting.deviation, 1 / setting.order)
    thresholds = setting.mean + around
    false = _false(above, numbers, Line(setting.order, step, count, blur), thresholds)
    found = _found(chain, cells, numbers, setting, Line(setting.order - 1, step, count, blur), thresholds)
    if false is None or found is None:
        return None
    return Curve(found, false)


def _false(walk: Walk, numbers: FloatArray, line: Line, t: FloatArray) -> FloatArray | None:
    """Upper bounds on Q(B): what is on the lattice, and what leaves it."""
    steps = steps_for(walk, None, numbers, line.nodes())
    there = transform(steps, line.nodes(), float(numbers.max()), SILENT_ABOVE)
    if there is None:
        return None
    tail = Tail(line, there, 0.0).above(t)
    return (tail + walk.exits) * math.exp(walk.spread) * (1 + 2.0**-40)


def _found(
    chain: Ended, cells: Cells, numbers: FloatArray, setting: Setting, line: Line, t: FloatArray
) -> FloatArray | None:
    """Lower bounds on P(B)."""
    shift = math.sqrt(chain.kappa) * (2 * setting.rate / (1 - chain.rho) + 2)
    walk = walk_below(chain, cells, 5.5, 5.5 + shift)
    loads = loads_for(chain, highest_load(chain, setting.rate))
    if walk is None or loads is None:
        return None
    every = line.nodes()
    weights = steps_for(walk, loads, numbers, every)
    computed = _computed(walk, weights)
    nodes = every[:computed]
    there = transform(weights.only(np.arange(computed)), nodes, float(numbers.max()), SILENT_BELOW)
    if there is None:
        return None
    higher = line.order + np.array([0.5, 1.0, 2.0]) / setting.deviation
    logs = bound_transforms(_positive(walk, loads, weights, computed, numbers, higher))
    real = math.log(float(there.values[0].real)) + there.log_scale
    others = math.exp(min(logs[0] - real, 0.0)) * (1 + 4 * there.errors[0])
    tail = Tail(line, there, others).below(t, higher, logs[1:])
    return tail * math.exp(-walk.spread) * DOWN


def _positive(
    walk: Walk,
    loads: Loads,
    weights: Steps,
    computed: int,
    numbers: FloatArray,
    higher: FloatArray,
) -> Steps:
    """Columns of positive weights: the largest moduli at nodes not computed, and higher orders."""
    real = steps_for(walk, loads, numbers, higher)
    rest = _largest(weights.rest, computed)
    assert weights.kick is not None and real.kick is not None
    kick = _largest(weights.kick, computed)
    return Steps(walk, loads, np.column_stack([rest, real.rest]), np.column_stack([kick, real.kick]))


def _largest(weights: FloatArray, computed: int) -> FloatArray:
    sizes = np.abs(weights[:, computed:]) * (1 + 2.0**-40)
    return sizes.max(axis=1) if sizes.shape[1] else np.abs(weights[:, 0])


def _computed(walk: Walk, weights: Steps) -> int:
    """So many nodes that bounding the others by the moduli of their weights does."""
    count = weights.rest.shape[1]
    firsts = np.unique(np.minimum(np.round(np.geomspace(6, count, 60)).astype(int), count))
    columns = [_largest(weights.rest, int(first)) for first in firsts if first < count]
    if not columns:
        return count
    alone = Steps(walk, None, np.column_stack([weights.rest[:, 0].real, *columns]), None)
    logs = bound_transforms(alone)
    small = np.flatnonzero(logs[1:] - logs[0] < math.log(SILENT_BELOW))
    return int(firsts[small[0]]) if small.size else count
