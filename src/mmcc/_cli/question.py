"""A question with a certified answer, and the answer in print: for epsilon, delta and sigma."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mmcc._cli import output
from mmcc._cli.command import FILE, FLAG, NUMBER, OUTPUT, QUESTION, WHOLE, Option
from mmcc._cli.mechanism_options import Given, check_bound, mechanism
from mmcc._cli.parsing import UsageError

if TYPE_CHECKING:
    from mmcc import Guarantee
    from mmcc.accounting._parallel import Progress
    from mmcc.accounting._units import Units
    from mmcc.sampling import Scheme
    from mmcc.strategies import Strategy

JSON = Option(("--json", "as_json"), FLAG, OUTPUT, "Print one JSON object.")
UNITS = Option(
    "--units",
    FLAG,
    QUESTION,
    "Also print mu of Gaussian DP, rho of zCDP and what attacks can achieve.",
)
SIMULATION = (
    Option("--samples", WHOLE, QUESTION, "Estimate: at most this many samples."),
    Option("--width", NUMBER, QUESTION, "Estimate: stop at this relative width of the interval."),
    CONFIDENCE := Option(
        "--confidence",
        NUMBER,
        QUESTION,
        "Chance that the interval, or the audit's bound, is right.",
    ),
    SEED := Option("--seed", WHOLE, QUESTION, "Random numbers start here."),
)
VERDICT = (
    Option(
        "--failure",
        NUMBER,
        QUESTION,
        "Verify: the chance of a wrong verdict, part of delta; 1e-9 if left out.",
    ),
    Option(
        "--record",
        FILE,
        QUESTION,
        "Verify: keep all attempts in this file, and go on with one that was interrupted.",
    ),
    WORKERS := Option("--workers", WHOLE, QUESTION, "Verify: processes that draw samples."),
)
PLOT = Option("--plot", FILE, OUTPUT, "Draw a picture: .png .svg .pdf.")
MAX_COMPARED_STEPS = 4096
Others = Callable[["Strategy", "Scheme", "Guarantee", "Progress | None"], output.Comparison]
"""What other bounds say to the same question."""


def said(**given: Any) -> dict[str, Any]:
    """What was said, without what was left out."""
    return {name: value for name, value in given.items() if value is not None}


def answer(
    asked: str, given: Given, numbers: dict[str, float], others: Others | None = None
) -> None:
    """Ask the library the one question and print the answer."""
    import mmcc

    check_bound(given["method"], given["order"])
    strategy, scheme = mechanism(given)
    if others is not None and strategy.steps > MAX_COMPARED_STEPS:
        raise UsageError(
            f"--compare asks four questions at once and is meant for at most "
            f"{MAX_COMPARED_STEPS} steps, not {strategy.steps}; ask for one --method at a time."
        )
    question = getattr(mmcc, asked)  # imported now: that is not what is timed
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found: Guarantee = question(
            strategy,
            scheme,
            **numbers,
            method=given["method"],
            order=given["order"],
            **said(group_size=given["group_size"]),
            progress=progress,
        )
        seconds = time.perf_counter() - start
        compared = None if others is None else others(strategy, scheme, found, progress)
        units = in_units(found) if given.get("units") else None
    if given["as_json"]:
        output.print_json(found, seconds, compared, units)
    else:
        output.print_tables(asked, found, seconds, compared, units)


def in_units(found: Guarantee) -> Units:
    """The answer in every unit."""
    from mmcc.accounting._units import units_of

    return units_of(found)
