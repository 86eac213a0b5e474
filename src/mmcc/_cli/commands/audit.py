"""The command `mmcc audit`: audits a mechanism or a run and prints the findings.

Exit codes: 0 nothing found, 1 a violation found, 2 bad input.
Rounding: lower bounds are rounded down in tables, certified numbers up.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from click.exceptions import Exit

from mmcc._cli import output
from mmcc._cli.canaries import CANARIES, GUESSES, of_canaries, summary
from mmcc._cli.command import GUARANTEE, NUMBER, QUESTION, WHOLE, Command, Option, one_of
from mmcc._cli.mechanism_options import DELTA, MECHANISM, SIGMA, mechanism
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import CONFIDENCE, JSON, SEED, said
from mmcc.accounting._guarantee import rounded_down, rounded_up

if TYPE_CHECKING:
    from rich.table import Table

    from mmcc.audit import Audit, CanaryAudit

VIOLATION = 1
DECODERS = ("honaker", "online")
"""Decoders of trees that can be audited."""
STREAMS = ("torch", "numpy")
GENERATORS = ("device", "philox", "chacha")


def run(
    sigma: float,
    delta: float,
    runs: int | None,
    confidence: float | None,
    seed: int | None,
    decoder: str | None,
    stream: str | None,
    generator: str | None,
    epsilon: float | None,
    canaries: int | str | None,
    guesses: list[float] | None,
    as_json: bool,
    **given: Any,
) -> None:
    strategy, scheme = mechanism(given)
    options = said(runs=runs, confidence=confidence, seed=seed, epsilon=epsilon)
    if canaries is not None:
        options |= said(decoder=decoder, stream=stream, generator=generator, guesses=guesses)
        show(*of_canaries(strategy, scheme, sigma, delta, canaries, options), as_json)
        return
    if guesses is not None:
        raise UsageError("--guesses is about canaries; give --canaries too, or leave it out.")
    from mmcc.audit import audit  # takes a second to import

    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = audit(
            strategy,
            scheme,
            sigma=sigma,
            delta=delta,
            **options,
            decoder=decoder,
            stream=stream,
            generator=generator,
            progress=progress,
        )
        seconds = time.perf_counter() - start
    show(found, seconds, as_json)


def show(found: Audit | CanaryAudit, seconds: float, as_json: bool) -> None:
    """Print the findings; a violation is exit code 1."""
    from mmcc.audit import Audit

    if as_json:
        content = found.to_dict() | {"seconds": round(seconds, 3)}
        print(json.dumps(content, indent=2, allow_nan=False))
    elif isinstance(found, Audit):
        output.console().print(_facts(_summary(found, seconds)), "", _findings(found))
    else:
        output.console().print(_facts(summary(found, seconds)))
    if not found.passed:
        raise Exit(VIOLATION)


def _facts(rows: list[tuple[str, str]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(value))
    return table


def _findings(found: Audit) -> Table:
    from rich.markup import escape
    from rich.table import Table

    tests = Table(box=None, pad_edge=False, header_style="bold")
    tests.add_column("what conforms")
    tests.add_column("p-value", no_wrap=True)
    tests.add_column("seen", overflow="fold")
    for finding in found.findings:
        value = f"{finding.p_value:.2g}"
        shown = f"[bold red]{value} FAILED[/bold red]" if finding.failed else value
        tests.add_row(finding.name, shown, escape(finding.seen))
    return tests


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


COMMAND = Command(
    "audit",
    run,
    *MECHANISM,
    SIGMA,
    Option(
        "--epsilon",
        NUMBER,
        GUARANTEE,
        "Test this epsilon instead of the certified one.",
    ),
    DELTA,
    Option("--runs", WHOLE, QUESTION, "How many runs with the canary, and as many without it."),
    CANARIES,
    GUESSES,
    CONFIDENCE,
    SEED,
    Option(
        "--decoder",
        one_of(DECODERS),
        QUESTION,
        f"Trees: {' or '.join(DECODERS)} (default {DECODERS[0]}).",
    ),
    Option(
        "--stream",
        one_of(STREAMS),
        QUESTION,
        "The noise that is played: torch, as in training (default where torch is installed), "
        "or numpy.",
    ),
    Option(
        "--generator",
        one_of(GENERATORS),
        QUESTION,
        "Random number generator of the noise: device (default), philox or chacha.",
    ),
    JSON,
    help="Play the real noise and batches many times and look for a violation of what is "
    "certified.",
    example="mmcc audit --strategy binary-tree --steps 8 --sampling poisson --prob 1/4 --sigma 2 "
    "--delta 1e-5 --runs 2000",
)
