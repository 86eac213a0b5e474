"""Where the search for a strategy goes, family after family.

In: a search, a scheme, what a fixed strategy has reached.  Out: nothing; the search knows the best.
Rounding: none; nothing here is a guarantee.

Which strategy is best depends more on the target than on the scheme.  So where every bound under a
scheme takes many seconds, Poisson sampling at the same rate stands in for it to begin with, and
what is found is then moved along the slopes of the scheme's own bounds.
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
"""Bands that are optimised for one participation, at most: each step of a descent sums them all."""
SHARE = 0.6
"""Part of the evaluations that one buffer may use; other families have the rest."""
DOUBLINGS = 3
"""How many widths of optimised bands are tried, from one that fits between two rounds."""
POWERS = 1024
"""Up to so many steps powers of one buffer are tried: they have a coefficient for each step."""
FEW = 16
"""Strategies of a family with few bands, of C or of C^-1, that are tried."""
HOPELESS = 0.1
"""Of log error: a family that starts so much above the best is left."""
OWN = 24
"""Strategies tried under the scheme itself, where another stood in for it."""
ROOT_BANDS = (-0.6931, -1.6740)
"""log c_1, log c_2, ... of continual_counting start so; here for three bands of C."""
ROOT_INVERSE = (0.2877, -1.0986)
"""The same for three bands of C^-1: parts 1/2 and 1/8 of a sum below 1."""


@dataclass(eq=False)
class Exploration:
    """One search through the families, for a scheme."""

    search: Search
    scheme: Scheme
    workload: Workload
    bands: int | None
    buffers: int
    best: Candidate
    """Of the fixed strategies."""
    _before: int = 0

    @property
    def tried(self) -> int:
        """Strategies, under the scheme and under what stood in for it."""
        return self._before + self.search.tried

    @property
    def steps(self) -> int:
        """Of the run."""
        return self.workload.steps

    def run(self) -> None:
        """All families, as far as evaluations go."""
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
        """Bands, one buffer, more buffers, powers; where one buffer ended."""
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
        """Bands that fit between two rounds of one example, and twice and four times as many."""
        apart = min(self.scheme.least_gap(self.steps), self.steps)
        made = None if self.workload.is_prefix_sums else self.workload
        for width in (apart << doubling for doubling in range(DOUBLINGS if apart > 1 else 0)):
            if width <= min(most, WIDEST_OPTIMISED) and search.left > 0:
                search.value(banded_toeplitz(self.steps, width, workload=made))

    def _one_buffer(self, search: Search, shapes: Shapes) -> Corner:
        """The best of the usual starts, and of the BLT that is best at one participation."""
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
        """One buffer more, and another one, as long as that is better."""
        family = Buffers(self.steps)
        # With one buffer the part is e^x / (1 + e^x): the same coordinates.
        for _ in range(self.buffers - 1):
            before = search.best
            followed = follow(search, family, family.with_another(point), search.left)
            if followed is None or search.best is before:
                return
            point = followed.point

    def _few_bands(self, search: Search, most: int) -> None:
        """Three bands of C^-1, and three of C."""
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
        """From one buffer, unless a fixed strategy is still better.

        That is often the first few coefficients of continual_counting: the powers then start near
        it, and are cut off where it is.
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
    """Poisson sampling at the same rate, where every bound under the scheme takes many seconds."""
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
