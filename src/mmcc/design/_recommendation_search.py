"""The search behind `recommend`: one scheme after another, from the quickest bounds on.

In: a question and its time limit.  Out: offers, each certified.
Rounding: every sigma is the safe end of a certified calibration.  The search proves nothing: that
it stops short of the optimum costs error, never privacy.

Under which scheme a strategy is best matters less than which strategy it is, and bounds under
Poisson sampling take a fraction of a second where others take many: the search is run under the
first scheme.  What it finds is calibrated under the others, by the bound that is the smallest
there, and moved along the slopes of that bound while time is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mmcc import utility
from mmcc._methods import TIGHT
from mmcc.accounting._best_bound import Budget
from mmcc.accounting._guarantee import Guarantee
from mmcc.design._certified_noise import Target, calibrate, prove
from mmcc.design._quasi_newton import Descent, follow
from mmcc.design._recommendation import Offer, Recommendation
from mmcc.design._rough_noise import RoughNoise
from mmcc.design._search import STARTS, Search
from mmcc.design._shapes import Shapes
from mmcc.design._time_limit import TimeLimit, TimeUpError
from mmcc.errors import MmccError
from mmcc.sampling import Scheme
from mmcc.strategies import identity
from mmcc.strategies._base import Strategy
from mmcc.strategies._registry import CONTINUAL_COUNTING
from mmcc.strategies._toeplitz import Toeplitz
from mmcc.strategies._workloads import Workload

MORE, OWN = 24, 16
"""Strategies tried after the usual starts, and under each of the other schemes."""
WIDTHS = (4, 16, 64)
"""Bands of continual counting that are tried: with few participations they may beat a buffer."""
NEARLY = (1.0005, 1.003)
"""Noise beside what a search has found, which is extrapolated, at which a proof is tried."""
Better = Callable[[Recommendation], None]


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked for."""

    schemes: list[Scheme]
    target: Target
    workload: Workload
    memory: int | None
    limit: TimeLimit

    def baseline(self, strategy: Strategy, scheme: Scheme) -> Offer:
        """What is always certified, however little time there is."""
        progress = self.limit.progress
        return self._offer(
            strategy, scheme, replace(self.target, budget=Budget.MINUTES, progress=progress)
        )

    def offer(
        self, strategy: Strategy, scheme: Scheme, method: str, near: float | None = None
    ) -> Offer:
        """A mechanism at the noise that is certified for the target, if time allows.

        `near`: where that is, roughly: a little more will do, for a tenth of what calibrating is.
        """
        target = replace(self.target, method=method, progress=self.limit)
        for more in NEARLY if near is not None else ():
            assert near is not None
            found = prove(strategy, scheme, near * more, target)
            if found is not None:
                return self._told(strategy, scheme, found)
        return self._offer(strategy, scheme, target)

    def _offer(self, strategy: Strategy, scheme: Scheme, target: Target) -> Offer:
        return self._told(strategy, scheme, calibrate(strategy, scheme, target))

    def _told(self, strategy: Strategy, scheme: Scheme, guarantee: Guarantee) -> Offer:
        error = utility.rmse(strategy, guarantee.sigma, self.workload)
        return Offer(strategy, scheme, guarantee, error, strategy.noise_memory())

    def search(self, scheme: Scheme, most: int) -> Search:
        """A search under a scheme."""
        return Search(
            RoughNoise(scheme, replace(self.target, budget=Budget.SECONDS, progress=self.limit)),
            lambda strategy: utility.rmse(strategy, 1.0, self.workload),
            most,
            self.limit,
            allowed=self.fits,
        )

    def fits(self, strategy: Strategy) -> bool:
        """Whether its noise needs no more memory than there is."""
        return self.memory is None or strategy.noise_memory() <= self.memory


@dataclass(eq=False)
class RecommendationSearch:
    """Offers collected for one question."""

    question: Question
    found: Recommendation
    better: Better | None
    _tried: set[tuple[int, Scheme]] = field(default_factory=set)
    _kept: list[Search] = field(default_factory=list)
    """Searches, whose strategies must not be thrown away: they are known by their places."""

    def run(self) -> None:
        """The search under the first scheme, its best under all; as far as time allows."""
        try:
            if self.found.steps > 1:
                self._run()
        except TimeUpError:
            self.found = replace(self.found, cut_short=True)

    def _run(self) -> None:
        first, *others = self.question.schemes
        search = self._search(first, len(STARTS) + MORE)
        shapes = Shapes(self.found.steps)
        corners = []
        for start in STARTS:  # an answer as soon as there is one
            corners.append(search.corner(shapes, start))
            self._offer_best(search, first)
        _, point = min(corners, key=lambda corner: corner[0])
        followed = follow(search, shapes, point, MORE - len(WIDTHS))
        for width in WIDTHS:
            if 1 < width < self.found.steps:
                search.value(CONTINUAL_COUNTING.make_sized(self.found.steps, width))
        self._offer_best(search, first)
        followed = followed or Descent(math.inf, point, math.nan, None)
        for scheme in others:
            self._offer_under(scheme, search, followed)

    def _offer_under(self, scheme: Scheme, search: Search, followed: Descent) -> None:
        """The best of a search under another scheme, and what is better than it there.

        Its curvature is about that under the first scheme, which saves most of the strategies.
        """
        own = self._search(scheme, OWN)
        if search.best is None:
            self._add(identity(self.found.steps), scheme)
            return
        best = search.best[1]
        if own.look(best) is None:
            return
        self._offer_best(own, scheme)
        if best.geometric:
            shapes = Shapes(self.found.steps)
            follow(own, shapes, followed.point, own.left, followed.inverse)
            self._offer_best(own, scheme)
        self._add(identity(self.found.steps), scheme)

    def _search(self, scheme: Scheme, most: int) -> Search:
        self._kept.append(self.question.search(scheme, most))
        return self._kept[-1]

    def _offer_best(self, search: Search, scheme: Scheme) -> None:
        """By the bound that the search has found to be the smallest, if it is one alone."""
        if search.best is not None:
            (method,) = search.best_by if len(search.best_by) == 1 else (TIGHT,)
            self._add(search.best[1], scheme, method, search.best_sigma)

    def _add(
        self,
        strategy: Toeplitz,
        scheme: Scheme,
        method: str = TIGHT,
        near: float | None = None,
    ) -> None:
        """Calibrate, and tell of it if it is the best so far."""
        tried = sum(search.tried for search in self._kept)
        self.found = replace(self.found, evaluations=tried)
        question = self.question
        if (id(strategy), scheme) in self._tried or not question.fits(strategy):
            return
        self._tried.add((id(strategy), scheme))
        question.limit("recommend: mechanisms certified", len(self.found.offers) + 1)
        try:
            offer = question.offer(strategy, scheme, method, near)
        except MmccError:  # no certificate of this one: others stand
            return
        offers = sorted((*self.found.offers, offer), key=lambda one: one.error)
        self.found = replace(self.found, offers=tuple(offers))
        if self.better is not None and self.found.best is offer:
            self.better(replace(self.found, seconds=question.limit.passed()))
