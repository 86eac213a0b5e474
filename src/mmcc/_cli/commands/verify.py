"""The command `mmcc verify`: verifies an epsilon by simulation, or checks a record.

Exit codes: 0 verified, or a record that agrees with its seeds; 1 refused, or a record that does
not agree; 2 bad input.
"""

from __future__ import annotations

import json
import time
from typing import Any

from click.exceptions import Exit

from mmcc._cli.answers import REFUSED, telling, verified_answer, working
from mmcc._cli.command import FILE, QUESTION, WHOLE, Command, Option
from mmcc._cli.mechanism_options import (
    DELTA,
    EPSILON,
    GROUP_SIZE,
    MECHANISM,
    NAME,
    SAMPLING,
    SIGMA,
    mechanism,
)
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import JSON, SEED, VERDICT, said

NEEDED = ("strategy", "sampling", "sigma", "epsilon", "delta")


def run(
    sigma: float | None,
    epsilon: float | None,
    delta: float | None,
    failure: float | None,
    record: str | None,
    workers: int | None,
    samples: int | None,
    seed: int | None,
    check: str | None,
    blocks: int | None,
    **given: Any,
) -> None:
    numbers: dict[str, Any] = {"sigma": sigma, "epsilon": epsilon, "delta": delta}
    options = said(failure=failure, record=record, samples=samples, seed=seed)
    if check is not None:
        wrong = [*options, *said(**numbers, group_size=given["group_size"])]
        if wrong:
            name = wrong[0].replace("_", "-")
            raise UsageError(f"--{name} is in the record that --check reads; leave it out.")
        _check(check, blocks, workers, given)
        return
    if blocks is not None:
        raise UsageError("--blocks applies with --check only.")
    for name in NEEDED:
        if {**given, **numbers}[name] is None:
            raise UsageError(f"--{name} is needed, or --check.")
    verified_answer("verify", given, numbers, {**options, **said(workers=workers)})


def _check(file: str, blocks: int | None, workers: int | None, given: dict[str, Any]) -> None:
    """Replay a record; the file does not change, and nothing new is verified."""
    known: dict[str, Any] = {}
    if given["strategy"] is not None or given["sampling"] is not None:
        if given["strategy"] is None or given["sampling"] is None:
            raise UsageError("--check needs both --strategy and --sampling, or neither.")
        known["strategy"], known["sampling"] = mechanism(given)
    import mmcc

    with telling() as progress, working(workers) as executor:
        start = time.perf_counter()
        found = mmcc.replay(file, **known, blocks=blocks, executor=executor, progress=progress)
        seconds = time.perf_counter() - start
    if given["as_json"]:
        print(json.dumps(found.to_dict() | {"seconds": round(seconds, 3)}, indent=2))
    else:
        print(found)
    if not found.agrees:
        raise Exit(REFUSED)


COMMAND = Command(
    "verify",
    run,
    NAME.optional(),
    *(option for option in MECHANISM if option not in (NAME, SAMPLING)),
    SAMPLING.optional(),
    SIGMA.optional(),
    EPSILON.optional(),
    DELTA.optional(),
    GROUP_SIZE,
    *VERDICT,
    Option("--samples", WHOLE, QUESTION, "Refuse what would need more samples than this."),
    SEED,
    Option("--check", FILE, QUESTION, "Replay a record: checks it, and never gives a new verdict."),
    Option("--blocks", WHOLE, QUESTION, "Check: only this many random blocks."),
    JSON,
    help="Verify an epsilon by simulation, with a declared chance of error; or check a record.",
    example="mmcc verify --strategy continual-counting --steps 8 --sampling min-separation "
    "--prob 1/5 --separation 3 --sigma 2 --epsilon 1.25 --delta 1e-2 --failure 1e-6",
)
