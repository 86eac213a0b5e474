"""Balls in bins: one random position for each example, the same in every epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import whole
from mmcc.sampling._chances import MOST_ENTRIES, Chances
from mmcc.sampling._epoch_scheme import MOST_LISTED, EpochScheme, divides
from mmcc.sampling._participations import MAX_STEPS, Participations
from mmcc.sampling._scheme import Bits, Drawing, Law

if TYPE_CHECKING:
    from mmcc.strategies import Strategy


@dataclass(frozen=True, slots=True)
class BallsInBins(EpochScheme):
    """Each example draws one of `bins` positions and takes part there in every epoch.

    An epoch has `bins` steps, so the number of steps must be a multiple of it.
    """

    bins: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", whole("bins", self.bins, 1, MAX_STEPS))

    def epoch_length(self, steps: int) -> int:
        return divides(steps, self.bins, "bins")

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        starts = self.bins * np.arange(self.epochs(steps))
        return Participations.from_rows(generator.integers(self.bins, size=(count, 1)) + starts)

    def positions(self, steps: int) -> int:
        return self.epoch_length(steps)

    def chances(self, steps: int) -> Chances | None:
        """States: positions passed before the first participation, then columns until the next."""
        bins = self.epoch_length(steps)
        if bins > MOST_ENTRIES:
            return None
        place = np.arange(bins)
        chance = np.concatenate([1.0 / (bins - place), place == 0])
        idle = np.concatenate([np.minimum(place + 1, bins - 1), bins + np.maximum(place - 1, 0)])
        return Chances(chance[None], np.stack([idle, np.full(2 * bins, 2 * bins - 1)], axis=1))

    def least_gap(self, steps: int) -> int:
        return self.bins

    def sensitivity(self, strategy: Strategy) -> float:
        return strategy.sensitivity(self.epoch_length(strategy.steps))

    def equally_likely(self, steps: int) -> IntArray | None:
        if self.bins > MOST_LISTED:
            return None
        return np.arange(self.bins)[:, None] + self.bins * np.arange(self.epochs(steps))

    def law(self, steps: int) -> Law:
        places, numbers = np.arange(steps), np.zeros(steps + 1)
        numbers[self.epochs(steps)] = 1
        return Law(
            share=1,
            rates=np.full(steps, 1 / self.bins),
            pairs=((places[:, None] - places) % self.bins == 0) / self.bins,
            numbers=numbers,
            independent=True,
            steps_independent=False,
            surprise=math.log(self.bins),
        )

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        return _Bins(bits, examples, self.bins)

    def words(self, steps: int) -> str:
        return (
            f"Balls in bins: each example draws one of {self.bins} positions, independently of "
            f"the others, and takes part there in each of the {self.epochs(steps)} epochs."
        )

    @property
    def caution(self) -> str:
        return "Positions are drawn once, before the first step, and batches vary in size."


class _Bins:
    """One bin for each example, drawn independently and kept for the whole run."""

    def __init__(self, bits: Bits, examples: int, bins: int) -> None:
        places = bits.of_arrangement(0).integers(bins, size=examples)
        self.order = np.argsort(places, kind="stable")  # within a bin the indices stay sorted
        self.places = places[self.order]
        self.bins = bins

    def at(self, step: int) -> IntArray:
        place = step % self.bins
        first, last = np.searchsorted(self.places, [place, place + 1])
        return self.order[first:last]
