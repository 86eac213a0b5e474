"""One training run: which step it has reached, and what it may do next.

In: a mechanism, its noise stream and its participants.  Out: the noise of each step, once.
A run is the only thing that moves while the mechanism stands still.  Its position is that of the
noise stream, so that a step and its noise cannot get apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from mmcc.accounting._guarantee import Guarantee
from mmcc.errors import MmccError, whole
from mmcc.training._mechanism import Mechanism
from mmcc.training._participants import Participants
from mmcc.training._peers import ALONE, Peers
from mmcc.training._record import Record


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

    @property
    def in_use(self) -> bool:
        """Whether a pass was made whose step is still to come."""

    def forget(self) -> None:
        """A pass that was made has no step to come."""

    def mark(self, size: int) -> None:
        """From now on, until the step on so many examples, nothing may be written to the module."""

    def check(self, batch: Batch) -> None:
        """Refuse a step that does not follow one pass over the batch."""

    def start_over(self) -> None:
        """What is known of the module is no longer: it was loaded anew."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A physical batch: chunk `chunk` of the logical batch of a step."""

    step: int
    chunk: int
    size: int
    last: bool
    """Whether the logical batch ends with it."""
    content: tuple[Any, ...] = ()
    """Its tensors, by which a pass over a later batch is told from one over this."""


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
        self._handed: deque[Batch] = deque()  # in the order in which they are to be stepped on
        self._ahead: int | None = None  # batches that this loop fetches before their turn
        self._most_ahead = 1  # as far as a loop may look before it shows how far it does
        self._stepped = self._fetched = False  # in this loop; since the last step
        self._iteration = 0
        self._iteration_over = False
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

    @property
    def handed(self) -> tuple[Batch, ...]:
        """Batches that were handed out and wait for their step, the next one first."""
        return tuple(self._handed)

    def begin(self) -> int:
        """Start to hand out batches from the present step on; earlier iterations end."""
        self._check_open()
        left, over = len(self._handed), self._iteration_over
        self._forget_handed()
        if left and over:
            raise RunError(
                f"the epoch ended, and optimizer.step() never worked on its last {left} "
                f"batch{'es' if left > 1 else ''}. Call optimizer.step(), of the optimizer that "
                "make_private returned, for every batch."
            )
        self.record.enter(lambda: self.guarantee)
        self._most_ahead = max(self._most_ahead, self._ahead or 0)
        self._ahead, self._stepped, self._iteration_over = None, False, False
        self._iteration += 1
        return self._iteration

    def hand_out(self, batch: Batch, iteration: int) -> None:
        """Note which batch the training loop got."""
        self.check_current(iteration)
        self._check_ahead()
        self._handed.append(batch)
        if len(self._handed) == 1:
            self.updated()
        self._fetched = True

    def exhausted(self, iteration: int) -> None:
        """The loop asked for a batch after the last one of its epoch."""
        self.check_current(iteration)
        self._check_ahead()
        if not self._stepped and (len(self._handed) > self._most_ahead or self._in_use):
            raise self._never_stepped()
        self._iteration_over = True

    def _check_ahead(self) -> None:
        """Refuse a loop that leaves batches behind.

        One that fetches ahead does so by a fixed number of batches, which shows when it asks for
        the first one after a step.
        """
        if not self._stepped:
            return
        if self._ahead is None:
            self._ahead = len(self._handed)
        elif len(self._handed) > self._ahead:
            raise self._never_stepped()

    def _never_stepped(self) -> RunError:
        batch = self._handed[0]
        return RunError(
            f"a batch was skipped: chunk {batch.chunk} of step {batch.step} was handed out, and "
            "optimizer.step() has not worked on it. Call optimizer.step(), of the optimizer that "
            "make_private returned, for every batch, also for an empty one; iterate over the "
            "loader anew to go on."
        )

    @property
    def _in_use(self) -> bool:
        return self.watch is not None and self.watch.in_use

    def _forget_handed(self) -> None:
        self._handed.clear()
        self._chunks = 0
        self._fetched = False
        if self.watch is not None:
            self.watch.forget()

    def check_current(self, iteration: int) -> None:
        """Refuse a loop that was overtaken by another."""
        if iteration != self._iteration:
            raise RunError(
                "the loader was iterated again, or a checkpoint was loaded, since this loop began: "
                "its batches are out of order. Use one loop at a time."
            )

    def withdraw(self, iteration: int) -> None:
        """The loop was left: batches that were not used are not waited for."""
        if iteration == self._iteration:
            self._forget_handed()

    def take(self) -> Batch:
        """The batch that the gradients of a step must come from; each can be taken once."""
        self._check_open()
        if not self._handed:
            raise RunError(
                f"step {self.position} has no batch: gradients must come from the loader that "
                "make_private returned, and each of its batches is used once. Iterate over it, and "
                "call optimizer.step() once for each batch."
            )
        batch = self._handed.popleft()
        if (batch.step, batch.chunk) != (self.position, self._chunks):
            raise RunError(
                f"the batch is chunk {batch.chunk} of step {batch.step}, but chunk {self._chunks} "
                f"of step {self.position} comes next. Iterate over the loader anew to go on."
            )
        if self.watch is not None:
            self.watch.check(batch)
        return batch

    def summed(self) -> None:
        """The clipped gradients of the chunk that was taken are in the sum."""
        self._chunks += 1
        self._stepped, self._fetched = True, False

    def updated(self) -> None:
        """All that was done with earlier batches is done: what follows is about the next one."""
        if self._handed and self.watch is not None:
            self.watch.mark(self._handed[0].size)

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
        if self._chunks or self._in_use or (self._handed and self._fetched):
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
        self._forget_handed()
        self._iteration += 1
        self._ended = self._iteration_over = False
        yield
        self._void = False
        if self.watch is not None:
            self.watch.start_over()

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
