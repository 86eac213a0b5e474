"""The registry of strategies: each one's names, arguments, constructor and line of help.

In: nothing.  Out: entries that the command line, `compare`, the explorer, reports, saved files and
spelling suggestions read.  A constructor is named as text and imported when it is called, so help
and completion do not wait for numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from mmcc.errors import StrategyError, shown, suggestion

Order = Literal["release", "reversed", "heavy"]
ORDERS: tuple[Order, ...] = ("release", "reversed", "heavy")
"""Orders in which the rows of a strategy can be analysed."""
WHOLE, NUMBER, LIST = "whole number", "number", "list of numbers"
WORD, MATRIX = "word", "matrix"
"""Kinds of values that arguments take."""
OBJECTIVES = ("mean", "max")
"""Which error of the prefix sums an optimised strategy can minimise."""
MOST_DIGITS = 18
"""Most digits of a size after a colon."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a constructor, which is an option of the command line."""

    name: str
    kind: str
    help: str
    needed: bool = True
    choices: tuple[str, ...] = ()
    label: str = ""
    """Its label in the explorer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A strategy constructor: `name` is what users type, `constructor` is `module:function`."""

    name: str
    constructor: str
    help: str
    signatures: tuple[tuple[Argument, ...], ...]
    """The ways to call it; most constructors have one."""
    kind: str = ""
    """The kind of record it is saved as; empty if it cannot be saved."""
    typed: bool = True
    """Whether `--strategy` accepts it."""
    searched: bool = False
    """Whether it searches for a while and reports its state through `progress`."""
    plain: bool = False
    """Whether `mmcc compare` accepts it without a size."""
    sized: str = ""
    """The function of (steps, N) that `name:N` calls in `mmcc compare`."""
    size: str = ""
    """The argument that the explorer uses as its size."""
    label: str = ""
    """Its label in the explorer; empty if it is not offered there."""

    @property
    def python(self) -> str:
        """The name of the function in Python."""
        return self.name.replace("-", "_")

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """All arguments of all signatures."""
        every = (argument for way in self.signatures for argument in way)
        return tuple({argument.name: argument for argument in every}.values())

    def signature(self, given: Iterable[str]) -> tuple[Argument, ...]:
        """The signature that the given arguments mean: the first that accepts them all.

        If none does, the one that accepts most, so that errors can name what is missing or extra.
        """
        names = set(given)
        known = [names & {argument.name for argument in way} for way in self.signatures]
        most = max(len(some) for some in known)
        places = [place for place, some in enumerate(known) if len(some) == most]
        return self.signatures[places[0] if most == len(names) else places[-1]]

    def make(self, *values: Any, **named: Any) -> Any:
        """Call the constructor."""
        return import_function(self.constructor)(*values, **named)

    def make_sized(self, steps: int, size: int) -> Any:
        """The strategy that `name:size` stands for."""
        return import_function(self.sized)(steps, size)


def import_function(place: str) -> Callable[..., Any]:
    """The function that `module:name` names."""
    module, _, name = place.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


STEPS = Argument("steps", WHOLE, "training steps: columns of the strategy", label="Steps n")
BANDS = Argument("bands", WHOLE, "bands of C", label="Bands")
INVERSE_BANDS = Argument("bands", WHOLE, "bands of C^-1", label="Bands")
POWER = Argument("power", NUMBER, "C^-1 is this power of 1 - x, truncated; 1/2 if left out", False)
CANCEL = Argument("cancel", NUMBER, "fraction of the last step's fresh noise to subtract")
HEIGHT = Argument("height", WHOLE, "levels of each tree", label="Height of each tree")
COEFFICIENTS = Argument("coefficients", LIST, "the first column, such as 1,0.5,0.25")
BUFFERS = Argument("buffers", WHOLE, "buffers, optimised for prefix sums", False, label="Buffers")
OBJECTIVE = Argument(
    "objective", WORD, "the error to reduce, mean (default) or max", False, OBJECTIVES
)
DECAY = Argument("decay", LIST, "decay of each buffer, such as 0.9,0.5, instead of optimising")
SCALE = Argument("scale", LIST, "scale of each buffer, such as 0.2,0.1; with --decay")

