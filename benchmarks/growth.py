"""How time and memory grow with the number of steps, for each structure.

    python benchmarks/growth.py [--large]

Every case runs in a new process, with compiled code already cached, so peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

CASES = {
    "counting (array)": (
        "dense(continual_counting({n}).to_dense())",
        (256, 1024, 2048, 4096),
    ),
    "counting (Toeplitz)": ("continual_counting({n})", (256, 1024, 2048, 4096)),
    "4-banded Toeplitz": ("toeplitz([1, .5, .3, .2], {n})", (10**3, 10**4, 10**5, 10**6)),
    "binary tree": ("binary_tree({n})", (2**8, 2**12, 2**16, 2**20)),
    "identity": ("identity({n})", (10**3, 10**4, 10**5, 10**6)),
}
LARGE = {"counting (array)": ("dense(continual_counting({n}).to_dense())", (10**4,))}

PROGRAM = """
import json, resource, time
import mmcc
from mmcc import sampling
from mmcc.strategies import *
strategy = {strategy}
mmcc.epsilon(binary_tree(4), sampling.Poisson(.1), sigma=5, delta=1e-6)
sigma = 5 * strategy.sensitivity({n})
start = time.perf_counter()
found = mmcc.epsilon(strategy, sampling.Poisson(1 / {n}), sigma=sigma, delta=1e-6,
                     method="mmcc", order="heavy")
print(json.dumps([time.perf_counter() - start, found.epsilon,
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))
"""


def main() -> None:
    """Print one table: structure, steps, seconds, memory, epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="the dense matrix with 10^4 steps")
    cases = LARGE if parser.parse_args().large else CASES
    print("p = 1/n, sigma = 5 column norms, delta = 1e-6, method mmcc, heavy rows first\n")
    print("| structure | steps | seconds | peak memory (GB) | epsilon |")
    print("|---|---|---|---|---|")
    for name, (expression, sizes) in cases.items():
        for n in sizes:
            program = PROGRAM.format(strategy=expression.format(n=n), n=n)
            out = subprocess.run(
                [sys.executable, "-c", program], check=True, capture_output=True, text=True
            )
            seconds, epsilon, memory = json.loads(out.stdout)
            print(f"| {name} | {n} | {seconds:.2f} | {memory:.2f} | {epsilon:.4f} |", flush=True)


if __name__ == "__main__":
    main()
