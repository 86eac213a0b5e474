"""Batch samplers for torch's DataLoader: the participants of each step, as lists of indices.

In: `Participants`.  Out: one list for each logical batch, or several physical ones that make it up.
Rounding: none; the law is that of the participants.

A logical batch is what the accounting knows: whoever takes part in a step.  It may be empty, and an
empty batch is a step like any other: its noise is released.  Physical batches only bound memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import Sampler

from mmcc._arrays import IntArray
from mmcc.errors import SamplingError, whole
from mmcc.sampling._scheme import MAX_STEPS
from mmcc.training._participants import Participants

MAX_PARTS = 2**20


class BatchSampler(Sampler[list[int]]):
    """Batches of steps start, start + 1, ..., stop - 1, each exactly once.

    With `physical=k` a logical batch comes in chunks of at most k examples, an empty one as one
    empty chunk.  An iteration goes on where the last one ended: `step` and `chunk` say what comes
    next, and `seek` changes it.  A DataLoader with workers asks for batches before they are used;
    whoever saves the state of such a loader seeks back to the step that was really reached.
    With `part=(i, n)` a logical batch is shared by n samplers: this one has members i, i + n, ...
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
            # Before the batch is handed out, so that a state saved while it is used points past it.
            if (chunk + 1) * size < members.size:
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
        """Whoever takes part in a step, in this sampler's part of the batch."""
        return self.participants.at(step)[self.part]

    def chunks(self, step: int) -> int:
        """How many physical batches make up the logical batch of a step."""
        size = int(self.members(step).size)
        return 1 if self.physical is None else max(1, -(-size // self.physical))

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
        """Go on where a state was taken; `physical` and `part` may change between steps."""
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


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
