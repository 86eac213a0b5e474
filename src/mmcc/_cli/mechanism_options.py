"""The options that describe a mechanism, from the registries; and the mechanism that they mean.

In: options as typed.  Out: a strategy, a scheme, a bound.
An option that does not apply is an error: it is never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mmcc._cli.command import (
    FLAG,
    GUARANTEE,
    LIST,
    NUMBER,
    SCHEME,
    STRATEGY,
    TEXT,
    WHOLE,
    Option,
    one_of,
)
from mmcc._cli.parsing import A_FILE, UsageError, names_a_file
from mmcc.errors import suggestion
from mmcc.sampling._registry import SCHEMES, Argument
from mmcc.strategies import _registry as strategies

if TYPE_CHECKING:
    from mmcc.sampling import Scheme
    from mmcc.strategies import Strategy

METHODS = ("tight", "mmcc", "projection", "reveal", "cascade", "unamplified", "group-lemma")
"""As in `mmcc.accounting`, which takes a second to import."""
VERIFY = "verify"
"""Not a bound: finds the noise for a target by simulation."""
OLD_METHODS = ("chain",)
"""Old names that still work."""
Given = Mapping[str, Any]
"""Values of options by name; None where an option was left out."""


def _strategy_options() -> dict[str, Option]:
    types = {
        strategies.WHOLE: WHOLE,
        strategies.NUMBER: NUMBER,
        strategies.LIST: LIST,
        strategies.WORD: TEXT,
    }
    helps = strategies.arguments()
    every = (one for entry in strategies.TYPED.values() for one in entry.arguments)
    return {
        one.name: Option(
            f"--{one.name}",
            one_of(one.choices) if one.choices else types[one.kind],
            STRATEGY,
            helps[one.name],
        )
        for one in every
    }


def _scheme_options() -> dict[str, Option]:
    types = {"number": NUMBER, "whole": WHOLE, "flag": FLAG}
    users: dict[Argument, list[str]] = {}
    for name, entry in SCHEMES.items():
        for one in entry.arguments:
            users.setdefault(one, []).append(name)
    helps: dict[str, list[str]] = {}
    for one, names in users.items():  # an option may mean something else for another scheme
        words = f"{', '.join(names)}: {one.help[0].lower()}{one.help[1:]}"
        helps.setdefault(one.option, []).append(words)
    kinds = {one.option: one.kind for one in users}
    return {
        option.replace("-", "_"): Option(
            f"--{option}", types[kinds[option]], SCHEME, " ".join(words)
        )
        for option, words in helps.items()
    }


SHAPES, ROUNDS = _strategy_options(), _scheme_options()
"""Options that describe a strategy, and a scheme."""
STEPS, PROB = SHAPES["steps"], ROUNDS["prob"]
NAME = Option(
    "--strategy",
    one_of(strategies.TYPED, "NAME|FILE"),
    STRATEGY,
    f"{', '.join(strategies.TYPED)}, or {A_FILE}.",
    required=True,
)
SAMPLING = Option("--sampling", one_of(SCHEMES), SCHEME, f"{', '.join(SCHEMES)}.", required=True)
NON_ADAPTIVE = Option(
    "--non-adaptive", FLAG, STRATEGY, "File: accept rows that are not in causal order."
)
OF_STRATEGY = (*SHAPES.values(), NON_ADAPTIVE)
MECHANISM = (NAME, *OF_STRATEGY, SAMPLING, *ROUNDS.values())
SIGMA = Option(
    "--sigma",
    NUMBER,
    GUARANTEE,
    "Standard deviation of the noise, in clip norms.",
    required=True,
)
EPSILON = Option("--epsilon", NUMBER, GUARANTEE, "Epsilon of the guarantee.", required=True)
DELTA = Option("--delta", NUMBER, GUARANTEE, "Delta of the guarantee, such as 1e-6.", required=True)
METHOD = Option(
    "--method",
    one_of(METHODS),
    GUARANTEE,
    f"Which bound: {', '.join(METHODS)}.",
    default=METHODS[0],
)
ORDER = Option(
    "--order",
    one_of(strategies.ORDERS),
    GUARANTEE,
    f"mmcc: the order of analysis: {', '.join(strategies.ORDERS)}.",
)
GROUP_SIZE = Option(
    "--group-size",
    WHOLE,
    GUARANTEE,
    "How many examples are protected together; 1 if left out.",
    metavar="K",
)
BOUND = (METHOD, ORDER)


def mechanism(given: Given) -> tuple[Strategy, Scheme]:
    """The strategy and the scheme."""
    return released(given), sampled(given)


def check_method(method: str) -> None:
    """Refuse an unknown method."""
    if method == VERIFY:
        raise UsageError(
            "--method verify checks a given epsilon at a given delta: use mmcc verify, or mmcc "
            "sigma to find the noise for such a target."
        )
    if method not in METHODS and method not in OLD_METHODS:
        raise UsageError(f"unknown method {method!r}; {suggestion(method, METHODS)}")


def check_bound(method: str, order: str | None) -> None:
    """Refuse an unknown method or order."""
    check_method(method)
    if order is not None and method != "mmcc":
        raise UsageError(f"--order applies to --method mmcc only, not to {method}.")
    if order is not None and order not in strategies.ORDERS:
        raise UsageError(f"unknown order {order!r}; {suggestion(order, strategies.ORDERS)}")


def released(given: Given) -> Strategy:
    """The strategy, once every option is known to apply to it."""
    name: str = given["strategy"]
    if name not in strategies.TYPED:
        return _from_file(name, given)
    if given["non_adaptive"]:
        raise UsageError(
            f"--non-adaptive applies to a matrix read from a file, not to {name}, "
            "whose rows are in a causal order."
        )
    entry = strategies.TYPED[name]
    typed = _typed(given, SHAPES)
    signature = entry.signature(typed)
    check_options(
        typed,
        [one.name for one in signature],
        [one.name for one in signature if one.needed],
        SHAPES,
        f"--strategy {name}",
    )
    return _searched(entry.make, typed) if entry.searched else entry.make(**typed)


def _from_file(name: str, given: Given) -> Strategy:
    if not names_a_file(name):
        known = suggestion(name, (*strategies.TYPED, A_FILE))
        raise UsageError(f"unknown strategy {name!r}; {known}")
    check_options(_typed(given, SHAPES), (), (), SHAPES, f"a strategy read from {name!r}")
    from mmcc.strategies import load

    return load(name, adaptive=not given["non_adaptive"])


def _searched(make: Callable[..., Strategy], values: Given) -> Strategy:
    """An optimised strategy; its progress is shown."""
    from mmcc._cli.output import progress_bar

    with progress_bar() as progress:
        return make(**values, progress=progress)


def sampled(given: Given) -> Scheme:
    """The scheme, once every option is known to apply to it."""
    name: str = given["sampling"]
    if name not in SCHEMES:
        raise UsageError(f"unknown sampling {name!r}; {suggestion(name, tuple(SCHEMES))}")
    entry = SCHEMES[name]
    typed = _typed(given, ROUNDS)
    options = {one.option.replace("-", "_"): one for one in entry.arguments}
    needed = [option for option, one in options.items() if one.required]
    check_options(typed, options, needed, ROUNDS, f"--sampling {name}")
    return entry.load()(**{options[option].name: value for option, value in typed.items()})


def check_options(
    given: Collection[str],
    possible: Collection[str],
    needed: Collection[str],
    every: Iterable[str],
    what: str,
) -> None:
    """Refuse options that do not apply, and ask for those that are missing."""
    for name in every:
        option = name.replace("_", "-")
        if name in given and name not in possible:
            raise UsageError(f"--{option} does not apply to {what}; leave it out.")
        if name in needed and name not in given:
            raise UsageError(f"--{option} is needed with {what}.")


def _typed(given: Given, names: Iterable[str]) -> dict[str, Any]:
    """What was typed: an option that was left out is None, a flag False."""
    left_out = (None, False)
    return {name: given[name] for name in names if not any(given[name] is x for x in left_out)}
