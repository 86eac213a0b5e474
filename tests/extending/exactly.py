from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc.errors import SamplingError
from mmcc.sampling import Chances, Law, Participations, Scheme


@dataclass(frozen=True)
class Exactly(Scheme):
    """Each example takes part in exactly `times` of the steps, drawn at random."""

    times: int

    def check(self, steps):
        if not 1 <= self.times <= steps:
            raise SamplingError(f"nobody takes part {self.times} times in {steps} steps.")

    def draw(self, steps, count, generator, group=0):
        order = np.argsort(generator.random((count, steps)), axis=1)
        return Participations.from_rows(np.sort(order[:, : self.times], axis=1))

    def expected_batch(self, steps, examples):
        return examples * self.times / steps

    def chances(self, steps):  # given how often one took part before: what `verify` reveals
        taken, left = np.arange(self.times + 1), steps - np.arange(steps)
        after = np.stack([taken, np.minimum(taken + 1, self.times)], axis=1)
        return Chances(np.minimum((self.times - taken) / left[:, None], 1.0), after)

    def law(self, steps):  # what an audit holds the batches to
        once, numbers = self.times / steps, np.zeros(steps + 1)
        twice = once * (self.times - 1) / max(steps - 1, 1)
        numbers[self.times] = 1
        surprise = math.log(math.comb(steps, self.times))
        rates, pairs = np.full(steps, once), np.full((steps, steps), twice)
        return Law(1, rates, pairs, numbers, True, False, surprise)
