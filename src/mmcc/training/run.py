"""One training run: which step it has reached, and what it may do next.

In: a mechanism, its noise stream and its participants.  Out: the noise of each step, once.
A run is the only thing that moves while the mechanism stands still.  Its position is that of the
noise stream, so that a step and its noise cannot get apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from mmcc.accounting.guarantee import Guarantee
from mmcc.errors import MmccError, whole
from mmcc.training.mechanism import Mechanism
from mmcc.training.participants import Participants
from mmcc.training.peers import ALONE, Peers
from mmcc.training.record import Record


class RunError(MmccError):
    """The training loop has left what was accounted."""


class Noise(Protocol):
    """A noise stream: one item for each step."""

    @property
    def position(self) -> int: ...

    def __next__(self) -> Any: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


class Watching(Protocol):
    """What looks at the module between a batch and its step."""

    def new_batch(self) -> None: ...

    def check(self, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """A physical batch: chunk `chunk` of the logical batch of a step."""

    step: int
    chunk: int
    size: int
    last: bool
    """Whether the logical batch ends with it."""


class Run:
    """The state of a training run, shared by its loader and its optimizer."""

    def __init__(
        self,
        mechanism: Mechanism,
        noise: Noise,
        participants: Participants,
        account: Callable[[], Guarantee],
        *,
        steps_per_epoch: int | None = None,
        physical: int | None = None,
        record: Record | None = None,
        watch: Watching | None = None,
        layout: str = "",
        peers: Peers = ALONE,
    ) -> None:
        self.mechanism = mechanism
        self.watch = watch
        self.layout = layout
        self.record = record or Record(None, "", mechanism, peers)
        self.noise = noise
        self.participants = participants
        self.peers = peers
        self.physical = (
            None if physical is None else whole("physical_batch_size", physical, 1, 2**31)
        )
        steps = mechanism.steps
        if steps_per_epoch is not None:
            steps = whole("steps_per_epoch", steps_per_epoch, 1, steps)
        self.steps_per_epoch = steps
        self._account = account
        self._chunks = 0  # chunks of the present step that are summed up
        self._handed: Batch | None = None
        self._iteration = 0
        self._void = False
        self._ended = False

    @property
    def position(self) -> int:
        """The step that comes next; as many are done."""
        return self.noise.position

    @property
    def finished(self) -> bool:
        """Whether all steps that are accounted for are done."""
        return self.position >= self.mechanism.steps

    @property
    def ended(self) -> bool:
        """Whether it was said that no step follows."""
        return self._ended

    @property
    def epoch_end(self) -> int:
        """The step at which the present epoch ends, wherever in it the run has started again."""
        epochs = self.position // self.steps_per_epoch + 1
        return min(epochs * self.steps_per_epoch, self.mechanism.steps)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of all steps, whether they were taken or not."""
        return self._account()

    def begin(self) -> int:
        """Start to hand out batches from the present step on; earlier iterations end."""
        self._check_open()
        self.record.enter(lambda: self.guarantee)
        self._handed, self._chunks = None, 0
        self._iteration += 1
        return self._iteration

    def hand_out(self, batch: Batch, iteration: int) -> None:
        """Note which batch the training loop got."""
        self.check_current(iteration)
        self._handed = batch
        if self.watch is not None:
            self.watch.new_batch()

    def check_current(self, iteration: int) -> None:
        """Refuse a loop that was overtaken by another."""
        if iteration != self._iteration:
            raise RunError(
                "the loader was iterated again, or a checkpoint was loaded, since this loop began: "
                "its batches are out of order. Use one loop at a time."
            )

    def withdraw(self, iteration: int) -> None:
        """The loop ended: a batch that was not used is not waited for."""
        if iteration == self._iteration:
            self._handed, self._chunks = None, 0

    def take(self) -> Batch:
        """The batch that the gradients of a step must come from; each can be taken once."""
        self._check_open()
        batch, self._handed = self._handed, None
        if batch is None:
            raise RunError(
                f"step {self.position} has no batch: gradients must come from the loader that "
                "make_private returned, and each of its batches is used once. Iterate over it, and "
                "call optimizer.step() once for each batch."
            )
        if (batch.step, batch.chunk) != (self.position, self._chunks):
            raise RunError(
                f"the batch is chunk {batch.chunk} of step {batch.step}, but chunk {self._chunks} "
                f"of step {self.position} comes next: a batch was skipped. Call optimizer.step() "
                "for every batch, also for an empty one; iterate over the loader anew to go on."
            )
        if self.watch is not None:
            self.watch.check(batch)
        return batch

    def summed(self) -> None:
        """The clipped gradients of the chunk that was taken are in the sum."""
        self._chunks += 1

    def draw(self) -> Any:
        """The noise of the present step, which is thereby done."""
        self._check_open()
        noise = next(self.noise)
        self._chunks = 0
        return noise

    def end(self) -> None:
        """No step follows: the ledger, if there is one, is told.  The guarantee stays the same."""
        if not self._ended:
            self._ended = True
            with self.peers.agreeing():
                self.record.close(self.position)

    def check_between_steps(self, what: str) -> None:
        """Refuse `what` while a logical batch is being worked on."""
        self._check_valid()
        if self._chunks or self._handed is not None:
            raise RunError(
                f"{what} belongs between two steps, but the batch of step {self.position} is in "
                "use. Do it after optimizer.step() has taken the last part of the batch."
            )

    @contextmanager
    def taken_up(self) -> Iterator[None]:
        """Noise and participants are restored: whatever was handed out is void.

        So is the whole run if that fails half-way.
        """
        self._void = True
        self._handed, self._chunks = None, 0
        self._iteration += 1
        self._ended = False
        yield
        self._void = False

    def _check_open(self) -> None:
        self._check_valid()
        if self.finished:
            raise RunError(
                f"all {self.mechanism.steps} steps that were accounted for are done; one more "
                "would not be covered by the guarantee. For a longer run make a longer strategy."
            )
        if self._ended:
            raise RunError(f"the run was ended after {self.position} steps; begin a new one.")

    def _check_valid(self) -> None:
        if self._void:
            raise RunError(
                "a checkpoint could not be loaded to its end, so that nothing is known about what "
                "would follow. Call make_private again."
            )
