"""Shuffling: the data in a new random order in every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import SamplingError, whole
from mmcc.sampling._coins import Deal
from mmcc.sampling._cyclic_poisson import deal_surprise
from mmcc.sampling._epoch_scheme import EpochScheme, divides, every_choice
from mmcc.sampling._participations import MAX_STEPS, Participations
from mmcc.sampling._scheme import Bits, Drawing, Law

if TYPE_CHECKING:
    from mmcc.strategies import Strategy

ZERO_ONE = "the 0-1 setting of the paper: the other examples contribute nothing, inputs are fixed"


@dataclass(frozen=True, slots=True)
class Shuffle(EpochScheme):
    """Each epoch of `epoch_steps` steps is shuffled anew; None is one pass over all steps.

    Examples are not independent of each other: a place taken by one is not free for the others.
    Amplified numbers are for the paper's 0-1 setting, in which the other examples contribute
    nothing.
    """

    epoch_steps: int | None = None

    def __post_init__(self) -> None:
        if self.epoch_steps is not None:
            steps = whole("epoch_steps", self.epoch_steps, 1, MAX_STEPS)
            object.__setattr__(self, "epoch_steps", steps)

    @property
    def setting(self) -> str:
        return ZERO_ONE

    def epoch_length(self, steps: int) -> int:
        return (
            steps if self.epoch_steps is None else divides(steps, self.epoch_steps, "epoch_steps")
        )

    def check_prefix(self, steps: int) -> None:
        if self.epoch_steps is None:
            raise SamplingError(
                "stop_after would change what one pass means: Shuffle() deals the data over all "
                f"steps. Use Shuffle({steps}) and whole epochs, or a strategy with fewer steps."
            )

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        """Participation sets of `count` examples, each drawn from its own shuffle."""
        epochs, length = self.epochs(steps), self.epoch_length(steps)
        places = generator.integers(length, size=(count, epochs)) + length * np.arange(epochs)
        return Participations.from_rows(places)

    def positions(self, steps: int) -> int | None:
        """Defined for one pass only: in several, an example has a different position in each."""
        return steps if self.epochs(steps) == 1 else None

    def sensitivity(self, strategy: Strategy) -> float:
        steps, length = strategy.steps, self.epoch_length(strategy.steps)
        return (
            strategy.sensitivity(steps)
            if length == steps
            else strategy.sensitivity_shuffled(length)
        )

    def equally_likely(self, steps: int) -> IntArray | None:
        return every_choice(self.epoch_length(steps), 1, self.epochs(steps))

    def law(self, steps: int) -> Law:
        length, places = self.epoch_length(steps), np.arange(steps)
        numbers = np.zeros(steps + 1)
        numbers[self.epochs(steps)] = 1
        return Law(
            share=length,
            rates=np.ones(steps),
            pairs=(places[:, None] // length != places // length) / length,
            numbers=numbers,
            independent=False,
            steps_independent=False,
            surprise=deal_surprise(length),
        )

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        return _Shuffles(bits, examples, self.epoch_length(steps))

    def words(self, steps: int) -> str:
        if self.epochs(steps) == 1:
            return f"Shuffling: one pass over the data in random order, in {steps} steps."
        return f"Shuffling: the data is put into a new random order every {self.epoch_steps} steps."

    @property
    def caution(self) -> str:
        return "Each example has one place in every pass."


class _Shuffles:
    """A new deal of all examples into the steps of each epoch."""

    def __init__(self, bits: Bits, examples: int, length: int) -> None:
        self.bits, self.examples, self.length = bits, examples, length
        self._deal(0)

    def at(self, step: int) -> IntArray:
        epoch, place = divmod(step, self.length)
        if epoch != self.epoch:
            self._deal(epoch)
        return np.sort(self.deal.part(place))

    def _deal(self, epoch: int) -> None:
        self.epoch = epoch
        self.deal = Deal(self.bits.of_arrangement(epoch), self.examples, self.length)
