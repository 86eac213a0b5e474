"""Batches by coins and deals: the parts of samplers that several schemes share.

In: a generator.  Out: indices.  Rounding: coins with a chance of at least 1/16 and deals have
exactly their law, given ideal random bits; rarer coins up to the order of 2^-53 for each coin.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import IntArray
from mmcc.sampling._scheme import Bits

DENSE = 1 / 16
"""Coins at least this likely are tossed one by one; for rarer ones the waits are drawn."""


class Coins:
    """Batches from an independent coin for each example in each step."""

    def __init__(self, bits: Bits, examples: int, probability: float) -> None:
        self.bits, self.examples, self.probability = bits, examples, probability

    def at(self, step: int) -> IntArray:
        return heads(self.bits.of_step(step), self.examples, self.probability)


class Deal:
    """A uniformly random cut of the examples into parts whose sizes differ by at most one.

    Which parts are the larger ones is random too, so an example's part is exactly uniform even if
    the number of parts does not divide the number of examples.
    """

    def __init__(self, generator: np.random.Generator, examples: int, parts: int) -> None:
        self.order = generator.permutation(examples)
        self.size, over = divmod(examples, parts)
        self.larger = np.sort(generator.choice(parts, over, replace=False, shuffle=False))

    def part(self, part: int) -> IntArray:
        before, after = np.searchsorted(self.larger, [part, part + 1])
        return self.order[part * self.size + before : (part + 1) * self.size + after]


def heads(generator: np.random.Generator, coins: int, probability: float) -> IntArray:
    """Sorted indices of the heads among independent coins, in O(probability * coins) time.

    A chance of at least 2^-11 is a whole number of 2^-64, so the comparison of 64 random bits with
    it is exact.  Waits between heads are geometric; what goes beyond the last coin is cut off
    before it is added up, so that nothing overflows.
    """
    if probability == 1:
        return np.arange(coins)
    if probability >= DENSE:
        bits = generator.bit_generator.random_raw(coins)
        return np.flatnonzero(bits < np.uint64(int(probability * 2.0**64)))
    found: list[IntArray] = [np.empty(0, np.int64)]
    place = -1
    while place < coins - 1:
        count = 1 + int(probability * (coins - 1 - place))
        waits = np.minimum(generator.geometric(probability, count), coins + 1)
        found.append(place + np.cumsum(waits))
        place = int(found[-1][-1])
    places = np.concatenate(found)
    return places[: np.searchsorted(places, coins)]
