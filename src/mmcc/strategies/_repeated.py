"""An encoder with every column repeated: how a group of examples sees a strategy.

In: an encoder C and a number k.  Out: the encoder with every column k times, for the accounting of
Poisson sampling only: one of its examples takes part in a step as often as k examples of C
together.
Rounding: as for C; sensitivities are rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import StrategyError
from mmcc.strategies._base import Order, Strategy
from mmcc.strategies._geometry import Block, Geometry
from mmcc.strategies._gram import Gram, RepeatedGram


class Repeated(Strategy):
    """C with every column `repeats` times; its rows are released when those of C are."""

    def __init__(self, once: Strategy, repeats: int) -> None:
        self.once, self.repeats = once, repeats

    def __repr__(self) -> str:
        return f"{self.once!r} with every column {self.repeats} times"

    @property
    def steps(self) -> int:
        return self.once.steps * self.repeats

    @property
    def rows(self) -> int:
        return self.once.rows

    @property
    def adaptive(self) -> bool:
        return self.once.adaptive

    def prefix(self, steps: int) -> Strategy:
        raise StrategyError("repeated columns are for the accounting only and cannot be cut off.")

    def _dense(self) -> FloatArray:
        return np.repeat(self.once.to_dense(), self.repeats, axis=1)

    def groups(self, separation: int) -> Sequence[int]:
        """Every column under Poisson sampling; of single columns only the longest, as in C."""
        return (0,) if separation == 1 else super().groups(separation)

    def sensitivity(self, separation: int) -> float:
        if separation == 1:
            return self.repeats * self.once.sensitivity(1) * (1 + 2.0**-51)
        if separation >= self.steps:
            return self.once.sensitivity(self.once.steps)
        return super().sensitivity(separation)

    def same_order(self, order: Order, separation: int) -> Order:
        return self.once.same_order(order, separation)

    def geometry(self, order: Order, separation: int, group: int) -> Geometry:
        """The blocks of C: copies of a column are touched by the same rows and overlap alike.

        This is valid for Poisson sampling only: with a separation, copies are not in one group.
        """
        if separation != 1:
            return super().geometry(order, separation, group)
        once = self.once.geometry(order, 1, group)

        def blocks() -> Iterator[Block]:
            return (self._block(block) for block in once.blocks())

        return replace(
            once,
            columns=once.columns * self.repeats,
            events=once.events * self.repeats,
            error=once.error + 4 * 2.0**-52,
            blocks=blocks,
        )

    def _block(self, block: Block) -> Block:
        counts, overlaps = block.overlap_counts, block.overlaps
        if overlaps is not None and counts is None:
            overlaps = np.repeat(overlaps, self.repeats, axis=1)
        return replace(
            block,
            sums=block.sums * self.repeats,
            repeats=block.repeats * self.repeats,
            overlaps=overlaps,
            overlap_counts=None if counts is None else counts * self.repeats,
        )

    def gram(self, separation: int, group: int, sigma: float) -> Gram:
        if separation != 1:
            return super().gram(separation, group, sigma)
        return RepeatedGram(self.once.gram(1, group, sigma), self.repeats)
