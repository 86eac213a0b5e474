"""The settings of the page: the values of its controls, parsed and checked.

In: the text of the fields.  Out: a frozen `Settings`, which builds the mechanism.
A wrong value raises an error of one sentence that knows its field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from mmcc._cli.parsing import number, whole_number
from mmcc._methods import TIGHT
from mmcc.accounting._best_bound import amplified
from mmcc.accounting._bounds import PLAIN, Problem
from mmcc.accounting._questions import MAX_SIGMA, MIN_DELTA, MIN_SIGMA
from mmcc.errors import MmccError, ParameterError, real, suggestion, whole
from mmcc.sampling import Scheme
from mmcc.sampling._participations import MAX_STEPS
from mmcc.sampling._registry import SCHEMES
from mmcc.strategies._base import Strategy
from mmcc.strategies._registry import BINARY_TREE, ENTRIES

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
STRATEGIES = {entry.name: entry for entry in ENTRIES if entry.label}
"""The choices offered, under the same names as on the command line."""
SIZES = tuple(dict.fromkeys(entry.size for entry in STRATEGIES.values() if entry.size))
ROUNDS = tuple(
    dict.fromkeys(
        one.option
        for entry in SCHEMES.values()
        for one in entry.arguments
        if one.required and one.kind == "whole"
    )
)
FIELDS = ("steps", *SIZES, "prob", *ROUNDS, "sigma", "delta")
"""The fields that are typed."""
LABELS: Mapping[str, str] = {
    **{some.name: some.label for entry in STRATEGIES.values() for some in entry.arguments},
    "prob": "Probability p",
    **{name: name.replace("-", " ").capitalize() for name in ROUNDS},
    "sigma": f"Noise {SIGMA}",
    "delta": "δ",
    "target": "Target ε",
}
DEFAULTS: Mapping[str, str] = {
    "strategy": BINARY_TREE.name,
    "scheme": "poisson",
    "steps": "256",
    "height": "5",
    "bands": "8",
    "buffers": "2",
    "largest-batch": "40",
    "examples": "2000",
    "prob": "1/256",
    "separation": "8",
    "bins": "16",
    "epoch-steps": "16",
    "at-most": "4",
    "sigma": "14",
    "delta": "1e-6",
    "mode": "noise",
    "target": "2",
}
NOISE, ERRORS = "noise", "errors"
MODES = {NOISE: "Hold the noise, see ε", ERRORS: "Hold ε, compare errors"}
LONGEST = 40
"""Characters of a field that are read: no reasonable number is longer."""
MAX_SIZE = 10**6
MAX_TARGET = 100.0
FRACTION = re.compile(r"[1-9][0-9]{0,14}/[1-9][0-9]{0,14}")
"""Numbers that Python and the command line read alike."""


class FieldError(MmccError):
    """A field holds a value that cannot be used."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Settings:
    """One mechanism with its noise and delta.  Hashable, as answers are kept by settings."""

    strategy: str
    steps: int
    size: int | None
    """Height, bands or buffers, if the strategy has one of them."""
    scheme: str
    prob: str | None
    """A plain number or a fraction, written so that Python and the command line read it alike."""
    rounds: tuple[tuple[str, int], ...]
    """Whole numbers of the scheme, such as separation or bins, each with its option."""
    sigma: float
    delta: float

    @property
    def probability(self) -> float:
        """The value of `prob`."""
        return number("prob", self.prob or "")

    @property
    def size_name(self) -> str | None:
        """The name of the strategy's size."""
        return STRATEGIES[self.strategy].size or None

    @property
    def proven(self) -> bool:
        """Whether there is an amplified certificate for the scheme, or nothing to amplify."""
        problem = Problem(self.build_strategy(), self.build_scheme(), 1.0)
        return problem.certain or bool(amplified(problem))

    @property
    def method(self) -> str:
        """The best method available: without amplification where none is proven."""
        return TIGHT if self.proven else PLAIN.name

    def at(self, sigma: float) -> Settings:
        """The same mechanism with another noise level."""
        return replace(self, sigma=sigma)

    def build_strategy(self) -> Strategy:
        """The encoder; the most recent ones are cached."""
        return _strategy(self.strategy, self.steps, self.size)

    def build_scheme(self) -> Scheme:
        """The sampling scheme."""
        entry, rounds = SCHEMES[self.scheme], dict(self.rounds)
        given = {
            one.name: self.probability if one.option == "prob" else rounds[one.option]
            for one in entry.arguments
            if one.required
        }
        return entry.load()(**given)


def scheme_fields(name: str) -> tuple[str, ...]:
    """The fields that must be typed for a scheme."""
    return tuple(one.option for one in SCHEMES[name].arguments if one.required)


def applicable(strategy: object, scheme: object) -> tuple[str, ...]:
    """The fields that apply to a strategy and a scheme, in the order of the page."""
    size = STRATEGIES[_known("strategy", strategy, STRATEGIES)].size
    wanted = {"steps", "sigma", "delta", size}
    wanted.update(scheme_fields(_known("scheme", scheme, SCHEMES)))
    return tuple(name for name in FIELDS if name in wanted)


def read(values: Mapping[str, object]) -> Settings:
    """The settings in the controls; fields that do not apply are ignored."""
    strategy = _known("strategy", values.get("strategy"), STRATEGIES)
    scheme = _known("scheme", values.get("scheme"), SCHEMES)
    found = {name: _field(name, values.get(name)) for name in applicable(strategy, scheme)}
    return Settings(
        strategy=strategy,
        steps=int(found["steps"]),
        size=next((int(found[name]) for name in SIZES if name in found), None),
        scheme=scheme,
        prob=str(found["prob"]) if "prob" in found else None,
        rounds=tuple((name, int(found[name])) for name in scheme_fields(scheme) if name in ROUNDS),
        sigma=float(found["sigma"]),
        delta=float(found["delta"]),
    )


def read_target(values: Mapping[str, object]) -> float:
    """The epsilon at which mechanisms are compared."""
    return float(_field("target", values.get("target")))


def _field(name: str, value: object) -> int | float | str:
    try:
        return _value(name, _text(value))
    except MmccError as wrong:
        raise FieldError(name, str(wrong).replace("--", "")) from None


def _value(name: str, text: str) -> int | float | str:
    if not text:
        raise ParameterError(f"{name} is empty: type a number, such as {DEFAULTS[name]}.")
    if name == "prob":
        chance = real(name, number(name, text), 0, 1, closed="h")
        return text if FRACTION.fullmatch(text) else repr(chance)
    if name == "sigma":
        return real(name, number(name, text), MIN_SIGMA, MAX_SIGMA)
    if name == "target":
        return real(name, number(name, text), 0, MAX_TARGET)
    if name == "delta":
        return real(name, number(name, text), MIN_DELTA, 1)
    return whole(name, whole_number(name, text), 1, MAX_SIZE if name in SIZES else MAX_STEPS)


def _text(value: object) -> str:
    text = "" if value is None else str(value).strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _known(what: str, name: object, known: Mapping[str, object]) -> str:
    if not isinstance(name, str) or name not in known:
        shown = _text(name)
        raise FieldError(what, f"unknown {what} {shown!r}; {suggestion(shown, tuple(known))}")
    return name


@lru_cache(maxsize=32)
def _strategy(name: str, steps: int, size: int | None) -> Strategy:
    sizes = (steps,) if size is None else (steps, size)
    made: Strategy = STRATEGIES[name].make(*sizes)
    return made
