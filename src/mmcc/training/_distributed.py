"""The processes of a torch.distributed group that work on one run.

In: each process's clipped sums, over its part of the batch.  Out: the sums over the whole batch.
Rounding: sums are added in the parameters' precision, in an order that depends on the number of
processes; every process gets the same bits.

All processes draw the same participants and the same noise, from the keys of process 0.  A step
sums the parts of the batch over the processes, once, and then each process adds the *same* full
noise to the *same* sum: there is one release with one noise, as accounted, no matter how many
processes computed it.  The buffer that is summed has a few numbers for each process that say where
it stands; so all of them see, before there is any noise, whether they are in step.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from mmcc.errors import ParameterError
from mmcc.training._module_contents import check_sums
from mmcc.training._peers import ACTS, ALONE, STEPPING, Peers
from mmcc.training._run import RunError

SEED_BITS = 256
LIMB = 16
"""Bits of an integer that single precision holds exactly, also when it is added to zeros."""
LIMBS = (1, 3, 4)
"""For the act, the step (below 10^12) and the checksum of the parameters (64 bits)."""


def peers_of(distributed: bool) -> Peers:
    """The processes of the default group, or this one alone."""
    started = dist.is_available() and dist.is_initialized()
    if not distributed:
        if started and dist.get_world_size() > 1:
            raise ParameterError(
                f"this is one of {dist.get_world_size()} processes of a group, and without "
                "distributed=True each would make a run and a release of its own. Pass "
                "distributed=True on all of them."
            )
        return ALONE
    if not started:
        raise ParameterError(
            "distributed=True needs a process group, and torch.distributed is not initialised: "
            "start the program with torchrun, and call "
            "torch.distributed.init_process_group('gloo') first."
        )
    if "cpu:" not in str(dist.get_backend_config()):
        raise ParameterError(
            f"the process group ({dist.get_backend_config()}) cannot send tensors on the CPU, "
            "such as keys: initialise it with 'gloo' or 'cpu:gloo,cuda:nccl'."
        )
    return Several(dist.get_rank(), dist.get_world_size())


@dataclass(frozen=True, slots=True)
class Stance:
    """What a process does, and at which step, when it meets the others."""

    act: int
    position: int
    replica: int
    """The checksum of the parameters' bits."""

    def numbers(self) -> list[int]:
        """The stance as 16-bit numbers."""
        return [
            value >> LIMB * place & (1 << LIMB) - 1
            for value, limbs in zip(astuple(self), LIMBS, strict=True)
            for place in range(limbs)
        ]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Stance:
        """The stance with these numbers."""
        left = iter(numbers)
        return cls(
            *(sum(int(next(left)) << LIMB * place for place in range(limbs)) for limbs in LIMBS)
        )

    def __str__(self) -> str:
        return f"in {ACTS[self.act]} at step {self.position}"


