"""The command `mmcc bracket`.

Exit codes: 0 everything was printed that was asked for; 1 --verify was refused.
"""

from __future__ import annotations

import time
from typing import Any

from click.exceptions import Exit

from mmcc._cli import output
from mmcc._cli.answers import REFUSED, in_units, telling, working
from mmcc._cli.command import FLAG, QUESTION, Command, Option
from mmcc._cli.mechanism_options import (
    BOUND,
    DELTA,
    GROUP_SIZE,
    MECHANISM,
    SIGMA,
    check_bound,
    mechanism,
)
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import JSON, PLOT, SIMULATION, UNITS, VERDICT, said


def run(
    sigma: float,
    delta: float,
    method: str,
    order: Any,
    group_size: int | None,
    estimate: bool,
    verify: bool,
    failure: float | None,
    record: str | None,
    workers: int | None,
    samples: int | None,
    width: float | None,
    confidence: float | None,
    seed: int | None,
    plot: str | None,
    units: bool,
    as_json: bool,
    **given: Any,
) -> None:
    check_bound(method, order)
    strategy, scheme = mechanism(given)
    simulation = said(samples=samples, width=width, confidence=confidence, seed=seed)
    if simulation and not estimate:
        raise UsageError(f"--{next(iter(simulation))} applies with --estimate only; add it.")
    verdict = said(failure=failure, record=record)
    if (verdict or workers is not None) and not verify:
        name = next(iter({**verdict, **said(workers=workers)}))
        raise UsageError(f"--{name} applies with --verify only; add it.")
    if group_size not in (None, 1) and (estimate or plot is not None):
        raise UsageError(
            f"--{'estimate' if estimate else 'plot'} is for one example; leave it or --group-size "
            "out."
        )
    import mmcc

    if plot is not None:
        from mmcc import plots

        plots.check_file(plot)
    at: dict[str, Any] = {"sigma": sigma, "delta": delta}
    with telling() as progress, working(workers) as executor:
        start = time.perf_counter()
        found = mmcc.bracket(
            strategy,
            scheme,
            **at,
            method=method,
            order=order,
            **said(group_size=group_size),
            estimate=simulation if estimate else False,
            verify=verdict if verify else False,
            executor=executor,
            progress=progress,
        )
        seconds = time.perf_counter() - start
        if plot is not None:
            plots.epsilon_against_sigma(strategy, scheme, **at, file=plot, progress=progress)
        told = in_units(found.guarantee) if units else None
    if as_json:
        output.print_json(found, seconds, None, told)
    else:
        output.print_bracket(found, seconds, told)
    if found.refused is not None:
        raise Exit(REFUSED)


COMMAND = Command(
    "bracket",
    run,
    *MECHANISM,
    SIGMA,
    DELTA,
    GROUP_SIZE,
    *BOUND,
    Option(
        "--estimate", FLAG, QUESTION, "Also print a Monte Carlo estimate: an interval, not a proof."
    ),
    *SIMULATION,
    Option(
        "--verify",
        FLAG,
        QUESTION,
        "Also print an epsilon verified by simulation: its chance of error is part of delta.",
    ),
    *VERDICT,
    UNITS,
    PLOT,
    JSON,
    help="Print two certified numbers with the true epsilon between them.",
    example="mmcc bracket --strategy binary-tree --steps 64 --sampling balls-in-bins --bins 16 "
    "--sigma 8 --delta 1e-6",
)
