"""The command `mmcc sigma`."""

from __future__ import annotations

from typing import Any

from mmcc._cli.command import Command
from mmcc._cli.mechanism_options import (
    BOUND,
    DELTA,
    EPSILON,
    GROUP_SIZE,
    MECHANISM,
)
from mmcc._cli.question import JSON, UNITS, answer


def run(epsilon: float, delta: float, **given: Any) -> None:
    answer("sigma", given, {"epsilon": epsilon, "delta": delta})


COMMAND = Command(
    "sigma",
    run,
    *MECHANISM,
    EPSILON,
    DELTA,
    GROUP_SIZE,
    *BOUND,
    UNITS,
    JSON,
    help="Print the smallest noise level found that certifies an epsilon at a delta.",
    example="mmcc sigma --strategy continual-counting --steps 32 --sampling poisson --prob 1/32 "
    "--epsilon 1 --delta 1e-6",
)
