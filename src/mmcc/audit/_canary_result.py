"""The result of an audit by canaries: two lower bounds, and the certificate they are compared with.

A `CanaryAudit` is evidence, never a guarantee, like an `Audit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmcc.accounting._guarantee import ADJACENCY, CERTIFIED, rounded_down, rounded_up
from mmcc.audit._family import Refuted
from mmcc.audit._result import CLAIMED


@dataclass(frozen=True, slots=True)
class CanaryAudit:
    """Lower confidence bounds on epsilon from guesses about the canaries of one run."""

    epsilon_lower: float
    """With probability `confidence`, epsilon at delta is at least this, whatever was run."""
    most: float
    """What the same number of guesses would have shown if all had been right."""
    family: Refuted | None
    """What is refuted if the privacy curve is of the accounted family; None without a curve."""
    epsilon: float
    """What was certified, verified or claimed, as `origin` says."""
    bound: str
    """Which bound gave that number, if one did."""
    delta: float
    confidence: float
    """Confidence of each bound; also that a valid certificate is contradicted by neither."""
    canaries: int
    included: int
    """Canaries whose coin included them."""
    guesses: tuple[int, int]
    """Canaries guessed to be included, and to be left out."""
    correct: int
    scores: str
    """Where the scores come from."""
    sigma: float | None = None
    strategy: str = ""
    sampling: str = ""
    decoder: str = ""
    stream: str = ""
    generator: str = ""
    seed: int | None = None
    """The seed of what was played; for given scores, of the order of equal ones."""
    adjacency: str = ADJACENCY
    kind: str = CERTIFIED
    """The kind of guarantee that the run is tested against, if any."""

    @property
    def origin(self) -> str:
        """What kind of number the run is tested against."""
        return "claimed" if self.bound == CLAIMED else self.kind

    @property
    def violations(self) -> tuple[str, ...]:
        """All evidence against the mechanism, in words."""
        found = []
        if not self.epsilon_lower <= self.epsilon:
            found.append(
                f"epsilon is at least {rounded_down(self.epsilon_lower)} with confidence "
                f"{self.confidence:g}, more than the {self.origin} {rounded_up(self.epsilon)}"
            )
        if self.family is not None and not self.family.chance > 1 - self.confidence:
            found.append(
                f"under the certified privacy curve the chance of {self.correct} correct guesses "
                f"is at most {rounded_up(self.family.chance)}"
            )
        return tuple(found)

    @property
    def passed(self) -> bool:
        """Whether nothing was found against the mechanism."""
        return not self.violations

    @property
    def assumed(self) -> str:
        """The second bound in words, with what it assumes."""
        if self.family is None:
            return "not computed: there is no certified privacy curve"
        if self.family.epsilon == 0.0:
            return "nothing is refuted"
        return (
            f"certificates up to {rounded_down(self.family.epsilon)} (sigma "
            f"{rounded_up(self.family.sigma)} or more) are refuted with confidence "
            f"{self.confidence:g}, assuming that the privacy curve is that of the accounted "
            "mechanism with some sigma"
        )

    def __str__(self) -> str:
        said = "; ".join(self.violations) or (
            f"epsilon is at least {rounded_down(self.epsilon_lower)} with confidence "
            f"{self.confidence:g}, not more than the {self.origin} {rounded_up(self.epsilon)}; "
            f"{self.assumed}"
        )
        return (
            f"{'passed' if self.passed else 'VIOLATION'}: {said}; {self.correct} of "
            f"{sum(self.guesses)} guesses about {self.canaries} canaries were right, "
            f"delta {self.delta:g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "passed": self.passed,
            "violations": list(self.violations),
            "epsilon_lower": self.epsilon_lower,
            "most": self.most,
            "family": None if self.family is None else self.family.to_dict(),
            "epsilon": self.epsilon,
            "bound": self.bound,
            "origin": self.origin,
            "delta": self.delta,
            "sigma": self.sigma,
            "confidence": self.confidence,
            "canaries": self.canaries,
            "included": self.included,
            "guesses": list(self.guesses),
            "correct": self.correct,
            "method": self.scores,
            "strategy": self.strategy,
            "sampling": self.sampling,
            "decoder": self.decoder,
            "stream": self.stream,
            "generator": self.generator,
            "adjacency": self.adjacency,
            "seed": self.seed,
            "certified": False,
        }
