"""Writers of a ledger that are killed, run as a program: it imports once and forks from then on.

    python -m cases.ledger_writers random FILE ROUNDS SEED     # kills writers at random moments
    python -m cases.ledger_writers stages FILE                 # kills one at each stage of a write
    python -m cases.ledger_writers together FILE WRITERS RUNS  # lets several write, kills none

Prints one JSON object: what `begin` returned before its process died, and what was seen meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mmcc.accounting._guarantee import Guarantee
from mmcc.ledger import Ledger
from mmcc.ledger import _files as files

GUARANTEE = Guarantee(0.25, 1e-6, 1.0, "tight", "identity(4)", "Poisson(0.5)", True, "mmcc")


def write(file: str, acknowledge: int, runs: int) -> None:
    """Begin and end runs; say so as soon as `begin` has returned."""
    for _ in range(runs):
        ledger = Ledger(file)
        run = ledger.begin(data="d", mechanism="m", guarantee=GUARANTEE, steps=4, fingerprint="f")
        os.write(acknowledge, f"{run}\n".encode())
        ledger.end(run, position=4)


def forked(body: Callable[[], None]) -> int:
    """The process id of a child that runs the body."""
    child = os.fork()
    if child:
        return child
    try:
        body()
    finally:
        os._exit(0)


def drained(source: int) -> list[str]:
    with os.fdopen(source, "rb") as handle:
        return handle.read().decode().split()


def random_kills(file: str, rounds: int, seed: int) -> dict[str, object]:
    """Three writers, each killed at a moment of its own."""
    generator = random.Random(seed)
    kept: list[str] = []
    left_over, kills, lost = 0, 0, 0
    for _ in range(rounds):
        source, sink = os.pipe()
        writers = [forked(lambda: write(file, sink, 10**6)) for _ in range(3)]  # noqa: B023
        os.close(sink)
        kept.append(os.read(source, 17).decode().strip())  # however slow the disk is
        for writer in generator.sample(writers, 3):
            time.sleep(generator.uniform(0.0, 0.02))
            os.kill(writer, signal.SIGKILL)
            kills += os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) == -signal.SIGKILL
        kept += drained(source)
        left_over += Path(file + files.FRESH).exists()
        known = set(Ledger(file).history().runs)  # reads, so every line is whole
        lost = max(lost, len(set(kept) - known))
    return {"kept": kept, "kills": kills, "left_over": left_over, "lost": lost}


class Dying:
    """`os`, but the process is killed when it comes to one of the calls."""

    def __init__(self, stage: str) -> None:
        self.stage, self.syncs = stage, 0

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def die_at(self, stage: str) -> None:
        if stage == self.stage:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, *arguments: object) -> int:
        descriptor = os.open(*arguments)  # type: ignore[arg-type]
        self.die_at("opened")
        return descriptor

    def fsync(self, descriptor: int) -> None:
        self.syncs += 1
        self.die_at(f"before fsync {self.syncs}")
        os.fsync(descriptor)
        self.die_at(f"after fsync {self.syncs}")

    def replace(self, source: Path, target: Path) -> None:
        self.die_at("before the rename")
        os.replace(source, target)
        self.die_at("after the rename")


def half_open(descriptor: int, mode: str) -> object:
    """A file of which half the content reaches the disk before the process is killed."""
    handle = open(descriptor, mode)  # noqa: SIM115
    if mode != "wb":
        return handle
    whole = handle.write

    class Half:
        def __enter__(self) -> Half:
            return self

        def __exit__(self, *_: object) -> None:
            handle.close()

        def write(self, content: bytes) -> None:
            whole(content[: len(content) - 40])
            handle.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    return Half()


STAGES = (
    "opened",
    "half written",
    "before fsync 1",
    "after fsync 1",
    "before the rename",
    "after the rename",
    "before fsync 2",
    "after fsync 2",
)


def staged_kills(file: str) -> dict[str, object]:
    """A kill at every stage, and a whole run after each."""
    kept, seen = [], {}
    for stage in STAGES:

        def body(stage: str = stage) -> None:
            if stage == "half written":
                files.open = half_open  # type: ignore[attr-defined]
            files.os = Dying(stage)  # type: ignore[assignment]
            Ledger(file).begin(
                data="d", mechanism=stage, guarantee=GUARANTEE, steps=4, fingerprint="f"
            )

        status = os.waitstatus_to_exitcode(os.waitpid(forked(body), 0)[1])
        ledger = Ledger(file)
        found = ledger.history().runs.values() if Path(file).exists() else []
        seen[stage] = [status, sum(run.begin.mechanism == stage for run in found)]
        kept.append(
            ledger.begin(data="d", mechanism="whole", guarantee=GUARANTEE, steps=4, fingerprint="f")
        )
    return {"kept": kept, "seen": seen}


def together(file: str, writers: int, runs: int) -> dict[str, object]:
    """Several writers at once, none killed."""
    source, sink = os.pipe()
    children = [forked(lambda: write(file, sink, runs)) for _ in range(writers)]
    os.close(sink)
    kept = drained(source)
    for child in children:
        os.waitpid(child, 0)
    return {"kept": kept}


if __name__ == "__main__":
    mode, path, *numbers = sys.argv[1:]
    modes = {"random": random_kills, "stages": staged_kills, "together": together}
    print(json.dumps(modes[mode](path, *map(int, numbers))))
