"""From a target to a mechanism: what to train with, and what it is worth beside DP-SGD.

In: how large the data set and its batches are, how long the run is, a target, and what is wanted of
the releases.  Out: `Recommendation`, each of its offers with certified noise.
Rounding: every sigma is the safe end of a certified calibration.  The search proves nothing: that
it stops short of the optimum costs error, never privacy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from numpy.typing import ArrayLike

from mmcc.accounting._best_bound import Budget, amplified
from mmcc.accounting._bounds import Problem
from mmcc.accounting._parallel import Progress
from mmcc.accounting._questions import MAX_EPSILON, MIN_DELTA
from mmcc.design._certified_noise import Target
from mmcc.design._recommendation import Recommendation
from mmcc.design._recommendation_cache import RememberedMechanisms
from mmcc.design._recommendation_search import Better, Question, RecommendationSearch
from mmcc.design._time_limit import TimeLimit
from mmcc.errors import ParameterError, SamplingError, real, whole
from mmcc.sampling import Poisson, Scheme
from mmcc.sampling._families_at_rate import common_rate, epoch, family, family_of, run_length
from mmcc.strategies import identity
from mmcc.strategies._workloads import Workload, workload_of

SECONDS = 55.0
MOST_STEPS = 10**6
USUAL = ("poisson", "random-allocation")
"""Schemes that are looked at unless others are named: they amplify, and our loader draws them."""


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
    remembered: bool = True,
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
    new is begun.  What was found is remembered in a file of the user's cache, and certified again
    when the same is asked; not with `remembered=False`, or MMCC_CACHE=off in the environment.
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
    limit = TimeLimit(seconds, progress)
    choice = _schemes(schemes, length, steps)
    question = Question(choice, target, asked, memory, limit)
    before = RememberedMechanisms(question, steps, seconds) if remembered else None
    known = None if before is None else before.read()
    baseline = None if known is None else known.baseline
    baseline = baseline or question.baseline(identity(steps), scheme)
    found = Recommendation(
        examples=examples,
        batch_size=batch_size,
        epochs=epochs,
        steps_per_epoch=length,
        epsilon=target.epsilon,
        delta=target.delta,
        workload=asked.name or str(asked),
        baseline=baseline,
        offers=(),
        evaluations=0,
        cut_short=False,
        seconds=0.0,
    )
    if known is not None:
        found = replace(found, offers=known.offers, **known.facts, remembered=True)
        if better is not None:
            better(replace(found, seconds=limit.passed()))
    else:
        search = RecommendationSearch(question, found, better)
        search.run()
        found = search.found
        if before is not None:
            before.write(found)
    return replace(found, seconds=time.perf_counter() - start)


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
