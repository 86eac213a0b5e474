"""From a target to a mechanism: what to train with, and what it is worth beside DP-SGD.

In: how large the data set and its batches are, how long the run is, a target, and what is wanted of
the releases.  Out: `Recommendation`, each of its offers with certified noise.
Rounding: every sigma is the safe end of a certified calibration.  The search proves nothing: that
it stops short of the optimum costs error, never privacy.

Under which scheme a strategy is best matters less than which strategy it is, and bounds under
Poisson sampling take a fraction of a second where others take many: the search is run under the
first scheme, and what it finds is calibrated under the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from numpy.typing import ArrayLike

from mmcc import utility
from mmcc.accounting._best_bound import Budget, amplified
from mmcc.accounting._bounds import Problem
from mmcc.accounting._parallel import Progress
from mmcc.accounting._questions import MAX_EPSILON, MIN_DELTA
from mmcc.design._noise import Target, calibrate
from mmcc.design._recommendation import Offer, Recommendation
from mmcc.design._rough_noise import RoughNoise
from mmcc.design._search import STARTS, Search
from mmcc.design._shapes import Shapes
from mmcc.design._time_limit import TimeLimit, TimeUpError
from mmcc.errors import MmccError, ParameterError, SamplingError, real, whole
from mmcc.sampling import Poisson, Scheme
from mmcc.sampling._families_at_rate import common_rate, epoch, family, family_of, run_length
from mmcc.strategies import identity
from mmcc.strategies._base import Strategy
from mmcc.strategies._registry import CONTINUAL_COUNTING
from mmcc.strategies._toeplitz import Toeplitz
from mmcc.strategies._workloads import Workload, workload_of

SECONDS = 60.0
FIRST, MORE = 4, 20
"""Strategies tried before the first answer, and after it."""
WIDTHS = (4, 16, 64)
"""Bands of continual counting that are tried: with few participations they may beat a buffer."""
MOST_STEPS = 10**6
USUAL = ("poisson", "random-allocation")
"""Schemes that are looked at unless others are named: they amplify, and our loader draws them."""
Better = Callable[[Recommendation], None]


def recommend(
    *,
    examples: int,
    batch_size: int,
    epochs: float,
    epsilon: float,
    delta: float,
    workload: ArrayLike | Workload | None = None,
    schemes: Sequence[str | Scheme] | str | Scheme | None = None,
    memory: int | None = None,
    seconds: float = SECONDS,
    progress: Progress | None = None,
    better: Better | None = None,
) -> Recommendation:
    """The strategy and the scheme with the least error found for a run and a certified target.

    An epoch has ceil(examples / batch_size) steps, as that of a DataLoader, and the rate is one
    part in these.  `workload` is what the releases are for, as for `mmcc.utility.rmse`: prefix sums
    of gradients, plain SGD, unless given; `mmcc.utility.schedule` makes that of a learning-rate
    schedule with momentum.  `schemes`: objects of this rate, or words of `mmcc compare`; "poisson"
    and "random-allocation" unless others are named.  `memory`: noise vectors that may be held in
    training, at most.

    Everything is compared with DP-SGD (independent noise, Poisson sampling at the same rate) at the
    same certified (epsilon, delta), and DP-SGD is recommended where nothing beats it.  `better` is
    called with each recommendation that improves on the one before.  After about `seconds` nothing
    new is begun.
    """
    steps, length = run_length(examples, batch_size, epochs)
    if steps > MOST_STEPS:
        raise ParameterError(
            f"{epochs:g} epochs of {length} steps are {steps} steps, and the error of every "
            f"strategy tried is summed over all of them: at most {MOST_STEPS}. Use larger batches."
        )
    target = Target(
        real("epsilon", epsilon, 0, MAX_EPSILON),
        real("delta", delta, MIN_DELTA, 1),
        budget=Budget.TABLE,
    )
    seconds = math.inf if seconds == math.inf else real("seconds", seconds, 0, 1e9)
    if memory is not None:
        memory = whole("memory", memory, 1, 10**9)
    if better is not None and not callable(better):
        raise ParameterError(f"better must be a function of a Recommendation, got {better!r}.")
    scheme = Poisson(1 / length)
    if scheme.chance(steps) <= delta:
        raise ParameterError(
            f"the chance to take part at all, {scheme.chance(steps):.3g}, is no larger than delta, "
            "so that no noise is needed and nothing can be recommended. Use a smaller delta."
        )
    start = time.perf_counter()
    asked = workload_of(workload, steps)
    search = _Recommending(
        _schemes(schemes, length, steps),
        target,
        asked,
        memory,
        TimeLimit(seconds, progress),
        better,
        Recommendation(
            examples=examples,
            batch_size=batch_size,
            epochs=epochs,
            steps_per_epoch=length,
            epsilon=target.epsilon,
            delta=target.delta,
            workload=asked.name,
            baseline=_offer(
                identity(steps),
                scheme,
                replace(target, budget=Budget.MINUTES, progress=progress),
                asked,
            ),
            offers=(),
            evaluations=0,
            cut_short=False,
            seconds=0.0,
        ),
    )
    search.run()
    return replace(search.found, seconds=time.perf_counter() - start)


@dataclass(eq=False)
class _Recommending:
    """Offers collected for one question."""

    schemes: list[Scheme]
    target: Target
    workload: Workload
    memory: int | None
    limit: TimeLimit
    better: Better | None
    found: Recommendation
    _tried: set[tuple[int, Scheme]] = field(default_factory=set)

    def run(self) -> None:
        """The search under the first scheme, its best under all; as far as time allows."""
        try:
            self._run()
        except TimeUpError:
            self.found = replace(self.found, cut_short=True)

    def _run(self) -> None:
        steps = self.found.steps
        first, *others = self.schemes
        search = Search(
            RoughNoise(first, replace(self.target, progress=self.limit)),
            lambda strategy: utility.rmse(strategy, 1.0, self.workload),
            FIRST + MORE,
            self.limit,
            allowed=self._fits,
        )
        shapes = Shapes(steps)
        if steps > 1:
            corner = search.one_buffer(shapes, FIRST - len(STARTS))
            self._offer_best(search, first)
            for scheme in others:
                self._add(identity(steps), scheme)
            search.around(shapes, corner, MORE - len(WIDTHS))
            for width in WIDTHS:
                if 1 < width < steps:
                    search.value(CONTINUAL_COUNTING.make_sized(steps, width))
            self._offer_best(search, first)
        for scheme in others:
            self._offer_best(search, scheme)

    def _fits(self, strategy: Strategy) -> bool:
        return self.memory is None or strategy.noise_memory() <= self.memory

    def _offer_best(self, search: Search, scheme: Scheme) -> None:
        self.found = replace(self.found, evaluations=search.tried)
        if search.best is not None:
            self._add(search.best[1], scheme)

    def _add(self, strategy: Toeplitz, scheme: Scheme) -> None:
        """Calibrate, and tell of it if it is the best so far."""
        if (id(strategy), scheme) in self._tried or not self._fits(strategy):
            return
        self._tried.add((id(strategy), scheme))
        self.limit("recommend: mechanisms certified", len(self.found.offers) + 1)
        try:
            offer = _offer(
                strategy, scheme, replace(self.target, progress=self.limit), self.workload
            )
        except MmccError:  # no certificate of this one: others stand
            return
        offers = sorted((*self.found.offers, offer), key=lambda one: one.error)
        self.found = replace(self.found, offers=tuple(offers))
        if self.better is not None and self.found.best is offer:
            self.better(replace(self.found, seconds=self.limit.passed()))


def _offer(strategy: Strategy, scheme: Scheme, target: Target, workload: Workload) -> Offer:
    guarantee = calibrate(strategy, scheme, target)
    error = utility.rmse(strategy, guarantee.sigma, workload)
    return Offer(strategy, scheme, guarantee, error, strategy.noise_memory())


def _schemes(
    given: Sequence[str | Scheme] | str | Scheme | None, length: int, steps: int
) -> list[Scheme]:
    """The schemes, which may be given by words; the usual ones, as far as they fit the epochs."""
    if given is None:
        fitting = epoch(1 / length, steps) is not None and length > 1
        given = USUAL if fitting else USUAL[:1]
    elif isinstance(given, str) or not isinstance(given, Sequence):
        given = [given]
    families = [
        family(one, 1 / length, steps) if isinstance(one, str) else family_of(one) for one in given
    ]
    if not families:
        raise SamplingError("schemes is empty; name one, or leave it out.")
    common_rate([family_of(Poisson(1 / length)), *families], steps)
    found = [scheme for some in families for scheme in some.schemes]
    for scheme in found:
        if not amplified(Problem(identity(steps), scheme, 1.0)):
            raise SamplingError(
                f"no amplification is proven for every strategy under {scheme!r}, so that it would "
                "not win. Leave it out."
            )
    return found
