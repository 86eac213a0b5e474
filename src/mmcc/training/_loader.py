"""The accounted batches, in order: lists of indices, and the loader that collates them.

In: `Participants`, or a data set and a run.  Out: one list of indices for each logical batch, or
for each of the physical batches that make it up; collated batches, the last of which the run knows.
Rounding: none; the law is that of the participants.

A logical batch is what the accounting knows: everyone who takes part in a step.  It may be empty,
and an empty batch is a step like any other: its noise is released.  Physical batches only bound
memory.  The indices are drawn in the main process and batches come back in order, so it does not
matter how many workers fetch ahead.  Nothing here draws from torch's global generator.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import BatchSampler as PlainBatchSampler
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from mmcc._arrays import IntArray
from mmcc.errors import ParameterError, SamplingError, whole
from mmcc.sampling._participations import MAX_STEPS
from mmcc.training._accelerate import Prepared, check_setting, move
from mmcc.training._examples import tensors_of
from mmcc.training._participants import Participants
from mmcc.training._run import PhysicalBatch, RunError, TrainingRun

Collate = Callable[[list[Any]], Any]
CARRIED_OVER = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
)
"""Options taken from a given loader besides its data set and collate function."""

MAX_PARTS = 2**20
_END = object()


class BatchSampler(Sampler[list[int]]):
    """Batches of steps start, start + 1, ..., stop - 1, each exactly once.

    With `physical=k` a logical batch comes in chunks of at most k examples, an empty one as one
    empty chunk.  An iteration continues where the last one ended: `step` and `chunk` say what comes
    next, and `seek` changes it.  A DataLoader with workers asks for batches before they are used;
    to save the state of such a loader, first seek back to the step that was really reached.
    With `part=(i, n)` a logical batch is shared by n samplers: this one has members i, i + n, ...,
    and an empty chunk at the end where another one has one chunk more.
    """

    def __init__(
        self,
        participants: Participants,
        *,
        start: int = 0,
        stop: int | None = None,
        physical: int | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        if not isinstance(participants, Participants):
            raise SamplingError(f"a batch sampler is made from Participants, got {participants!r}.")
        self.participants = participants
        steps = participants.steps
        self.start = whole("start", start, 0, steps)
        self.stop = steps if stop is None else whole("stop", stop, self.start, steps)
        self.physical = None if physical is None else whole("physical", physical, 1, MAX_STEPS)
        count = whole("parts", part[1], 1, MAX_PARTS)
        self.part = slice(whole("part", part[0], 0, count - 1), None, count)
        self.step, self.chunk = self.start, 0

    def __iter__(self) -> Iterator[list[int]]:
        while self.step < self.stop:
            members, chunk = self.members(self.step), self.chunk
            size = self.physical or max(1, members.size)
            # Before the batch is handed out, so a state saved while it is in use points past it.
            if chunk + 1 < self.chunks(self.step):
                self.chunk += 1
            else:
                self.step, self.chunk = self.step + 1, 0
            yield members[chunk * size : (chunk + 1) * size].tolist()

    def __len__(self) -> int:
        """Batches still to come; with `physical` they must all be drawn to be counted."""
        if self.physical is None:
            return self.stop - self.step
        return sum(self.chunks(step) for step in range(self.step, self.stop)) - self.chunk

    def members(self, step: int) -> IntArray:
        """The participants of a step in this sampler's part of the batch."""
        return self.participants.at(step)[self.part]

    def chunks(self, step: int) -> int:
        """How many physical batches make up the logical batch of a step: the same for all parts."""
        largest = -(-int(self.participants.at(step).size) // self.part.step)
        return 1 if self.physical is None else max(1, -(-largest // self.physical))

    def seek(self, step: int, chunk: int = 0) -> None:
        """Make a chunk of a step the next batch."""
        step = whole("step", step, self.start, self.stop)
        last = self.chunks(step) - 1 if step < self.stop else 0
        self.step, self.chunk = step, whole("chunk", chunk, 0, last)

    def state_dict(self) -> dict[str, Any]:
        """Position and participants, key included: as secret as the data."""
        return {
            "participants": self.participants.state(),
            "physical": self.physical,
            "part": [self.part.start, self.part.step],
            "step": self.step,
            "chunk": self.chunk,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state was taken; `physical` and `part` may only change between steps."""
        missing = self.state_dict().keys() - state.keys()
        if missing:
            raise SamplingError(
                f"the state lacks {', '.join(sorted(missing))}: use one made by `state_dict()`."
            )
        cut = {name: self.state_dict()[name] for name in ("physical", "part")}
        saved = {name: state[name] for name in cut}
        if state["chunk"] and saved != cut:
            raise SamplingError(
                f"the state was taken within a logical batch cut by {_listed(saved)}, and this "
                f"sampler has {_listed(cut)}: use the same until its end."
            )
        self.participants.restore(state["participants"])
        self.seek(state["step"], state["chunk"])


class PrivateLoader(Prepared, DataLoader[Any]):
    """Batches from the run's position to the end of its epoch."""

    def __init__(
        self, dataset: Dataset[Any], run: TrainingRun, collate: Collate | None, **options: Any
    ) -> None:
        self.run = run
        self._device: torch.device | None = None
        self._schedule = Schedule(run)
        plain = torch.utils.data.default_collate if collate is None else collate
        collated = CollateToRows(dataset, plain, self._schedule.rows)
        collated([])  # a collate function that cannot make an empty batch is refused now
        super().__init__(
            dataset,
            batch_sampler=self._schedule,
            collate_fn=collated,
            generator=torch.Generator(),
            **options,
        )

    def __iter__(self) -> Any:
        iteration = self.run.begin()
        self.generator.manual_seed(self._worker_seed())
        batches = super().__iter__()
        return self._handed_out(batches, self._schedule.planned, iteration)

    def _handed_out(
        self, batches: Iterator[Any], planned: deque[PhysicalBatch], iteration: int
    ) -> Iterator[Any]:
        # Persistent workers serve one loop after another: a loop that was superseded must not take
        # the other one's batches.
        try:
            while True:
                self.run.check_current(iteration)
                batch = next(batches, _END)
                if batch is _END:
                    self.run.exhausted(iteration)
                    return
                batch = move(batch, self._device)
                content = tuple(tensors_of(batch))
                self.run.hand_out(replace(planned.popleft(), content=content), iteration)
                yield batch
        except GeneratorExit:
            self.run.withdraw(iteration)
            raise

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RunError(
            "the loader of a run cannot be pickled or copied, as the keys of its noise would go "
            "with it: use mmcc.training.save_checkpoint."
        )

    def _meet_accelerate(self, state: Any) -> None:
        """Send batches to the device that accelerate uses."""
        check_setting(state, self.run)
        self._device = state.device

    def _worker_seed(self) -> int:
        """The seed of random transforms in workers: a new one whenever an iteration begins."""
        key = self.run.participants.state()["key"]
        text = f"mmcc workers {key} {self.run.position} {self.run.peers.rank}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


class Schedule(Sampler[list[int]]):
    """Indices of the batches to come; `planned` lists these batches, in the same order."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.planned: deque[PhysicalBatch] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        self.planned = deque()
        return self._batches(self._sampler(), self.planned)

    def __len__(self) -> int:
        return len(self._sampler())

    def _sampler(self) -> BatchSampler:
        run = self.run
        return BatchSampler(
            run.participants,
            start=run.position,
            stop=run.epoch_end,
            physical=run.physical,
            part=(run.peers.rank, run.peers.count),
        )

    @property
    def rows(self) -> int:
        """Rows to which a physical batch of this process is padded; 0 for no padding."""
        full = -(-(self.run.mechanism.sampling.batch_rows or 0) // self.run.peers.count)
        return full if self.run.physical is None else min(full, self.run.physical)

    def _batches(self, sampler: BatchSampler, planned: deque[PhysicalBatch]) -> Iterator[list[int]]:
        step, chunk = sampler.step, sampler.chunk
        for indices in sampler:
            last = sampler.step > step
            padding = max(self.rows - len(indices), 0)
            planned.append(PhysicalBatch(step, chunk, len(indices) + padding, last, padding))
            step, chunk = sampler.step, sampler.chunk
            yield indices


class CollateToRows:
    """A collate function that makes an empty batch of the usual shape when nobody takes part.

    An empty batch is the batch of the first example, cut to length 0.  A batch of fewer than `rows`
    examples is filled with zeros, which are no example's data: whatever a training loop does with
    them, no example counts twice.
    """

    def __init__(self, dataset: Dataset[Any], collate: Collate, rows: int) -> None:
        self.dataset, self.collate, self.rows = dataset, collate, rows

    def __call__(self, examples: list[Any]) -> Any:
        batch = self.collate(examples) if examples else self._empty()
        return _filled(batch, len(examples), self.rows) if len(examples) < self.rows else batch

    def _empty(self) -> Any:
        first = self.dataset[0]
        return _emptied(self.collate([first]), self.collate([first, first]))


def _filled(batch: Any, count: int, rows: int) -> Any:
    """A batch in which every tensor with a row for each example has `rows` of them."""

    def filled(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.dim() or len(value) != count:
            return value
        return torch.cat([value, value.new_zeros((rows - count, *value.shape[1:]))])

    if hasattr(batch, "items"):  # such as a BatchEncoding, which torch does not look into
        return type(batch)({name: _filled(part, count, rows) for name, part in batch.items()})
    return tree_map(filled, batch)


def _emptied(one: Any, two: Any) -> Any:
    """An empty batch, made from a batch of one example and one of the same example twice."""
    if isinstance(one, Tensor) and one.dim():
        return one[:0]
    if isinstance(one, Mapping):
        parts = {name: _emptied(value, two[name]) for name, value in one.items()}
        try:
            return type(one)(parts)  # type: ignore[call-arg]
        except TypeError:
            return parts
    if isinstance(one, tuple) and hasattr(one, "_fields"):
        return type(one)(*map(_emptied, one, two))
    if isinstance(one, Sequence) and not isinstance(one, str):
        if len(one) != len(two):
            return type(one)()  # one entry for each example, such as a name
        return type(one)(map(_emptied, one, two))  # type: ignore[call-arg]
    if isinstance(one, Tensor | str | bytes | int | float | None):
        return one  # not about any example in particular
    raise ParameterError(
        f"an empty batch of {type(one).__name__} cannot be made: the collate function must "
        "return tensors, or tuples, lists and mappings of tensors, with the examples first."
    )


def dataset_of(data: object) -> Any:
    """The data set itself, which has a length and gives examples by index."""
    found: Any = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(found, str | bytes | Mapping) or not hasattr(found, "__getitem__"):
        raise ParameterError(
            f"{type(found).__name__} is not a map-style data set: examples are drawn by index. Use "
            "a data set with __len__ and __getitem__, or a list of examples."
        )
    is_number = isinstance(found, torch.Tensor) and found.dim() == 0
    if isinstance(found, IterableDataset) or is_number or not hasattr(found, "__len__"):
        raise ParameterError(
            f"{type(found).__name__} has no length, but participants are drawn by index from all "
            "examples. Use a data set with __len__ and __getitem__."
        )
    return found


def loading_options(data: object, expected: float) -> dict[str, Any]:
    """The options of a given loader; refused if its batches are not those of the scheme."""
    if not isinstance(data, DataLoader):
        return {"collate": None}
    _check_batches(data, expected)
    return {"collate": data.collate_fn, **{name: getattr(data, name) for name in CARRIED_OVER}}


def _check_batches(loader: DataLoader[Any], expected: float) -> None:
    remedy = (
        f"The batches of the accounted scheme are drawn by make_private ({expected:g} examples on "
        "average): pass the data set, or a loader with this batch_size and nothing else."
    )
    sampler, count = loader.sampler, len(dataset_of(loader))
    usual = isinstance(sampler, SequentialSampler) or (
        type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == count
    )
    if not usual or type(loader.batch_sampler) is not PlainBatchSampler:
        raise SamplingError(f"the data loader has a sampler of its own. {remedy}")
    if loader.drop_last:
        raise SamplingError(f"the data loader has drop_last=True, which drops examples. {remedy}")
    if loader.batch_size is None or not abs(loader.batch_size - expected) < 1:
        raise SamplingError(f"the data loader has batch_size={loader.batch_size}. {remedy}")


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
