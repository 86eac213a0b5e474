"""The lines of a ledger: the content of each kind of entry, as objects and as JSON.

In: fields as Python values, or one line of the file.  Out: frozen entries, or one line.
Rounding: none; floats are written so that they are read back to the last bit.

A line is one object with sorted keys.  `check` is a hash of the line and of the `check` before it,
so a line that was changed, moved, repeated or removed from between two others is detected.  It
protects against accidents: anyone who can write the file can also make new checks.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from mmcc.accounting._guarantee import CERTIFIED, VERIFIED, Guarantee
from mmcc.errors import MmccError, real, shown, suggestion, whole

VERSION = 1
FIRST = ""
"""Takes the place of the `check` before the first line."""
MOST_STEPS = 10**12
MOST_EXACT = 2**53
"""Up to here every whole number is exactly a float."""
MOST_EPSILON = 1e100
MOST_SIGMA = 1e300
NAMES = ("method", "bound", "strategy", "sampling", "adjacency", "setting")
"""The field with what a guarantee assumed, in words."""
NUMBERS = ("epsilon", "delta", "sigma")
GROUP = "group_size"
"""The field for a group of more than one example, which older files do not have."""
KIND, FAILURE = "kind", "failure"
"""The field for a guarantee that is verified, not certified, which older files do not have."""
FREE = ("setting",)
"""Text that may be empty."""

Fingerprint = str | dict[str, str]
"""What identifies a mechanism: text, or names with text."""


class LedgerError(MmccError):
    """A ledger that cannot be read, or an entry that does not fit its content."""


@dataclass(frozen=True, slots=True)
class DeltaDot:
    """Certified: `remove` and `add` are at least the deltas of the two adjacencies at `epsilon`."""

    epsilon: float
    remove: float
    add: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon, 0, 1e6, closed="l"))
        for name in ("remove", "add"):
            object.__setattr__(self, name, real(name, getattr(self, name), 0, 1, closed="lh"))


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of a plan: the mechanism, its guarantee, and points of its delta curve."""

    mechanism: str
    fingerprint: Fingerprint
    guarantee: Guarantee
    curve: tuple[DeltaDot, ...] = ()
    """Points of the delta curve; empty if only the guarantee is known."""

    def __post_init__(self) -> None:
        text("mechanism", self.mechanism)
        object.__setattr__(self, "fingerprint", fingerprinted(self.fingerprint))
        object.__setattr__(self, "guarantee", certified(self.guarantee))
        if not all(isinstance(dot, DeltaDot) for dot in self.curve):
            raise LedgerError("the curve of a planned run must consist of dots.")


@dataclass(frozen=True, slots=True)
class DeclaredPlan:
    """All that will be run on a data set, declared before the first run."""

    data: str
    runs: tuple[Planned, ...]

    def __post_init__(self) -> None:
        text("data", self.data)
        if not self.runs or not all(isinstance(run, Planned) for run in self.runs):
            raise LedgerError(
                "a plan needs at least one run, each a Planned (see mmcc.ledger.planned)."
            )


@dataclass(frozen=True, slots=True)
class Begin:
    """A run is about to make its first step."""

    run: str
    data: str
    mechanism: str
    steps: int
    fingerprint: Fingerprint
    guarantee: Guarantee

    def __post_init__(self) -> None:
        for name in ("run", "data", "mechanism"):
            text(name, getattr(self, name))
        object.__setattr__(self, "steps", whole("steps", self.steps, 1, MOST_STEPS))
        object.__setattr__(self, "fingerprint", fingerprinted(self.fingerprint))
        object.__setattr__(self, "guarantee", certified(self.guarantee))


@dataclass(frozen=True, slots=True)
class Resume:
    """A run continues from a checkpoint, with the noise that it would have had."""

    run: str
    fingerprint: Fingerprint

    def __post_init__(self) -> None:
        text("run", self.run)
        object.__setattr__(self, "fingerprint", fingerprinted(self.fingerprint))


