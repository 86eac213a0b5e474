"""`mmcc audit --canaries`: audit one run with canaries, played or with scores from a file.

In: a mechanism, options as typed.  Out: an audit and how long it took; rows of a table.
Rounding: lower bounds are rounded down, certified numbers up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mmcc._cli import output
from mmcc._cli.command import LIST, QUESTION, Option, Value
from mmcc._cli.parsing import UsageError, whole_number
from mmcc.accounting._guarantee import rounded_down, rounded_up

if TYPE_CHECKING:
    from mmcc.audit import CanaryAudit
    from mmcc.sampling import Scheme
    from mmcc.strategies import Strategy

NUMERALS = frozenset("0123456789.+-eE")


def _number_or_file(name: str, text: str) -> int | str:
    """A number of canaries, or a file name, which contains more than digits."""
    return whole_number(name, text) if set(text) <= NUMERALS else text


CANARIES = Option(
    "--canaries",
    Value("N|FILE", _number_or_file),
    QUESTION,
    "Audit one run: play it with this many canaries, or read their scores from this .csv file.",
)
GUESSES = Option(
    "--guesses",
    LIST,
    QUESTION,
    "Canaries guessed to be in and to be left out, such as 100,100; planned by default.",
)


def of_canaries(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    delta: float,
    canaries: int | str,
    options: dict[str, Any],
) -> tuple[CanaryAudit, float]:
    """Play a run, or judge the scores of one, and time it."""
    if "runs" in options:
        raise UsageError("--runs does not apply to --canaries, which audits one run; leave it out.")
    if "guesses" in options:
        options["guesses"] = _pair(options["guesses"])
    from mmcc import audit  # takes a second to import

    with output.progress_bar() as progress:
        start = time.perf_counter()
        if isinstance(canaries, str):
            found = _of_file(strategy, scheme, sigma, delta, canaries, options, progress)
        else:
            found = audit.play_canaries(
                strategy,
                scheme,
                sigma=sigma,
                delta=delta,
                canaries=canaries,
                progress=progress,
                **options,
            )
        return found, time.perf_counter() - start


def _of_file(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    delta: float,
    path: str,
    options: dict[str, Any],
    progress: Any,
) -> CanaryAudit:
    from mmcc import audit
    from mmcc.audit._canaries import certified_among_others

    for name in ("decoder", "stream", "generator"):
        if name in options:
            raise UsageError(
                f"--{name} is for runs that are played; {path} has the scores of a finished run. "
                "Leave it out."
            )
    scores, included = audit.load_scores(path)
    if "epsilon" in options:
        return audit.audit_canaries(scores, included, delta=delta, progress=progress, **options)
    guarantee = certified_among_others(strategy, scheme, sigma, delta, progress)
    return audit.audit_canaries(scores, included, guarantee, progress=progress, **options)


def _pair(numbers: list[float]) -> tuple[int, ...]:
    if not all(number.is_integer() for number in numbers):
        raise UsageError("--guesses needs two whole numbers such as 100,100.")
    return tuple(map(int, numbers))


def summary(found: CanaryAudit, seconds: float) -> list[tuple[str, str]]:
    """The findings, as pairs of name and text."""
    passed = "passed: nothing was found against the run, which is no proof that it is right"
    rows = [
        ("verdict", passed if found.passed else "VIOLATION: " + "; ".join(found.violations)),
        (
            "epsilon, at least",
            f"{rounded_down(found.epsilon_lower)} with confidence {found.confidence:g}, "
            "assuming nothing about what was run",
        ),
        ("within its family", found.assumed),
        (f"epsilon, {found.origin}", f"{rounded_up(found.epsilon)} by {found.bound}"),
        ("delta", f"{found.delta:.12g}"),
        (
            "canaries",
            f"{found.canaries}, of which {found.included} were in the data by fair coins",
        ),
        (
            "guesses",
            f"{found.correct} of {sum(found.guesses)} right ({found.guesses[0]} to be in the data, "
            f"{found.guesses[1]} to be left out); all right would have shown "
            f"{rounded_down(found.most)}",
        ),
        ("scores", found.scores),
        ("adjacency", found.adjacency),
    ]
    known = [("sigma", "" if found.sigma is None else f"{found.sigma:.12g}")]
    known += [(name, getattr(found, name)) for name in ("strategy", "sampling", "stream")]
    known += [("seed", "" if found.seed is None else str(found.seed))]
    rows += [(name, value) for name, value in known if value]
    return [*rows, ("seconds", f"{seconds:.2f}")]
