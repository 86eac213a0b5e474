"""Schemes of whole epochs: what balls-in-bins and shuffling share."""

from __future__ import annotations

from abc import abstractmethod

from mmcc.errors import SamplingError
from mmcc.sampling._scheme import Scheme

MOST_LISTED = 2**18
"""Participation sets that differ in one position are listed up to this many."""


class EpochScheme(Scheme):
    """Everyone takes part once in each epoch."""

    __slots__ = ()

    @abstractmethod
    def epoch_length(self, steps: int) -> int:
        """Steps of an epoch; refused where the steps are not whole epochs."""

    def epochs(self, steps: int) -> int:
        """How many epochs the steps make."""
        return steps // self.epoch_length(steps)

    def check(self, steps: int) -> None:
        self.epoch_length(steps)

    def expected_batch(self, steps: int, examples: int) -> float:
        return examples / self.epoch_length(steps)


def divides(steps: int, length: int, name: str) -> int:
    """The length of an epoch, if the steps are whole epochs of it."""
    if steps % length:
        raise SamplingError(
            f"{steps} steps are not a whole number of epochs of {length} steps; "
            f"choose {name} so that it divides the number of steps."
        )
    return length
