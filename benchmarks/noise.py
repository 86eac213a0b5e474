"""Noise of one training step: time and memory by strategy, and compared with jax_privacy's streams.

Everything runs in this process.  Times are processor seconds of all threads, the least over several
rounds of the mean over 16 steps (a tree's steps differ); each round also times plain normals and
copies, from memory to memory, of a vector of the same size.  The dense strategy is timed over one
whole block in the middle of its run.  The peer makes noise with its own privatizer, compiled, added
to a gradient of zeros; that both use the same C^-1 is checked first on 20 steps.

    python benchmarks/noise.py [--size 550000] [--rounds 5] [--skip-dense]

Processor seconds on a busy machine: `taskset -c 0` and OMP_NUM_THREADS=1 keep threads from waiting.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import tracemalloc
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from mmcc import strategies
from mmcc.strategies import BufferedToeplitz, Toeplitz
from mmcc.training import NoiseStream

TURN = 16
STEPS = 2000
STRATEGIES: dict[str, strategies.Strategy] = {
    "identity": strategies.identity(STEPS),
    "tree, honaker": strategies.binary_tree(STEPS),
    "banded toeplitz, b = 4": strategies.banded_toeplitz(STEPS, 4),
    "banded toeplitz, b = 16": strategies.banded_toeplitz(STEPS, 16),
    "banded inverse, b = 16": strategies.banded_inverse(STEPS, 16),
    **{f"blt, buffers = {k}": strategies.blt(STEPS, k) for k in (1, 2, 3, 4)},
}
COUNTING = strategies.continual_counting(STEPS)


def main() -> None:
    """Print a table of our streams, and one of ours and the peer's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=550_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip-dense", action="store_true")
    options = parser.parse_args()
    print(f"{options.size} coordinates, float64, {STEPS} steps")
    print(
        "| strategy | generator | ms a step | times plain normals | times a copy | vectors held |"
    )
    print("|---|---|---|---|---|---|")
    for generator in ("device", "philox", "chacha"):
        if generator == "chacha" and find_spec("cryptography") is None:
            print("| chacha: cryptography is not installed |")
            continue
        for name, strategy in STRATEGIES.items():
            show(name, strategy, generator, options)
    show("tree, online", STRATEGIES["tree, honaker"], "device", options, decoder="online")
    if not options.skip_dense:
        dense(options)
    if find_spec("jax_privacy") is None:
        print("jax_privacy is not installed: no comparison")
        return
    against_peer(options)


def least(calls: dict[str, Callable[[], Any]], rounds: int, turn: int = TURN) -> dict[str, float]:
    """The least processor seconds per call over the rounds; all calls take turns in each round."""
    found = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(turn):
                call()
            found[name] = min(found[name], (time.process_time() - start) / turn)
    return found


def yardsticks(size: int) -> dict[str, Callable[[], Any]]:
    """A vector of normals, as numpy makes it by default, and a copy of a vector."""
    plain = np.random.default_rng(0)
    vectors = np.ones((2 * TURN, size))  # more than a cache holds
    places = itertools.cycle(range(TURN))

    def copy() -> None:
        place = next(places)
        vectors[TURN + place] = vectors[place]

    return {"normals": lambda: plain.standard_normal(size), "copy": copy}


def show(
    name: str,
    strategy: strategies.Strategy,
    generator: str,
    options: argparse.Namespace,
    decoder: str | None = None,
) -> None:
    next(NoiseStream(strategy, 1.0, 1, 0, generator=generator, decoder=decoder))  # imports
    tracemalloc.start()
    stream = NoiseStream(strategy, 1.0, options.size, 0, generator=generator, decoder=decoder)
    for _ in range(4 * TURN):  # past the start, where fewer vectors are kept
        next(stream)
    held = tracemalloc.get_traced_memory()[0] / (8 * options.size)
    tracemalloc.stop()
    found = least({"ours": stream.__next__, **yardsticks(options.size)}, options.rounds)
    line(name, generator, found, held + 1)


def dense(options: argparse.Namespace) -> None:
    """One block of 45 steps in the middle; every z before it is regenerated."""
    stream, _, block = middle_of_counting(options.size)
    found = least({"ours": stream.__next__}, 1, block) | least(
        yardsticks(options.size), options.rounds
    )
    line("counting, dense toeplitz", "device", found, float(stream.memory))


