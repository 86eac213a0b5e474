"""The order in which the search for a strategy goes through families of strategies.

In: a search, a scheme, the error of the best fixed strategy.  Out: nothing; the search records the
best.
Rounding: none; nothing here is a guarantee.

Which strategy is best depends more on the target than on the scheme.  So if every bound under a
scheme takes many seconds, the search starts under Poisson sampling at the same rate, and then
improves its result along the slopes of the scheme's own bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._best_bound import FEW_COLUMNS, amplified
from mmcc.accounting._bounds import Cost, Problem
from mmcc.design._optimised_result import Candidate
from mmcc.design._quasi_newton import follow
from mmcc.design._rough_noise import RoughNoise
from mmcc.design._search import STARTS, Corner, Search
from mmcc.design._shapes import LIMITS, Bands, Buffers, Family, InverseBands, Shapes
from mmcc.errors import MmccError
from mmcc.sampling import Poisson, Scheme
from mmcc.strategies._banded_toeplitz import banded_toeplitz
from mmcc.strategies._blt import blt
from mmcc.strategies._toeplitz import identity
from mmcc.strategies._workloads import Workload

WIDEST_OPTIMISED = 512
"""Most bands optimised for one participation, since each step of a descent sums them all."""
SHARE = 0.6
"""The fraction of the evaluations that one-buffer BLTs may use; other families get the rest."""
DOUBLINGS = 3
"""The number of widths of optimised bands to try, from the one that fits between two rounds."""
POWERS = 1024
"""Most steps for which powers of one buffer are tried, as they have a coefficient per step."""
FEW = 16
"""The number of strategies tried in families with few bands, of C or of C^-1."""
HOPELESS = 0.1
"""A family that starts this much above the best, in log error, is abandoned."""
OWN = 24
"""Strategies tried under the scheme itself, if the search ran under another one."""
ROOT_BANDS = (-0.6931, -1.6740)
"""The start for three bands of C: log c_1 and log c_2 of continual_counting."""
ROOT_INVERSE = (0.2877, -1.0986)
"""The start for three bands of C^-1: parts 1/2 and 1/8 of a sum below 1."""


@dataclass(eq=False)
class Exploration:
    """One search through all families, for a scheme."""

    search: Search
    scheme: Scheme
    workload: Workload
    bands: int | None
    buffers: int
    best: Candidate
    """The best fixed strategy."""
    _before: int = 0

    @property
    def tried(self) -> int:
        """The number of strategies tried, under the scheme and under its stand-in."""
        return self._before + self.search.tried

    @property
    def steps(self) -> int:
        """The number of steps of the run."""
        return self.workload.steps

    def run(self) -> None:
        """Search all families, as far as the evaluations last."""
        if self.steps == 1 or self.bands == 1:
            return
        near = stand_in(self.scheme, self.steps)
        if near is self.scheme or self.search.left < len(STARTS):
            self._families(self.search)
            return
        own = self.search
        first = Search(
            RoughNoise(near, own.noise.target), own.error_of, own.limit, own.progress, own.allowed
        )
        found = self._families(first)
        self._before = first.tried
        own.limit = OWN
        if first.best is None:
            return
        own.value(first.best[1])
        if found is not None and self.bands is None:
            follow(own, Shapes(self.steps), found[1], own.left)

    def _families(self, search: Search) -> Corner | None:
        """Search bands, one buffer, more buffers and powers; return where one buffer ended."""
        most = min(self.bands or self.steps, self.steps)
        self._optimised_bands(search, most)
        if search.left < len(STARTS):
            return None
        shapes = Shapes(self.steps, self.bands)
        found = self._one_buffer(search, shapes)
        if self.bands is None and self.buffers > 1:
            self._more_buffers(search, found[1])
        self._few_bands(search, most)
        columns = Problem(identity(self.steps), search.noise.scheme, 1.0).columns
        if search.left >= 1 and (columns <= FEW_COLUMNS or most <= POWERS):
            self._powers(search, shapes, found)
        return found

    def _optimised_bands(self, search: Search, most: int) -> None:
        """Try as many bands as fit between an example's rounds, and two and four times that."""
        apart = min(self.scheme.least_gap(self.steps), self.steps)
        made = None if self.workload.is_prefix_sums else self.workload
        for width in (apart << doubling for doubling in range(DOUBLINGS if apart > 1 else 0)):
            if width <= min(most, WIDEST_OPTIMISED) and search.left > 0:
                search.value(banded_toeplitz(self.steps, width, workload=made))

    def _one_buffer(self, search: Search, shapes: Shapes) -> Corner:
        """Search one-buffer BLTs from the usual starts and the best BLT at one participation."""
        most = int(SHARE * search.left)
        starts = [search.corner(shapes, point) for point in STARTS]
        if not self.workload.is_prefix_sums and search.left > 0:
            starts.append(search.corner(shapes, _point_of(self.steps, self.workload)))
        found = min(starts, key=lambda corner: corner[0])
        followed = follow(search, shapes, found[1], most - len(starts))
        if followed is None or not followed.value < found[0]:
            return found
        return followed.value, followed.point

    def _more_buffers(self, search: Search, point: FloatArray) -> None:
        """Add one buffer after another, as long as that is better."""
        family = Buffers(self.steps)
        # With one buffer the part is e^x / (1 + e^x), the same coordinates.
        for _ in range(self.buffers - 1):
            before = search.best
            followed = follow(search, family, family.with_another(point), search.left)
            if followed is None or search.best is before:
                return
            point = followed.point

    def _few_bands(self, search: Search, most: int) -> None:
        """Search three bands of C^-1, and three bands of C."""
        families: list[tuple[Family, tuple[float, ...]]] = [(Bands(self.steps), ROOT_BANDS)]
        if self.bands is None:
            families.insert(0, (InverseBands(self.steps), ROOT_INVERSE))
        for family, start in families:
            if len(start) >= most or search.left < FEW or search.best is None:
                continue
            first = search.corner(family, start)
            if first[0] <= search.best[0] + HOPELESS:
                follow(search, family, first[1], FEW)

    def _powers(self, search: Search, shapes: Shapes, found: Corner) -> None:
        """Search powers, starting from one buffer unless a fixed strategy is still better.

        The best fixed strategy is often the first few coefficients of continual_counting; the
        powers then start near it and are cut off after as many coefficients.
        """
        value, point = found
        if value <= math.log(self.best.error):
            search.around(shapes, (value, np.append(point, 0.0)), search.left)
            return
        fixed = self.best.strategy.toeplitz
        reach = fixed.bands if fixed is not None else self.steps
        whole_blt = fixed is not None and fixed.geometric
        cut = Shapes(self.steps, reach) if 1 < reach < self.steps and not whole_blt else shapes
        start = (min(math.log(8.0 * reach), LIMITS[0][1]), 3.0, math.log(0.5))
        search.around(cut, search.corner(cut, start), search.left)


def stand_in(scheme: Scheme, steps: int) -> Scheme:
    """The scheme, or Poisson sampling at its rate if all bounds under it take many seconds."""
    problem = Problem(blt(steps, decay=[0.5], scale=[0.25]), scheme, 1.0)
    if problem.columns <= FEW_COLUMNS:
        return scheme
    costs = [bound.cost(problem) for bound in amplified(problem)]
    return scheme if min(costs) <= Cost.STEADY else Poisson(scheme.rate(steps))


def _point_of(steps: int, workload: Workload) -> tuple[float, float]:
    """The coordinates of the one-buffer BLT that is best at one participation."""
    try:
        found = blt(steps, workload=workload)
    except MmccError:  # no error to minimise
        return STARTS[0]
    decay, scale = float(found.decay[0]), float(found.scale[0])
    part = min(scale / decay, 1 - 1e-4)
    return -math.log1p(-decay), math.log(part / (1 - part))
