"""Time and memory of one question at the sizes that structure makes possible: docs/scaling.md.

    python benchmarks/scaling.py

Every case runs in a new process, with compiled code already cached, so peak memory is its own.
Processor seconds, the strategy's construction included; delta = 1e-6.
"""

from __future__ import annotations

import json
import subprocess
import sys

EIGHT = "toeplitz(continual_counting(8).coefficients, {n})"
FOUR = "toeplitz([1, .5, .375, .3125], {n})"
FADING = "blt({n}, decay=[.9], scale=[.17])"
# structure, strategy, steps, method, probability (1/n if None), sigma (5 column norms if None)
CASES = (
    ("tree", "binary_tree({n})", 2**20, "bracket", None, None),
    ("tree", "binary_tree({n})", 2**30, "bracket", None, None),
    ("8 bands", EIGHT, 10**6, "mmcc", None, None),
    ("8 bands", EIGHT, 10**6, "reveal", None, None),
    ("4 bands", FOUR, 10**9, "reveal", None, None),
    ("BLT, one buffer", "blt({n})", 1024, "bracket", None, None),
    ("BLT, one buffer", "blt({n})", 4096, "bracket", None, None),
    ("BLT, decay .9", FADING, 10**6, "reveal", 1e-4, 2.5),
    ("BLT, decay .9", FADING, 10**7, "reveal", 1e-5, 2.5),
    ("independent noise", "identity({n})", 10**6, "bracket", None, None),
    ("independent noise", "identity({n})", 10**9, "bracket", None, None),
)

PROGRAM = """
import json, resource, time
import numpy as np
import mmcc
from mmcc import sampling
from mmcc.strategies import *
mmcc.bracket(binary_tree(8), sampling.Poisson(.1), sigma=5.0, delta=1e-6)
start = time.process_time()
strategy, scheme = {strategy}, sampling.Poisson({probability})
tree = isinstance(strategy, Tree)
norm = strategy.levels ** 0.5 if tree else np.linalg.norm(strategy.coefficients)
asked = dict(sigma={sigma} or 5 * float(norm), delta=1e-6)
if {method!r} == "bracket":
    found = mmcc.bracket(strategy, scheme, **asked)
    ends = [found.lower, found.upper]
else:
    ends = [mmcc.epsilon(strategy, scheme, method={method!r}, **asked).epsilon]
print(json.dumps([time.process_time() - start, ends,
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))
"""


def main() -> None:
    """Print one table: structure, steps, method, seconds, memory, epsilon."""
    print("| structure | steps | method | seconds | peak memory (GB) | epsilon |")
    print("|---|---|---|---|---|---|")
    for name, expression, n, method, probability, sigma in CASES:
        program = PROGRAM.format(
            strategy=expression.format(n=n),
            probability=probability or 1 / n,
            sigma=sigma,
            method=method,
        )
        out = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        seconds, ends, memory = json.loads(out.stdout)
        epsilon = " to ".join(f"{end:.4g}" for end in ends)
        print(f"| {name} | {n} | {method} | {seconds:.2f} | {memory:.2f} | {epsilon} |", flush=True)


if __name__ == "__main__":
    main()
