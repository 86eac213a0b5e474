"""Printing certified answers and verdicts.

A verdict's cost is printed before it starts, and a refused verdict is exit code 1.
In: options as typed.  Out: a table or one JSON object on stdout; cost and progress on stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from click.exceptions import Exit

from mmcc._cli import output
from mmcc._cli.mechanism_options import Given, check_bound, mechanism
from mmcc._cli.mistakes import one_line
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import said
from mmcc._methods import VERIFY

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from mmcc import Guarantee
    from mmcc.accounting._parallel import Progress
    from mmcc.accounting._units import Units
    from mmcc.sampling import Scheme
    from mmcc.strategies import Strategy

MAX_COMPARED_STEPS = 4096
Others = Callable[["Strategy", "Scheme", "Guarantee", "Progress | None"], output.Comparison]
"""Computes the answers of other bounds to the same question."""
REFUSED = 1
WITH_ERROR = ("epsilon", "sigma")
"""Questions whose answers also give the error compared with DP-SGD's."""
COSTS = ("verify: about", "verify: a pilot of")
"""Messages that start like this are printed before the work starts."""


def answer(
    asked: str, given: Given, numbers: dict[str, float], others: Others | None = None
) -> None:
    """Ask the library the one question and print the answer."""
    import mmcc

    check_bound(given["method"], given["order"])
    strategy, scheme = mechanism(given, _target(numbers))
    if others is not None and strategy.steps > MAX_COMPARED_STEPS:
        raise UsageError(
            f"--compare asks four questions at once and is meant for at most "
            f"{MAX_COMPARED_STEPS} steps, not {strategy.steps}; ask for one --method at a time."
        )
    if strategy.quicker and scheme.random:
        print(
            f"mmcc: {strategy!r} is accounted for as a matrix without structure, which is slow; "
            f"--strategy {strategy.quicker} has nearly the same error and is faster.",
            file=sys.stderr,
        )
    question = getattr(mmcc, asked)  # imported here, so that importing is not timed
    from mmcc.design._error_beside_dp_sgd import beside_dp_sgd

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
        beside = beside_dp_sgd(strategy, scheme, found) if asked in WITH_ERROR else None
    if given["as_json"]:
        output.print_json(found, seconds, compared, units, beside)
    else:
        output.print_tables(asked, found, seconds, compared, units, beside)


def _target(numbers: Mapping[str, Any]) -> tuple[float, float] | None:
    """The (epsilon, delta) that are asked for, where both are given."""
    if not {"epsilon", "delta"} <= numbers.keys():
        return None
    return numbers["epsilon"], numbers["delta"]


def in_units(found: Guarantee) -> Units:
    """The answer in every privacy unit."""
    from mmcc.accounting._units import units_of

    return units_of(found)


def verified_answer(
    asked: str, given: Given, numbers: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Ask for a verdict, by `mmcc.verify` or `mmcc.sigma`, and print the result."""
    strategy, scheme = mechanism(given, _target(numbers))
    if given.get("units"):
        raise UsageError("--units is for certified answers; leave it or --method verify out.")
    if given.get("order") is not None:
        raise UsageError("--order applies to --method mmcc only, not to verify.")
    import mmcc

    left = {name: value for name, value in options.items() if name != "workers"}
    with telling() as progress, working(options.get("workers")) as executor, refusing():
        how: dict[str, Any] = {"executor": executor, "progress": progress}
        how |= said(group_size=given["group_size"])
        start = time.perf_counter()
        if asked == "sigma":
            found: Any = mmcc.sigma(strategy, scheme, **numbers, method=VERIFY, verify=left, **how)
        else:
            found = mmcc.verify(strategy, scheme, **numbers, **left, **how)
        seconds = time.perf_counter() - start
    if given["as_json"]:
        output.print_json(found, seconds, None)
    elif isinstance(found, mmcc.Guarantee):
        output.print_tables("sigma" if asked == "sigma" else "epsilon", found, seconds, None)
    else:
        output.print_estimate(found, seconds)


@contextmanager
def telling() -> Iterator[Progress]:
    """A callback that prints the cost once, and shows a progress line on a terminal."""
    with output.progress_bar() as bar:

        def report(what: str, done: float) -> None:
            if what.startswith(COSTS):
                print(f"mmcc {what}.", file=sys.stderr)
            if bar is not None:
                bar(what, done)

        yield report


@contextmanager
def working(workers: int | None) -> Iterator[Executor | None]:
    """An executor with this many processes, or None for this process alone."""
    if workers is None or workers == 1:
        yield None
        return
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}.")
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool


@contextmanager
def refusing() -> Iterator[None]:
    """Turn a refused verdict into exit code 1: it is an answer, not bad input."""
    from mmcc.errors import NotVerifiedError

    try:
        yield
    except NotVerifiedError as refusal:
        print(f"mmcc: {one_line(refusal)}", file=sys.stderr)
        raise Exit(REFUSED) from None
