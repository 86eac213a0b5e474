"""The command `mmcc compare`: compares mechanisms and prints a table.

Rounding: sigmas are rounded up in tables, savings down.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from mmcc._calls import looks_like_call, split_outside_brackets
from mmcc._cli import output
from mmcc._cli.command import (
    FLAG,
    GUARANTEE,
    LIST,
    NUMBER,
    QUESTION,
    SCHEME,
    STRATEGY,
    Command,
    Option,
    several_of,
)
from mmcc._cli.commands.group import needed
from mmcc._cli.mechanism_options import DELTA, METHOD, NON_ADAPTIVE, STEPS, check_method
from mmcc._cli.parsing import A_FILE, UsageError, names_a_file
from mmcc._cli.question_options import JSON, PLOT
from mmcc._cli.workload_options import WORKLOAD, workload_asked
from mmcc.errors import real, suggestion
from mmcc.sampling._registry import COMPARED, from_call
from mmcc.strategies._registry import compared_words
from mmcc.strategies._words import from_text, is_word

if TYPE_CHECKING:
    from mmcc.design import Family
    from mmcc.design._compare import Compared


def run(
    steps: int | None,
    rate: float | None,
    epsilon: list[float],
    delta: float,
    strategies: str | None,
    non_adaptive: bool,
    schedule: str | None,
    warmup: int | None,
    momentum: float | None,
    weight_decay: float | None,
    schemes: str | None,
    method: str,
    only_wins: bool,
    estimates: bool,
    seconds: float | None,
    plot: str | None,
    as_json: bool,
) -> None:
    check_method(method)
    steps, rate = needed("steps", steps), needed("rate", rate)
    from mmcc import design, plots  # these take a second to import
    from mmcc.design._compare import SECONDS

    if plot is not None:
        plots.check_file(plot)
    rate = real("rate", rate, 0, 1, closed="h")
    families = _families(schemes, rate, steps)
    named = _strategies(strategies, rate, steps, not non_adaptive)
    workload = workload_asked(steps, schedule, warmup, momentum, weight_decay)
    with output.progress_bar() as progress:
        start = time.perf_counter()
        found = design.compare(
            named,
            families,
            epsilon=epsilon,
            delta=delta,
            workload=workload,
            method=method,
            only_wins=only_wins,
            estimates=estimates,
            seconds=SECONDS if seconds is None else seconds,
            progress=progress,
        )
        taken = time.perf_counter() - start
    if plot is not None:
        plots.errors_against_epsilon(found, plot)
    if as_json:
        content = found.to_dict() | {"seconds": round(taken, 3)}
        print(json.dumps(content, indent=2, allow_nan=False))
    else:
        print(found)
        print(f"seconds {taken:.2f}")


def _families(words: str | None, rate: float, steps: int) -> list[Family]:
    """The schemes that were asked for; by default all that the rate allows."""
    from mmcc.sampling import _families_at_rate as schemes

    if words is None:
        return [schemes.family(name, rate, steps) for name in schemes.default_words(rate, steps)]
    return [
        schemes.family_of(from_call(name))
        if looks_like_call(name)
        else schemes.family(name, rate, steps)
        for name in split_outside_brackets(words)
    ]


def _strategies(words: str | None, rate: float, steps: int, adaptive: bool) -> dict[str, Compared]:
    from mmcc.design._compare import default_words

    names = default_words(steps, rate) if words is None else split_outside_brackets(words)
    if not adaptive and all(map(_is_word, names)):
        raise UsageError("--non-adaptive applies to matrices read from files, and none is named.")
    found: dict[str, Compared] = {}
    for name in names:
        made = _strategy(name, steps, adaptive)
        if made.steps != steps:
            raise UsageError(f"{name!r} has {made.steps} steps, not the {steps} asked for.")
        found[name] = made
    return found


def _strategy(name: str, steps: int, adaptive: bool) -> Compared:
    if _is_word(name):
        made: Compared = from_text(name, steps)
        return made
    if names_a_file(name):
        from mmcc.strategies import load

        return load(name, adaptive=adaptive)
    choices = suggestion(name, (*compared_words(), A_FILE))
    raise UsageError(f"unknown strategy {name!r}; {choices}")


def _is_word(name: str) -> bool:
    """Whether a strategy is named by a word, with or without a size, or as it prints."""
    return looks_like_call(name) or is_word(name)


COMMAND = Command(
    "compare",
    run,
    STEPS,
    Option(
        "--strategies",
        several_of([word.removesuffix("N") for word in compared_words()]),
        STRATEGY,
        "Strategies to compare, such as identity,continual-counting:16,tuned-blt; by default, "
        "a selection for this length and rate.",
    ),
    NON_ADAPTIVE,
    *WORKLOAD,
    Option(
        "--schemes",
        several_of([word.removesuffix("N") for word in COMPARED]),
        SCHEME,
        "Schemes to compare: poisson, cyclic-poisson (at its best separation), cyclic-poisson:4, "
        "balls-in-bins, random-allocation, fixed-order, shuffle, min-separation:4; by default, "
        "those that amplify at this rate.",
    ),
    Option("--rate", NUMBER, SCHEME, "Share of the examples in a batch, such as 1/100."),
    Option("--epsilon", LIST, GUARANTEE, "One epsilon, or several: 1,2,4.", required=True),
    DELTA,
    METHOD,
    Option("--only-wins", FLAG, QUESTION, "Only find out who wins: one evaluation for each row."),
    Option("--estimates", FLAG, QUESTION, "Add simulated rows where no amplification is proven."),
    Option("--seconds", NUMBER, QUESTION, "Give up on a row after about this many seconds."),
    PLOT,
    JSON,
    help="Compare strategies at equal guarantees: the noise and the error of each.",
    example="mmcc compare --steps 16 --rate 1/4 --epsilon 2 --delta 1e-5 "
    "--strategies identity,continual-counting --schemes poisson",
)
