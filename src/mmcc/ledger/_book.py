"""The ledger itself: a file that records every run before its first step.

In: what a run is about to release.  Out: lines on disk, and the total of what they record.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._parallel import Progress
from mmcc.ledger._entries import (
    Begin,
    DeclaredPlan,
    End,
    Entry,
    LedgerError,
    Planned,
    Resume,
    fingerprinted,
    sealed,
    to_body,
)
from mmcc.ledger._files import append, content_of
from mmcc.ledger._history import History, read_history
from mmcc.ledger._total import Total, total


class Ledger:
    """Everything that was ever released on data sets, one JSON object per line.

    Any number of processes may write to the same file.  Every method that writes first reads and
    checks the whole file, and returns once its line is on disk.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # independent of later changes of folder

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def declare(self, plan: Sequence[Planned], *, data: str) -> None:
        """Declare which mechanisms will be run on a data set, before its first run.

        A plan counts in full from then on, whether or not its runs are made: in return, the privacy
        losses of its runs are composed, instead of adding up their pairs.
        """
        self._append(lambda _: DeclaredPlan(data, tuple(plan)))

    def begin(
        self,
        *,
        data: str,
        mechanism: str,
        guarantee: Guarantee,
        steps: int,
        fingerprint: str | Mapping[str, str],
    ) -> str:
        """Record a run before its first step; returns its name.

        It counts from now on, in full.  It is a run of the plan if a planned run has the same
        fingerprint and the same epsilon and delta, and no other run has taken that place.
        """

        def entry(history: History) -> Begin:
            name = secrets.token_hex(8)
            while name in history.runs:
                name = secrets.token_hex(8)
            return Begin(name, data, mechanism, steps, fingerprinted(fingerprint), guarantee)

        begun = self._append(entry)
        assert isinstance(begun, Begin)
        return begun.run

    def resume(
        self, run: str, fingerprint: str | Mapping[str, str], *, data: str | None = None
    ) -> None:
        """Continue a run from its checkpoint: it is not counted again, so it must be the same run.

        It must repeat bit for bit what it had done after the checkpoint.  Refused if the run is
        unknown, or began with another fingerprint, or on another data set than `data`.
        """

        def entry(history: History) -> Resume:
            began = history.runs[run].begin.data if run in history.runs else data
            if data is not None and began != data:
                raise LedgerError(
                    f"the run {run!r} began on the data set {began!r}, so on {data!r} it would be "
                    "a separate run"
                )
            return Resume(run, fingerprinted(fingerprint))

        self._append(entry)

    def end(self, run: str, *, position: int) -> None:
        """Record that a run has ended after `position` steps; it still counts in full."""
        self._append(lambda _: End(run, position))

    def history(self) -> History:
        """Every plan and run, each line checked."""
        content = content_of(self.path)
        if content is None:
            raise LedgerError(f"there is no ledger {str(self.path)!r}.")
        return read_history(content, self.path.name)

    def total(
        self, data: str, *, delta: float | None = None, progress: Progress | None = None
    ) -> Total:
        """One guarantee for everything that was ever released on a data set.

        `delta` is the plan's share; without it the plan gets the sum of its deltas.
        """
        return total(self.history(), data, delta=delta, progress=progress)

    def _append(self, make: Callable[[History], Entry]) -> Entry:
        made: list[Entry] = []

        def line(content: bytes) -> str:
            name = self.path.name
            history = read_history(content, name)
            try:
                entry = make(history)
                history.admit(entry)
            except LedgerError as problem:
                said = str(problem).rstrip(".")
                raise LedgerError(f"{name!r} refuses this entry: {said}.") from None
            made.append(entry)
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            return sealed(to_body(entry, now), history.check)

        append(self.path, line)
        return made[0]
