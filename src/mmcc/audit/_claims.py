"""The claim that a run with canaries is tested against, and what guesses about them show.

In: a guarantee or a claim; scores, coins, numbers of guesses.  Out: a `CanaryAudit`.
Rounding: bounds downwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mmcc._arrays import BoolArray, FloatArray
from mmcc._methods import UNAMPLIFIED
from mmcc.accounting._bounds import Problem
from mmcc.accounting._curve_points import Point, likely_mu
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.accounting._privacy_curve import PrivacyCurve
from mmcc.accounting._questions import MIN_DELTA
from mmcc.audit._audit import MAX_AUDITED_STEPS
from mmcc.audit._canary_result import CanaryAudit
from mmcc.audit._family import refuted_noise
from mmcc.audit._guesses import Guesses, gaussian_model, planned_guesses
from mmcc.audit._release_scores import ReleaseScores
from mmcc.audit._result import CLAIMED
from mmcc.errors import MethodError, ParameterError, real, shown
from mmcc.strategies._decoders import decoder_name

TIES = 4
"""Combined with a seed, so that the order of equal scores is unrelated to other draws from it."""
LARGEST_CLAIM = 50.0
"""The largest claimed epsilon that numbers of guesses are planned for."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a run is tested against."""

    own: Point
    bound: str
    curve: PrivacyCurve | None = None
    """The curve of the mechanism, if the mechanism is known."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the mechanism, for the result."""

    @property
    def planning(self) -> Point:
        """The point, or a similar one that guesses can be planned with."""
        return replace(self.own, epsilon=min(self.own.epsilon, LARGEST_CLAIM))

    def planned(
        self, canaries: int, error: float, model: tuple[FloatArray, FloatArray] | None = None
    ) -> Guesses:
        """Numbers of guesses for scores as in a model, by default that of the mechanism."""
        own = self.planning
        return planned_guesses(model or self._model(), canaries, own.delta, error, own.epsilon)

    def _model(self) -> tuple[FloatArray, FloatArray]:
        """Scores of releases of the mechanism, or of a Gaussian with the same certificate."""
        if self.curve is not None and is_played(self.curve.problem):
            problem = self.curve.problem
            generator = np.random.Generator(np.random.PCG64(0))  # the same plan every time
            with one_thread():
                return ReleaseScores(
                    problem.strategy,
                    problem.scheme,
                    problem.sigma,
                    decoder_name(problem.strategy, None),
                    generator,
                ).model(0)
        return gaussian_model(likely_mu(self.planning))

    def judged(
        self,
        scores: FloatArray,
        included: BoolArray,
        guesses: Guesses,
        error: float,
        seed: int,
        progress: Progress | None,
    ) -> CanaryAudit:
        """Both bounds, from how many guesses are right; the seed orders equal scores."""
        count, delta = scores.size, self.own.delta
        generator = np.random.Generator(np.random.PCG64([seed, TIES]))
        correct = guesses.correct(scores, included, generator)
        family = None
        if self.curve is not None:
            family = refuted_noise(self.curve, self.own, correct, guesses, count, error, progress)
        return CanaryAudit(
            epsilon_lower=guesses.lower_epsilon(correct, count, delta, error),
            most=guesses.lower_epsilon(guesses.count, count, delta, error),
            family=family,
            epsilon=self.own.epsilon,
            bound=self.bound,
            delta=delta,
            confidence=1 - error,
            canaries=count,
            included=int(included.sum()),
            guesses=(guesses.included, guesses.left_out),
            correct=correct,
            scores="given",
            seed=seed,
            **self.facts,
        )


def is_played(problem: Problem) -> bool:
    """Whether runs of a mechanism can be played."""
    return problem.scheme.random and problem.steps <= MAX_AUDITED_STEPS


def claim_of(guarantee: Guarantee) -> Claim:
    """A guarantee, if it is about one example among others that contribute too."""
    if not isinstance(guarantee, Guarantee):
        raise ParameterError(
            f"a run is tested against a Guarantee, or epsilon= and delta=; got {shown(guarantee)}."
        )
    if guarantee.group_size != 1 or guarantee.setting:
        raise MethodError(
            f"a canary is one example among others, but the guarantee is for {guarantee.adjacency}"
            f"{', in ' * bool(guarantee.setting)}{guarantee.setting}. Use that of one example, "
            f"by method={UNAMPLIFIED!r} if there is no other."
        )
    return Claim(
        Point(guarantee.epsilon, guarantee.delta),
        guarantee.bound,
        guarantee.curve,
        {
            "sigma": guarantee.sigma,
            "strategy": guarantee.strategy,
            "sampling": guarantee.sampling,
            "kind": guarantee.kind,
        },
    )


def bare_claim(epsilon: float | None, delta: float | None) -> Claim:
    """The claim of two given numbers."""
    if epsilon is None or delta is None:
        raise ParameterError(
            "an audit needs what the run is tested against: its guarantee, or epsilon= and delta=."
        )
    own = Point(
        real("epsilon", epsilon, 0, math.inf, closed="l"), real("delta", delta, MIN_DELTA, 1)
    )
    return Claim(own, CLAIMED)
