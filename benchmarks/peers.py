"""Certified brackets compared with other libraries' results for the same mechanism: bound and time.

    python benchmarks/peers.py [--python PYTHON] [--only dp-sgd|allocation|separation|bins|plan]

PYTHON is the interpreter of an environment with the peers; missing ones are skipped, and without it
our side runs alone:

    python3 -m venv peers && peers/bin/pip install jax-privacy==2.0.0 PLD-accounting==2.0 numba \\
        prv-accountant

- dp-sgd: prv_accountant, which gives both ends too, for Poisson sampling and independent noise.
- allocation: PLD_accounting, both ends, for random allocation (benchmarks/allocation.py has more).
- separation: jax_privacy's Monte Carlo for b-min-sep (benchmarks/separation.py has more).
- bins: the same for balls in bins with a banded matrix.  The tables of arXiv 2601.21636, which
  bounds it without sampling, were not available.
- plan: jax_privacy's own accounting of its bands under cyclic Poisson sampling.

Both sides run in the same run, one after the other; seconds are processor seconds, after an untimed
first question on our side.  A Monte Carlo estimate is no bound: the epsilon that its verifier
passes is given beside it, but was searched for on the same samples, which flatters it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import allocation
import separation

import mmcc
from mmcc import sampling, strategies

STEPS = 2000
DP_SGD = ((1 / 100, 0.8, 1e-5), (1 / 100, 2.0, 1e-5))
"""Probability, sigma, delta."""
ALLOCATION = allocation.CASES[:1]
ALLOWED = 0.1
"""Width of the bracket requested from PLD_accounting: smaller takes minutes."""
MONTE_CARLO = (3.03, 1e-2)
"""Sigma and delta: a smaller delta would need too many samples."""
BINS = 100
PLANS = ((8, 0.2, 3.0, 1e-6), (4, 0.1, 1.0, 1e-5))
"""Bands, probability, noise multiplier, delta."""
PRV = """
import json, sys, time
from prv_accountant.dpsgd import DPSGDAccountant
p, sigma, delta, steps = json.loads(sys.argv[1])
start = time.process_time()
made = DPSGDAccountant(sigma, p, steps, eps_error=0.01, delta_error=delta / 1000)
low, middle, high = made.compute_epsilon(delta, steps)
print(json.dumps([low, high, time.process_time() - start]))
"""
PLAN = """
import json, sys, time
import dp_accounting, numpy as np
from jax_privacy.experimental import accounting
bands, p, noise, delta, steps = json.loads(sys.argv[1])
event = accounting.amplified_bandmf_event(noise, steps, num_bands=bands, sampling_prob=p)
relation = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
start = time.process_time()
epsilon = dp_accounting.pld.PLDAccountant(relation).compose(event).get_epsilon(delta)
print(json.dumps([epsilon, time.process_time() - start]))
"""


def asked(python: str | None, program: str, *numbers: float) -> list[float] | None:
    """The numbers that a peer prints; None without it."""
    if python is None:
        return None
    command = [python, "-c", program, json.dumps(numbers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"no answer: {done.stderr.strip().splitlines()[-1]}")
        return None
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def bracketed(strategy: strategies.Strategy, scheme: sampling.Scheme, **asked: float) -> str:
    start = time.process_time()
    found = mmcc.bracket(strategy, scheme, **asked)
    return f"{found.lower:.5f} | {found.upper:.5f} | {time.process_time() - start:.2f}"


def dp_sgd(python: str | None) -> None:
    print(
        "\n| DP-SGD: rate, sigma, delta | lower | upper | seconds | peer: lower | upper | seconds |"
    )
    print("|" + "---|" * 7)
    for p, sigma, delta in DP_SGD:
        ours = bracketed(strategies.identity(STEPS), sampling.Poisson(p), sigma=sigma, delta=delta)
        theirs = asked(python, PRV, p, sigma, delta, STEPS)
        other = "{:.5f} | {:.5f} | {:.2f}".format(*theirs) if theirs else " | | "
        print(f"| {p:g}, {sigma:g}, {delta:g} | {ours} | {other} |", flush=True)


def random_allocation(python: str | None) -> None:
    sides = "lower | upper | ratio | seconds"
    print(f"\n| allocation: steps, taken, epochs, sigma | {sides} | Poisson | peer: {sides} |")
    print("|" + "---|" * 10)
    for case in ALLOCATION:
        epsilon, row = allocation.ours(*case)
        theirs = allocation.peer(python, ALLOWED * epsilon, case) if python else " | | | "
        named = ", ".join(f"{value:g}" for value in case[:4])
        print(f"| {named} | {row} | {theirs} |", flush=True)


def monte_carlo(
    what: str, scheme: sampling.Scheme, theirs: Callable[[], dict[str, Any]] | None
) -> None:
    sigma, delta = MONTE_CARLO
    sides = "lower | upper | seconds | verified | samples | seconds"
    peer = "peer: estimate | verified | samples | seconds"
    print(f"\n| {what}: sigma, delta | {sides} | {peer} |")
    print("|" + "---|" * 11)
    strategy, _ = separation.mechanism()
    ours = bracketed(strategy, scheme, sigma=sigma, delta=delta)
    ours += f" | {separation.verified(strategy, scheme, sigma, delta)}"
    other = " | | | "
    if theirs is not None:
        found = theirs()
        verified = "too few" if found["verified"] is None else f"{found['verified']:.4f}"
        seconds, samples = found["seconds"], found["samples"]
        other = f"{found['estimate']:.4f} | {verified} | {samples} | {seconds:.1f}"
    print(f"| {sigma:g}, {delta:g} | {ours} | {other} |", flush=True)


def pause(python: str | None) -> None:
    theirs = (lambda: separation.peer(python, *MONTE_CARLO, None)) if python else None
    monte_carlo("a pause, 8 bands", separation.mechanism()[1], theirs)


def bins(python: str | None) -> None:
    arguments = {"iterations": separation.STEPS, "cycle_length": BINS}
    theirs = None
    if python:

        def theirs() -> dict[str, Any]:
            sampler = "BallsInBinsSampling", arguments
            return separation.monte_carlo(python, *sampler, *MONTE_CARLO, None)

    monte_carlo(f"{BINS} bins, 8 bands", sampling.BallsInBins(BINS), theirs)


def plan(python: str | None) -> None:
    print(
        "\n| bands: bands, probability, noise, delta | lower | upper | seconds | peer | seconds |"
    )
    print("|" + "---|" * 6)
    for bands, p, noise, delta in PLANS:
        strategy = strategies.banded_toeplitz(STEPS, bands)
        sigma = noise * strategy.sensitivity(STEPS)
        ours = bracketed(strategy, sampling.CyclicPoisson(p, bands), sigma=sigma, delta=delta)
        theirs = asked(python, PLAN, bands, p, noise, delta, STEPS)
        other = "{:.5f} | {:.2f}".format(*theirs) if theirs else " | "
        print(f"| {bands}, {p:g}, {noise:g}, {delta:g} | {ours} | {other} |", flush=True)


TABLES = {
    "dp-sgd": dp_sgd,
    "allocation": random_allocation,
    "separation": pause,
    "bins": bins,
    "plan": plan,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="interpreter of an environment with the peers")
    parser.add_argument("--only", choices=TABLES, help="one table alone")
    options = parser.parse_args()
    warm = strategies.toeplitz([1.0, 0.5], 8)
    for scheme in (sampling.Poisson(0.5), sampling.MinSeparation(0.2, 2), sampling.BallsInBins(4)):
        mmcc.bracket(warm, scheme, sigma=3.0, delta=1e-2)
    for name in [options.only] if options.only else TABLES:
        TABLES[name](options.python)


if __name__ == "__main__":
    main()
