"""The search for the strategy with the least error at a certified guarantee.

In: steps, scheme, target.  Out: `Optimised`.
Rounding: the search compares rough noise levels; what is returned is calibrated by `mmcc.sigma`.

The objective is log error + log sigma, sigma being what our certified upper bounds need for the
target: a lower bound would run to independent noise, where it is loose.  Few-parameter families
come first to last: bands optimised for one participation, one buffer, powers of one buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmcc import utility
from mmcc._arrays import FloatArray
from mmcc.accounting._best import FEW_COLUMNS, amplified
from mmcc.accounting._bounds import Problem
from mmcc.accounting._questions import MAX_EPSILON, MIN_DELTA, check_method
from mmcc.design._fixed import (
    WIDEST_OPTIMISED,
    ErrorOf,
    Target,
    calibrated,
    candidate,
    fixed_strategies,
    settled,
)
from mmcc.design._optimise import MEASURES, Candidate, Optimised, Progress, RuledOut
from mmcc.design._rough_noise import Noise
from mmcc.design._shapes import LIMITS, Shapes
from mmcc.design._simplex import Corner, descend
from mmcc.errors import (
    MmccError,
    ParameterError,
    SamplingError,
    StrategyError,
    real,
    suggestion,
    whole,
)
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies._banded_toeplitz import banded_toeplitz
from mmcc.strategies._base import Strategy
from mmcc.strategies._descent import check_progress
from mmcc.strategies._toeplitz import Toeplitz, identity

LARGEST = 10**6
"""Steps, at most: every strategy tried has its error summed over all of them."""
STARTS = ((1.9, -1.0), (3.0, -2.0), (1.2, -3.5))
"""One buffer: (-log(1 - rho), log odds of w/rho); the last one is next to independent noise."""
EDGES = (0.6, 0.9, 0.35)
"""Edges of the first simplex."""
CLOSE = 5e-4
FLAT = 0.05
"""Of log error, and of coordinates: a simplex this small is at its end."""
SHARE = 0.5
"""Part of the evaluations that one buffer may use; its powers have the rest."""
DOUBLINGS = 3
"""How many widths of optimised bands are tried, from one that fits between two rounds."""
POWERS = 1024
"""Up to so many steps powers of one buffer are tried: they have a coefficient for each step."""


@dataclass(eq=False)
class Search:
    """Strategies tried for one target, and the best of them."""

    noise: Noise
    error_of: ErrorOf
    limit: int
    progress: Progress | None
    tried: int = 0
    best: tuple[float, Toeplitz] | None = None

    def value(self, strategy: Toeplitz | None) -> float:
        """Log error at the noise needed, roughly; infinite where there is none."""
        if strategy is None:
            return math.inf
        self.tried += 1
        if self.progress is not None:
            self.progress("optimise: strategies tried", self.tried)
        try:
            found = math.log(self.error_of(strategy)) + self.noise.log_sigma(strategy)
        except MmccError:  # an error beyond floating point
            return math.inf
        if math.isfinite(found) and (self.best is None or found < self.best[0]):
            self.best = (found, strategy)
        return found

    def corner(self, shapes: Shapes, point: Sequence[float]) -> Corner:
        """A member of a family with its value."""
        return self.value(shapes.strategy(point)), np.array(point)

    def around(self, shapes: Shapes, start: Corner, most: int) -> Corner:
        """The best member of a family near a start, with at most about so many strategies."""
        edges = _edges(start[1])
        return descend(
            lambda point: self.value(shapes.strategy(point)),
            start,
            edges,
            most=most,
            small=(CLOSE, FLAT),
        )


def _edges(start: FloatArray) -> FloatArray:
    """Edges of the first simplex, turned where they would leave the limits."""
    edges = []
    for place, (x, edge) in enumerate(zip(start, EDGES, strict=False)):
        low, high = LIMITS[place]
        edges.append(edge if low <= x + edge <= high else -edge)
    return np.diag(edges)


def optimised(
    steps: int,
    sampling: Scheme,
    target: Target,
    *,
    objective: str,
    bands: int | None,
    fixed: Sequence[Strategy] | None,
    evaluations: int,
    progress: Progress | None,
) -> Optimised:
    """Fixed strategies first, then the search from the best of them, then the proof."""
    steps = whole("steps", steps, 1, LARGEST)
    scheme = _checked_scheme(sampling, steps)
    target = _checked_target(target)
    if scheme.chance(steps) <= target.delta:
        raise ParameterError(
            f"the chance to take part at all, {scheme.chance(steps):.3g}, is no larger than delta, "
            "so that no noise is needed and there is nothing to optimise. Use a smaller delta."
        )
    if objective not in MEASURES:
        names = tuple(MEASURES)
        raise ParameterError(f"unknown objective {objective!r}; {suggestion(objective, names)}")
    bands = None if bands is None else whole("bands", bands, 1, LARGEST)
    evaluations = whole("evaluations", evaluations, 0, 10**6)
    check_progress(progress)
    error_of = _error_of(objective)
    rivals = _checked_fixed(fixed, steps) or fixed_strategies(steps, scheme, bands)
    rough = list(calibrated(rivals, scheme, target, error_of, progress))
    compared = settled(rough, scheme, target, error_of, progress)
    best = min((one for one in compared if isinstance(one, Candidate)), key=lambda one: one.error)
    search = Search(Noise(scheme, target.epsilon, target.delta), error_of, evaluations, progress)
    tuned = None
    if steps > 1 and bands != 1:
        _start_from(search, compared)
        _explore(search, steps, bands, best)
        if search.best is not None:
            tuned = candidate(search.best[1], scheme, target, error_of)
    winner = tuned if tuned is not None and tuned.error < best.error else best
    return Optimised(
        strategy=winner.strategy,
        guarantee=winner.guarantee,
        error=winner.error,
        objective=objective,
        fixed=best,
        tuned=tuned,
        others=tuple(one for one in compared if one is not best),
        evaluations=search.tried,
    )


def _explore(search: Search, steps: int, bands: int | None, best: Candidate) -> None:
    """Bands; one buffer; powers of it, from there unless a fixed strategy is still better.

    That is often the first few coefficients of continual_counting: the powers then start near it,
    and are cut off where it is.
    """
    scheme = search.noise.scheme
    most = min(bands or steps, steps)
    apart = min(scheme.least_gap(steps), steps)
    for width in (apart << doubling for doubling in range(DOUBLINGS if apart > 1 else 0)):
        if width <= min(most, WIDEST_OPTIMISED) and search.tried < search.limit:
            search.value(banded_toeplitz(steps, width))
    shapes = Shapes(steps, bands)
    left = search.limit - search.tried
    if left < len(STARTS):
        return
    start = min((search.corner(shapes, point) for point in STARTS), key=lambda corner: corner[0])
    found, point = search.around(shapes, start, int(SHARE * left))
    left = search.limit - search.tried
    if left < 1 or not (
        Problem(identity(steps), scheme, 1.0).columns <= FEW_COLUMNS or most <= POWERS
    ):
        return
    if found <= math.log(best.error):
        search.around(shapes, (found, np.append(point, 0.0)), left)
        return
    fixed = best.strategy.toeplitz
    reach = fixed.bands if fixed is not None else steps
    whole_blt = fixed is not None and fixed.geometric
    cut = Shapes(steps, reach) if 1 < reach < steps and not whole_blt else shapes
    start = search.corner(cut, (min(math.log(8.0 * reach), LIMITS[0][1]), 3.0, math.log(0.5)))
    search.around(cut, start, left - 1)


def _start_from(search: Search, compared: Sequence[Candidate | RuledOut]) -> None:
    for one in compared:
        if isinstance(one, Candidate) and one.strategy.toeplitz is not None:
            search.noise.remember(one.strategy.toeplitz, one.sigma)


def _error_of(objective: str) -> ErrorOf:
    """The error of prefix sums at sigma = 1."""
    error = utility.rmse if objective == "mean" else utility.max_error
    return lambda strategy: error(strategy, 1.0)


def _checked_target(target: Target) -> Target:
    if target.method is not None:
        check_method(target.method)
    return Target(
        real("epsilon", target.epsilon, 0, MAX_EPSILON),
        real("delta", target.delta, MIN_DELTA, 1),
        target.method,
    )


def _checked_scheme(sampling: Scheme, steps: int) -> Scheme:
    checked_scheme(sampling).check(steps)
    if sampling.setting or not amplified(Problem(identity(steps), sampling, 1.0)):
        raise SamplingError(
            f"optimise is for Poisson, CyclicPoisson and BallsInBins, got {sampling!r}: other "
            "schemes have no certificate for adaptive inputs. Use one of these three."
        )
    return sampling


def _checked_fixed(fixed: Sequence[Strategy] | None, steps: int) -> list[Strategy]:
    if fixed is None:
        return []
    if not isinstance(fixed, Sequence):
        raise StrategyError(f"fixed must be a list of strategies, got {fixed!r}; put it in a list.")
    for strategy in fixed:
        if not isinstance(strategy, Strategy) or strategy.steps != steps:
            raise StrategyError(
                f"fixed must be strategies of {steps} steps, as optimise is asked for; "
                f"got {strategy!r}."
            )
    if not fixed:
        raise StrategyError("fixed is empty: leave it out, or give a strategy to compare with.")
    return list(fixed)
