"""Descent along slopes: the quasi-Newton method of Broyden, Fletcher, Goldfarb and Shanno.

In: a search, a family, a point.  Out: a better point, and what could still be gained.
Rounding: none; nothing here is a guarantee.

The value is log error + log sigma, sigma being where log epsilon = log target.  So with E = log
error and L = log epsilon a coordinate moves it by

    dE + d log sigma,    d log sigma = - dL / (dL / d log sigma),

all at one sigma: a slope costs two evaluations of a certified bound for each coordinate, and one
for the noise, whereas a value costs two or three.  Slopes of L are two-sided differences, because
one-sided ones would be misleading in narrow valleys.  Bounds are computed on grids, with settings
that make jumps of some 1e-4, so a step must not be small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.design._search import Evaluation, Search
from mmcc.design._shapes import Family
from mmcc.errors import MmccError
from mmcc.strategies._toeplitz import Toeplitz

TOLERANCE = 1e-4
"""The search stops when a step promises to lower log error by less than this."""
STEP = 0.03
"""The step of the differences."""
LONGEST = 0.8
"""The largest move of a coordinate in one step."""
FIRST = 0.4
"""The length of steps while curvatures are unknown, since valleys are flat."""
SHORTER = (1.0, 0.35, 0.1)
"""Fractions of a step that are tried in turn."""
ENOUGH = 1e-3
"""The fraction of the gain promised by slopes that must be reached."""


@dataclass(frozen=True, slots=True)
class Descent:
    """The end of a search along slopes."""

    value: float
    point: FloatArray
    promised: float
    """The expected gain of one more step, in log error; NaN if the search was cut short."""
    inverse: FloatArray | None
    """The inverse of the curvature there; None unless it is known in all directions."""

    @property
    def settled(self) -> bool:
        """Whether it stopped because less than the tolerance could be gained."""
        return self.promised < TOLERANCE


def follow(
    search: Search,
    family: Family,
    start: FloatArray,
    most: int,
    inverse: FloatArray | None = None,
) -> Descent | None:
    """The best member near a start, after at most about `most` strategies; None at a bad start.

    `inverse` is that of the curvature, if a similar search has found it.  Then the slope alone
    shows whether there is anything to be gained at the start.
    """
    end = search.tried + most
    point = np.array(start, dtype=np.float64)
    here = search.look(family.strategy(point))
    if here is None:
        return None
    known = 0 if inverse is None else point.size
    inverse = np.eye(point.size) if inverse is None else inverse
    slope = _slope(search, family, point, here)
    while search.tried + 2 * point.size < end:
        step = -inverse @ slope
        promised = -0.5 * float(slope @ step)
        longest = float(np.abs(step).max())
        if known >= point.size and promised < TOLERANCE:
            return Descent(here.value, point, promised, inverse)
        if not longest > 0:
            break
        first = known < point.size
        step *= (FIRST if first else min(longest, LONGEST)) / longest
        found = _line_search(search, family, point, here, step, float(slope @ step))
        if found is None:
            if not known:
                break
            inverse, known = np.eye(point.size), 0
            continue
        there, moved = found
        if search.tried + 2 * point.size >= end:
            return Descent(there.value, point + moved, math.nan, _if_known(inverse, known))
        steeper = _slope(search, family, point + moved, there)
        inverse = _update(inverse, moved, steeper - slope, known == 0)
        point, here, slope, known = point + moved, there, steeper, known + 1
    return Descent(here.value, point, math.nan, _if_known(inverse, known))


def _if_known(inverse: FloatArray, known: int) -> FloatArray | None:
    """The inverse, unless it rests on fewer steps than there are directions."""
    return inverse if known >= len(inverse) else None


def _slope(search: Search, family: Family, point: FloatArray, here: Evaluation) -> FloatArray:
    """The slope of the value, by differences inside the limits."""
    centre = family.strategy(point)
    assert centre is not None
    noise = search.noise
    by_noise = (noise.excess_near(centre, here.placed, STEP) - here.placed.excess) / STEP
    found = np.zeros(point.size)
    if not -math.inf < by_noise < 0:
        return found
    for place in range(point.size):
        sides = []
        for step in (STEP, -STEP):
            beside = family.strategy(point + step * np.eye(1, point.size, place)[0])
            rise = None if beside is None else _rise(search, beside, here, by_noise)
            if rise is not None:
                sides.append(rise / step)
        found[place] = float(np.mean(sides)) if sides else 0.0
    return found


def _rise(search: Search, beside: Toeplitz, here: Evaluation, by_noise: float) -> float | None:
    """How much larger the value of a neighbouring strategy is."""
    search.count()
    try:
        error = math.log(search.error_of(beside))
    except MmccError:  # an error beyond floating point
        return None
    rise = search.noise.excess_near(beside, here.placed) - here.placed.excess
    found = error - here.error - rise / by_noise
    return found if math.isfinite(found) else None


def _line_search(
    search: Search,
    family: Family,
    point: FloatArray,
    here: Evaluation,
    step: FloatArray,
    along: float,
) -> tuple[Evaluation, FloatArray] | None:
    """The result of the first fraction of a step that gains enough, and the step taken."""
    for part in SHORTER:
        there = search.look(family.strategy(point + part * step))
        if there is not None and there.value < here.value + ENOUGH * part * along:
            return there, part * step
    return None


def _update(inverse: FloatArray, step: FloatArray, bent: FloatArray, fresh: bool) -> FloatArray:
    """The updated inverse of the curvature; unchanged if the step shows no upward curvature."""
    along = float(step @ bent)
    if not along > 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(bent)):
        return inverse
    if fresh:
        inverse = along / float(bent @ bent) * np.eye(step.size)
    shift = np.eye(step.size) - np.outer(step, bent) / along
    return np.asarray(shift @ inverse @ shift.T + np.outer(step, step) / along)