def middle_of_counting(size: int) -> tuple[NoiseStream, int, int]:
    """A stream of the dense strategy at the first step of a block, the step, and the block."""
    stream = NoiseStream(COUNTING, 1.0, size, 0)
    next(stream)
    block = int(stream.state()["block"])
    middle = STEPS // 2 // block * block
    stream.restore(stream.state() | {"position": middle})
    return stream, middle, block


def line(name: str, generator: str, found: dict[str, float], held: float) -> None:
    ours = found["ours"]
    print(
        f"| {name} | {generator} | {1e3 * ours:.1f} | {ours / found['normals']:.2f} | "
        f"{ours / found['copy']:.1f} | {held:.1f} |",
        flush=True,
    )


def against_peer(options: argparse.Namespace) -> None:
    """The same C^-1 and the same type of numbers on both sides."""
    import jax

    jax.config.update("jax_enable_x64", True)
    print(f"jax_privacy {version('jax-privacy')}, jax {jax.__version__}")
    print("| strategy | numbers | ms a step | peer's ms a step | times faster | C^-1 differs by |")
    print("|---|---|---|---|---|---|")
    chosen = {name: made for name, made in STRATEGIES.items() if isinstance(made, Toeplitz)}
    del chosen["banded inverse, b = 16"]  # the peer has no stream for it
    for name, strategy in chosen.items():
        for dtype in ("float64", "float32"):
            if dtype == "float32" and isinstance(strategy, BufferedToeplitz):
                continue  # the peer's BLTs are in float64
            matrix = peer_matrix(strategy, dtype)
            first = strategies.toeplitz(strategy.coefficients[:20], 20).to_dense()
            gap = np.abs(np.asarray(matrix.materialize(20)) - np.linalg.inv(first)).max()
            stream = NoiseStream(strategy, 1.0, options.size, 0, dtype=dtype)
            calls = {"ours": stream.__next__, "peer": peer_stream(matrix, options.size, dtype)}
            least(calls, 1)  # compiles
            compared(name, dtype, least(calls, options.rounds), f"{gap:.0e}")
    if not options.skip_dense:
        stream, middle, block = middle_of_counting(options.size)
        ours = least({"ours": stream.__next__}, 1, block)
        inverse = np.linalg.inv(COUNTING.to_dense())
        peer_stream(inverse, options.size, "float64", 0)()  # compiles
        peer = peer_stream(inverse, options.size, "float64", middle)
        compared(f"counting, from step {middle}", "float64", ours | least({"peer": peer}, 1, 2), "")


def compared(name: str, dtype: str, found: dict[str, float], gap: str) -> None:
    ours, theirs = 1e3 * found["ours"], 1e3 * found["peer"]
    print(
        f"| {name} | {dtype} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.1f} | {gap} |",
        flush=True,
    )


def peer_matrix(strategy: Toeplitz, dtype: str) -> Any:
    """The peer's own stream for C^-1."""
    from jax import numpy
    from jax_privacy.matrix_factorization import buffered_toeplitz, streaming_matrix, toeplitz

    if isinstance(strategy, BufferedToeplitz):
        made = buffered_toeplitz.BufferedToeplitz.build(strategy.decay, strategy.scale)
        return made.inverse_as_streaming_matrix()
    if strategy.bands == 1:
        return streaming_matrix.identity()
    return toeplitz.inverse_as_streaming_matrix(numpy.array(strategy.coefficients, dtype))


def peer_stream(matrix: Any, size: int, dtype: str, step: int | None = None) -> Callable[[], Any]:
    """A function that makes the noise of one step; dense matrices may start at any step."""
    import jax
    from jax_privacy import noise_addition

    privatizer = noise_addition.matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=0)
    zeros = jax.numpy.zeros(size, dtype)
    state = privatizer.init(zeros) if step is None else jax.numpy.array(step)
    update = jax.jit(privatizer.update, donate_argnums=1)

    def call() -> None:
        nonlocal state
        noise, state = update(zeros, state)
        noise.block_until_ready()

    return call


if __name__ == "__main__":
    main()
