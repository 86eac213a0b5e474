"""Schemes of whole epochs: what balls-in-bins, random allocation and shuffling share."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import SamplingError
from mmcc.sampling._scheme import Scheme

MOST_LISTED = 2**18
"""Participation sets that differ in one position are listed up to this many."""
FEW_SETS = 4096
"""Up to this many sets of several epochs are listed."""


class EpochScheme(Scheme):
    """Everyone takes part equally often in each epoch: once, unless the scheme says otherwise."""

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


def every_choice(length: int, times: int, epochs: int) -> IntArray | None:
    """All sets of so many steps in each epoch, one a row; None where they are many."""
    number = math.comb(length, times)
    if number > MOST_LISTED or times * epochs > MOST_LISTED:
        return None
    if epochs > 1 and epochs * math.log(number) > math.log(FEW_SETS):
        return None
    choices = np.array(list(itertools.combinations(range(length), times)))
    if epochs == 1:
        return choices
    if number == 1:
        return np.arange(length * epochs)[None]
    picked = np.array(list(itertools.product(range(number), repeat=epochs)))
    starts = length * np.arange(epochs)
    return np.asarray((choices[picked] + starts[:, None]).reshape(len(picked), -1))


def divides(steps: int, length: int, name: str) -> int:
    """The length of an epoch, if the steps are whole epochs of it."""
    if steps % length:
        raise SamplingError(
            f"{steps} steps are not a whole number of epochs of {length} steps; "
            f"choose {name} so that it divides the number of steps."
        )
    return length
