"""The result of `optimise`: strategies at the noise that is certified for them.

In: answers at one target.  Out: frozen results that print and go to JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mmcc.accounting._guarantee import Guarantee
from mmcc.errors import MmccError
from mmcc.strategies._base import Strategy
from mmcc.strategies._workloads import PREFIX_SUMS

MEASURES = {"mean": "root mean squared error", "max": "largest error"}
"""The objectives in words."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy at the smallest noise that can be certified, and its error there."""

    strategy: Strategy
    guarantee: Guarantee
    error: float

    @property
    def sigma(self) -> float:
        """Certified: the noise level in units of the clip norm."""
        return self.guarantee.sigma

    def __str__(self) -> str:
        return f"{self.strategy!r}: error {self.error:.5g} at sigma {self.sigma:.5g}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "strategy": repr(self.strategy),
            "error": self.error,
            "guarantee": self.guarantee.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A strategy that cannot be the best fixed one, by whatever proof."""

    strategy: Strategy
    error_lower: float
    """Its error at a sigma that is certainly too small for the target."""

    def __str__(self) -> str:
        return f"{self.strategy!r}: error above {self.error_lower:.5g}, ruled out"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A strategy for which nothing is proven under the scheme."""

    strategy: Strategy
    refusal: MmccError

    def __str__(self) -> str:
        return f"{self.strategy!r}: left out; {self.refusal}"


@dataclass(frozen=True, slots=True)
class Optimised:
    """The best strategy found for a target, never worse than `fixed`, with both errors.

    Errors are those of the workload, in units of the clip norm.  `guarantee` is a proof for
    `strategy` at `sigma`; it does not claim that no other strategy is better.
    """

    strategy: Strategy
    guarantee: Guarantee
    error: float
    objective: str
    fixed: Candidate
    """The best of the strategies that do not depend on the target, at the same guarantee."""
    tuned: Candidate | None
    """The best strategy optimised for the target, whether or not it won."""
    others: tuple[Candidate | RuledOut | LeftOut, ...]
    """All the other fixed strategies."""
    evaluations: int
    """The number of strategies whose noise was computed in the search."""
    workload: str = PREFIX_SUMS
    """What the errors are of, in words."""
    least: float | None = None
    """No matrix, Toeplitz or not, has a smaller error of prefix sums at this guarantee, whatever
    the proof of it; None where nothing is known."""

    @property
    def sigma(self) -> float:
        """Certified: the noise level in units of the clip norm."""
        return self.guarantee.sigma

    @property
    def gain(self) -> float:
        """The fraction by which the error is below that of the best fixed strategy; never < 0."""
        return 1 - self.error / self.fixed.error

    def __str__(self) -> str:
        what = MEASURES[self.objective]
        least = f"; no matrix has less than {self.least:.5g}" if self.least else ""
        return (
            f"{self.strategy!r}: {what} of {self.workload} {self.error:.5g} at sigma "
            f"{self.sigma:.5g}, {100 * self.gain:.2f} % below that of the best fixed strategy, "
            f"{self.fixed}{least}; {self.guarantee}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "strategy": repr(self.strategy),
            "error": self.error,
            "objective": self.objective,
            "workload": self.workload,
            "gain": self.gain,
            "least_error": self.least,
            "guarantee": self.guarantee.to_dict(),
            "fixed": self.fixed.to_dict(),
            "tuned": self.tuned.to_dict() if self.tuned is not None else None,
            "others": [str(other) for other in self.others],
            "evaluations": self.evaluations,
        }
