"""Where the numbers of each parameter are in a row of z, whatever part of it this process holds.

In: tensors, among them shards of larger ones.  Out: places in the row, groups of parameters with
one device and type.
Rounding: none.

A row of z covers all coordinates of all parameters in their order.  A coordinate's number depends
on its place in the row only, on every process and for every sharding: so a run continues with the
same noise on another number of processes.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mmcc.errors import ParameterError, shown, whole
from mmcc.training._noise import MAX_COORDINATES


@dataclass(frozen=True)
class Place:
    """The part of a parameter that is here: `start` is the place in a row of its first number."""

    local: torch.Tensor
    start: int
    whole: Any
    """The parameter as it was given, perhaps a DTensor."""

    @property
    def size(self) -> int:
        """The number of coordinates that are here."""
        return self.local.numel()

    @property
    def distributed(self) -> bool:
        """Whether torch treats the parameter as spread over processes."""
        return hasattr(self.whole, "placements")

    def like(self, part: torch.Tensor, leading: tuple[int, ...] = ()) -> torch.Tensor:
        """A tensor as large as the part that is here, wrapped like the parameter.

        `leading` are dimensions before those of the parameter.
        """
        part = part.view((*leading, *self.local.shape))
        if not self.distributed:
            return part
        from torch.distributed.tensor import DTensor, Shard

        shape = torch.Size((*leading, *self.whole.shape))
        moved = [
            Shard(placement.dim + len(leading)) if placement.is_shard() else placement
            for placement in self.whole.placements
        ]
        return DTensor.from_local(
            part,
            self.whole.device_mesh,
            moved,
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )


@dataclass(frozen=True)
class Runs:
    """Runs of coordinates of a vector that are consecutive in a row too: first one and place."""

    firsts: tuple[int, ...]
    starts: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, places: Sequence[Place]) -> Runs:
        """The runs of a vector that holds parameters one after another."""
        firsts: list[int] = []
        starts: list[int] = []
        size = 0
        for place in places:
            if place.size and (not starts or place.start - starts[-1] != size - firsts[-1]):
                firsts.append(size)
                starts.append(place.start)
            size += place.size
        return cls(tuple(firsts), tuple(starts), size)

    def covering(self, piece: slice) -> Iterator[tuple[slice, int]]:
        """Parts of a piece of the vector, counted from its beginning, and their places in a row."""
        first = piece.start
        while first < piece.stop:
            run = bisect_right(self.firsts, first) - 1
            last = min([piece.stop, *self.firsts[run + 1 : run + 2]])
            part = slice(first - piece.start, last - piece.start)
            yield part, self.starts[run] + first - self.firsts[run]
            first = last


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters with one device and type: their indices in the list, and their places in a row."""

    device: torch.device
    dtype: torch.dtype
    members: tuple[int, ...]
    sizes: tuple[int, ...]
    runs: Runs

    @property
    def working(self) -> torch.dtype:
        """The type in which the recursion runs."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def on_host(self) -> bool:
        """Whether numpy can work on its vectors."""
        return self.device.type == "cpu"


def places_of(
    like: Sequence[torch.Tensor], shards: Sequence[tuple[int, int]] | None
) -> list[Place]:
    """The places of parameters, or of the parts that `shards` declares to be here."""
    try:
        parameters = list(like)
    except TypeError:
        raise ParameterError(
            f"like takes the parameters, a list of tensors, got {shown(like)}."
        ) from None
    for parameter in parameters:
        if not isinstance(parameter, torch.Tensor) or not parameter.is_floating_point():
            raise ParameterError(
                f"noise is made for tensors of real floating-point numbers, got {_kind(parameter)}."
            )
    if shards is not None:
        return _given(parameters, shards)
    ends = list(itertools.accumulate(parameter.numel() for parameter in parameters))
    whole(
        "the number of coordinates of all parameters", ends[-1] if ends else 0, 1, MAX_COORDINATES
    )
    starts = [0, *ends]
    return [
        _sharded(parameter, start)
        if hasattr(parameter, "placements")
        else Place(parameter, start, parameter)
        for parameter, start in zip(parameters, starts, strict=False)
    ]


def groups_of(places: Sequence[Place]) -> list[ParameterGroup]:
    """Parameters by device and type, in the order in which these first occur."""
    members: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, place in enumerate(places):
        members.setdefault((place.local.device, place.local.dtype), []).append(index)
    return [
        ParameterGroup(
            device,
            dtype,
            tuple(found),
            tuple(places[index].size for index in found),
            Runs.of([places[index] for index in found]),
        )
        for (device, dtype), found in members.items()
    ]


def _given(parameters: Sequence[torch.Tensor], shards: Sequence[tuple[int, int]]) -> list[Place]:
    """Parts whose first places the caller gives; two of them must not have the same noise."""
    if len(shards) != len(parameters):
        raise ParameterError(
            f"there are {len(shards)} shards for {len(parameters)} tensors: give one "
            "(offset, length) for each tensor."
        )
    for (offset, length), parameter in zip(shards, parameters, strict=True):
        whole("offset of a shard", offset, 0, MAX_COORDINATES)
        whole("end of a shard", offset + length, 0, MAX_COORDINATES)
        if length != parameter.numel() or hasattr(parameter, "placements"):
            raise ParameterError(
                f"a shard of length {length} needs a plain tensor with that many numbers, got "
                f"{tuple(parameter.shape)}. Leave shards out for DTensors."
            )
    spans = sorted((offset, offset + length) for offset, length in shards if length)
    for (_, end), (start, _) in itertools.pairwise(spans):
        if start < end:
            raise ParameterError(
                f"two shards both cover the place {start}, and would have the same noise there."
            )
    return [
        Place(parameter, offset, parameter)
        for (offset, _), parameter in zip(shards, parameters, strict=True)
    ]


def _sharded(parameter: Any, start: int) -> Place:
    """The part of a DTensor that is here: whole rows, as FSDP cuts it."""
    first, rows = 0, parameter.shape[0] if parameter.dim() else 1
    for dimension, placement in enumerate(parameter.placements):
        if placement.is_replicate():
            continue
        if not placement.is_shard(0) or type(placement).__name__ != "Shard":
            raise ParameterError(
                f"noise is made for DTensors that are replicated or sharded over their first "
                f"dimension, got {placement}. Shard parameters over dimension 0."
            )
        length = -(-rows // parameter.device_mesh.size(dimension))
        skipped = min(rows, parameter.device_mesh.get_local_rank(dimension) * length)
        first, rows = first + skipped, min(length, rows - skipped)
    local = parameter.to_local().detach()
    width = math.prod(parameter.shape[1:])
    if local.numel() != rows * width:
        raise ParameterError(
            f"a DTensor of shape {tuple(parameter.shape)} has {local.numel()} numbers here, but "
            f"{rows * width} were expected: it is not cut as by torch.chunk."
        )
    return Place(local, start + first * width, parameter)


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
