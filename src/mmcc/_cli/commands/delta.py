"""The command `mmcc delta`."""

from __future__ import annotations

from typing import Any

from mmcc._cli.answers import answer
from mmcc._cli.command import Command
from mmcc._cli.mechanism_options import (
    BOUND,
    EPSILON,
    GROUP_SIZE,
    MECHANISM,
    SIGMA,
)
from mmcc._cli.question_options import JSON, UNITS


def run(sigma: float, epsilon: float, **given: Any) -> None:
    answer("delta", given, {"sigma": sigma, "epsilon": epsilon})


COMMAND = Command(
    "delta",
    run,
    *MECHANISM,
    SIGMA,
    EPSILON,
    GROUP_SIZE,
    *BOUND,
    UNITS,
    JSON,
    help="Print the certified delta of a mechanism at an epsilon.",
    example="mmcc delta --strategy identity --steps 100 --sampling poisson --prob 0.01 --sigma 1 "
    "--epsilon 2",
)
