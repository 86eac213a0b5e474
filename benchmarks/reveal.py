"""The cost of the reveal bounds: processor seconds, and the ratio to a reference in the same run.

    python benchmarks/reveal.py epsilon | sigma

The reference is 200 products of complex 200 x 200 matrices on one core.  Each line also has the
bound, so that speed does not buy looseness.  Growth: the same mechanism with more steps and the
same number of participations.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from threadpoolctl import threadpool_limits

import mmcc
from mmcc import sampling, strategies
from mmcc.strategies import Strategy

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def processor_seconds(work: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def reference() -> float:
    matrix = np.random.default_rng(0).random((200, 200)) * (1 + 1j)

    def work() -> None:
        with threadpool_limits(limits=1):
            for _ in range(200):
                matrix @ matrix

    return min(processor_seconds(work)[0] for _ in range(3))


def bands(count: int, steps: int) -> Strategy:
    return strategies.toeplitz(strategies.continual_counting(count).coefficients, steps)


def mechanisms() -> Iterator[tuple[str, Strategy, float, float]]:
    """Name, strategy, expected participations, sigma for the table of epsilons."""
    for steps in (2000, 10**4, 10**5, 10**6):
        yield "8 bands", bands(8, steps), 20, 3.0
        yield "100 bands", bands(100, steps), 20, 10.0
        if steps >= 10**4:
            yield "1000 bands", bands(1000, steps), 20, 20.0
        yield "one buffer", strategies.blt(steps, decay=[0.9], scale=[0.2]), 20, 2.6
        yield "one buffer, blt(steps)", strategies.blt(steps), 20, 25.0
        yield "two buffers", strategies.blt(steps, decay=[0.98, 0.7], scale=[0.06, 0.2]), 20, 4.0
    yield "three buffers", strategies.blt(2000, 3), 20, 40.0
    yield "banded inverse, 4", strategies.banded_inverse(2000, 4), 20, 8.0
    yield "square root", strategies.continual_counting(2000), 20, 40.0
    for levels in (11, 16, 20):
        yield "tree", strategies.binary_tree(2**levels), 20, 3.0 * (levels + 1)


def epsilons(unit: float) -> None:
    print("| strategy | steps | sigma | epsilon, reveal | seconds | ratio |")
    print("|---|---|---|---|---|---|")
    for name, strategy, expected, sigma in mechanisms():
        scheme = sampling.Poisson(expected / strategy.steps)

        def ask(strategy=strategy, scheme=scheme, sigma=sigma) -> mmcc.Guarantee:
            return mmcc.epsilon(strategy, scheme, sigma=sigma, delta=DELTA, method="reveal")

        seconds, found = processor_seconds(ask)
        line = f"| {name} | {strategy.steps} | {sigma:g} | {found.epsilon:.4f}"
        print(f"{line} | {seconds:.1f} | {seconds / unit:.0f} |", flush=True)


def calibrated() -> Iterator[tuple[str, Strategy]]:
    """The strategies of the table of sigmas, all with 2000 steps."""
    for count in (8, 16, 32, 100):
        yield f"{count} bands", bands(count, 2000)
    yield "16 optimised bands", strategies.banded_toeplitz(2000, 16)
    yield "one buffer", strategies.blt(2000, decay=[0.95], scale=[0.15])
    yield "two buffers", strategies.blt(2000, decay=[0.98, 0.7], scale=[0.06, 0.2])
    yield "banded inverse, 4", strategies.banded_inverse(2000, 4)
    yield "square root", strategies.continual_counting(2000)
    yield "tree", strategies.binary_tree(2000)


def sigmas(unit: float) -> None:
    """Find each sigma, and then ask for its epsilon, both with `tight`."""
    print("| strategy | epsilon | sigma | by | above the least | seconds | ratio | epsilon there |")
    print("|---|---|---|---|---|---|---|---|")
    scheme = sampling.Poisson(0.01)
    for epsilon, (name, strategy) in product(EPSILONS, calibrated()):

        def ask(strategy=strategy, epsilon=epsilon) -> mmcc.Guarantee:
            return mmcc.sigma(strategy, scheme, epsilon=epsilon, delta=DELTA)

        seconds, found = processor_seconds(ask)

        def check(strategy=strategy, sigma=found.sigma) -> mmcc.Guarantee:
            return mmcc.epsilon(strategy, scheme, sigma=sigma, delta=DELTA)

        later, there = processor_seconds(check)
        assert there.epsilon <= epsilon
        slack = f"{100 * found.details['slack']:.2f} %"
        line = f"| {name} | {epsilon:g} | {found.sigma:.6g} | {found.bound} | {slack}"
        line += f" | {seconds:.1f} | {seconds / unit:.0f}"
        print(f"{line} | {there.epsilon:.5f} in {later:.1f} s |", flush=True)


def main() -> None:
    tables = {"epsilon": epsilons, "sigma": sigmas}
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in tables:
        raise SystemExit(f"choose a table: {', '.join(tables)}")
    mmcc.epsilon(bands(2, 8), sampling.Poisson(0.1), sigma=5.0, delta=DELTA)  # imports, kernels
    unit = reference()
    print(f"reference: {unit:.3f} processor seconds")
    tables[wanted](unit)


if __name__ == "__main__":
    main()
