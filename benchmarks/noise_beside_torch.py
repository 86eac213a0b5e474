"""Noise in single precision on the CPU, compared with `torch.randn`, in one thread.

    python benchmarks/noise_beside_torch.py [--size 20000000] [--rounds 9] [--overlap]

Every round times one step of a stream and one `torch.randn` of the same size, in turn, in processor
time; the ratio is that of numbers per second, ours to torch's, the median of the rounds.  Held:
noise vectors after many steps, including the one handed out; at most: while a step runs; both
according to numpy's allocations.  A quarter: the time of one of four parts of the parameters,
relative to the time of all.

`--overlap`: a step of training in wall-clock time, with its noise drawn after the backward pass, or
by a thread of its own during it.  NUMBA_CPU_NAME=x86-64-v3 and ATEN_CPU_CAPABILITY=avx2 show the
performance without AVX-512.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from mmcc import strategies
from mmcc.training import NoiseStream, TorchNoiseStream

STEPS = 2000
WARM = 9
"""Steps after which a stream keeps as much as it ever will."""
STRATEGIES: dict[str, tuple[strategies.Strategy, dict[str, Any]]] = {
    "identity": (strategies.identity(STEPS), {}),
    "banded toeplitz, b = 2": (strategies.banded_toeplitz(STEPS, 2), {}),
    "banded toeplitz, b = 8": (strategies.banded_toeplitz(STEPS, 8), {}),
    "blt, buffers = 2": (strategies.blt(STEPS, 2), {}),
    "blt, buffers = 4": (strategies.blt(STEPS, 4), {}),
    "banded inverse, b = 2": (strategies.banded_inverse(STEPS, 2), {}),
    "banded inverse, b = 2, regenerate": (
        strategies.banded_inverse(STEPS, 2),
        {"memory": "regenerate"},
    ),
    "banded inverse, b = 8": (strategies.banded_inverse(STEPS, 8), {}),
    "banded inverse, b = 8, regenerate": (
        strategies.banded_inverse(STEPS, 8),
        {"memory": "regenerate"},
    ),
    "identity, philox": (strategies.identity(STEPS), {"generator": "philox"}),
}
WANTED = {"identity": 0.65, "banded toeplitz, b = 8": 0.5, "blt, buffers = 2": 0.5}


def main() -> None:
    """Print a table, and with `--overlap` a second one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--overlap", action="store_true")
    options = parser.parse_args()
    if options.overlap:
        overlapped(options.rounds)
        return
    torch.set_num_threads(1)
    print(f"{options.size} float32 parameters; {torch.backends.cpu.get_cpu_capability()}\n")
    print("| strategy | ns a number | ratio to torch.randn | wanted | held | at most | a quarter |")
    print("|---|---|---|---|---|---|---|")
    for name, (strategy, settings) in STRATEGIES.items():
        show(name, strategy, settings, options)
    elsewhere(options)


def show(
    name: str,
    strategy: strategies.Strategy,
    settings: dict[str, Any],
    options: argparse.Namespace,
) -> None:
    size = options.size
    stream, held, peak = measured(strategy, settings, size)
    ours, torchs = in_turn(stream.__next__, lambda: torch.randn(size), options.rounds)
    del stream
    part = TorchNoiseStream(
        strategy, 1.0, [torch.empty(size // 4)], 0, shards=[(size // 4, size // 4)], **settings
    )
    for _ in range(WARM):
        next(part)
    quarter, _ = in_turn(part.__next__, lambda: None, options.rounds)
    ratio = statistics.median(t / o for o, t in zip(ours, torchs, strict=True))
    least, shared = statistics.median(ours), statistics.median(quarter)
    print(
        f"| {name} | {1e9 * least / size:.2f} | {ratio:.2f} | {WANTED.get(name, '')} | {held:.1f} "
        f"| {peak:.1f} | {shared / least:.2f} |",
        flush=True,
    )


def measured(
    strategy: strategies.Strategy, settings: dict[str, Any], size: int
) -> tuple[TorchNoiseStream, float, float]:
    """A stream after some steps, and the vectors that it holds then and while a step runs."""
    next(TorchNoiseStream(strategy, 1.0, [torch.empty(1)], 0, **settings))  # compiles
    like = [torch.empty(size)]
    tracemalloc.start()
    stream = TorchNoiseStream(strategy, 1.0, like, 0, **settings)
    noise = None
    for _ in range(WARM):
        noise = None  # as a training step does once it is added
        noise = next(stream)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del noise
    return stream, held / (4 * size), peak / (4 * size)


def in_turn(
    one: Callable[[], Any], other: Callable[[], Any], rounds: int
) -> tuple[list[float], list[float]]:
    """Processor seconds of each call."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, times in zip((one, other), found, strict=True):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
    return found


def elsewhere(options: argparse.Namespace) -> None:
    """The numbers by torch's own operations, as on devices other than the CPU."""
    from mmcc.training import _torch_keystream

    key, out = np.arange(8, dtype=np.uint32), torch.empty(options.size)
    ours, torchs = in_turn(
        lambda: _torch_keystream.fill(key, 0, out, 0), lambda: torch.randn(options.size), 3
    )
    ratio = statistics.median(t / o for o, t in zip(ours, torchs, strict=True))
    print(f"\nidentity by torch's own operations, on the CPU: {ratio:.3f}")


def overlapped(rounds: int) -> None:
    """Seconds of a backward pass and the noise of its step, one after the other or at once."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(1500, 1500), nn.ReLU())]
    module = nn.Sequential(*layers)
    inputs = torch.randn(256, 1500)
    count = sum(p.numel() for p in module.parameters())
    stream = NoiseStream(strategies.blt(10**6, 2), 1.0, count, 0, dtype="float32")

    def backward() -> None:
        module(inputs).square().mean().backward()

    def after() -> None:
        backward()
        next(stream)

    def during() -> None:
        thread = threading.Thread(target=stream.__next__)
        thread.start()
        backward()
        thread.join()

    calls = {"passes": backward, "noise": stream.__next__, "after": after, "during": during}
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds + 1):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
        milliseconds = {name: 1e3 * min(found[1:]) for name, found in times.items()}
        listed = ", ".join(f"{name} {each:.0f} ms" for name, each in milliseconds.items())
        print(f"{count} parameters, torch in {threads} threads: {listed}")


if __name__ == "__main__":
    main()
