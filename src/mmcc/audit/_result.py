"""The result of an audit.

An `Audit` is evidence, never a guarantee: it can show that a mechanism is wrong, but it cannot show
that one is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmcc.accounting._guarantee import ADJACENCY, rounded_down, rounded_up

CLAIMED = "no proof: it was given to the audit"
"""The origin of a number that was given, and not certified here."""
CHANCE = 1e-6
"""The largest probability that a correct mechanism has any failed finding, over all findings."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One test: how likely the observation is if the mechanism is as accounted."""

    name: str
    p_value: float
    """A p-value that already accounts for choosing the most striking step or pair."""
    seen: str
    """What was observed, where it differs most from what was accounted, in words."""
    limit: float = CHANCE

    @property
    def failed(self) -> bool:
        """Whether the observation is too unlikely; a p-value that is not a number fails."""
        return not self.p_value >= self.limit

    def __str__(self) -> str:
        return f"{self.name}: {self.seen} (p-value {self.p_value:.2g})"

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "name": self.name,
            "p_value": self.p_value,
            "limit": self.limit,
            "failed": self.failed,
            "seen": self.seen,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """A lower confidence bound on epsilon, and whether noise and batches have the accounted law."""

    epsilon_lower: float
    """With probability `confidence`, the true epsilon at delta is at least this."""
    remove: float
    """The same for remove alone: the run with the canary against the one without."""
    add: float
    """The same for add alone."""
    epsilon: float
    """The certified or claimed epsilon."""
    bound: str
    """Which certified bound gave that number, if one did."""
    findings: tuple[Finding, ...]
    delta: float
    sigma: float
    confidence: float
    runs: int
    """Runs with the canary; as many were made without it."""
    resumed: int
    """How many of them were stopped, saved and resumed on the way."""
    statistic: str
    """The test that tells runs with the canary from runs without."""
    strategy: str
    sampling: str
    decoder: str
    stream: str
    """The noise stream that was played: `torch`, `numpy`, or the name of a class."""
    generator: str
    """The generator of its random numbers."""
    group: int | None
    """The group of the canary, where the scheme has groups."""
    seed: int
    adjacency: str = ADJACENCY

    @property
    def origin(self) -> str:
        """What kind of number the runs are tested against."""
        return "claimed" if self.bound == CLAIMED else "certified"

    @property
    def failures(self) -> tuple[Finding, ...]:
        """Findings that do not conform to what was accounted."""
        return tuple(finding for finding in self.findings if finding.failed)

    @property
    def violations(self) -> tuple[str, ...]:
        """All evidence against the mechanism, in words."""
        found = [str(finding) for finding in self.failures]
        if not self.epsilon_lower <= self.epsilon:
            found.insert(
                0,
                f"epsilon is at least {rounded_down(self.epsilon_lower)} with confidence "
                f"{self.confidence:g}, more than the {self.origin} {rounded_up(self.epsilon)}",
            )
        return tuple(found)

    @property
    def passed(self) -> bool:
        """Whether nothing was found against the mechanism."""
        return not self.violations

    def __str__(self) -> str:
        said = "; ".join(self.violations) or (
            f"epsilon is at least {rounded_down(self.epsilon_lower)} with confidence "
            f"{self.confidence:g}, not more than the {self.origin} {rounded_up(self.epsilon)}; "
            f"{len(self.findings)} tests of noise and participation found nothing"
        )
        return (
            f"{'passed' if self.passed else 'VIOLATION'}: {said}; {self.runs} runs, "
            f"delta {self.delta:g}, sigma {self.sigma:g}, {self.strategy}, {self.sampling}, "
            f"noise stream {self.stream}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "passed": self.passed,
            "violations": list(self.violations),
            "epsilon_lower": self.epsilon_lower,
            "remove": self.remove,
            "add": self.add,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "sigma": self.sigma,
            "confidence": self.confidence,
            "runs": self.runs,
            "resumed": self.resumed,
            "method": self.statistic,
            "bound": self.bound,
            "strategy": self.strategy,
            "sampling": self.sampling,
            "decoder": self.decoder,
            "stream": self.stream,
            "generator": self.generator,
            "group": self.group,
            "adjacency": self.adjacency,
            "seed": self.seed,
            "certified": False,
            "findings": [finding.to_dict() for finding in self.findings],
        }
