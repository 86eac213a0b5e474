"""The commands `mmcc group` and `mmcc last-iterate`: words into a question, the answer into print.

In: the options as typed.  Out: a table or one JSON object on stdout.
An option that does not apply is an error: it is never ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from mmcc._cli import output
from mmcc._cli.words import Options, UsageError, number, whole_number

if TYPE_CHECKING:
    from mmcc import Guarantee

GROUP = ("group", "steps", "prob", "examples", "batch", "zero_one")
LAST_ITERATE = ("steps", "prob")


def show_group(options: Options) -> None:
    """Poisson sampling with --prob, fixed batches with --examples and --batch."""
    size, steps = _whole(options, "group"), _whole(options, "steps")
    numbers = options.numbers()
    fixed = options.examples is not None or options.batch is not None
    if fixed and options.prob is not None:
        raise UsageError(
            "--prob is for Poisson sampling, --examples and --batch are for fixed batches; leave "
            "one or the other out."
        )
    if not fixed:
        if options.zero_one:
            raise UsageError(
                "--zero-one applies to fixed batches only; with --prob nothing is assumed about "
                "the other examples."
            )
        probability = _probability(options, " (or --examples and --batch)")
        _show(
            lambda: _mixtures().group_privacy(size, steps, probability, **numbers), options.as_json
        )
        return
    examples, batch = _whole(options, "examples"), _whole(options, "batch")
    setting = "0-1" if options.zero_one else "any"
    _show(
        lambda: _mixtures().fixed_batches(
            examples, batch, steps, group=size, setting=setting, **numbers
        ),
        options.as_json,
    )


def show_last_iterate(options: Options) -> None:
    """Poisson sampling, linear losses."""
    steps, probability = _whole(options, "steps"), _probability(options)
    numbers = options.numbers()
    _show(lambda: _mixtures().last_iterate(steps, probability, **numbers), options.as_json)


def _show(question: Callable[[], Guarantee], as_json: bool) -> None:
    start = time.perf_counter()
    found = question()
    seconds = time.perf_counter() - start
    if as_json:
        output.print_json(found, seconds, None)
    else:
        output.print_tables("epsilon", found, seconds, None)


def _mixtures() -> ModuleType:
    """Imported late: scipy and numba take a second."""
    return import_module("mmcc.mixtures")


def _whole(options: Options, name: str) -> int:
    text = getattr(options, name)
    if text is None:
        raise UsageError(f"--{name} is needed.")
    return whole_number(name, text)


def _probability(options: Options, otherwise: str = "") -> float:
    if options.prob is None:
        raise UsageError(f"--prob{otherwise} is needed.")
    return number("prob", options.prob)
