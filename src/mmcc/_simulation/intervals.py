"""From the means of independent batches to an interval for epsilon.

In: for each batch and epsilon the means above and below.  Out: where the confidence bands of delta
cross the given delta.  Levels are one-sided; log delta is interpolated between epsilons that are
close together; otherwise an end is the next epsilon outwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import optimize, special

from mmcc._arrays import FloatArray
from mmcc._simulation.batches import Batch

TINY = 1e-300
DEGREE = 4
SMOOTH = 2.5
"""The largest fall of log delta over which a polynomial follows it to `ACCURACY`."""
ACCURACY = 1e-5
"""Relative error of epsilon from rounding, classes and interpolation: added to every interval."""


@dataclass
class Tally:
    """Running sums over batches: memory does not grow with their number."""

    batches: int = 0
    samples: int = 0
    sums: FloatArray = field(default_factory=lambda: np.zeros(0))
    squares: FloatArray = field(default_factory=lambda: np.zeros(0))
    mass_squares: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The sums of single outputs, for each epsilon."""

    def add(self, batch: Batch) -> None:
        """Add a batch."""
        values = batch.values.mean(axis=0)
        above, below = values[:, :2].mean(axis=1), values[:, 2:].mean(axis=1)
        means = np.stack([above, below, 0.5 * (above + below)])
        if not self.batches:
            self.sums, self.squares = np.zeros_like(means), np.zeros_like(means)
            self.mass_squares = np.zeros(len(values))
        self.batches += 1
        self.samples += len(batch.values)
        self.sums += means
        self.squares += means**2
        self.mass_squares += np.square(batch.values[:, :, :2].mean(axis=2)).sum(axis=0)

    @property
    def means(self) -> FloatArray:
        """Above, below and their middle, for each epsilon."""
        return self.sums / self.batches

    @property
    def errors(self) -> FloatArray:
        """Standard errors of the means."""
        spread = np.maximum(self.squares / self.batches - self.means**2, 0.0)
        return np.asarray(np.sqrt(spread / max(self.batches - 1, 1)))

    def effective(self, place: int) -> float:
        """How many outputs of equal weight the sample is worth at one of the epsilons."""
        mass = float(self.sums[0, place]) / self.batches * self.samples
        squares = float(self.mass_squares[place])
        return mass**2 / squares if squares > 0 else 0.0


@dataclass(frozen=True)
class Interval:
    """Low <= epsilon <= high with the given confidence; an end outside the grid is None."""

    low: float | None
    epsilon: float | None
    high: float | None
    bias: float
    """The part of the width that more outputs do not shrink."""
    coarse: tuple[float, float] | None = None
    """The epsilons around the crossing, if they are too far apart to interpolate."""


def interval(tally: Tally, epsilons: FloatArray, delta: float, level: float) -> Interval:
    """Both ends at the one-sided level."""
    reach = float(special.stdtrit(tally.batches - 1, 1 - level))
    above, below, middle = tally.means
    errors = tally.errors
    upper = Crossing.of(above + reach * errors[0], epsilons, delta)
    lower = Crossing.of(below - reach * errors[1], epsilons, delta)
    epsilon = falls_to(middle, epsilons, delta)
    ends = falls_to(above, epsilons, delta), falls_to(below, epsilons, delta)
    bias = ends[0] - ends[1] if ends[0] is not None and ends[1] is not None else math.inf
    if upper is None or lower is None:
        return Interval(
            None if lower is None else lower.left,
            epsilon,
            None if upper is None else upper.right,
            bias,
        )
    coarse = None if upper.smooth and lower.smooth else (lower.left, upper.right)
    low = lower.place if lower.smooth else lower.left
    high = upper.place if upper.smooth else upper.right
    return Interval(low * (1 - ACCURACY), epsilon, high * (1 + ACCURACY), max(bias, 0.0), coarse)


def falls_to(curve: FloatArray, epsilons: FloatArray, delta: float) -> float | None:
    """Approximately where a curve falls to delta; None if it never does, or before the first."""
    found = Crossing.of(curve, epsilons, delta)
    return None if found is None else found.place


@dataclass(frozen=True)
class Crossing:
    """Where a falling curve through points crosses delta, and between which two epsilons."""

    left: float
    place: float
    right: float
    smooth: bool
    """Whether `place` is good to a relative `ACCURACY` of the curve; otherwise a rough guess."""

    @classmethod
    def of(cls, curve: FloatArray, epsilons: FloatArray, delta: float) -> Crossing | None:
        """The first crossing; at 0 where the curve starts below delta at epsilon 0."""
        heights = np.log(np.maximum(curve, TINY)) - math.log(delta)
        below = np.flatnonzero(heights <= 0)
        if not below.size:
            return None
        index = int(below[0])
        if index == 0:
            return cls(0.0, 0.0, 0.0, True) if epsilons[0] == 0.0 else None
        left, right = float(epsilons[index - 1]), float(epsilons[index])
        share = float(heights[index - 1] / (heights[index - 1] - heights[index]))
        line = left + (right - left) * share
        if heights.size > DEGREE + 1 or heights.max() - heights.min() > SMOOTH:
            return cls(left, line, right, False)
        # On a grid this narrow log delta is a smooth curve; the points share their noise.
        units = (epsilons - left) / (right - left)
        curved = np.polynomial.Polynomial.fit(units, heights, DEGREE)
        if not curved(0.0) > 0.0 > curved(1.0):
            return cls(left, line, right, False)
        root = float(optimize.brentq(curved, 0.0, 1.0))
        return cls(left, left + root * (right - left), right, True)