IDENTITY = Entry(
    "identity",
    "mmcc.strategies._toeplitz:identity",
    "Independent noise: DP-SGD.",
    ((STEPS,),),
    kind="identity",
    plain=True,
    label="Identity (DP-SGD)",
)
BINARY_TREE = Entry(
    "binary-tree",
    "mmcc.strategies._tree:binary_tree",
    "The sums of the nodes of a binary tree over the steps.",
    ((STEPS,),),
    kind="tree",
    plain=True,
    label="Binary tree",
)
TREE_RESTART = Entry(
    "tree-restart",
    "mmcc.strategies._tree:tree_restart",
    "DP-FTRL-TreeRestart: one tree after another.",
    ((STEPS, HEIGHT),),
    kind="tree",
    sized="mmcc.strategies._tree:tree_restart",
    size=HEIGHT.name,
    label="Restarted tree",
)
CONTINUAL_COUNTING = Entry(
    "continual-counting",
    "mmcc.strategies._toeplitz:continual_counting",
    "The square root of the prefix sums.",
    ((STEPS,),),
    kind="continual_counting",
    plain=True,
    sized="mmcc.strategies._toeplitz:first_bands",
    label="Continual counting",
)
TOEPLITZ = Entry(
    "toeplitz",
    "mmcc.strategies._toeplitz:toeplitz",
    "Lower triangular Toeplitz, given by its first column.",
    ((STEPS, COEFFICIENTS),),
    kind="toeplitz",
)
OPTIMAL = Entry(
    "optimal",
    "mmcc.strategies._optimal:optimal",
    "The least mean squared error of prefix sums at one participation.",
    ((STEPS,),),
    kind="dense",
    searched=True,
    plain=True,
)
BANDED = Entry(
    "banded",
    "mmcc.strategies._banded:banded",
    "The best encoder with this many bands.",
    ((STEPS, BANDS),),
    kind="banded",
    searched=True,
    sized="mmcc.strategies._banded:banded",
)
BANDED_TOEPLITZ = Entry(
    "banded-toeplitz",
    "mmcc.strategies._banded_toeplitz:banded_toeplitz",
    "The best Toeplitz encoder with this many bands.",
    ((STEPS, BANDS),),
    kind="toeplitz",
    searched=True,
    sized="mmcc.strategies._banded_toeplitz:banded_toeplitz",
    size=BANDS.name,
    label="Banded Toeplitz",
)
BANDED_INVERSE = Entry(
    "banded-inverse",
    "mmcc.strategies._banded_inverse:banded_inverse",
    "The banded inverse square root of the prefix sums (BISR), or another root.",
    ((STEPS, INVERSE_BANDS, POWER),),
    kind="banded_inverse",
    sized="mmcc.strategies._banded_inverse:banded_inverse",
)
LAMBDA_CGD = Entry(
    "lambda-cgd",
    "mmcc.strategies._banded_inverse:lambda_cgd",
    "Each step subtracts a fraction of the last step's fresh noise (DP-lambda-CGD).",
    ((STEPS, CANCEL),),
    kind="banded_inverse",
)
SQUARE_ROOT = Entry(
    "square-root",
    "mmcc.strategies._square_root:square_root",
    "The square root of a workload.",
    ((Argument("workload", MATRIX, "the workload"),),),
    kind="toeplitz",
    typed=False,
)
BLT = Entry(
    "blt",
    "mmcc.strategies._blt:blt",
    "Buffered linear Toeplitz: optimised, or given by decay and scale.",
    ((STEPS, BUFFERS, OBJECTIVE), (STEPS, DECAY, SCALE, BUFFERS)),
    kind="blt",
    searched=True,
    plain=True,
    sized="mmcc.strategies._blt:blt",
    size=BUFFERS.name,
    label="Buffered (BLT)",
)
TUNED_BLT = Entry(
    "tuned-blt",
    "mmcc.design._tuned_blt:TunedBlt",
    "A BLT of one buffer, searched for each scheme and target.",
    ((STEPS,),),
    typed=False,
    plain=True,
)
DENSE = Entry(
    "dense",
    "mmcc.strategies._dense:dense",
    "An array, released row by row.",
    ((Argument("array", MATRIX, "the encoder"),),),
    kind="dense",
    typed=False,
)

