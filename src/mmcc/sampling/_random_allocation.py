"""Random allocation: in every epoch each example takes part in freshly drawn random steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc._arrays import IntArray
from mmcc.sampling._chances import MOST_ENTRIES, Chances
from mmcc.sampling._epoch_scheme import EpochScheme, divides, every_choice
from mmcc.sampling._participations import Allocation, Participations
from mmcc.sampling._scheme import Bits, Drawing, Law

if TYPE_CHECKING:
    from mmcc.strategies import Strategy

AT_ONCE = 2**22
"""Most entries of random orders that are held in memory at once."""


@dataclass(frozen=True, slots=True)
class RandomAllocation(EpochScheme):
    """Each example takes part in `participations` random steps of each `epoch_steps`-step epoch.

    Every set of that many steps is equally likely; the set is drawn anew in every epoch,
    independently of the other examples.
    """

    epoch_steps: int
    participations: int = 1

    def __post_init__(self) -> None:
        checked = Allocation(self.epoch_steps, self.participations)
        object.__setattr__(self, "epoch_steps", checked.epoch_steps)
        object.__setattr__(self, "participations", checked.participations)

    def epoch_length(self, steps: int) -> int:
        return divides(steps, self.epoch_steps, "epoch_steps")

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        epochs = self.epochs(steps)
        places = random_subsets(
            generator, count * epochs, self.epoch_steps, self.participations
        ).reshape(count, epochs, -1)
        starts = self.epoch_steps * np.arange(epochs)
        return Participations.from_rows((places + starts[:, None]).reshape(count, -1))

    def expected_batch(self, steps: int, examples: int) -> float:
        return examples * self.participations / self.epoch_length(steps)

    def positions(self, steps: int) -> int | None:
        """In a single epoch with one participation, the positions are its steps."""
        single = self.participations == 1 and self.epoch_length(steps) == steps
        return steps if single else None

    def allocation(self, steps: int) -> Allocation:
        return Allocation(self.epoch_length(steps), self.participations)

    def chances(self, steps: int) -> Chances | None:
        """A state is a position in the epoch and the number of participations in it so far."""
        length, times = self.epoch_length(steps), self.participations
        if length * (times + 1) > MOST_ENTRIES:
            return None
        place, taken = np.divmod(np.arange(length * (times + 1)), times + 1)
        chance = np.clip((times - taken) / (length - place), 0.0, 1.0)
        follows = ((place + 1) % length) * (times + 1)
        goes_on = place + 1 < length
        after = np.stack([follows + goes_on * np.minimum(taken + more, times) for more in (0, 1)])
        return Chances(chance[None], after.T)

    def sensitivity(self, strategy: Strategy) -> float:
        length = self.epoch_length(strategy.steps)
        if self.positions(strategy.steps) is not None:
            return strategy.sensitivity(length)
        if self.participations == length:
            return strategy.sensitivity(1)
        return strategy.sensitivity_shuffled(length, self.participations)

    def equally_likely(self, steps: int) -> IntArray | None:
        return every_choice(self.epoch_length(steps), self.participations, self.epochs(steps))

    def law(self, steps: int) -> Law:
        length, times = self.epoch_length(steps), self.participations
        epoch = np.arange(steps) // length
        within = times * (times - 1) / (length * max(length - 1, 1))
        numbers = np.zeros(steps + 1)
        numbers[self.epochs(steps) * times] = 1
        return Law(
            share=1,
            rates=np.full(steps, times / length),
            pairs=np.where(epoch[:, None] == epoch, within, (times / length) ** 2),
            numbers=numbers,
            independent=True,
            steps_independent=False,
            surprise=math.log(math.comb(length, times)),
        )

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        return _Allocations(bits, examples, self.epoch_steps, self.participations)

    def words(self, steps: int) -> str:
        several = f"{self.participations} different random steps"
        times = "one random step" if self.participations == 1 else several
        return (
            f"Random allocation: in each of the {self.epochs(steps)} epochs of {self.epoch_steps} "
            f"steps each example takes part in {times}, drawn anew and independently of the other "
            "examples."
        )

    @property
    def caution(self) -> str:
        return "Batches vary in size; shuffling, whose batches do not, is a different scheme."


def random_subsets(generator: np.random.Generator, count: int, places: int, size: int) -> IntArray:
    """Uniformly random subsets of range(places) with `size` elements, sorted, one per row.

    Small ones are drawn by Floyd's method, in O(size^2) each; large ones are the start of a random
    order.
    """
    if size * size > places:
        return _starts_of_orders(generator, count, places, size)
    chosen = np.empty((count, size), dtype=np.int64)
    for column, last in enumerate(range(places - size, places)):
        drawn = generator.integers(last + 1, size=count)
        taken = (chosen[:, :column] == drawn[:, None]).any(axis=1)
        chosen[:, column] = np.where(taken, last, drawn)
    return np.sort(chosen, axis=1)


def _starts_of_orders(
    generator: np.random.Generator, count: int, places: int, size: int
) -> IntArray:
    """The first `size` entries of random orders, in blocks that fit in memory."""
    chosen = np.empty((count, size), dtype=np.int64)
    rows = max(AT_ONCE // places, 1)
    for start in range(0, count, rows):
        part = chosen[start : start + rows]
        orders = np.broadcast_to(np.arange(places), (len(part), places))
        part[:] = generator.permuted(orders, axis=1)[:, :size]
    return np.sort(chosen, axis=1)


class _Allocations:
    """The steps of all examples, drawn epoch by epoch when an epoch is reached."""

    def __init__(self, bits: Bits, examples: int, length: int, times: int) -> None:
        self.bits, self.examples, self.length, self.times = bits, examples, length, times
        self._draw(0)

    def at(self, step: int) -> IntArray:
        epoch, place = divmod(step, self.length)
        if epoch != self.epoch:
            self._draw(epoch)
        first, last = np.searchsorted(self.places, [place, place + 1])
        return self.members[first:last]

    def _draw(self, epoch: int) -> None:
        self.epoch = epoch
        generator = self.bits.of_arrangement(epoch)
        places = random_subsets(generator, self.examples, self.length, self.times).reshape(-1)
        order = np.argsort(places, kind="stable")  # within a step the indices stay sorted
        self.places, self.members = places[order], order // self.times