@dataclass(frozen=True, slots=True)
class End:
    """A run made `position` steps and will make no more."""

    run: str
    position: int

    def __post_init__(self) -> None:
        text("run", self.run)
        object.__setattr__(self, "position", whole("position", self.position, 0, MOST_STEPS))


Entry = DeclaredPlan | Begin | Resume | End
KINDS: Mapping[str, type[Entry]] = {
    "plan": DeclaredPlan,
    "begin": Begin,
    "resume": Resume,
    "end": End,
}


def certified(guarantee: object) -> Guarantee:
    """The guarantee with the parts that a ledger keeps; an estimate is an error, as it is no proof.

    A verified guarantee stays verified: its chance of error is part of its delta.
    """
    if not isinstance(guarantee, Guarantee):
        raise LedgerError(
            f"a ledger adds up guarantees, but {type(guarantee).__name__} is not one. "
            "Use mmcc.epsilon, mmcc.delta or mmcc.sigma, or mmcc.verify."
        )
    if not isinstance(guarantee.adaptive, bool):
        raise LedgerError(f"adaptive must be true or false, got {shown(guarantee.adaptive)}.")
    kept: dict[str, Any] = {
        "epsilon": real("epsilon", guarantee.epsilon, 0, MOST_EPSILON, closed="l"),
        "delta": real("delta", guarantee.delta, 0, 1, closed="lh"),
        "sigma": real("sigma", guarantee.sigma, 0, MOST_SIGMA),
        "adaptive": guarantee.adaptive,
        GROUP: whole(GROUP, guarantee.group_size, 1, MOST_EXACT),
    }
    kept |= {name: text(name, getattr(guarantee, name), name in FREE) for name in NAMES}
    if guarantee.kind != CERTIFIED:
        kept[KIND] = text(KIND, guarantee.kind)
        kept[FAILURE] = real(FAILURE, guarantee.failure, 0, kept["delta"])
    return Guarantee(**kept)


def fingerprinted(value: object) -> Fingerprint:
    """A fingerprint, copied: text, or names with text."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, Mapping) and value:
        pairs = dict(value)
        if all(isinstance(part, str) for pair in pairs.items() for part in pair):
            return pairs
    raise LedgerError(f"a fingerprint must be text, or names with text, got {shown(value)}.")


def text(name: str, value: object, empty: bool = False) -> str:
    """Text that a person can read on one line; anything else is an error."""
    if not isinstance(value, str) or not (value or empty):
        raise LedgerError(f"{name} must be text, got {shown(value)}.")
    if not value.isprintable():  # nor is half of a surrogate pair, which no encoding has
        raise LedgerError(
            f"{name} must be text on one line, without control characters, got {shown(value)}."
        )
    return value


def sealed(body: Mapping[str, Any], previous: str) -> str:
    """An object as a line, with its `check`; `previous` is the `check` of the line before."""
    return _dumped({**body, "check": _check(body, previous)})


def to_body(entry: Entry, time: str) -> dict[str, Any]:
    """An entry as an object for JSON, without its check."""
    kind = next(name for name, known in KINDS.items() if isinstance(entry, known))
    return {"version": VERSION, "kind": kind, "time": time, **plain(entry)}


def from_line(line: bytes, previous: str) -> tuple[Entry, str]:
    """The entry of a line and its check; an error says what is wrong with the line."""
    body = _object(line)
    version, kind = body.get("version"), body.get("kind")
    if type(version) is not int or version != VERSION:  # 1.0 and True are equal to 1
        raise LedgerError(
            f"it has version {shown(version)}, and this program knows version {VERSION}"
        )
    if not isinstance(kind, str) or kind not in KINDS:
        known = suggestion(kind, tuple(KINDS))
        raise LedgerError(f"it is of the unknown kind {shown(kind)}; {known}")
    expected = {"version", "kind", "time", "check", *(f.name for f in fields(KINDS[kind]))}
    _only(body, expected)
    check = text("check", body.pop("check"))
    if _dumped({**body, "check": check}).encode() != line or check != _check(body, previous):
        raise LedgerError(
            "it is not what was written here: its check fits neither it nor the line before it, so "
            "one of them was changed, moved or removed"
        )
    text("time", body["time"])
    given = {f.name: body[f.name] for f in fields(KINDS[kind])}
    return _READERS.get(kind, KINDS[kind])(**given), check


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(
            line.decode("ascii"), parse_float=_finite, parse_int=_exact, parse_constant=_finite
        )
    except (ValueError, RecursionError) as problem:
        raise LedgerError(f"it cannot be read: {problem}") from None
    if not isinstance(found, dict):
        raise LedgerError("it is not a JSON object")
    return found


def _finite(digits: str) -> float:
    """A float; NaN, Infinity and numbers that overflow, such as 1e999, are refused."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is not a finite number")
    return value


