"""The command `mmcc group`: DP-SGD by counts or fixed batches, other strategies by their bounds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from mmcc._cli import output
from mmcc._cli.answers import answer
from mmcc._cli.command import FLAG, SCHEME, WHOLE, Command, Option
from mmcc._cli.mechanism_options import (
    DELTA,
    MECHANISM,
    ROUNDS,
    SIGMA,
    Given,
    check_options,
)
from mmcc._cli.parsing import UsageError
from mmcc._cli.question_options import JSON
from mmcc._methods import TIGHT
from mmcc.errors import MethodError
from mmcc.strategies._registry import IDENTITY

if TYPE_CHECKING:
    from mmcc import Guarantee

Value = TypeVar("Value")
DPSGD, POISSON = IDENTITY.name, "poisson"
"""The defaults: independent noise and its sampling."""


def run(
    group: int | None,
    examples: int | None,
    batch: int | None,
    zero_one: bool,
    sigma: float,
    delta: float,
    as_json: bool,
    **given: Any,
) -> None:
    plain = given["strategy"] in (None, DPSGD) and given["sampling"] in (None, POISSON)
    if not plain:
        if batch is not None or zero_one:
            raise UsageError(
                "--batch and --zero-one are for DP-SGD with fixed batches; leave them or "
                "--strategy and --sampling out."
            )
        given["examples"] = examples
        of_mechanism(needed("group", group), given, sigma, delta, as_json)
        return
    fixed = examples is not None or batch is not None
    if fixed and given["prob"] is not None:
        raise UsageError(
            "--prob is for Poisson sampling, --examples and --batch are for fixed batches; leave "
            "one or the other out."
        )
    size, steps = needed("group", group), needed("steps", given["steps"])
    check_options(
        [name for name, value in given.items() if value not in (None, False)],
        ("strategy", "sampling", "steps", "prob"),
        (),
        given,
        "DP-SGD with Poisson sampling or fixed batches",
    )
    if not fixed and zero_one:
        raise UsageError(
            "--zero-one applies to fixed batches only; with --prob nothing is assumed about "
            "the other examples."
        )
    if fixed:
        counts = needed("examples", examples), needed("batch", batch)
    else:
        probability = needed("prob (or --examples and --batch)", given["prob"])
    from mmcc import mixtures  # scipy and numba take a second

    start = time.perf_counter()
    if fixed:
        setting = "0-1" if zero_one else "any"
        found = mixtures.fixed_batches(
            *counts, steps, sigma=sigma, delta=delta, group=size, setting=setting
        )
    else:
        found = mixtures.group_privacy(size, steps, probability, sigma=sigma, delta=delta)
    show(found, time.perf_counter() - start, as_json)


def of_mechanism(group: int, given: Given, sigma: float, delta: float, as_json: bool) -> None:
    """Correlated noise, or another scheme: asks what `mmcc epsilon --group-size` asks."""
    names = {"strategy": given["strategy"] or DPSGD, "sampling": given["sampling"] or POISSON}
    question = {**given, **names, "method": TIGHT, "order": None}
    question |= {"group_size": group, "as_json": as_json}
    try:
        answer("epsilon", question, {"sigma": sigma, "delta": delta})
    except MethodError as refused:
        # The library advises a method, which is an option of another command.
        told = str(refused).replace("Use method=", f"Use mmcc epsilon --group-size {group} method=")
        raise MethodError(told) from refused


def needed(name: str, value: Value | None) -> Value:
    """The value of an option that this command requires."""
    if value is None:
        raise UsageError(f"--{name} is needed.")
    return value


def show(found: Guarantee, seconds: float, as_json: bool) -> None:
    """Print the answer."""
    if as_json:
        output.print_json(found, seconds, None)
    else:
        output.print_tables("epsilon", found, seconds, None)


COMMAND = Command(
    "group",
    run,
    *(option.optional() for option in MECHANISM if option is not ROUNDS["examples"]),
    Option("--group", WHOLE, SCHEME, "Examples that are protected together.", metavar="K"),
    Option("--examples", WHOLE, SCHEME, "Fixed or truncated batches: examples in the data set."),
    Option(
        "--batch",
        WHOLE,
        SCHEME,
        "Fixed batches: examples in each batch, drawn without replacement.",
    ),
    Option(
        "--zero-one",
        FLAG,
        SCHEME,
        "Fixed batches: the paper's 0-1 setting, in which no other example contributes.",
    ),
    SIGMA,
    DELTA,
    JSON,
    help="Print the certified epsilon of a group of examples.\n\n"
    "For DP-SGD; for other strategies and schemes, it does what mmcc epsilon --group-size does.",
    example="mmcc group --group 4 --steps 1000 --prob 0.01 --sigma 4 --delta 1e-6",
)
