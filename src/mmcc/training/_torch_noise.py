"""Noise streams of torch tensors, one for each parameter, on its device and in its type.

In: the strategy that was accounted, sigma, the parameters, a seed.  Out: for each step a list of
tensors with the parameters' shapes.
Rounding: z and the recursions are in float64 for float64 parameters and in float32 for all others;
16-bit noise is rounded at the end.  On the CPU numpy works on the tensors' memory; elsewhere torch
does, on the parameters' device.  The generators of 0.9 (philox, chacha) draw z on the CPU in
float64, with all parameters in one row.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mmcc.errors import ParameterError, real, whole
from mmcc.strategies._base import Strategy
from mmcc.training._correlation import KEEP, correlation
from mmcc.training._noise import PIECE, Stream, check_buffers, host_vectors
from mmcc.training._randomness import Normals
from mmcc.training._recursions import Draw, Fresh, Recursion, Vectors
from mmcc.training._torch_layout import ParameterGroup, Runs, groups_of, places_of


class HostRow:
    """A row of z in float64 on the CPU, for generators that draw it from its beginning."""

    def __init__(self, normals: Normals, runs: Runs) -> None:
        self._normals, self._runs = normals, runs
        self._places = sorted(zip(runs.starts, runs.firsts, strict=True))
        self._numbers = np.empty(runs.size)
        self._row = -1

    def load(self, row: int) -> None:
        """Draw a row, unless it is already there."""
        if row != self._row:
            self._row = -1
            for part, start in self._runs.covering(slice(0, self._runs.size)):
                self._normals.fill(row, self._numbers[part], start)
            self._row = row

    def write(self, out: Any, start: int) -> None:
        """Copy numbers of the row, rounded to the type of `out`."""
        place, first = self._places[bisect_right(self._places, (start, self._runs.size)) - 1]
        found = self._numbers[first + start - place :][: len(out)]
        out[:] = found if isinstance(out, np.ndarray) else torch.from_numpy(found)


class TorchNoiseStream(Stream[list[torch.Tensor]]):
    """The noise of each step, a tensor for each of the parameters in `like`.

    Tensors of one step are views of one vector for each device and type.  With float64 parameters
    the numbers are those of `NoiseStream` for the same seed, all coordinates in one array.

    A process that holds a part of the parameters makes the noise of that part: `like` are DTensors,
    replicated or sharded over their first dimension, or plain tensors with `shards`, which gives
    for each its first coordinate in the vector of all parameters, and its length.
    """

    def __init__(
        self,
        strategy: Strategy,
        sigma: float,
        like: Sequence[torch.Tensor],
        seed: int | None = None,
        *,
        decoder: str | None = None,
        generator: str | None = None,
        memory: str = KEEP,
        shards: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        places = places_of(like, shards)
        sigma = real("sigma", sigma, 0, math.inf)
        double = all(place.local.dtype == torch.float64 for place in places)
        spacing = torch.finfo(torch.float64 if double else torch.float32).eps
        plan = correlation(strategy, decoder, sigma, None, spacing, memory)
        layout: dict[str, Any] = {
            "shape": [list(place.whole.shape) for place in places],
            "dtype": [str(place.whole.dtype) for place in places],
        }
        if shards is not None or any(place.distributed for place in places):
            layout["shards"] = [[place.start, place.size] for place in places]
        super().__init__(strategy, sigma, seed, generator, plan, layout, memory)
        self._places, self._groups = places, groups_of(places)
        self._runs = Runs.of(places)
        self._host_row = self._row_of(self._normals)
        self._recursions = self._started(self._normals)

    def fresh(self, row: int) -> list[torch.Tensor]:
        """z_row, independent standard normals, as tensors like the parameters."""
        row = whole("row", row, 0, self._strategy.rows - 1)
        found = []
        for group in self._groups:
            vectors = self._vectors(group, self._normals)
            vector = vectors.empty(vectors.size)
            self._drawn(row, group.runs)(slice(0, vectors.size), vector)
            found.append(torch.as_tensor(vector))
        return self._split(found)

    def state_dict(self) -> dict[str, Any]:
        """The state, kept noise by parameter, in the form of `torch.distributed.checkpoint`.

        Tensor k has the shape of parameter k after a first dimension for the vectors kept; for a
        DTensor it is one too, sharded like the parameter, so it can be loaded on another number of
        processes.  Everything else is the same on all of them.
        """
        state = self.state()
        if self._distributed:
            del state["shards"]  # they may be others next time
        kept: dict[str, torch.Tensor] = {}
        for group, vectors in self._kept_by_group():
            for member, part in zip(
                group.members, torch.split(vectors, list(group.sizes), 1), strict=True
            ):
                own = part.clone(memory_format=torch.contiguous_format)
                kept[str(member)] = self._places[member].like(own, (len(vectors),))
        return state | {"buffers": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the stream of that state was, on however many processes there are now."""
        kept = state.get("buffers", {})
        groups = self._kept_by_group()
        wanted = {str(member) for group, _ in groups for member in group.members}
        if not isinstance(kept, Mapping) or set(kept) != wanted:
            raise ParameterError(
                f"the state must hold kept noise for {len(wanted)} parameters: it is damaged, or "
                "made by state(), which restore() takes."
            )
        buffers = [torch.as_tensor(recursion.buffers) for recursion in self._recursions]
        for place, (group, own) in enumerate(groups):
            parts = [_local(kept[str(member)]) for member in group.members]
            count = len(own)
            if any(part.dim() == 0 or len(part) != count for part in parts):
                raise ParameterError(f"the state must hold {count} vectors of each parameter.")
            buffers[place] = torch.cat([part.reshape(count, -1) for part in parts], 1).to(own)
        here = {"shards": self._layout["shards"]} if self._distributed else {}
        self.restore({**state, **here, "buffers": buffers})

    @property
    def _distributed(self) -> bool:
        return any(place.distributed for place in self._places)

    def _kept_by_group(self) -> list[tuple[ParameterGroup, torch.Tensor]]:
        """Vectors that are kept; none where z is regenerated."""
        pairs = [] if self._plan.block else zip(self._groups, self._recursions, strict=True)
        kept = [(group, torch.as_tensor(recursion.buffers)) for group, recursion in pairs]
        return [(group, vectors) for group, vectors in kept if len(vectors)]

    def _row_of(self, made: Normals) -> HostRow | None:
        return None if made.anywhere else HostRow(made, self._runs)

    def _started(self, made: Normals) -> list[Recursion]:
        """A recursion for each group; one for all, on the CPU, where z is regenerated often."""
        if self._plan.block:
            kind = np.dtype(np.float64)
            return [self._plan.start(host_vectors(self._runs.size, kind, PIECE, _threads()))]
        return [self._plan.start(self._vectors(group, made)) for group in self._groups]

    def _vectors(self, group: ParameterGroup, made: Normals) -> Vectors:
        size, kind, device = group.runs.size, group.working, group.device
        if group.on_host:
            dtype = np.dtype(np.float64 if kind == torch.float64 else np.float32)
            return host_vectors(size, dtype, PIECE, _threads())
        from mmcc.training import _torch_keystream  # numba takes a second

        if made.anywhere and device.type != "meta":
            _torch_keystream.check(device, kind)
        return Vectors(
            lambda count: torch.zeros((count, size), dtype=kind, device=device),
            lambda count: torch.empty(count, dtype=kind, device=device),
            size,
            _torch_keystream.PIECE,
        )

    def _fresh_of(self, runs: Runs) -> Fresh:
        return lambda row: self._drawn(row, runs)

    def _drawn(self, row: int, runs: Runs) -> Draw:
        if self._host_row is not None:
            self._host_row.load(row)

        def draw(piece: slice, out: Any) -> None:
            for part, start in runs.covering(piece):
                self._write(row, out[part], start)

        return draw

    def _write(self, row: int, out: Any, start: int) -> None:
        """Write the numbers of a row from a place on."""
        if self._host_row is not None:
            self._host_row.write(out, start)
        else:
            self._normals.fill(row, out, start)

    def _advance(self, step: int) -> list[torch.Tensor]:
        if self._plan.block:
            noise = self._recursions[0].noise(step, self._fresh_of(self._runs))
            sizes = [place.size for place in self._places]
            joined = torch.split(torch.from_numpy(noise), sizes)
            parts = [torch.cat([joined[member] for member in g.members]) for g in self._groups]
            moved = zip(parts, self._groups, strict=True)
            return self._split([part.to(g.device, g.working) for part, g in moved])
        pairs = zip(self._groups, self._recursions, strict=True)
        noises = [recursion.noise(step, self._fresh_of(g.runs)) for g, recursion in pairs]
        return self._split([torch.as_tensor(noise) for noise in noises])

    def _split(self, vectors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Views with the parameters' shapes, in the order of the parameters."""
        tensors = [torch.empty(0)] * len(self._places)
        for group, vector in zip(self._groups, vectors, strict=True):
            parts = torch.split(vector.to(group.dtype), list(group.sizes))
            for member, part in zip(group.members, parts, strict=True):
                tensors[member] = self._places[member].like(part)
        return tensors

    def _buffers(self) -> list[torch.Tensor]:
        return [torch.as_tensor(recursion.buffers).clone() for recursion in self._recursions]

    def _load(self, buffers: Any, made: Normals) -> None:
        started = self._started(made)
        if not isinstance(buffers, Sequence) or len(buffers) != len(started):
            raise ParameterError(
                f"the state must hold {len(started)} tensors of kept noise, one for each device "
                "and type of the parameters: it is damaged, or the state of a NoiseStream."
            )
        for recursion, kept in zip(started, buffers, strict=True):
            own = torch.as_tensor(recursion.buffers)
            if not isinstance(kept, torch.Tensor) or kept.dtype != own.dtype:
                raise ParameterError(f"the state must hold kept noise of the type {own.dtype}.")
            fits = kept.shape == own.shape  # one that does not fit may have any size
            check_buffers(kept.shape, own.shape, fits and bool(torch.isfinite(kept).all()))
            own.copy_(kept)
        self._host_row, self._recursions = self._row_of(made), started


def _threads() -> int:
    """As many threads as torch's own operations use: each of several processes has a share."""
    return torch.get_num_threads()


def _local(kept: Any) -> Any:
    """The part of a parameter's kept noise that is here."""
    if not isinstance(kept, torch.Tensor):
        raise ParameterError("the state must hold kept noise as tensors, one for each parameter.")
    return getattr(kept, "to_local", lambda: kept)()
