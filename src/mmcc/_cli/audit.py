"""The command `mmcc audit`: words into an audit, what it found into print.

In: the options as typed.  Out: tables or one JSON object on stdout.
Exit codes: 0 nothing found, 1 a violation found, 2 bad input.
Rounding: lower bounds are rounded down in tables, certified numbers up.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import typer

from mmcc._cli import output
from mmcc._cli.words import Options, number, whole_number
from mmcc.accounting._guarantee import rounded_down, rounded_up

if TYPE_CHECKING:
    from mmcc.audit import Audit

AUDIT = (
    "sigma",
    "delta",
    "runs",
    "confidence",
    "seed",
    "decoder",
    "stream",
    "generator",
    "claimed",
    "as_json",
)
VIOLATION = 1


def show_audit(options: Options) -> None:
    """Audit what training uses; end with exit code 1 if something was found against it."""
    strategy, scheme = options.mechanism()
    numbers, given = options.numbers(), _given(options)
    from mmcc.audit import audit  # takes a second to import

    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = audit(
            strategy,
            scheme,
            sigma=numbers["sigma"],
            delta=numbers["delta"],
            **given,
            progress=progress,
        )
        seconds = time.perf_counter() - start
    if options.as_json:
        content = found.to_dict() | {"seconds": round(seconds, 3)}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        _print(found, seconds)
    if not found.passed:
        raise typer.Exit(VIOLATION)


def _given(options: Options) -> dict[str, Any]:
    """How to audit, as far as it was said."""
    given: dict[str, Any] = {
        "decoder": options.decoder,
        "stream": options.stream,
        "generator": options.generator,
    }
    for name in ("runs", "seed"):
        if (text := getattr(options, name)) is not None:
            given[name] = whole_number(name, text)
    for name, option in (("confidence", "confidence"), ("epsilon", "claimed")):
        if (text := getattr(options, option)) is not None:
            given[name] = number(name, text)
    return given


def _print(found: Audit, seconds: float) -> None:
    from rich.markup import escape
    from rich.table import Table

    paper = output.console()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _summary(found, seconds):
        table.add_row(name, escape(value))
    paper.print(table)
    tests = Table(box=None, pad_edge=False, header_style="bold")
    tests.add_column("what conforms")
    tests.add_column("p-value", no_wrap=True)
    tests.add_column("seen", overflow="fold")
    for finding in found.findings:
        value = f"{finding.p_value:.2g}"
        shown = f"[bold red]{value} FAILED[/bold red]" if finding.failed else value
        tests.add_row(finding.name, shown, escape(finding.seen))
    paper.print("", tests)


def _summary(found: Audit, seconds: float) -> list[tuple[str, str]]:
    from mmcc.audit._streams import described

    verdict = "passed: nothing was found against the mechanism, which is no proof that it is right"
    return [
        ("verdict", verdict if found.passed else "VIOLATION: " + "; ".join(found.violations)),
        (
            "epsilon, at least",
            f"{rounded_down(found.epsilon_lower)} with confidence {found.confidence:g} "
            f"(remove {rounded_down(found.remove)}, add {rounded_down(found.add)})",
        ),
        (f"epsilon, {found.origin}", f"{rounded_up(found.epsilon)} by {found.bound}"),
        ("delta", f"{found.delta:.12g}"),
        ("sigma", f"{found.sigma:.12g}"),
        ("strategy", f"{found.strategy}, decoder {found.decoder}"),
        ("noise stream", f"{described(found.stream)}, generator {found.generator}"),
        (
            "sampling",
            found.sampling
            if found.group is None
            else f"{found.sampling}, canaries of group {found.group}",
        ),
        ("adjacency", found.adjacency),
        ("test", found.statistic),
        (
            "runs",
            f"{found.runs} with the canary and as many without; {found.resumed} of them stopped, "
            "saved and resumed",
        ),
        ("seed", str(found.seed)),
        ("seconds", f"{seconds:.2f}"),
    ]
