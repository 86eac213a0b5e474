"""Strategies as records: the facts that define them, and what made them.

In: a strategy.  Out: JSON text and arrays; and back, through constructors that check everything.
A record holds what defines a strategy, never what follows from it, and a digest of all of it, so
that a damaged or edited one is refused.  The digest is no signature: it does not tell who wrote it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import MmccError, StrategyError, shown, whole
from mmcc.strategies._banded import Banded, from_diagonals
from mmcc.strategies._banded_inverse import BandedInverse, from_inverse
from mmcc.strategies._base import Strategy
from mmcc.strategies._blt import Blt, BufferedToeplitz, from_buffers
from mmcc.strategies._dense import Dense
from mmcc.strategies._provenance import Provenance, made_by
from mmcc.strategies._toeplitz import Toeplitz, continual_counting, identity
from mmcc.strategies._tree import Tree, tree_restart

FORMAT = 1

Facts = dict[str, int]
Arrays = dict[str, FloatArray]


def described(strategy: Strategy) -> tuple[str, Arrays]:
    """The record of a strategy and its arrays."""
    kind, facts, arrays = _facts(strategy)
    record = {
        "format": FORMAT,
        "kind": kind,
        "facts": facts,
        "provenance": _provenance_record(strategy, kind, facts),
    }
    record["digest"] = digest_of(record, arrays)
    return json.dumps(record, sort_keys=True), arrays


def _facts(strategy: Strategy) -> tuple[str, Facts, Arrays]:
    """The kind of a strategy and the facts that define it."""
    if type(strategy) is Tree:
        return "tree", {"steps": strategy.leaves, "height": strategy.levels}, {}
    if type(strategy) in (Blt, BufferedToeplitz) and isinstance(strategy, BufferedToeplitz):
        return "blt", {"steps": strategy.steps}, {"decay": strategy.decay, "scale": strategy.scale}
    if type(strategy) is BandedInverse:
        return "banded_inverse", {"steps": strategy.steps}, {"inverse": strategy.inverse}
    if type(strategy) is Toeplitz:
        if strategy.name in ("identity", "continual_counting"):
            return strategy.name, {"steps": strategy.steps}, {}
        return "toeplitz", {"steps": strategy.steps}, {"coefficients": strategy.coefficients}
    if type(strategy) is Banded:
        return "banded", {}, {"diagonals": strategy.diagonals}
    if type(strategy) is Dense:
        return "dense", {"adaptive": int(strategy.causal)}, {"matrix": strategy.matrix}
    raise StrategyError(
        f"{strategy!r} is of a kind that cannot be saved; save "
        "strategies.dense(strategy.to_dense()) instead."
    )


BUILDERS: Mapping[str, tuple[Callable[..., Strategy], tuple[str, ...], tuple[str, ...]]] = {
    "tree": (lambda _, steps, height: tree_restart(steps, height), ("steps", "height"), ()),
    "identity": (lambda _, steps: identity(steps), ("steps",), ()),
    "continual_counting": (lambda _, steps: continual_counting(steps), ("steps",), ()),
    "toeplitz": (
        lambda made, steps, coefficients: Toeplitz(coefficients, steps, provenance=made),
        ("steps",),
        ("coefficients",),
    ),
    "blt": (
        lambda made, steps, decay, scale: from_buffers(steps, decay, scale, made),
        ("steps",),
        ("decay", "scale"),
    ),
    "banded_inverse": (
        lambda made, steps, inverse: from_inverse(inverse, steps, made),
        ("steps",),
        ("inverse",),
    ),
    "banded": (lambda made, diagonals: from_diagonals(diagonals, made), (), ("diagonals",)),
    "dense": (
        lambda made, adaptive, matrix: Dense(
            matrix, bool(whole("adaptive", adaptive, 0, 1)), provenance=made
        ),
        ("adaptive",),
        ("matrix",),
    ),
}
"""How a kind is built again: a function of the provenance, the facts and the arrays named."""

KINDS = {
    "optimal": "dense",
    "banded_toeplitz": "toeplitz",
    "binary_tree": "tree",
    "tree_restart": "tree",
}
"""What a constructor makes, where its name does not say it."""


def _provenance_record(strategy: Strategy, kind: str, facts: Facts) -> dict[str, Any]:
    made = getattr(strategy, "provenance", None)
    given = made is None
    if made is None:
        plain = {name: value for name, value in facts.items() if name != "adaptive"}
        constructor = {"tree": "tree_restart"}.get(kind, kind)
        made = made_by(constructor, dict(plain), "", None)
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


def rebuilt(text: str, arrays: Arrays, name: str) -> Strategy:
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
    if record["format"] != FORMAT or record["kind"] not in BUILDERS:
        found = f"format {shown(record['format'])}, kind {shown(record['kind'])}"
        raise refuse(f"{found} is not known")
    if record["digest"] != digest_of(record, arrays):
        raise refuse("it was changed after it was saved (its digest does not match)")
    build, names, members = BUILDERS[record["kind"]]
    facts = record["facts"]
    if not isinstance(facts, dict) or set(facts) != set(names) or set(arrays) != set(members):
        raise refuse(f"a {record['kind']} is described by {', '.join((*names, *members))}")
    try:
        made = _provenance(record["provenance"], record["kind"])
        return build(made, **facts, **arrays)
    except MmccError as problem:
        raise refuse(str(problem).rstrip(".")) from None
    except (TypeError, ValueError, IndexError, KeyError):
        raise refuse("its entries do not have the types they need") from None


def _provenance(found: Mapping[str, Any], kind: str) -> Provenance | None:
    """What made the strategy; None for one that was given, not made."""
    made = Provenance(
        found["constructor"],
        tuple((key, value) for key, value in found["arguments"]),
        found["objective"],
        found["reached"],
        found["version"],
    )
    if KINDS.get(made.constructor, made.constructor) != kind:
        raise StrategyError(f"{made.constructor} does not make a strategy of the kind {kind!r}.")
    return None if found["given"] else made
