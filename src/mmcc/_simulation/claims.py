"""What is to be shown about a mechanism, and the trials that this takes.

In: strategy, scheme, sigma, epsilon, delta, failure.  Out: for each group of examples and adjacency
a mean that E[X] has to stay below; the guarantee of a verdict that has passed.
Rounding: these means downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from mmcc._methods import UNAMPLIFIED, VERIFY
from mmcc._simulation.dominating import Pair
from mmcc._simulation.pairs import pair_of
from mmcc._simulation.record import Attempt, Question, read_attempt
from mmcc.accounting._bounds import Problem
from mmcc.accounting._guarantee import VERIFIED, Guarantee, adjacency_of
from mmcc.accounting._parallel import Progress
from mmcc.errors import MethodError, ParameterError, RecordError, real, whole
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import checked_scheme
from mmcc.strategies._base import Strategy, checked_strategy

MIN_DELTA, MIN_FAILURE = 1e-20, 1e-100
MIN_SIGMA, MAX_SIGMA, MAX_EPSILON = 1e-50, 1e12, 1e6
MAX_GROUP_SIZE = 10**6
MAX_SAMPLES = 10**15


@dataclass(frozen=True, eq=False)
class Work:
    """Where to compute, where to report progress, and how much to compute at most."""

    executor: Executor | None = None
    progress: Progress | None = None
    samples: int = MAX_SAMPLES

    def __post_init__(self) -> None:
        if self.executor is not None and not hasattr(self.executor, "submit"):
            raise ParameterError(
                f"executor must have the interface of Executor, got {self.executor!r}."
            )
        if self.progress is not None and not callable(self.progress):
            raise ParameterError(
                f"progress must be a function of (what, done), got {self.progress!r}."
            )

    def tell(self, what: str, done: float) -> None:
        """Report progress, if anybody wants it."""
        if self.progress is not None:
            self.progress(f"verify: {what}", done)


@dataclass(frozen=True, eq=False)
class Claim:
    """The claim that a mechanism is (epsilon, delta)-private, and what has to be shown for it."""

    problem: Problem
    question: Question
    inner: Problem
    """The problem whose pairs are drawn: one example's, under a scheme that offers them."""
    chance: float
    """The probability of the event that the inner scheme leaves out."""

    @classmethod
    def about(
        cls,
        strategy: Strategy,
        scheme: Scheme,
        group_size: int,
        *,
        sigma: float,
        epsilon: float,
        delta: float,
        failure: float,
    ) -> Claim:
        """The claim about a mechanism, if it can be stated."""
        numbers = {
            "sigma": real("sigma", sigma, MIN_SIGMA, MAX_SIGMA),
            "epsilon": real("epsilon", epsilon, 0, MAX_EPSILON, closed="l"),
            "delta": real("delta", delta, MIN_DELTA, 1),
            "failure": real("failure", failure, MIN_FAILURE, 1),
        }
        if numbers["failure"] > 0.5 * numbers["delta"]:
            raise ParameterError(
                f"the chance of a wrong verdict is part of delta = {delta:g}, so failure must be "
                f"at most half of it, not {failure:g}."
            )
        checked_strategy(strategy)
        checked_scheme(scheme).check(strategy.steps)
        group_size = whole("group_size", group_size, 1, MAX_GROUP_SIZE)
        problem = Problem(strategy, scheme, numbers["sigma"], group_size=group_size)
        inner, chance = problem, 0.0
        if problem.relaxed is not None:
            inner, chance = problem.under(problem.relaxed.scheme), problem.relaxed.chance
        if inner.scheme.setting:
            raise MethodError(
                f"nothing can be verified under {scheme!r}, where the examples depend on each "
                f"other. Use method={UNAMPLIFIED!r} for a certificate."
            )
        counted = inner.counts()
        if counted is None:
            raise MethodError(
                f"no pair is proven for a group of {group_size} examples under {scheme!r}. Use "
                "mmcc.epsilon."
            )
        question = Question.about(strategy, scheme, group_size, **numbers)
        return cls(problem, question, counted, chance)

    @property
    def places(self) -> list[tuple[int, bool]]:
        """Groups of examples and adjacencies, each of which gets a trial."""
        strategy, scheme = self.inner.strategy, self.inner.scheme
        stride = scheme.stride(strategy.steps)
        groups = [0] if scheme.groups is None else list(strategy.groups(stride))
        return [(group, remove) for group in groups for remove in (True, False)]

    def pairs(self) -> Callable[[int], Pair]:
        """The pair of a group; the last few are cached."""
        return lru_cache(maxsize=2)(partial(pair_of, self.inner))

    def delta(self) -> float:
        """The part of delta left for E[X] and for what an experiment drops."""
        return self.below(0.0)

    def below(self, dropped: float) -> float:
        """The bound that E[X] must stay below, rounded down."""
        asked = self.question
        parts = (asked.delta, -asked.failure, -self.chance, -dropped)
        return math.nextafter(math.fsum(parts), -math.inf)

    def guarantee(self, attempt: Attempt) -> Guarantee:
        """The guarantee of a verdict that has passed."""
        asked, strategy = self.question, self.problem.strategy
        return Guarantee(
            epsilon=asked.epsilon,
            delta=asked.delta,
            sigma=asked.sigma,
            method=VERIFY,
            strategy=asked.strategy,
            sampling=repr(self.problem.scheme),
            adaptive=strategy.adaptive,
            bound="simulation of the revealed pair",
            details=_details(attempt),
            adjacency=adjacency_of(asked.group_size),
            group_size=asked.group_size,
            column_norm=strategy.sensitivity(strategy.steps),
            kind=VERIFIED,
            failure=asked.failure,
        )


def restored(claim: Claim, stored: Mapping[str, Any], name: str) -> Attempt:
    """An attempt of a record, if what it has shown so far is what is claimed."""
    found = read_attempt(stored, claim.inner, claim.pairs(), name)
    tested = [(state.trial.group, state.trial.experiment.remove) for state in found.states]
    right = found.question == claim.question and tested == claim.places
    for state in found.states:
        bets, experiment = state.trial.bets, state.trial.experiment
        right &= bets.mean <= claim.below(experiment.dropped)
        right &= bets.largest >= experiment.largest
    if not right:
        raise RecordError(f"{name!r} does not show what it claims to show.")
    return found


def _details(attempt: Attempt) -> dict[str, Any]:
    trials = [
        {
            "group": state.trial.group,
            "adjacency": "remove" if state.trial.experiment.remove else "add",
            "experiment": state.trial.experiment.kind,
            "samples": state.samples,
            "delta_about (neither bound)": state.delta()[0] + state.trial.experiment.dropped,
        }
        for state in attempt.states
    ]
    return {
        "attempt": attempt.number,
        "level": attempt.level,
        "samples": attempt.samples,
        "pilot_samples": attempt.pilot_samples,
        "trials": trials,
    }
