"""Strategies for one amplified guarantee: the least error at an (epsilon, delta) and a scheme.

In: steps, sampling scheme, target.  Out: `Optimised`, the strategy with its certified noise, and
the best strategy that was not made for the target, certified in the same way.
Rounding: sigma is the safe end of a certified calibration.  The search itself proves nothing: that
it stops short of the optimum costs error, never privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

if TYPE_CHECKING:
    from mmcc.accounting._guarantee import Guarantee

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of it is done."""

EVALUATIONS = 60
MEASURES = {"mean": "root mean squared error", "max": "largest error"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy at the smallest noise that we can certify, and its error there."""

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
    """A strategy that cannot be the best fixed one, whatever the proof."""

    strategy: Strategy
    error_lower: float
    """Its error at a sigma that is certainly too small for the target."""

    def __str__(self) -> str:
        return f"{self.strategy!r}: error above {self.error_lower:.5g}, ruled out"


@dataclass(frozen=True, slots=True)
class Optimised:
    """The best strategy found for a target; never worse than `fixed`, and both errors are here.

    Errors are those of prefix sums, in units of the clip norm.  `guarantee` is a proof for
    `strategy` at `sigma`; that no other strategy is better is not claimed.
    """

    strategy: Strategy
    guarantee: Guarantee
    error: float
    objective: str
    fixed: Candidate
    """The best of the strategies that do not depend on the target, at the same guarantee."""
    tuned: Candidate | None
    """The best strategy made for the target, whether it won or not."""
    others: tuple[Candidate | RuledOut, ...]
    """All the other fixed strategies."""
    evaluations: int
    """Strategies whose noise was looked for in the search."""

    @property
    def sigma(self) -> float:
        """Certified: the noise level in units of the clip norm."""
        return self.guarantee.sigma

    @property
    def gain(self) -> float:
        """By which part the error is smaller than that of the best fixed strategy; never < 0."""
        return 1 - self.error / self.fixed.error

    def __str__(self) -> str:
        what = MEASURES[self.objective]
        return (
            f"{self.strategy!r}: {what} of prefix sums {self.error:.5g} at sigma "
            f"{self.sigma:.5g}, {100 * self.gain:.2f} % below that of the best fixed strategy, "
            f"{self.fixed}; {self.guarantee}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "strategy": repr(self.strategy),
            "error": self.error,
            "objective": self.objective,
            "gain": self.gain,
            "guarantee": self.guarantee.to_dict(),
            "fixed": self.fixed.to_dict(),
            "tuned": self.tuned.to_dict() if self.tuned is not None else None,
            "others": [str(other) for other in self.others],
            "evaluations": self.evaluations,
        }


def optimise(
    steps: int,
    sampling: Scheme,
    epsilon: float,
    delta: float,
    *,
    objective: str = "mean",
    bands: int | None = None,
    method: str | None = None,
    fixed: Sequence[Strategy] | None = None,
    evaluations: int = EVALUATIONS,
    progress: Progress | None = None,
) -> Optimised:
    """The Toeplitz strategy with the least prefix-sum error found at a certified target.

    `objective`: "mean" is the root mean squared error over the steps, "max" the largest error.
    `bands`: at most so many bands; any number unless given.  `method`: how all are calibrated, as
    for `mmcc.sigma`; unless given "tight".  Above 600 rounds of one example a fixed BLT or few
    bands have the chain's noise where "tight" cannot make them the best.
    `fixed`: strategies to be compared with, instead of the usual ones.
    `evaluations`: strategies that the search may try.
    For `Poisson`, `CyclicPoisson` and `BallsInBins`.  Deterministic.
    """
    # Accounting is built upon the strategies, so it cannot be imported before them.
    from mmcc.design._fixed import Target
    from mmcc.design._search import optimised

    return optimised(
        steps,
        sampling,
        Target(epsilon, delta, method),
        objective=objective,
        bands=bands,
        fixed=fixed,
        evaluations=evaluations,
        progress=progress,
    )