ENTRIES = (
    IDENTITY,
    BINARY_TREE,
    TREE_RESTART,
    CONTINUAL_COUNTING,
    TOEPLITZ,
    OPTIMAL,
    BANDED,
    BANDED_TOEPLITZ,
    LAMBDA_CGD,
    BANDED_INVERSE,
    BLT,
    SQUARE_ROOT,
    TUNED_BLT,
    DENSE,
)
TYPED = {entry.name: entry for entry in ENTRIES if entry.typed}
"""The names that `--strategy` accepts."""
CONSTRUCTORS = {entry.python: entry for entry in ENTRIES if entry.kind}
"""The functions of `mmcc.strategies` that a saved strategy may name as its constructor."""
KINDS = {
    "tree": "mmcc.strategies._tree:rebuild",
    "identity": "mmcc.strategies._toeplitz:rebuild_identity",
    "continual_counting": "mmcc.strategies._toeplitz:rebuild_continual_counting",
    "toeplitz": "mmcc.strategies._toeplitz:rebuild",
    "blt": "mmcc.strategies._blt:rebuild",
    "banded_inverse": "mmcc.strategies._banded_inverse:rebuild",
    "banded": "mmcc.strategies._banded:rebuild",
    "dense": "mmcc.strategies._dense:rebuild",
}
"""By kind, the function that rebuilds a saved strategy from its provenance and its record."""


def arguments() -> dict[str, str]:
    """Every argument that can be typed, with its help: "banded: bands of C; ...: of C^-1"."""
    told: dict[str, dict[str, list[str]]] = {}
    for entry in TYPED.values():
        for argument in entry.arguments:
            told.setdefault(argument.name, {}).setdefault(argument.help, []).append(entry.name)
    return {name: _sentence(helps) for name, helps in told.items()}


def _sentence(helps: dict[str, list[str]]) -> str:
    if any(len(names) == len(TYPED) for names in helps.values()):
        return f"{next(iter(helps)).capitalize()}."
    return "; ".join(f"{', '.join(names)}: {help}" for help, names in helps.items()) + "."


ALIASES = {"dp-sgd": IDENTITY}
"""Other names for strategies, in lower case."""


def compared_words() -> tuple[str, ...]:
    """The words that `mmcc compare` accepts; N is a number of bands, levels or buffers."""

    def words() -> Iterator[str]:
        yield from (entry.name for entry in ENTRIES if entry.plain)
        yield from ALIASES
        yield from (f"{entry.name}:N" for entry in ENTRIES if entry.sized)

    return tuple(words())


def from_word(word: str, steps: int) -> Any:
    """The strategy that a word of `mmcc compare` stands for, such as `banded:8`."""
    name, colon, size = word.partition(":")
    compared = {entry.name: entry for entry in ENTRIES if entry.plain or entry.sized}
    entry = compared.get(name) or ALIASES.get(name.lower())
    if entry is None:
        raise StrategyError(f"unknown strategy {word!r}; {suggestion(word, compared_words())}")
    if not colon:
        if not entry.plain:
            raise StrategyError(f"{word!r}: {name} needs a size, such as {name}:8.")
        return entry.make(steps)
    if not entry.sized:
        raise StrategyError(f"{word!r}: {name} takes no size.")
    if not (size.isascii() and size.isdigit() and len(size) <= MOST_DIGITS):
        raise StrategyError(
            f"{shown(word)} needs a whole number after the colon, not {shown(size)}."
        )
    return entry.make_sized(steps, int(size))
