"""Recommendations of earlier runs, in the user's cache.

In: a question.  Out: the mechanisms that were found for it.
Rounding: each is certified anew, at the noise that the file names, before it is offered: whatever
is written there, epsilon is not too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmcc import __version__, utility
from mmcc._cache import cache_folder, content_of, file_of, write
from mmcc._written import written_scheme, written_strategy
from mmcc.accounting import _questions as questions
from mmcc.design._recommendation import Offer, Recommendation
from mmcc.design._recommendation_search import Question
from mmcc.errors import MmccError
from mmcc.sampling import Poisson, Scheme
from mmcc.sampling._registry import from_call as scheme_from_call
from mmcc.sampling._registry import identity_of, is_registered
from mmcc.strategies._words import from_call

KIND = "recommended"
CLOSE = 0.02
"""Epsilon may be this much (relative) below the target for a noise level to be used again."""
KEPT = 2
"""Offers that are kept: the best and the runner-up, each of which takes seconds to certify."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was found before, certified again."""

    baseline: Offer
    offers: tuple[Offer, ...]
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RememberedMechanisms:
    """The file of one question."""

    question: Question
    steps: int
    seconds: float

    @property
    def _facts(self) -> dict[str, Any]:
        asked = self.question
        return {
            "mmcc": __version__,
            "steps": self.steps,
            "epsilon": asked.target.epsilon,
            "delta": asked.target.delta,
            "schemes": [identity_of(scheme) for scheme in asked.schemes],
            "rate": asked.schemes[0].rate(self.steps),
            "workload": str(asked.workload),
            "memory": asked.memory,
        }

    def read(self) -> Known | None:
        """What was found; None where nothing was, or where more time is allowed than it had."""
        folder = cache_folder()
        if folder is None:
            return None
        content = content_of(file_of(folder, KIND, self._facts), self._facts)
        if not content or (content.get("cut_short") and self.seconds > _number(content, "limit")):
            return None
        try:
            baseline = self._offer(content["baseline"])
            offers = tuple(map(self._offer, content["offers"]))
            facts = {
                "evaluations": int(content["evaluations"]),
                "cut_short": bool(content["cut_short"]),
            }
        except (MmccError, KeyError, TypeError, ValueError):  # it is no reason to fail
            return None
        return Known(baseline, offers, facts)

    def write(self, found: Recommendation) -> None:
        """Keep what was found, if it can be written down."""
        folder = cache_folder()
        kept = [one for one in (found.best, found.runner_up) if one in found.offers][:KEPT]
        if folder is None or not all(map(_writable, kept)):
            return
        content = {
            "of": self._facts,
            "baseline": _content(found.baseline),
            "offers": [_content(one) for one in kept],
            "evaluations": found.evaluations,
            "cut_short": found.cut_short,
            "limit": None if self.seconds == math.inf else self.seconds,
        }
        write(file_of(folder, KIND, self._facts), content)

    def _offer(self, content: Mapping[str, Any]) -> Offer:
        """One that a file describes, certified again."""
        asked, target = self.question, self.question.target
        strategy, scheme = from_call(content["strategy"]), scheme_from_call(content["sampling"])
        if strategy.steps != self.steps or not self._asked(scheme):
            raise ValueError("something else was asked for")
        guarantee = questions.epsilon(
            strategy,
            scheme,
            sigma=_number(content, "sigma"),
            delta=target.delta,
            method=content["method"],
            progress=asked.limit.progress,
        )
        if not (1 - CLOSE) * target.epsilon <= guarantee.epsilon <= target.epsilon:
            raise ValueError("another target was meant")
        error = utility.rmse(strategy, guarantee.sigma, asked.workload)
        return Offer(strategy, scheme, guarantee, error, strategy.noise_memory())

    def _asked(self, scheme: Scheme) -> bool:
        rate = self.question.schemes[0].rate(self.steps)
        return scheme in self.question.schemes or scheme == Poisson(rate)


def _writable(offer: Offer) -> bool:
    named = written_strategy(offer.strategy, None).file is None
    return named and is_registered(offer.sampling)


def _content(offer: Offer) -> dict[str, Any]:
    return {
        "strategy": written_strategy(offer.strategy, None).python,
        "sampling": written_scheme(offer.sampling).python,
        "sigma": offer.sigma,
        "method": offer.guarantee.method,
    }


def _number(content: Mapping[str, Any], name: str) -> float:
    value = content.get(name)
    if value is None and name == "limit":
        return math.inf
    if not isinstance(value, float | int) or isinstance(value, bool):
        raise TypeError(f"{name} is no number")
    return float(value)
