"""A pause between participations, 8 bands: ours against jax_privacy's Monte Carlo, in one run.

    python benchmarks/separation.py [PYTHON [SIGMA DELTA [SAMPLES]]]

2000 steps, square-root bands, separation 8, 20 expected participations, cold start.  PYTHON is the
interpreter of an environment with jax_privacy 2.0.0; without it, only our side runs.  SAMPLES are
drawn for each adjacency; by default, as many as its verifier (`perform_calibration_from_samples`,
Algorithm 5 of arXiv 2602.09338) needs at delta for a test at delta / 2.

Ours: the certified bracket, the estimate from 6000 samples, and what `bracket(..., verify=True)`
verifies, at an epsilon that was fixed before the samples of the verdict were drawn.
Theirs: a point estimate, and the smallest epsilon that its verifier passes on these samples, which
flatters it: the epsilon should be fixed before the samples are drawn.  Seconds are processor
seconds, after an untimed first question on each side.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import mmcc
from mmcc import sampling, strategies

STEPS, BANDS, PARTICIPATIONS = 2000, 8, 20
PROBABILITY = 1 / (STEPS / PARTICIPATIONS - (BANDS - 1))
"""The chance in an eligible step: the mean wait is 1 / p + separation - 1 steps."""
CASES = ((5.43, 1e-3), (3.03, 1e-3), (1.78, 1e-3))
"""Sigma and delta.  At 1e-5 the verifier needs a hundred times the samples: an hour or more."""
ESTIMATED = 6000
"""Samples of our own estimate, which draws where the loss is large."""
FIRST = 1000
"""Samples drawn at once by the peer, which keeps all steps of all samples: 16 MB."""
PEER = """
import json, sys, time
import numpy as np
from jax_privacy import batch_selection
from jax_privacy.experimental.monte_carlo import delta_calculation as deltas
from jax_privacy.experimental.monte_carlo import sample_generation as samples

asked = json.loads(sys.argv[1])
strategy = getattr(batch_selection, asked["sampler"])(**asked["arguments"])
delta, column = asked["delta"], np.array(asked["coefficients"])
count = asked["samples"] or deltas.minimum_samples_to_calibrate(delta / 2, delta)

def losses(positive, count, seed):
    rng, found = np.random.default_rng(seed), []
    for start in range(0, count, asked["batch"]):
        found.append(samples.get_privacy_loss_sample(
            strategy, asked["sigma"], column, seed=rng, positive_sample=positive,
            num_samples=min(asked["batch"], count - start))[0])
    return np.concatenate(found)

def smallest(passes):
    low, high = 0.0, 1000.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high

losses(True, 10, 0)
start = time.process_time()
drawn = [losses(True, count, 1), losses(False, count, 2)]
seconds = time.process_time() - start
estimate = smallest(
    lambda e: max(deltas.delta_from_epsilon_and_samples(e, x) for x in drawn) <= delta
)
try:
    verified = smallest(lambda e: deltas.perform_calibration_from_samples(
        e, delta, positive_samples=[drawn[0]], negative_samples=[drawn[1]])[0])
except ValueError:  # too few samples for any test at this delta
    verified = None
needed = deltas.minimum_samples_to_calibrate(delta / 2, delta)
print(json.dumps(dict(
    samples=count, seconds=seconds, estimate=estimate, verified=verified, needed=needed)))
"""


def mechanism() -> tuple[strategies.Toeplitz, sampling.MinSeparation]:
    coefficients = strategies.continual_counting(BANDS).coefficients
    return strategies.toeplitz(coefficients, STEPS), sampling.MinSeparation(PROBABILITY, BANDS)


def peer(python: str, sigma: float, delta: float, samples: int | None) -> dict[str, Any]:
    given = {"iterations": STEPS, "min_sep": BANDS, "sampling_prob": PROBABILITY}
    sampler = "BMinSepSampling", {**given, "warm_start": False}
    return monte_carlo(python, *sampler, sigma, delta, samples)


def monte_carlo(
    python: str,
    sampler: str,
    arguments: dict[str, Any],
    sigma: float,
    delta: float,
    samples: int | None,
) -> dict[str, Any]:
    """The peer's point estimate and what its verifier passes, for the bands above."""
    asked = {
        "sampler": sampler,
        "arguments": arguments,
        "coefficients": mechanism()[0].coefficients.tolist(),
        "sigma": sigma,
        "delta": delta,
        "samples": samples,
        "batch": FIRST,
    }
    command = [python, "-c", PEER, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ours(sigma: float, delta: float) -> str:
    strategy, scheme = mechanism()
    start = time.process_time()
    bracket = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta)
    certified = time.process_time() - start
    start = time.process_time()
    guess = mmcc.estimate(strategy, scheme, sigma=sigma, delta=delta, samples=ESTIMATED, seed=1)
    estimated = time.process_time() - start
    return (
        f"{bracket.lower:.4f} | {bracket.upper:.4f} | {certified:.1f} | "
        f"{guess.low:.4f} to {guess.high:.4f} | {guess.samples} | {estimated:.1f} | "
        f"{verified(strategy, scheme, sigma, delta)}"
    )


def verified(
    strategy: strategies.Strategy, scheme: sampling.Scheme, sigma: float, delta: float
) -> str:
    """An epsilon that a pilot finds and a verdict with a chance of error of 1e-9 passes.

    Samples of the verdict; seconds of all, the certified bracket included.
    """
    start = time.process_time()
    found = mmcc.bracket(strategy, scheme, sigma=sigma, delta=delta, verify=True).verified
    seconds = time.process_time() - start
    if found is None:
        return f"refused | | {seconds:.1f}"
    return f"{found.epsilon:.4f} | {found.details['samples']} | {seconds:.1f}"


def main(python: str | None = None, *given: str) -> None:
    cases = ((float(given[0]), float(given[1])),) if given else CASES
    samples = (int(given[2]) if len(given) > 2 else 0) or None
    strategy, scheme = mechanism()
    mmcc.bracket(strategy.prefix(16), scheme, sigma=3.0, delta=1e-3)
    mmcc.estimate(strategy, scheme, sigma=3.0, delta=1e-2, samples=2000, seed=0)
    certified = (
        "lower | upper | seconds | estimate | samples | seconds | verified | samples | seconds"
    )
    theirs_are = "estimate | verified | samples of each side | seconds | needed"
    print(f"| sigma, delta | {certified} | peer: {theirs_are} |")
    print("|" + "---|" * 15)
    for sigma, delta in cases:
        theirs = peer(python, sigma, delta, samples) if python else None
        row = ours(sigma, delta)
        other = " | | | |"
        if theirs:
            passed = theirs["verified"]
            other = (
                f"{theirs['estimate']:.4f} | {'too few' if passed is None else f'{passed:.4f}'} | "
                f"{theirs['samples']} | {theirs['seconds']:.0f} | {theirs['needed']}"
            )
        print(f"| {sigma:g}, {delta:g} | {row} | {other} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