def _exact(digits: str) -> int:
    """A whole number that is exactly a float, so that sums are of exactly what was written."""
    value = int(digits)
    if abs(value) > MOST_EXACT:
        raise ValueError(f"{shown(value)} has too many digits")
    return value


def _only(body: object, expected: set[str]) -> Mapping[str, Any]:
    """An object with exactly these fields."""
    if not isinstance(body, dict):
        raise LedgerError(f"it has {shown(body)} where an object belongs")
    for name in sorted(expected - set(body)):
        raise LedgerError(f"it lacks {name!r}")
    for name in sorted(set(body) - expected):
        raise LedgerError(f"it has an unknown field {shown(name)}")
    return body


def _read_guarantee(body: object) -> Guarantee:
    grouped = isinstance(body, dict) and GROUP in body
    verified = isinstance(body, dict) and KIND in body
    more = {*([GROUP] if grouped else []), *([KIND, FAILURE] if verified else [])}
    given = _only(body, {*NUMBERS, *NAMES, "adaptive", *more})
    if verified and given[KIND] != VERIFIED:
        raise LedgerError(f"it has a guarantee of the unknown kind {shown(given[KIND])}")
    if verified:
        real(FAILURE, given[FAILURE], 0, 1)
    return certified(Guarantee(**given))


def _read_begin(*, guarantee: object, **given: Any) -> Begin:
    return Begin(guarantee=_read_guarantee(guarantee), **given)


def _read_plan(*, data: str, runs: object) -> DeclaredPlan:
    return DeclaredPlan(data, tuple(_read_planned(run) for run in _list(runs)))


def _read_planned(body: object) -> Planned:
    given = _only(body, {f.name for f in fields(Planned)})
    return Planned(
        given["mechanism"],
        given["fingerprint"],
        _read_guarantee(given["guarantee"]),
        tuple(_read_dot(dot) for dot in _list(given["curve"])),
    )


def _read_dot(value: object) -> DeltaDot:
    numbers: Sequence[Any] = _list(value)
    if len(numbers) != len(fields(DeltaDot)):
        raise LedgerError(f"it has {shown(value)} where epsilon and two deltas belong")
    return DeltaDot(*numbers)


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise LedgerError(f"it has {shown(value)} where a list belongs")
    return value


_READERS: Mapping[str, Callable[..., Entry]] = {"begin": _read_begin, "plan": _read_plan}


def plain(value: Any) -> Any:
    """Entries and their parts as objects, lists, text and numbers."""
    if isinstance(value, Guarantee):
        more: dict[str, Any] = {GROUP: value.group_size} if value.group_size > 1 else {}
        if value.kind != CERTIFIED:
            more |= {KIND: value.kind, FAILURE: value.failure}
        return {name: getattr(value, name) for name in (*NUMBERS, *NAMES, "adaptive")} | more
    if isinstance(value, DeltaDot):
        return [value.epsilon, value.remove, value.add]
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, DeclaredPlan | Planned | Begin | Resume | End):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return value


def _check(body: Mapping[str, Any], previous: str) -> str:
    return hashlib.sha256(f"{previous}\n{_dumped(body)}".encode()).hexdigest()[:32]


def _dumped(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, allow_nan=False, ensure_ascii=True)
