"""The command `mmcc last-iterate`: Poisson sampling, linear losses."""

from __future__ import annotations

import time

from mmcc._cli.command import Command
from mmcc._cli.commands.group import needed, show
from mmcc._cli.mechanism_options import DELTA, PROB, SIGMA, STEPS
from mmcc._cli.question_options import JSON


def run(steps: int | None, prob: float | None, sigma: float, delta: float, as_json: bool) -> None:
    steps, prob = needed("steps", steps), needed("prob", prob)
    from mmcc import mixtures  # scipy and numba take a second

    start = time.perf_counter()
    found = mixtures.last_iterate(steps, prob, sigma=sigma, delta=delta)
    show(found, time.perf_counter() - start, as_json)


COMMAND = Command(
    "last-iterate",
    run,
    STEPS,
    PROB,
    SIGMA,
    DELTA,
    JSON,
    help="Print the certified epsilon of the last iterate of DP-SGD on linear losses.",
    example="mmcc last-iterate --steps 1000 --prob 0.01 --sigma 2 --delta 1e-6",
)
