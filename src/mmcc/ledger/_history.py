"""The content of a ledger: plans and runs, checked line by line.

In: the content of the file.  Out: `History`.
A line with anything wrong is an error that gives its number; no line is ever skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mmcc.ledger._entries import (
    FIRST,
    Begin,
    DeclaredPlan,
    End,
    Entry,
    LedgerError,
    Resume,
    from_line,
)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as far as the ledger knows it; whatever happened to it, it counts in full."""

    begin: Begin
    position: int | None = None
    """Steps made when it ended; None if it was killed or is still running."""
    resumed: int = 0

    @property
    def state(self) -> str:
        """What became of the run, in words."""
        times = "once" if self.resumed == 1 else f"{self.resumed} times"
        again = f", resumed {times}" if self.resumed else ""
        if self.position is None:
            return f"no end (killed, or still running){again}"
        if self.position < self.begin.steps:
            return f"stopped at step {self.position} of {self.begin.steps}{again}"
        return f"ended{again}"


@dataclass(slots=True)
class History:
    """Plans by data set, runs by their names, and the check of the last line."""

    plans: dict[str, DeclaredPlan] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    check: str = FIRST
    lines: int = 0
    adjacency: dict[str, str] = field(default_factory=dict)
    """The adjacency relation of all guarantees on a data set."""

    def admit(self, entry: Entry) -> None:
        """Add an entry, or raise an error that says why it does not fit."""
        if isinstance(entry, DeclaredPlan):
            self._plan(entry)
        elif isinstance(entry, Begin):
            self._begin(entry)
        elif isinstance(entry, Resume):
            self._resume(entry)
        else:
            self._end(entry)

    def data_sets(self) -> list[str]:
        """Names of all data sets, in alphabetical order."""
        return sorted({*self.plans, *(run.begin.data for run in self.runs.values())})

    def runs_on(self, data: str) -> list[Run]:
        """All runs on a data set, in the order in which they began."""
        return [run for run in self.runs.values() if run.begin.data == data]

    def _plan(self, entry: DeclaredPlan) -> None:
        if entry.data in self.plans:
            raise LedgerError(
                f"there is a plan for {entry.data!r} already; runs outside it are added as pairs"
            )
        if self.runs_on(entry.data):
            raise LedgerError(
                f"a plan for {entry.data!r} must be declared before its first run: later it could "
                "depend on what was released"
            )
        relations = {run.guarantee.adjacency for run in entry.runs}
        if len(relations) > 1:
            raise _different(*sorted(relations)[:2])
        self.plans[entry.data] = entry
        self.adjacency[entry.data] = relations.pop()

    def _begin(self, entry: Begin) -> None:
        if entry.run in self.runs:
            raise LedgerError(f"the run {entry.run!r} has begun already")
        known = self.adjacency.get(entry.data, entry.guarantee.adjacency)
        if known != entry.guarantee.adjacency:
            raise _different(known, entry.guarantee.adjacency)
        self.adjacency[entry.data] = known
        self.runs[entry.run] = Run(entry)

    def _resume(self, entry: Resume) -> None:
        run = self._run(entry.run)
        if run.begin.fingerprint != entry.fingerprint:
            raise LedgerError(
                f"the run {entry.run!r} has another mechanism: its fingerprint is not the one it "
                "began with, so what follows would be a separate run"
            )
        self.runs[entry.run] = replace(run, position=None, resumed=run.resumed + 1)

    def _end(self, entry: End) -> None:
        run = self._run(entry.run)
        if run.position is not None:
            raise LedgerError(f"the run {entry.run!r} has ended already")
        if entry.position > run.begin.steps:
            raise LedgerError(
                f"the run {entry.run!r} ended at step {entry.position} of {run.begin.steps}: more "
                "steps than were accounted for"
            )
        self.runs[entry.run] = replace(run, position=entry.position)

    def _run(self, name: str) -> Run:
        if name not in self.runs:
            raise LedgerError(f"the run {name!r} is unknown")
        return self.runs[name]


def read_history(content: bytes, name: str) -> History:
    """The history in a file's content; `name` is what errors call the file.

    An empty file is a ledger without runs: a writer killed before its first line leaves one.
    """
    *lines, rest = content.split(b"\n")
    history = History()
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        try:
            if number > len(lines):
                raise LedgerError("it is not whole: it does not end in a newline")
            entry, check = from_line(line, history.check)
            history.admit(entry)
        except (ValueError, RecursionError) as problem:  # MmccError is a ValueError
            said = str(problem).rstrip(".")
            raise LedgerError(f"line {number} of {name!r} is corrupt: {said}.") from None
        history.check, history.lines = check, number
    return history


def _different(one: str, other: str) -> LedgerError:
    return LedgerError(
        f"guarantees for different adjacency relations do not add up: {one!r} and {other!r}. "
        "Keep a ledger for each"
    )
