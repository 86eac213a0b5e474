"""Settings of the test: any are valid, and good ones are found with transforms under Q only.

In: an `Ended` chain and the delta, or epsilon, in question.  Out: a `Setting`.
Rounding: none; nothing here is certified.

T is close to the log-likelihood ratio, so E_P[e^{zT}] is close to E_Q[e^{(z+1)T}]: the saddle point
of the latter shows where and how widely T is distributed in the relevant tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.lower.ended import Ended
from mmcc.accounting._bounds.reveal.lower.lattice import Cells, Walk
from mmcc.accounting._bounds.reveal.lower.operator import bound_transforms, steps_for
from mmcc.accounting._bounds.reveal.lower.tails import Line

ORDERS = np.geomspace(0.1, 80.0, 90)
"""Candidates for the order minus one."""
LARGEST_EXPONENT = 600.0
NUDGE = 0.02
BLUR = 0.08
"""tau times the order, which costs about half its square in delta."""
PERIODS = 8.0
"""Period of the Fourier sum in standard deviations of T."""
LEFT = 12.0
"""Aliases from the left are at most e^-LEFT times delta."""
FAR = 4.4
"""Nodes reach to FAR / tau."""
MAX_NODES = 400
THRESHOLDS = np.linspace(-4.0, 2.0, 1201)
LEAST_DELTA, LARGEST_DELTA = 1e-60, 0.5
STEEPEST = 1.1
RARE = 1e-7
"""Rough chance that loads are too large for the nodes."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Order of the transform under Q (one less under P), its deviation, mean; participations."""

    order: float
    mean: float
    deviation: float
    rate: float
    """Roughly how often an example takes part if the test is passed."""
    delta: float
    epsilon: float
    """Roughly the epsilon that it leads to."""

    @property
    def thresholds(self) -> FloatArray:
        """Thresholds at which the test may be cut."""
        return self.mean + THRESHOLDS * max(self.deviation, 1 / self.order)

    def line(self, order: float) -> Line:
        """Nodes for the transform; tau is larger if there would be too many."""
        least = (LEFT - math.log(self.delta)) / (self.order - 1)
        period = max(PERIODS * self.deviation, least)
        blur = max(BLUR / self.order, FAR * period / (2 * math.pi * MAX_NODES))
        step = 2 * math.pi / period
        return Line(order, step, math.ceil(FAR / (blur * step)) + 1, blur)


def log_transforms(walk: Walk, numbers: FloatArray, orders: FloatArray) -> FloatArray:
    """Return log E_Q[e^{al T}], upper bounds that are nearly exact."""
    return bound_transforms(steps_for(walk, None, numbers, orders))


def setting_for(
    walk: Walk, cells: Cells, numbers: FloatArray, *, delta: float | None, epsilon: float
) -> Setting | None:
    """The setting at the saddle point for delta or, if that is None, for epsilon.

    delta = E (X - e^eps)_+ is about e^{K - (al-1) K'} / (al (al-1) s sqrt(2 pi)) at eps = K'(al), K
    the cumulants of log X, for which T stands, shifted so that E_Q[e^T] = 1.
    """
    orders = 1 + ORDERS
    orders = orders[orders * (1 + NUDGE) * np.ptp(numbers) < LARGEST_EXPONENT]
    if orders.size < 2:
        return None
    step = NUDGE * (orders - 1)
    every = np.concatenate([[1.0], orders - step, orders, orders + step])
    many = log_transforms(walk, numbers, every)
    low, middle, high = many[1:].reshape(3, -1)
    if not math.isfinite(many[0]):
        return None
    with np.errstate(invalid="ignore"):  # infinite beyond floats: `wild`
        mean, variance = (high - low) / (2 * step), (low - 2 * middle + high) / step**2
        deviation = np.sqrt(np.maximum(variance, 1e-300))
        log_delta = middle - (orders - 1) * mean - many[0]
        log_delta -= np.log(orders * (orders - 1) * deviation * math.sqrt(2 * math.pi))
        found = log_delta < math.log(delta) if delta is not None else mean - many[0] > epsilon
    # Just below the order at which transforms diverge the deviation is huge.
    likely = np.clip(np.exp(log_delta), LEAST_DELTA, LARGEST_DELTA)
    if delta is not None:
        likely[:] = min(delta, LARGEST_DELTA)
    tame = STEEPEST * (np.sqrt(-2 * np.log(likely)) + 1)
    wild = ~(np.isfinite(middle) & (variance > 0) & ((orders - 1) * deviation < tame))
    stop = int(np.argmax(found | wild)) if (found | wild).any() else orders.size - 1
    if wild[stop]:
        stop -= 1
    if stop < 0:
        return None
    rate = _rate(walk.chain, walk, cells, float(orders[stop]), float(middle[stop]))
    return Setting(
        order=float(orders[stop]),
        mean=float(mean[stop]),
        deviation=float(deviation[stop]),
        rate=rate,
        delta=float(likely[stop]),
        epsilon=max(float(mean[stop] - many[0]), epsilon),
    )


def _rate(chain: Ended, walk: Walk, cells: Cells, order: float, log_transform: float) -> float:
    """The mean posterior chance under the tilted law, from how T responds to larger outputs."""
    floor = float(cells.evidence(chain).min())
    lifted = cells.evidence(chain, NUDGE) - floor
    more = float(log_transforms(walk, lifted, np.array([order]))[0]) - log_transform
    return min(max(more / (NUDGE * order * chain.steps), chain.probability * 0.5), 1.0)


def highest_load(chain: Ended, rate: float) -> float:
    """The load, in units of kappa, that is passed with a small chance: Chernoff's bound."""
    powers = chain.rho ** np.arange(1.0, min(chain.steps, math.ceil(-12 / math.log(chain.rho))) + 1)
    pulls = np.geomspace(0.05, 40, 60)
    cumulants = np.log1p(rate * np.expm1(np.minimum(np.outer(pulls, powers), 500.0))).sum(axis=1)
    chance = RARE / (chain.steps * rate + 1)
    return float(max(((cumulants - math.log(chance)) / pulls).min(), chain.rho))
