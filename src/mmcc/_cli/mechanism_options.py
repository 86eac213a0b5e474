"""The options that describe a mechanism, from the registries; and the mechanism that they describe.

In: options as typed.  Out: a strategy, a scheme, a bound.
An option that does not apply is an error: it is never ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mmcc._calls import looks_like_call
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
from mmcc._methods import CERTIFYING, MMCC, OLD_NAMES, TIGHT, VERIFY
from mmcc.errors import suggestion
from mmcc.sampling._registry import COMPARED, SCHEMES, Argument, from_call
from mmcc.strategies import _registry as strategies
from mmcc.strategies._words import from_text, is_word

if TYPE_CHECKING:
    from mmcc.sampling import Scheme
    from mmcc.strategies import Strategy

Given = Mapping[str, Any]
"""Values of options by name; None for options that were left out."""


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
"""Names of the options that describe a strategy, and of those that describe a scheme."""
STEPS, PROB = SHAPES["steps"], ROUNDS["prob"]
NAME = Option(
    "--strategy",
    one_of(strategies.TYPED, "NAME|FILE"),
    STRATEGY,
    f"{', '.join(strategies.TYPED)}; dp-sgd (identity), NAME:SIZE such as continual-counting:16, "
    f"what a strategy prints, such as 'blt(8, decay=[0.5], scale=[0.2])', or {A_FILE}; tuned-blt "
    "if there is a target.",
    required=True,
)
SAMPLING = Option(
    "--sampling",
    one_of(SCHEMES),
    SCHEME,
    f"{', '.join(SCHEMES)}, or what a scheme prints.",
    required=True,
)
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
    one_of(CERTIFYING),
    GUARANTEE,
    f"Which bound to use: {', '.join(CERTIFYING)}.",
    default=TIGHT,
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
    "How many examples are protected together; default 1.",
    metavar="K",
)
BOUND = (METHOD, ORDER)


def mechanism(given: Given, target: tuple[float, float] | None = None) -> tuple[Strategy, Scheme]:
    """The strategy and the scheme; a strategy that is searched for needs a target."""
    made, scheme = _named(given), sampled(given)
    if not hasattr(made, "tune"):
        return made, scheme
    if target is None:
        raise _untargeted(given["strategy"])
    from mmcc._cli.output import progress_bar

    with progress_bar() as progress:
        found: Strategy = made.tune(scheme, *target, progress=progress)
    return found, scheme


def _untargeted(name: str) -> UsageError:
    return UsageError(
        f"{name} is searched for a target, epsilon and delta, which this command does not have. "
        f"Run mmcc sigma --strategy {name} or mmcc recommend, and copy the strategy it prints."
    )


def check_method(method: str) -> None:
    """Refuse an unknown method."""
    if method == VERIFY:
        raise UsageError(
            "--method verify checks a given epsilon at a given delta: use mmcc verify, or mmcc "
            "sigma to find the noise for such a target."
        )
    if method not in CERTIFYING and method not in OLD_NAMES:
        raise UsageError(f"unknown method {method!r}; {suggestion(method, CERTIFYING)}")


def check_bound(method: str, order: str | None) -> None:
    """Refuse an unknown method or order."""
    check_method(method)
    if order is not None and method != MMCC:
        raise UsageError(f"--order applies to --method mmcc only, not to {method}.")
    if order is not None and order not in strategies.ORDERS:
        raise UsageError(f"unknown order {order!r}; {suggestion(order, strategies.ORDERS)}")


def released(given: Given) -> Strategy:
    """The strategy, after checking that every option applies to it."""
    made: Strategy = _named(given)
    if hasattr(made, "tune"):
        raise _untargeted(given["strategy"])
    return made


def _named(given: Given) -> Any:
    """The strategy, or a function that finds one for a target."""
    name: str = given["strategy"]
    by_text = name not in strategies.TYPED and (looks_like_call(name) or is_word(name))
    if not by_text and name not in strategies.TYPED:
        return _from_file(name, given)
    if given["non_adaptive"]:
        raise UsageError(
            f"--non-adaptive applies to a matrix read from a file, not to {name}, "
            "whose rows are in a causal order."
        )
    if by_text:
        return _from_text(name, given)
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


def _from_text(name: str, given: Given) -> Any:
    """A strategy from a word with a size, or from what a strategy prints, which has its steps."""
    typed, called = _typed(given, SHAPES), looks_like_call(name)
    check_options(typed, ["steps"], [] if called else ["steps"], SHAPES, f"--strategy {name}")
    made = from_text(name, typed.get("steps", 0))
    if made.steps != typed.get("steps", made.steps):
        raise UsageError(f"{name} has {made.steps} steps, not {typed['steps']}: leave --steps out.")
    return made


def _from_file(name: str, given: Given) -> Strategy:
    if not names_a_file(name):
        known = suggestion(name, (*strategies.TYPED, *strategies.ALIASES, A_FILE))
        raise UsageError(f"unknown strategy {name!r}; {known}")
    check_options(_typed(given, SHAPES), (), (), SHAPES, f"a strategy read from {name!r}")
    from mmcc.strategies import load

    return load(name, adaptive=not given["non_adaptive"])


def _searched(make: Callable[..., Strategy], values: Given) -> Strategy:
    """An optimised strategy; the search shows its progress."""
    from mmcc._cli.output import progress_bar

    with progress_bar() as progress:
        return make(**values, progress=progress)


def sampled(given: Given) -> Scheme:
    """The scheme, after checking that every option applies to it."""
    name: str = given["sampling"]
    if looks_like_call(name):
        check_options(_typed(given, ROUNDS), (), (), ROUNDS, f"--sampling {name}")
        return from_call(name)
    if name not in SCHEMES:
        raise UsageError(_unknown_sampling(name))
    entry = SCHEMES[name]
    typed = _typed(given, ROUNDS)
    options = {one.option.replace("-", "_"): one for one in entry.arguments}
    needed = [option for option, one in options.items() if one.required]
    check_options(typed, options, needed, ROUNDS, f"--sampling {name}")
    return entry.load()(**{options[option].name: value for option, value in typed.items()})


def _unknown_sampling(name: str) -> str:
    """The message for an unknown scheme, and the advice for words that mean one at a rate."""
    if name.partition(":")[0] in {word.partition(":")[0] for word in COMPARED}:
        return (
            f"{name!r} means a scheme at a rate, as in mmcc compare and mmcc recommend. Here, give "
            "its parameters, such as --sampling cyclic-poisson --separation 8 --prob 0.08, or "
            "what those commands print, such as 'CyclicPoisson(probability=0.08, separation=8)'."
        )
    return f"unknown sampling {name!r}; {suggestion(name, tuple(SCHEMES))}"


def check_options(
    given: Collection[str],
    possible: Collection[str],
    needed: Collection[str],
    every: Iterable[str],
    what: str,
) -> None:
    """Refuse options that do not apply, and ask for missing ones."""
    for name in every:
        option = name.replace("_", "-")
        if name in given and name not in possible:
            raise UsageError(f"--{option} does not apply to {what}; leave it out.")
        if name in needed and name not in given:
            raise UsageError(f"--{option} is needed with {what}.")


def _typed(given: Given, names: Iterable[str]) -> dict[str, Any]:
    """The options that were typed: those left out are None, or False for a flag."""
    left_out = (None, False)
    return {name: given[name] for name in names if not any(given[name] is x for x in left_out)}
