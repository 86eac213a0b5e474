"""Schemes made of whole epochs: what balls-in-bins, random allocation and shuffling share."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import SamplingError
from mmcc.sampling._scheme import Scheme

MOST_LISTED = 2**18
"""Most participation sets that are listed, where each set is given by one position."""
FEW_SETS = 4096
"""Most participation sets that are listed, where several epochs or choices combine."""


class EpochScheme(Scheme):
    """Every example takes part equally often in each epoch: once, unless a subclass differs."""

    __slots__ = ()

    @abstractmethod
    def epoch_length(self, steps: int) -> int:
        """Steps in an epoch; raises an error if `steps` is not a whole number of epochs."""

    def epochs(self, steps: int) -> int:
        """The number of epochs in `steps`."""
        return steps // self.epoch_length(steps)

    def check(self, steps: int) -> None:
        self.epoch_length(steps)

    def expected_batch(self, steps: int, examples: int) -> float:
        return examples / self.epoch_length(steps)


def every_choice(length: int, times: int, epochs: int) -> IntArray | None:
    """All participation sets with `times` steps in each epoch, one per row; None if too many."""
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
    """The epoch length, checked to divide the number of steps."""
    if steps % length:
        raise SamplingError(
            f"{steps} steps are not a whole number of epochs of {length} steps; "
            f"choose {name} so that it divides the number of steps."
        )
    return length
