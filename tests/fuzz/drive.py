"""Feeding a target: inputs made from a seed, bounds on time and memory, what failed is kept.

In: a `Format`.  Out: a `Tally`; an input that fails is raised as `FailedError`, with the input.
Input number i of a seed depends on (format, seed, i) alone, so any one of them can be made again.
"""

from __future__ import annotations

import hashlib
import random
import resource
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import canary

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 20.0
"""Of processor time, not of the clock: other processes are not the input's fault."""
BYTES = 2**30
"""How much the largest memory that the process ever had may grow by one input."""
PATIENCE = 4
"""The first time kernels may have to be compiled: this many times `SECONDS`."""
ROOM = 2**32
"""Address space an input may ask for, whether it would be used or not."""


@dataclass(frozen=True)
class Format:
    """What can be read, how inputs of it are made, and the target that they are fed to."""

    name: str
    make: Callable[[random.Random], bytes]
    feed: Callable[[bytes], bool]
    """Whether it was accepted; whatever it raises is a failure."""
    around: Callable[[], AbstractContextManager[object]]
    """What must be there while inputs are fed: a folder, stubs."""

    def input(self, seed: int, number: int) -> bytes:
        """Input `number` of a seed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the damage, which is meant
            return self.make(random.Random(f"{self.name} {seed} {number}"))

    def corpus(self) -> list[Path]:
        """Inputs that failed once, or are worth a look every time."""
        return sorted((CORPUS / self.name).glob("*.bin"))


@dataclass
class Tally:
    """What became of the inputs."""

    inputs: int = 0
    accepted: int = 0
    failures: list[FailedError] = field(default_factory=list)
    slowest: float = 0.0

    def __str__(self) -> str:
        refused = self.inputs - self.accepted - len(self.failures)
        return (
            f"{self.inputs} inputs: {self.accepted} accepted, {refused} refused, "
            f"{len(self.failures)} failures; the slowest took {self.slowest:.2f} s"
        )


class FailedError(Exception):
    """An input that did what no input may do."""

    def __init__(self, content: bytes, why: str) -> None:
        super().__init__(why)
        self.content = content

    def save(self, format: Format) -> Path:
        """Put the input into the corpus."""
        path = CORPUS / format.name / f"{hashlib.sha256(self.content).hexdigest()[:16]}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        return path


class _TooLongError(BaseException):
    """Not an Exception: what is fed must not catch it."""


def fed(format: Format, content: bytes) -> tuple[bool, float]:
    """Whether an input was accepted, and its processor time; everything else is `FailedError`.

    One that takes too long is fed again: it may have been the first to need something.
    """
    accepted, seconds = _fed_once(format, content, PATIENCE * SECONDS)
    if seconds > SECONDS:
        accepted, seconds = _fed_once(format, content, SECONDS)
    return accepted, seconds


def _fed_once(format: Format, content: bytes, limit: float) -> tuple[bool, float]:
    canary.calls.clear()
    peak, start = _peak(), time.process_time()
    try:
        with warnings.catch_warnings(record=True) as warned, _timed(limit):
            warnings.simplefilter("always")
            accepted = format.feed(content)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        raise FailedError(content, f"{type(problem).__name__}: {problem}") from problem
    seconds, grown = time.process_time() - start, _peak() - peak
    if canary.calls:
        raise FailedError(content, "code named in the input was run")
    if warned:
        raise FailedError(content, f"warning: {warned[0].message}")
    if seconds > limit:
        raise FailedError(content, f"{seconds:.1f} s of processor time")
    if grown > BYTES:
        raise FailedError(content, f"memory grew by {grown / 2**30:.1f} GiB")
    return accepted, seconds


def run(
    format: Format,
    inputs: int,
    seed: int = 0,
    *,
    first: int = 0,
    say: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Feed so many inputs of a seed."""
    tally = Tally()
    with format.around(), _bounded():
        for number in range(first, first + inputs):
            try:
                accepted, seconds = fed(format, format.input(seed, number))
            except FailedError as failure:
                tally.failures.append(failure)
            else:
                tally.accepted += accepted
                tally.slowest = max(tally.slowest, seconds)
            tally.inputs += 1
            say(tally)
    return tally


@contextmanager
def _timed(limit: float) -> Iterator[None]:
    """Interrupt what takes too long, where the interpreter gets a chance to."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise _TooLongError(f"more than {limit:g} s of processor time")

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def _bounded() -> Iterator[None]:
    """Let the machine survive an input that asks for all of its memory."""
    sizes = Path("/proc/self/statm")
    if not sizes.exists():
        yield
        return
    used = int(sizes.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + ROOM if soft == resource.RLIM_INFINITY else min(soft, used + ROOM)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
