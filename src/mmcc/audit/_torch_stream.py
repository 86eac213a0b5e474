"""The noise that training adds: `TorchNoiseStream`, created as `make_private` creates it.

In: a number of coordinates.  Out: for each step their noise, as one numpy array of float32.
Rounding: none but the stream's own.  This module imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mmcc._arrays import FloatArray
from mmcc.strategies._base import Strategy
from mmcc.training import _torch_noise as torch_noise


class SinglePrecision:
    """A model of float32 parameters: a matrix, a scalar and a vector, coordinates in that order."""

    def __init__(
        self,
        strategy: Strategy,
        sigma: float,
        shape: int,
        seed: int,
        *,
        decoder: str | None,
        generator: str,
    ) -> None:
        rows = shape // 4
        shapes = (rows, 2), (), (shape - 2 * rows - 1,)
        parameters = [torch.zeros(size, dtype=torch.float32) for size in shapes]
        self._stream = torch_noise.TorchNoiseStream(
            strategy, sigma, parameters, seed, decoder=decoder, generator=generator
        )

    def __next__(self) -> FloatArray:
        noise = next(self._stream)
        return np.concatenate([tensor.numpy().reshape(-1) for tensor in noise])

    def state(self) -> Mapping[str, Any]:
        """The state of the stream."""
        return self._stream.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Pass a state to the stream."""
        self._stream.restore(state)
