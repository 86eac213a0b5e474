"""One training run: which step it has reached, what it may do next, and its place in a ledger.

In: a mechanism, its noise stream and its participants.  Out: the noise of each step, once; lines in
the ledger.
The run is the only thing that changes; the mechanism is fixed.  Its position is that of the noise
stream, so a step and its noise cannot come apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmcc.accounting._guarantee import Guarantee
from mmcc.errors import MmccError, ParameterError, shown, whole
from mmcc.training._mechanism import Mechanism
from mmcc.training._participants import Participants
from mmcc.training._peers import Peers

if TYPE_CHECKING:
    from mmcc.ledger import Ledger
    from mmcc.training._masters import Masters
    from mmcc.training._sharding import Sharding
    from mmcc.training._torch_noise import TorchNoiseStream
    from mmcc.training._watch import Watch

Account = Callable[[], Guarantee]
"""A function that finds the guarantee of a run; it is called once."""


class RunError(MmccError):
    """The training loop has departed from what was accounted."""


@dataclass(frozen=True, slots=True)
class PhysicalBatch:
    """A physical batch: chunk `chunk` of the logical batch of a step."""

    step: int
    chunk: int
    size: int
    """Rows, including padding."""
    last: bool
    """Whether it is the last of its logical batch."""
    padding: int = 0
    """How many of its last rows are padding."""
    content: tuple[Any, ...] = ()
    """Its tensors, by which a pass over this batch is told from one over a later batch."""

    @property
    def members(self) -> int:
        """Rows that are examples."""
        return self.size - self.padding


class TrainingRun:
    """The state of a training run, shared by its loader and its optimizer."""

    def __init__(
        self,
        mechanism: Mechanism,
        noise: TorchNoiseStream,
        participants: Participants,
        account: Account,
        record: Record,
        watch: Watch,
        masters: Masters,
        sharding: Sharding,
        peers: Peers,
        *,
        steps_per_epoch: int | None,
        physical: int | None,
        layout: str,
    ) -> None:
        self.mechanism = mechanism
        self.noise = noise
        self.participants = participants
        self.record = record
        self.watch = watch
        self.masters = masters
        self.sharding = sharding
        self.peers = peers
        self.layout = layout
        self.physical = (
            None if physical is None else whole("physical_batch_size", physical, 1, 2**31)
        )
        steps = mechanism.steps
        if steps_per_epoch is not None:
            steps = whole("steps_per_epoch", steps_per_epoch, 1, steps)
        self.steps_per_epoch = steps
        self._account = account
        self._chunks = 0  # chunks of the present step that are summed up
        self._handed: deque[PhysicalBatch] = deque()  # in the order of their steps
        self._ahead: int | None = None  # batches that this loop fetches before their turn
        self._most_ahead = 1  # how far a loop may fetch ahead before its own distance is known
        self._stepped = self._fetched = False  # in this loop; since the last step
        self._iteration = 0
        self._iteration_over = False
        self._void = False
        self._ended = False

    @property
    def position(self) -> int:
        """The step that comes next, which is also the number of steps done."""
        return self.noise.position

    @property
    def finished(self) -> bool:
        """Whether all steps that are accounted for are done."""
        return self.position >= self.mechanism.steps

    @property
    def ended(self) -> bool:
        """Whether the run was declared to have ended."""
        return self._ended

    @property
    def epoch_end(self) -> int:
        """The step at which the present epoch ends, wherever in it the run was resumed."""
        epochs = self.position // self.steps_per_epoch + 1
        return min(epochs * self.steps_per_epoch, self.mechanism.steps)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all steps, whether they were taken or not."""
        return self._account()

    @property
    def handed(self) -> tuple[PhysicalBatch, ...]:
        """Batches that were handed out and wait for their step, the next one first."""
        return tuple(self._handed)

    def begin(self) -> int:
        """Start handing out batches from the present step on; earlier iterations end."""
        self._check_open()
        left, over = len(self._handed), self._iteration_over
        self._forget_handed()
        if left and over:
            raise RunError(
                f"the epoch ended, and optimizer.step() never worked on its last {left} "
                f"batch{'es' if left > 1 else ''}. Call optimizer.step(), of the optimizer that "
                "make_private returned, for every batch."
            )
        self.record.enter()
        self._most_ahead = max(self._most_ahead, self._ahead or 0)
        self._ahead, self._stepped, self._iteration_over = None, False, False
        self._iteration += 1
        return self._iteration

    def hand_out(self, batch: PhysicalBatch, iteration: int) -> None:
        """Record which batch the training loop got."""
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
        if not self._stepped and (len(self._handed) > self._most_ahead or self.watch.in_use):
            raise self._never_stepped()
        self._iteration_over = True

    def _check_ahead(self) -> None:
        """Refuse a loop that leaves batches behind.

        A loop that fetches ahead does so by a fixed number of batches, which is known once it asks
        for its first batch after a step.
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
            "make_private returned, for every batch, including empty ones; start iterating over "
            "the loader again to go on."
        )

    def _forget_handed(self) -> None:
        self._handed.clear()
        self._chunks = 0
        self._fetched = False
        self.watch.forget()

    def check_current(self, iteration: int) -> None:
        """Refuse a loop that another one has superseded."""
        if iteration != self._iteration:
            raise RunError(
                "the loader was iterated again, or a checkpoint was loaded, since this loop began: "
                "its batches are out of order. Use one loop at a time."
            )

    def withdraw(self, iteration: int) -> None:
        """The loop was left: do not wait for batches that were not used."""
        if iteration == self._iteration:
            self._forget_handed()

    def take(self) -> PhysicalBatch:
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
                f"of step {self.position} comes next. Start iterating over the loader again."
            )
        self.watch.check(batch)
        return batch

    def summed(self) -> None:
        """Record that the clipped gradients of the chunk that was taken are in the sum."""
        self._chunks += 1
        self._stepped, self._fetched = True, False

    def updated(self) -> None:
        """Record that earlier batches are dealt with: what follows is about the next one."""
        if self._handed:
            self.watch.mark(self._handed[0].members)

    def meet(self, act: str) -> None:
        """Check that all processes do the same, at one step, with the same shared state."""
        self.peers.meet(act, self.position, self.sharding.replica(self.masters.stepped))

    def draw(self) -> Any:
        """The noise of the present step, which is thereby done."""
        self._check_open()
        noise = next(self.noise)
        self._chunks = 0
        return noise

    def end(self) -> None:
        """Declare that no step follows, also to the ledger.  The guarantee stays the same."""
        if not self._ended:
            self._ended = True
            with self.peers.agreeing():
                self.record.close(self.position)

    def check_between_steps(self, what: str) -> None:
        """Refuse `what` while a logical batch is in progress."""
        self._check_valid()
        if self._chunks or self.watch.in_use or (self._handed and self._fetched):
            raise RunError(
                f"{what} belongs between two steps, but the batch of step {self.position} is in "
                "use. Do it after optimizer.step() has taken the last part of the batch."
            )

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Restore noise and participants: batches handed out before are void.

        If that fails half-way, so is the whole run.
        """
        self._void = True
        self._forget_handed()
        self._iteration += 1
        self._ended = self._iteration_over = False
        yield
        self._void = False
        self.watch.start_over()

    def _check_open(self) -> None:
        self._check_valid()
        if self.finished:
            raise RunError(
                f"all {self.mechanism.steps} steps that were accounted for are done; one more "
                "would not be covered by the guarantee. For a longer run, use a longer strategy."
            )
        if self._ended:
            raise RunError(f"the run was ended after {self.position} steps; start a new one.")

    def _check_valid(self) -> None:
        if self._void:
            raise RunError(
                "loading a checkpoint failed half-way, so the state of this run is not known. "
                "Call make_private again."
            )


