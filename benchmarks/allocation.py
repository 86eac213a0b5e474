"""Random allocation with independent noise against PLD_accounting: bound and time, in one run.

    python benchmarks/allocation.py [PYTHON [ACCURACY]]

PYTHON is the interpreter of an environment with PLD-accounting 2.0 (and numba); without it, only
our side runs.  ACCURACY is the requested width of its bracket, relative to epsilon: its grid starts
at half of it, and each halving of the grid takes about four times as long.  Both sides first answer
an untimed question, so that compilation is not timed.  Seconds are processor seconds.
"""

from __future__ import annotations

import subprocess
import sys
import time

import mmcc
from mmcc import sampling, strategies

CASES = (
    (100, 1, 20, 1.8428, 1e-5),
    (100, 1, 20, 1.1495, 1e-5),
    (100, 1, 20, 0.8226, 1e-5),
    (100, 1, 20, 0.6434, 1e-5),
    (200, 2, 10, 1.1495, 1e-5),
)
"""Steps of an epoch, participations in it, epochs, sigma, delta."""
LONGEST = 600
"""The most processor seconds for one question to the peer."""
PEER = """
import resource, time
resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
from PLD_accounting import gaussian_allocation_epsilon_range

def ask(t, k, epochs, sigma, delta, accuracy):
    return gaussian_allocation_epsilon_range(
        delta=delta, sigma=sigma, num_steps=t, num_selected=k, num_epochs=epochs,
        epsilon_accuracy=accuracy,
    )

ask(4, 1, 2, 2.0, 1e-3, 0.5)
start = time.process_time()
upper, lower = ask(ARGUMENTS)
print(f"{lower:.4f} | {upper:.4f} | {upper / lower:.5f} | {time.process_time() - start:.2f}")
"""


def ours(length: int, times: int, epochs: int, sigma: float, delta: float) -> tuple[float, str]:
    strategy = strategies.identity(length * epochs)
    scheme = sampling.RandomAllocation(length, times)
    start = time.process_time()
    found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta)
    seconds = time.process_time() - start
    poisson = mmcc.epsilon(strategy, sampling.Poisson(times / length), sigma=sigma, delta=delta)
    ends = f"{found.lower:.4f} | {found.upper:.4f} | {found.ratio:.5f} | {seconds:.2f}"
    return found.upper, f"{ends} | {poisson.epsilon:.4f}"


def peer(python: str, accuracy: float, case: tuple[float, ...]) -> str:
    program = PEER.replace("ARGUMENTS", ", ".join(map(str, (*case, accuracy))))
    program = program.replace("LONGEST", str(LONGEST))
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    if done.returncode < 0:
        return f"| | | none in {LONGEST} s"
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def main(python: str | None = None, accuracy: str = "0.01") -> None:
    ours(4, 1, 2, 2.0, 1e-3)
    ours(4, 2, 2, 2.0, 1e-3)
    sides = "lower | upper | ratio | seconds"
    print(f"| steps, taken, epochs, sigma | {sides} | Poisson | peer: {sides} |")
    print("|" + "---|" * 10)
    for case in CASES:
        epsilon, row = ours(*case)
        theirs = peer(python, float(accuracy) * epsilon, case) if python else " | | | "
        named = ", ".join(f"{value:g}" for value in case[:4])
        print(f"| {named} | {row} | {theirs} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