class Several:
    """The processes of the default group.  After one failure it refuses all further work."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self._failed = False

    def seed(self, own: int | None) -> int:
        secret = secrets.randbits(SEED_BITS) if own is None else int(own)
        content = secret.to_bytes(secret.bit_length() // 8 + 1, "big")
        return int.from_bytes(self._first(content), "big")

    def same(self, facts: Mapping[str, str], remedy: str) -> None:
        everyone = self.every(dict(facts))
        for name, value in everyone[0].items():
            for rank, other in enumerate(everyone):
                if other.get(name) != value:
                    raise RunError(
                        f"the processes do not agree: {name} is {value} on process 0 and "
                        f"{other.get(name)} on process {rank}. {remedy}"
                    )

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        try:
            yield
        except Exception as problem:
            with suppress(RunError):  # the problem here is raised, whatever happens to the others
                self.every(str(problem) or type(problem).__name__)
            raise
        for rank, told in enumerate(self.every("")):
            if told:
                raise RunError(f"process {rank} failed, and so do all: {told}")

    def every(self, value: Any) -> list[Any]:
        buffer = io.BytesIO()
        torch.save(value, buffer)
        own = _tensor(buffer.getvalue())
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        self._call(dist.all_gather, sizes, torch.tensor([own.numel()]))
        longest = max(map(int, sizes))
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
        self._call(dist.all_gather, found, torch.cat([own, own.new_zeros(longest - own.numel())]))
        return [
            torch.load(io.BytesIO(_bytes(content[: int(size)])), weights_only=True)
            for content, size in zip(found, sizes, strict=True)
        ]

    def level(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if tensor.numel():
                content = tensor.detach().clone(memory_format=torch.contiguous_format)
                self._call(dist.broadcast, content.view(-1).view(torch.uint8), 0)
                tensor.detach().copy_(content)

    def meet(self, act: str, position: int, replica: Sequence[Tensor]) -> None:
        # It has the form of a step, so a process that is making a step meanwhile is recognised.
        self._sum(act, [torch.zeros_like(p) for p in replica], position, replica)

    def any(self, value: bool) -> bool:
        found = torch.tensor([int(value)])
        self._call(dist.all_reduce, found, dist.ReduceOp.MAX)
        return bool(found)

    def sum(
        self, sums: Sequence[Tensor], position: int, replica: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        return self._sum(STEPPING, sums, position, replica)

    def _sum(
        self, act: str, sums: Sequence[Tensor], position: int, replica: Sequence[Tensor]
    ) -> list[Tensor]:
        """One collective: all sums and, in a separate place for each process, where it stands."""
        stance = Stance(ACTS.index(act), position, sum(check_sums(replica)) % 2**64)
        stances = torch.zeros(self.count, sum(LIMBS))
        stances[self.rank] = torch.tensor(stance.numbers())
        flat = _joined([*sums, stances])
        self._call(dist.all_reduce, flat)
        *parts, stances = torch.split(flat, [part.numel() for part in (*sums, stances)])
        self._check_together(
            [Stance.of(numbers) for numbers in stances.view(self.count, -1).tolist()]
        )
        return [part.view(own.shape).to(own) for part, own in zip(parts, sums, strict=True)]

    def _check_together(self, stances: Sequence[Stance]) -> None:
        for rank, other in enumerate(stances):
            if other == stances[0]:
                continue
            self._failed = True
            if str(other) != str(stances[0]):
                raise RunError(
                    f"process 0 is {stances[0]} and process {rank} {other}: all processes must "
                    "make the same calls, checkpoints included. Restart all of them from the last "
                    "checkpoint."
                )
            raise RunError(
                f"at step {other.position} the parameters of process {rank} differ from those of "
                "process 0: every process must treat them the same way (the same learning rates, "
                "for example) on the same kind of machine. Restart all from the last checkpoint."
            )

    def _first(self, own: bytes) -> bytes:
        """The bytes that process 0 has."""
        size = torch.tensor([len(own)])
        self._call(dist.broadcast, size, 0)
        content = _tensor(own) if self.rank == 0 else torch.zeros(int(size), dtype=torch.uint8)
        self._call(dist.broadcast, content, 0)
        return _bytes(content)

    def _call(self, collective: Callable[..., Any], *arguments: Any) -> None:
        """Run a collective; once one has failed, nothing is known about the group."""
        try:
            if self._failed:
                raise RuntimeError("an earlier call failed")
            collective(*arguments)
        except (RuntimeError, ValueError) as problem:
            self._failed = True
            raise RunError(
                "a process of the group is gone, or did not answer in time: restart all of them "
                "from the last checkpoint."
            ) from problem


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """All tensors in one vector, on the device of the first, in a type that holds each."""
    kind = torch.float64 if any(p.dtype == torch.float64 for p in parts) else torch.float32
    return torch.cat([part.reshape(-1).to(parts[0].device, kind) for part in parts])


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _bytes(content: Tensor) -> bytes:
    return content.numpy().tobytes()
