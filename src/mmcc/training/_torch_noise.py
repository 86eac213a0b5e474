"""Noise streams of torch tensors, one a parameter, on its device and in its type.

In: the strategy that was accounted, sigma, the parameters, a seed.  Out: for each step a list of
tensors with the parameters' shapes.
Rounding: z is drawn on the CPU in float64 by the generator of `NoiseStream`, all parameters in one
row, so that a run can be repeated on another device.  The recursions run on the parameters' device,
in float64 for float64 parameters and in float32 for all others; 16-bit noise is rounded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mmcc.errors import ParameterError, real, whole
from mmcc.strategies._base import Strategy
from mmcc.training._correlation import Recursion, Vectors, correlation
from mmcc.training._noise import MAX_COORDINATES, PIECE, Stream, check_buffers
from mmcc.training._randomness import PHILOX

HOST_PIECE = 2**16
"""Coordinates worked on at once on the CPU; other devices have more to lose from small pieces."""


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with one device and type: their places in the list, and in a row of z."""

    device: torch.device
    dtype: torch.dtype
    members: tuple[int, ...]
    spans: tuple[slice, ...]

    @property
    def working(self) -> torch.dtype:
        """The type in which the recursion runs."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def size(self) -> int:
        """Coordinates in all."""
        return sum(span.stop - span.start for span in self.spans)

    def taken(self, row: torch.Tensor) -> torch.Tensor:
        """The group's coordinates of a row that stands on the CPU, as a new tensor."""
        whole_row = self.size == row.numel()
        joined = row if whole_row else torch.cat([row[span] for span in self.spans])
        return joined.to(device=self.device, dtype=self.working, copy=True)

    def vectors(self) -> Vectors:
        """How the recursion makes vectors for this group."""
        piece = HOST_PIECE if self.device.type == "cpu" else max(self.size, 1)
        return Vectors(self._zeros, self.size, piece)

    def _zeros(self, count: int) -> torch.Tensor:
        return torch.zeros((count, self.size), dtype=self.working, device=self.device)


class TorchNoiseStream(Stream[list[torch.Tensor]]):
    """The noise of each step, a tensor for each of the parameters in `like`.

    Tensors of one step are views of one vector for each device and type.  With float64 parameters
    the numbers are those of `NoiseStream` for the same seed, all coordinates in one array.
    """

    def __init__(
        self,
        strategy: Strategy,
        sigma: float,
        like: Sequence[torch.Tensor],
        seed: int | None = None,
        *,
        decoder: str | None = None,
        generator: str = PHILOX,
    ) -> None:
        parameters = _parameters(like)
        sigma = real("sigma", sigma, 0, math.inf)
        double = all(parameter.dtype == torch.float64 for parameter in parameters)
        spacing = torch.finfo(torch.float64 if double else torch.float32).eps
        plan = correlation(strategy, decoder, sigma, None, spacing)
        layout = {
            "shape": [list(parameter.shape) for parameter in parameters],
            "dtype": [str(parameter.dtype) for parameter in parameters],
        }
        super().__init__(strategy, sigma, seed, generator, plan, layout)
        self._shapes = [parameter.shape for parameter in parameters]
        self._groups = _groups(parameters)
        self._row = np.empty(sum(parameter.numel() for parameter in parameters))
        self._drawn = -1
        self._recursions = self._started()

    def fresh(self, row: int) -> list[torch.Tensor]:
        """z_row, independent standard normals, as tensors like the parameters."""
        row = whole("row", row, 0, self._strategy.rows - 1)
        return self._split([group.taken(self._host_row(row)) for group in self._groups])

    def _host_row(self, row: int) -> torch.Tensor:
        """A row of z over all parameters, good until the next one is drawn."""
        if row != self._drawn:
            self._drawn = -1
            self._normals.fill(row, self._row)
            self._drawn = row
        return torch.from_numpy(self._row)

    def _started(self) -> list[Recursion]:
        """A recursion for each group; one for all, on the CPU, where z is made again and again."""
        if self._plan.block:
            size = self._row.size
            return [self._plan.start(Vectors(lambda n: np.zeros((n, size)), size, PIECE))]
        return [self._plan.start(group.vectors()) for group in self._groups]

    def _advance(self, step: int) -> list[torch.Tensor]:
        if self._plan.block:
            noise = self._recursions[0].noise(step, lambda row: self._host_row(row).numpy())
            return self._split([group.taken(torch.from_numpy(noise)) for group in self._groups])
        noises = []
        for group, recursion in zip(self._groups, self._recursions, strict=True):

            def draw(row: int, group: ParameterGroup = group) -> torch.Tensor:
                return group.taken(self._host_row(row))

            noises.append(recursion.noise(step, draw))
        return self._split(noises)

    def _split(self, vectors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Views with the parameters' shapes, in the order of the parameters."""
        tensors = [torch.empty(0)] * len(self._shapes)
        for group, vector in zip(self._groups, vectors, strict=True):
            sizes = [span.stop - span.start for span in group.spans]
            parts = torch.split(vector.to(group.dtype), sizes)
            for member, part in zip(group.members, parts, strict=True):
                tensors[member] = part.view(self._shapes[member])
        return tensors

    def _buffers(self) -> list[torch.Tensor]:
        return [torch.as_tensor(recursion.buffers).clone() for recursion in self._recursions]

    def _load(self, buffers: Any) -> None:
        started = self._started()
        if not isinstance(buffers, Sequence) or len(buffers) != len(started):
            raise ParameterError(
                f"the state must hold {len(started)} tensors of kept noise, one for each device "
                "and type of the parameters: it is damaged, or of a NoiseStream."
            )
        for recursion, kept in zip(started, buffers, strict=True):
            own = torch.as_tensor(recursion.buffers)
            if not isinstance(kept, torch.Tensor) or kept.dtype != own.dtype:
                raise ParameterError(f"the state must hold kept noise of the type {own.dtype}.")
            fits = kept.shape == own.shape  # one that does not may be of any size
            check_buffers(kept.shape, own.shape, fits and bool(torch.isfinite(kept).all()))
            own.copy_(kept)
        self._recursions, self._drawn = started, -1


def _parameters(like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    parameters = list(like)
    for parameter in parameters:
        if not isinstance(parameter, torch.Tensor) or not parameter.is_floating_point():
            raise ParameterError(
                f"noise is made for tensors of real floating-point numbers, got {_kind(parameter)}."
            )
    total = sum(parameter.numel() for parameter in parameters)
    whole("the number of coordinates of all parameters", total, 1, MAX_COORDINATES)
    return parameters


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def _groups(parameters: Sequence[torch.Tensor]) -> list[ParameterGroup]:
    """Parameters by device and type, in the order in which these are first met."""
    members: dict[tuple[torch.device, torch.dtype], list[tuple[int, slice]]] = {}
    start = 0
    for index, parameter in enumerate(parameters):
        span = slice(start, start + parameter.numel())
        members.setdefault((parameter.device, parameter.dtype), []).append((index, span))
        start = span.stop
    return [
        ParameterGroup(
            device, dtype, tuple(index for index, _ in found), tuple(span for _, span in found)
        )
        for (device, dtype), found in members.items()
    ]
