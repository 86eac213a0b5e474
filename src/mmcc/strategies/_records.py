"""Strategies as records: the facts that define them, and their provenance.

In: a strategy.  Out: JSON text and arrays; and back, through constructors that check everything.  A
record holds what defines a strategy, never what follows from it, and a digest of all of it, so that
a damaged or edited record is refused.  The digest is not a signature: it does not show who wrote
the record.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import MmccError, StrategyError, shown
from mmcc.strategies._base import Strategy
from mmcc.strategies._descriptions import Record
from mmcc.strategies._provenance import Provenance, made_by
from mmcc.strategies._registry import CONSTRUCTORS, KINDS, import_function

FORMAT = 1


def describe(strategy: Strategy) -> tuple[str, Mapping[str, FloatArray]]:
    """The record of a strategy as text, and its arrays."""
    # Each class vouches for its own record only: a subclass may hold more.
    found = strategy.record() if "record" in vars(type(strategy)) else None
    if found is None:
        raise StrategyError(
            f"{strategy!r} is a kind of strategy that cannot be saved; save "
            "strategies.dense(strategy.to_dense()) instead."
        )
    record = {
        "format": FORMAT,
        "kind": found.kind,
        "facts": found.facts,
        "provenance": _provenance_record(strategy.provenance, found),
    }
    record["digest"] = digest_of(record, found.arrays)
    return json.dumps(record, sort_keys=True), found.arrays


def _provenance_record(made: Provenance | None, found: Record) -> dict[str, Any]:
    given = made is None
    if made is None:
        plain = {name: value for name, value in found.facts.items() if name != "adaptive"}
        # The constructor of that name, or else the last one of this kind, with most arguments.
        makers = [name for name, entry in CONSTRUCTORS.items() if entry.kind == found.kind]
        made = made_by(found.kind if found.kind in makers else makers[-1], plain, "", None)
    return {
        "constructor": made.constructor,
        "arguments": [list(pair) for pair in made.arguments],
        "objective": made.objective,
        "reached": made.reached,
        "version": made.version,
        "given": given,
    }


def digest_of(record: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> str:
    """SHA-256 of the record without its digest and of all numbers."""
    plain = {name: value for name, value in record.items() if name != "digest"}
    state = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], dtype="<f8")
        state.update(f"{name}{array.shape}".encode())
        state.update(array.tobytes())
    return state.hexdigest()


def rebuild_strategy(text: str, arrays: Mapping[str, FloatArray], name: str) -> Strategy:
    """The strategy that a record describes."""

    def refuse(why: str) -> StrategyError:
        return StrategyError(
            f"{name!r} is not a strategy as saved by mmcc: {why}. Save it again with "
            "strategies.save."
        )

    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise refuse("its record is not valid JSON") from None
    expected = {"format", "kind", "facts", "provenance", "digest"}
    if not isinstance(record, dict) or set(record) != expected:
        raise refuse("its record does not have the entries it needs")
    if record["format"] != FORMAT or record["kind"] not in KINDS:
        found = f"format {shown(record['format'])}, kind {shown(record['kind'])}"
        raise refuse(f"{found} is not known")
    if record["digest"] != digest_of(record, arrays):
        raise refuse("it was changed after it was saved (its digest does not match)")
    build: Callable[..., Strategy] = import_function(KINDS[record["kind"]])
    _, *names = inspect.signature(build).parameters
    facts = record["facts"]
    if not isinstance(facts, dict) or sorted([*facts, *arrays]) != sorted(names):
        raise refuse(f"a {record['kind']} is describe by {', '.join(names)}")
    try:
        made = _provenance(record["provenance"], record["kind"])
        return build(made, **facts, **arrays)
    except MmccError as problem:
        raise refuse(str(problem).rstrip(".")) from None
    except (AttributeError, TypeError, ValueError, IndexError, KeyError):
        raise refuse("its entries do not have the types they need") from None


def _provenance(found: Mapping[str, Any], kind: str) -> Provenance | None:
    """How the strategy was made; None if it was given, not made."""
    made = Provenance(
        found["constructor"],
        tuple((key, value) for key, value in found["arguments"]),
        found["objective"],
        found["reached"],
        found["version"],
    )
    if CONSTRUCTORS[made.constructor].kind != kind:
        raise StrategyError(f"{made.constructor} does not make a strategy of the kind {kind!r}.")
    return None if found["given"] else made


def strategy_digest(strategy: Strategy) -> str:
    """SHA-256 of the numbers that define C; the same for equal encoders of the same kind."""
    digest = hashlib.sha256()
    for part in strategy.defining():
        if isinstance(part, np.ndarray):
            digest.update(f"{part.shape};".encode())
            digest.update(np.ascontiguousarray(part, dtype="<f8").data)
        else:
            digest.update(f"{part};".encode())
    return digest.hexdigest()
