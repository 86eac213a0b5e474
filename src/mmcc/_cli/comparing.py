"""The command `mmcc compare`: words into a comparison, the table into print.

In: the options as typed.  Out: a table or one JSON object on stdout.
Rounding: sigmas are rounded up in tables, savings down.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from mmcc._cli import output
from mmcc._cli.words import (
    A_FILE,
    COMPARED_STRATEGIES,
    METHODS,
    Options,
    UsageError,
    names_a_file,
    number,
    whole_number,
)
from mmcc.errors import real, suggestion
from mmcc.strategies._registry import from_word

if TYPE_CHECKING:
    from mmcc.design import Family
    from mmcc.design._compare import Compared

COMPARE = (
    "steps",
    "rate",
    "epsilons",
    "delta",
    "strategies",
    "non_adaptive",
    "schemes",
    "method",
    "only_wins",
    "estimates",
    "seconds",
    "plot",
    "as_json",
)


def show_comparison(options: Options) -> None:
    """Ask for the table, draw it if wanted, print it."""
    if options.method not in METHODS:
        raise UsageError(
            f"unknown method {options.method!r}; {suggestion(options.method, METHODS)}"
        )
    if options.steps is None or options.rate is None:
        missing = "steps" if options.steps is None else "rate"
        raise UsageError(f"--{missing} is needed.")
    steps, rate = whole_number("steps", options.steps), number("rate", options.rate)
    epsilons = [number("epsilon", part) for part in str(options.epsilons).split(",")]
    from mmcc import design as comparison
    from mmcc import plots  # these take a second to import
    from mmcc.design._compare import SECONDS

    if options.plot is not None:
        plots.check_file(options.plot)
    rate = real("rate", rate, 0, 1, closed="h")
    families = _families(options.schemes, rate, steps)
    named = _strategies(options, rate, steps)
    limit = SECONDS if options.seconds is None else number("seconds", options.seconds)
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = comparison.compare(
            named,
            families,
            epsilon=epsilons,
            delta=number("delta", str(options.delta)),
            method=options.method,
            only_wins=options.only_wins,
            estimates=options.estimates,
            seconds=limit,
            progress=progress,
        )
        seconds = time.perf_counter() - start
    if options.plot is not None:
        plots.errors_against_epsilon(found, options.plot)
    if options.as_json:
        content = found.to_dict() | {"seconds": round(seconds, 3)}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        print(found)
        print(f"seconds {seconds:.2f}")


def _families(words: str | None, rate: float, steps: int) -> list[Family]:
    """The schemes asked for; by default all that the rate allows."""
    from mmcc.sampling import _families as schemes

    names = schemes.default_words(rate, steps) if words is None else words.split(",")
    return [schemes.family(name.strip(), rate, steps) for name in names]


def _strategies(options: Options, rate: float, steps: int) -> dict[str, Compared]:
    from mmcc.design import _candidates as candidates

    words = options.strategies
    names = candidates.default_words(steps, rate) if words is None else words.split(",")
    names = [name.strip() for name in names]
    if options.non_adaptive and all(map(_is_word, names)):
        raise UsageError("--non-adaptive applies to matrices read from files, and none is named.")
    found: dict[str, Compared] = {}
    for name in names:
        made = _strategy(name, steps, adaptive=not options.non_adaptive)
        if made.steps != steps:
            raise UsageError(f"{name!r} has {made.steps} steps, not the {steps} asked for.")
        found[name] = made
    return found


def _strategy(name: str, steps: int, *, adaptive: bool) -> Compared:
    from mmcc import strategies

    if _is_word(name):
        made: Compared = from_word(name, steps)
        return made
    if names_a_file(name):
        return strategies.load(name, adaptive=adaptive)
    choices = suggestion(name, (*COMPARED_STRATEGIES, A_FILE))
    raise UsageError(f"unknown strategy {name!r}; {choices}")


def _is_word(name: str) -> bool:
    """Whether a strategy is meant that has a name, with or without a size."""
    return name.partition(":")[0] in {word.partition(":")[0] for word in COMPARED_STRATEGIES}
