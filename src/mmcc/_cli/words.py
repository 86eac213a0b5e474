"""Words into a mechanism: the options as typed become a strategy, a scheme and numbers.

In: text.  Out: objects of the library, which check their own ranges.
An option that does not apply is an error: it is never ignored.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmcc.errors import MmccError, suggestion
from mmcc.strategies._registry import LIST, TYPED, WHOLE, Argument, compared_words

if TYPE_CHECKING:
    from mmcc.sampling import Scheme
    from mmcc.strategies._base import Order, Strategy

METHODS = ("tight", "mmcc", "projection", "chain", "cascade", "unamplified")
"""As in `mmcc.accounting._questions`, which takes a second to import."""
ORDERS: tuple[Order, ...] = ("release", "reversed", "heavy")
"""As in `mmcc.strategies`, which needs numpy: help and mistakes in words do not wait for it."""
STRATEGIES = TYPED
SHAPES = ("steps", "height", "bands", "coefficients", "buffers", "decay", "scale", "objective")
"""Options that say what a strategy looks like."""
SCHEMES: Mapping[str, tuple[str, ...]] = {
    "poisson": ("prob",),
    "cyclic-poisson": ("prob", "separation"),
    "min-separation": ("prob", "separation"),
    "balls-in-bins": ("bins",),
    "shuffle": (),
}
ROUNDS = ("prob", "separation", "bins", "epoch_steps")
"""Options that say what a scheme looks like."""
DECODERS = ("honaker", "online")
"""Decoders of a tree that can be audited."""
STREAMS = ("torch", "numpy")
GENERATORS = ("philox", "chacha")
COMPARED_STRATEGIES = compared_words()
"""Words of `mmcc compare`; N is a number of bands, levels or buffers."""
COMPARED_SCHEMES = (
    "poisson",
    "cyclic-poisson",
    "balls-in-bins",
    "fixed-order",
    "shuffle",
    "min-separation:N",
)
FORMATS = ("html", "markdown")
FILES = (".npy", ".npz", ".csv")
A_FILE = f"a {', '.join(FILES)} file"
MAX_COMPARED_STEPS = 4096
NUMBER, INTEGER = "a number such as 0.01, 1e-6 or 1/2048", "a whole number such as 8"


class UsageError(MmccError):
    """Words on the command line that do not make a question."""


@dataclass(frozen=True)
class Options:
    """What was typed: text as it came, None where an option was left out."""

    strategy: str = ""
    sampling: str = ""
    steps: str | None = None
    height: str | None = None
    bands: str | None = None
    coefficients: str | None = None
    buffers: str | None = None
    decay: str | None = None
    scale: str | None = None
    objective: str | None = None
    prob: str | None = None
    separation: str | None = None
    bins: str | None = None
    epoch_steps: str | None = None
    group: str | None = None
    examples: str | None = None
    batch: str | None = None
    zero_one: bool = False
    sigma: str | None = None
    epsilon: str | None = None
    epsilons: str | None = None
    delta: str | None = None
    method: str = "tight"
    order: Order | None = None
    non_adaptive: bool = False
    compare: bool = False
    estimate: bool = False
    samples: str | None = None
    width: str | None = None
    confidence: str | None = None
    seed: str | None = None
    runs: str | None = None
    decoder: str | None = None
    stream: str | None = None
    generator: str | None = None
    claimed: str | None = None
    rate: str | None = None
    strategies: str | None = None
    schemes: str | None = None
    only_wins: bool = False
    estimates: bool = False
    seconds: str | None = None
    checkpoint: str | None = None
    ledger: str | None = None
    title: str | None = None
    unit: str | None = None
    data: str | None = None
    clip_norm: str | None = None
    format: str | None = None
    out: str | None = None
    plot: str | None = None
    as_json: bool = False

    def mechanism(self) -> tuple[Strategy, Scheme]:
        """The strategy and the scheme, once every option is known to apply."""
        self.check_method()
        strategy, scheme = self.released(), self._scheme()
        if self.compare and strategy.steps > MAX_COMPARED_STEPS:
            raise UsageError(
                f"--compare asks four questions at once and is meant for at most "
                f"{MAX_COMPARED_STEPS} steps, not {strategy.steps}; ask for one --method at a time."
            )
        return strategy, scheme

    def numbers(self) -> dict[str, float]:
        """The two of sigma, epsilon and delta that were given."""
        names = ("sigma", "epsilon", "delta")
        given = {name: getattr(self, name) for name in names}
        return {name: number(name, text) for name, text in given.items() if text is not None}

    def simulation(self) -> dict[str, Any]:
        """How to estimate, as far as it was said."""
        given: dict[str, Callable[[str, str], float]] = {
            "samples": whole_number,
            "seed": whole_number,
            "width": number,
            "confidence": number,
        }
        texts = {name: getattr(self, name) for name in given}
        return {name: given[name](name, text) for name, text in texts.items() if text is not None}

    def check_method(self) -> None:
        """Refuse methods and orders that there are not."""
        if self.method not in METHODS:
            raise UsageError(f"unknown method {self.method!r}; {suggestion(self.method, METHODS)}")
        if self.order is not None and self.method != "mmcc":
            raise UsageError(f"--order applies to --method mmcc only, not to {self.method}.")
        if self.order is not None and self.order not in ORDERS:
            raise UsageError(f"unknown order {self.order!r}; {suggestion(self.order, ORDERS)}")
        if self.compare and self.method != "tight":
            raise UsageError(f"--compare applies to --method tight only, not to {self.method}.")

    def released(self) -> Strategy:
        """The strategy, once every option is known to apply to it."""
        name = self.strategy
        if name not in STRATEGIES and not names_a_file(name):
            raise UsageError(
                f"unknown strategy {name!r}; {suggestion(name, (*STRATEGIES, A_FILE))}"
            )
        from mmcc import strategies

        if name not in STRATEGIES:
            self._only((), SHAPES, f"a strategy read from {name!r}")
            return strategies.load(name, adaptive=not self.non_adaptive)
        if self.non_adaptive:
            raise UsageError(
                f"--non-adaptive applies to a matrix read from a file, not to {name}, "
                "whose rows are in a causal order."
            )
        entry = TYPED[name]
        given = [shape for shape in SHAPES if getattr(self, shape) is not None]
        signature = entry.signature(given)
        expected = [some.name for some in signature if some.needed or some.name in given]
        self._only(expected, SHAPES, f"--strategy {name}")
        values = {some.name: self._value(some) for some in signature if some.name in given}
        if not entry.searched:
            made: Strategy = entry.make(**values)
            return made
        return _searched(entry.make, **values)

    def _value(self, argument: Argument) -> Any:
        if argument.kind == WHOLE:
            return self._whole(argument.name)
        if argument.kind == LIST:
            return self._list(argument.name)
        return getattr(self, argument.name)

    def _scheme(self) -> Scheme:
        name = self.sampling
        if name not in SCHEMES:
            raise UsageError(f"unknown sampling {name!r}; {suggestion(name, tuple(SCHEMES))}")
        needed = SCHEMES[name]
        if name == "shuffle" and self.epoch_steps is not None:
            needed = ("epoch_steps",)
        self._only(needed, ROUNDS, f"--sampling {name}")
        from mmcc import sampling

        if name == "balls-in-bins":
            return sampling.BallsInBins(self._whole("bins"))
        if name == "shuffle":
            return sampling.Shuffle(self._whole("epoch_steps") if needed else None)
        probability = number("prob", self.prob or "")
        if name == "poisson":
            return sampling.Poisson(probability)
        kind = sampling.CyclicPoisson if name == "cyclic-poisson" else sampling.MinSeparation
        return kind(probability, self._whole("separation"))

    def _only(self, needed: Sequence[str], possible: Sequence[str], what: str) -> None:
        """Exactly the needed options must have been given."""
        for name in possible:
            given = getattr(self, name) is not None
            if given and name not in needed:
                raise UsageError(f"--{_typed(name)} does not apply to {what}; leave it out.")
            if name in needed and not given:
                raise UsageError(f"--{_typed(name)} is needed with {what}.")

    def _whole(self, name: str) -> int:
        return whole_number(_typed(name), getattr(self, name))

    def _list(self, name: str) -> list[float]:
        return [number(name, part) for part in str(getattr(self, name)).split(",")]


def _searched(constructor: Callable[..., Strategy], **values: Any) -> Strategy:
    """An optimised strategy; its progress is shown."""
    from mmcc._cli.output import progress_bar

    with progress_bar() as progress:
        return constructor(**values, progress=progress)


def number(name: str, text: str, needed: str = NUMBER) -> float:
    """A decimal (0.01, 1e-6) or a fraction (1/2048)."""
    try:
        top, _, bottom = text.partition("/")
        return float(top) / float(bottom) if "/" in text else float(top)
    except ZeroDivisionError:
        raise UsageError(f"--{name} {text} divides by zero.") from None
    except ValueError:
        raise UsageError(f"--{name} needs {needed}, not {_shortened(text)}.") from None


def whole_number(name: str, text: str) -> int:
    """A whole number, which may be written 1e6."""
    try:
        return int(text)
    except ValueError:
        value = number(name, text, INTEGER)
    if not (math.isfinite(value) and value.is_integer()):
        raise UsageError(f"--{name} needs {INTEGER}, not {_shortened(text)}.")
    return int(value)


def _typed(name: str) -> str:
    return name.replace("_", "-")


def names_a_file(name: str) -> bool:
    """Whether a strategy is meant that is kept in a file."""
    return name.lower().endswith(FILES) or os.sep in name or os.path.exists(name)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:36]}...")