class Record:
    """A run's place in a ledger, or no ledger at all: of several processes the first one writes.

    `name` is the run's name in the ledger: empty as long as it has no entry.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        data: str,
        mechanism: Mechanism,
        account: Account,
        peers: Peers,
    ) -> None:
        self.ledger, self.data, self.mechanism = ledger, data, mechanism
        self.peers = peers
        self.name = ""
        self._account = account
        self._entered = False

    def enter(self) -> None:
        """Enter the run, once: from then on it counts, whatever becomes of it."""
        if self.ledger is None or self._entered:
            return
        with self.peers.agreeing():
            if self.peers.rank == 0:
                self.name = self.ledger.begin(
                    data=self.data,
                    mechanism=_described(self.mechanism),
                    guarantee=self._account(),
                    steps=self.mechanism.steps,
                    fingerprint=self.mechanism.fingerprint(),
                )
        self._entered = True

    def check(self, name: str) -> None:
        """Refuse a checkpoint whose run would be counted twice, or not at all."""
        if bool(name) != (self.ledger is not None):
            raise ParameterError(
                "the run of the checkpoint is in a ledger: pass the same ledger to make_private."
                if name
                else "the run of the checkpoint is in no ledger, so that its first steps would not "
                "count: leave out ledger=, or start a new run."
            )

    def resume(self, name: str) -> None:
        """Continue a run that the ledger already lists: the same noise, not counted again."""
        if self.ledger is None:
            return
        if self.peers.rank == 0:
            self.ledger.resume(name, self.mechanism.fingerprint(), data=self.data)
        self.name, self._entered = name, True

    def close(self, position: int) -> None:
        """Record that the run has ended; a run without an entry has nothing to end."""
        if self.ledger is not None and self._entered and self.peers.rank == 0:
            self.ledger.end(self.name, position=position)


def ledger_of(ledger: Ledger | str | Path | None, data: str | None) -> tuple[Ledger | None, str]:
    """The ledger, and the name of the data set in it; both or neither."""
    if (ledger is None) != (data is None):
        raise ParameterError(
            "ledger= and data_name= belong together: the ledger adds up the runs on one data set, "
            "which it knows by name."
        )
    if ledger is None or data is None:
        return None, ""
    if not isinstance(data, str) or not data:
        raise ParameterError(f"data_name is the name of a data set, got {shown(data)}.")
    from mmcc.ledger import Ledger  # imports the accounting

    if not isinstance(ledger, Ledger | str | Path):
        raise ParameterError(f"ledger is a file or a Ledger, got {shown(ledger)}.")
    return (ledger if isinstance(ledger, Ledger) else Ledger(ledger)), data


def _described(mechanism: Mechanism) -> str:
    return (
        f"{mechanism.strategy!r}, {mechanism.sampling!r}, sigma {mechanism.sigma:.9g}, "
        f"decoder {mechanism.decoder}, clip norm {mechanism.max_grad_norm:g} "
        f"({mechanism.clipping.in_short()}), {mechanism.examples} examples"
    )
