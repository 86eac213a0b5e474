"""The command `mmcc estimate`."""

from __future__ import annotations

import time
from typing import Any

from mmcc._cli import output
from mmcc._cli.command import Command
from mmcc._cli.mechanism_options import DELTA, MECHANISM, SIGMA, mechanism
from mmcc._cli.question_options import JSON, SIMULATION, said


def run(
    sigma: float,
    delta: float,
    samples: int | None,
    width: float | None,
    confidence: float | None,
    seed: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    strategy, scheme = mechanism(given)
    import mmcc

    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = mmcc.estimate(
            strategy,
            scheme,
            sigma=sigma,
            delta=delta,
            **said(samples=samples, width=width, confidence=confidence, seed=seed),
            progress=progress,
        )
        seconds = time.perf_counter() - start
    if as_json:
        output.print_json(found, seconds, None)
    else:
        output.print_estimate(found, seconds)


COMMAND = Command(
    "estimate",
    run,
    *MECHANISM,
    SIGMA,
    DELTA,
    *SIMULATION,
    JSON,
    help="Print a Monte Carlo estimate of the true epsilon: an interval, not a proof.",
    example="mmcc estimate --strategy continual-counting --steps 16 --sampling min-separation "
    "--prob 1/4 --separation 4 --sigma 4 --delta 1e-5",
)
