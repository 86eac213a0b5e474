"""The command `mmcc sigma`."""

from __future__ import annotations

from typing import Any

from mmcc._cli.answers import answer, verified_answer
from mmcc._cli.command import Command
from mmcc._cli.mechanism_options import (
    BOUND,
    DELTA,
    EPSILON,
    GROUP_SIZE,
    MECHANISM,
)
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import JSON, UNITS, VERDICT, said
from mmcc._methods import VERIFY


def run(
    epsilon: float,
    delta: float,
    failure: float | None,
    record: str | None,
    workers: int | None,
    **given: Any,
) -> None:
    numbers = {"epsilon": epsilon, "delta": delta}
    options = said(failure=failure, record=record, workers=workers)
    if given["method"] == VERIFY:
        verified_answer("sigma", given, numbers, options)
        return
    if options:
        raise UsageError(f"--{next(iter(options))} applies with --method verify only.")
    answer("sigma", given, numbers)


COMMAND = Command(
    "sigma",
    run,
    *MECHANISM,
    EPSILON,
    DELTA,
    GROUP_SIZE,
    *BOUND,
    *VERDICT,
    UNITS,
    JSON,
    help="Print the smallest noise level found that certifies an epsilon at a delta.",
    example="mmcc sigma --strategy continual-counting --steps 32 --sampling poisson --prob 1/32 "
    "--epsilon 1 --delta 1e-6",
)
