"""No sampling: anyone may take part at any time, within limits that the deployment enforces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc.errors import ParameterError, shown, whole
from mmcc.sampling._participations import MAX_STEPS, Participations
from mmcc.sampling._scheme import Scheme, undrawn

if TYPE_CHECKING:
    from mmcc.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Unsampled(Scheme):
    """Any participation at least `separation` steps apart and at most `at_most` times.

    The deployment enforces both limits.  Nothing else is assumed: who takes part may even depend
    on what was released before.  Nothing is drawn and nothing is amplified.
    """

    separation: int
    at_most: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "separation", whole("separation", self.separation, 1, MAX_STEPS))
        object.__setattr__(self, "at_most", whole("at_most", self.at_most, 1, MAX_STEPS))

    @property
    def random(self) -> bool:
        return False

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        raise undrawn(self)

    def expected_batch(self, steps: int, examples: int) -> float:
        raise undrawn(self)

    def least_gap(self, steps: int) -> int:
        return self.separation

    def sensitivity(self, strategy: Strategy) -> float:
        return strategy.sensitivity_apart(min(self.separation, strategy.steps), self.at_most)

    def reached(self, strategy: Strategy) -> float:
        return strategy.reached_apart(min(self.separation, strategy.steps), self.at_most)

    def words(self, steps: int) -> str:
        return (
            "No sampling is assumed: an example may take part in any steps, at most "
            f"{self.at_most} times and at least {self.separation} steps after its last time."
        )

    @property
    def caution(self) -> str:
        return (
            "Both limits hold for everyone because the deployment enforces them, not because "
            "exceeding them is unlikely; who else takes part must not depend on what the protected "
            "example contributes."
        )


Limits = Unsampled | tuple[int, int]
"""`Unsampled(separation, at_most)`, or these two numbers."""


def limits_of(given: Limits | None) -> Unsampled | None:
    """The limits as a scheme; None if none are given."""
    if isinstance(given, tuple) and len(given) == 2:
        return Unsampled(*given)
    if given is not None and not isinstance(given, Unsampled):
        raise ParameterError(
            f"participations must be sampling.Unsampled(separation, at_most), or these two "
            f"numbers, got {shown(given)}."
        )
    return given
