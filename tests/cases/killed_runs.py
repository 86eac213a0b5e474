"""A training run that is killed again and again: `python -m cases.killed_runs`.

Arguments: FOLDER STEPS ROUNDS TIMED.

One parent imports torch and forks children, each of which takes up the run where its checkpoint
is.  A child is killed with SIGKILL at a chosen moment (every one of `MOMENTS`, `ROUNDS` times) or
after a random time (`TIMED` times); then one runs to the end.  Prints digests of the final state
with and without kills, and how often a child was killed.
"""

from __future__ import annotations

import hashlib
import os
import random
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cases.private import CLASSES, FEATURES, backward, data, private
from mmcc import strategies
from mmcc.sampling import Poisson
from mmcc.training import load_checkpoint, make_private, save_checkpoint

MOMENTS = (
    "before a step",
    "between chunks",
    "noise drawn",
    "half written",
    "before sync",
    "before rename",
    "after rename",
    "after saving",
)
write, fsync, replace = os.write, os.fsync, os.replace
Pause = Callable[[str], None]


def train(path: Path, steps: int, pause: Pause) -> None:
    """From the checkpoint, or from the start, to the end."""
    seed_global_generators(0)
    module = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.3), nn.Linear(8, CLASSES)).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
    started = path.exists()
    module, optimizer, loader = make_private(
        module,
        optimizer,
        data(),
        strategy=strategies.binary_tree(steps),
        sampling=Poisson(0.3),
        max_grad_norm=1.0,
        sigma=0.5,
        delta=1e-5,
        seed=None if started else 7,  # later on the keys come from the file
        physical_batch_size=4,
    )
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    if started:
        seed_global_generators(os.getpid())
        schedule.load_state_dict(load_checkpoint(path, module, optimizer, loader))
    else:
        save_checkpoint(path, module, optimizer, loader, extra=schedule.state_dict())
    _pause_after_noise(optimizer.run, pause)
    if optimizer.finished:
        return
    for batch in loader:
        pause("before a step")
        before = optimizer.position
        optimizer.zero_grad()
        backward(module, [augmented(batch[0]), batch[1]])
        optimizer.step()
        if optimizer.position == before:
            pause("between chunks")
            continue
        schedule.step()
        save_checkpoint(path, module, optimizer, loader, extra=schedule.state_dict())
        pause("after saving")


def seed_global_generators(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def augmented(inputs: torch.Tensor) -> torch.Tensor:
    """Random transforms draw from whichever generator is at hand."""
    return inputs + 0.1 * random.random() + 0.1 * np.random.rand()  # noqa: NPY002


def _pause_after_noise(run, pause: Pause) -> None:
    draw = run.draw

    def drawn():
        noise = draw()
        pause("noise drawn")
        return noise

    run.draw = drawn


def slowed(pause: Pause) -> None:
    """Make the parts of writing a file last, and stop in them if asked to."""

    def half(file: int, part: memoryview) -> int:
        if len(part) > 100:
            part = part[: len(part) // 2]
            done = write(file, part)
            pause("half written")
            return done
        return write(file, part)

    def synced(file: int) -> None:
        pause("before sync")
        time.sleep(5e-4)
        fsync(file)

    def renamed(source: Path, target: Path) -> None:
        pause("before rename")
        time.sleep(5e-4)
        replace(source, target)
        pause("after rename")

    os.write, os.fsync, os.replace = half, synced, renamed


def fork(work: Callable[[Pause], None], moment: str = "", count: int = 0) -> tuple[int, int]:
    """A child at work, and a pipe that says when it waits at the chosen moment (or is ready)."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    left = [count]

    def pause(where: str) -> None:
        if where == moment:
            left[0] -= 1
            if left[0] == 0:
                write(writer, b"!")
                while True:
                    signal.pause()

    status = 1
    try:
        if not moment:
            write(writer, b"!")
        work(pause)
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def finished(child: int, reader: int) -> None:
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"a child failed with status {status}")


def killed(child: int, reader: int, delay: float) -> bool:
    """Whether the child was still at work when it was killed."""
    select.select([reader], [], [])
    ready = os.read(reader, 1)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"a child failed with status {status}")
    return bool(ready) and os.WIFSIGNALED(status)


def digest(path: Path) -> str:
    """Of the final checkpoint: all parameters, momentum, keys, position, generators."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(folder: Path, steps: int, rounds: int, timed: int) -> None:
    warnings.filterwarnings("ignore", message="Full backward hook")
    private()  # what is imported late is imported once, not by every child
    whole, broken = folder / "whole", folder / "broken"
    finished(*fork(lambda pause: train(whole, steps, pause)))

    def work(pause: Pause) -> None:
        slowed(pause)
        train(broken, steps, pause)

    generator = random.Random(5)
    plan = [moment for moment in MOMENTS for _ in range(rounds)] + [""] * timed
    generator.shuffle(plan)
    kills = 0
    for moment in plan:
        child = fork(work, moment, generator.randint(1, 3))
        kills += killed(*child, 0.0 if moment else generator.uniform(0.0, 0.1))
    finished(*fork(work))
    print(digest(whole), digest(broken), kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
