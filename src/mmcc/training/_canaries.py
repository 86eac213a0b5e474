"""A data set with canaries: examples that a fair coin includes or leaves out, for an audit.

In: a data set and canaries.  Out: a data set with the canaries after the examples, and the indices
of those that are left out.
A canary that is left out is drawn like all others and contributes nothing wherever it is drawn: the
other side of zero-out adjacency.  The number of examples is public, and the same either way.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmcc._arrays import BoolArray, IntArray, read_only
from mmcc.errors import ParameterError, whole


class Canaries:
    """The examples of `data`, followed by canaries, half of which are left out by coin flips.

    Pass it to `make_private` as the data, or as the data set of a loader.  `included` says which
    canaries are in: it must not be looked at before the canaries have their scores.  With a seed
    the coins are the same every time, as resuming a run needs; without one they come from the
    operating system.
    """

    def __init__(self, data: Any, canaries: Sequence[Any], seed: int | None = None) -> None:
        self.data, self.canaries = data, canaries
        self.examples = whole("the number of examples", len(data), 0, 2**62)
        count = whole("the number of canaries", len(canaries), 1, 2**31)
        if isinstance(data, Canaries):
            raise ParameterError(
                "the data set has canaries already: put all canaries into one Canaries object."
            )
        seed = secrets.randbits(128) if seed is None else whole("seed", seed, 0, 2**128)
        generator = np.random.Generator(np.random.PCG64([seed, *_TAG]))
        self.included: BoolArray = read_only(generator.random(count) < 0.5)

    def __len__(self) -> int:
        return self.examples + len(self.canaries)

    def __getitem__(self, index: int) -> Any:
        place = whole("index", index, 0, len(self) - 1)
        if place < self.examples:
            return self.data[place]
        return self.canaries[place - self.examples]

    @property
    def absent(self) -> IntArray:
        """The indices of the canaries that are left out."""
        return np.flatnonzero(~self.included) + self.examples


_TAG = tuple(hashlib.sha256(b"mmcc.training.canaries").digest()[:8])
"""Part of every seed, so that noise and batches made from the same number are unrelated."""


def absent_of(data: object) -> IntArray:
    """The indices left out of a data set: some of its canaries, or none if it has no canaries."""
    return data.absent if isinstance(data, Canaries) else np.empty(0, np.int64)
