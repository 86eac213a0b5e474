"""Strategies in files: plain matrices, and strategies saved with what made them.

In and out: `.npz` archives without pickled objects.  A saved strategy is the facts that define it
(never what follows from them), a record of its kind and provenance as JSON, and a digest of both, so
that a damaged or edited file is refused.  The digest is no signature: it does not tell who wrote it.
"""

from __future__ import annotations

import hashlib
import json
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mmcc.arrays import FloatArray, read_only
from mmcc.errors import MmccError, StrategyError
from mmcc.strategies.banded import Banded, from_diagonals
from mmcc.strategies.banded_inverse import BandedInverse, from_inverse
from mmcc.strategies.base import MAX_DENSE_BYTES, Strategy
from mmcc.strategies.blt import Blt, BufferedToeplitz, from_buffers
from mmcc.strategies.matrix import Dense, dense
from mmcc.strategies.provenance import Provenance, made_by
from mmcc.strategies.toeplitz import Toeplitz, continual_counting, identity
from mmcc.strategies.tree import Tree, tree_restart

RECORD = "mmcc"
"""The member of an archive that makes it a saved strategy."""
FORMAT = 1

Facts = dict[str, int]
Arrays = dict[str, FloatArray]


def save(strategy: Strategy, path: str | Path) -> None:
    """Write a strategy with its structure and what made it to a `.npz` file."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(f"only a strategy can be saved, got {strategy!r}.")
    path = _path(path)
    if path.suffix.lower() != ".npz":
        raise StrategyError(f"a strategy is saved to a .npz file, not to {path.name!r}.")
    kind, facts, arrays = _described(strategy)
    record = {
        "format": FORMAT,
        "kind": kind,
        "facts": facts,
        "provenance": _provenance_record(strategy, kind, facts),
    }
    record["digest"] = _digest(record, arrays)
    members = {RECORD: np.array(json.dumps(record, sort_keys=True)), **arrays}
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **members)
    except OSError as problem:
        raise StrategyError(f"cannot write {str(path)!r}: {problem.strerror or problem}.") from None


def load(path: str | Path, adaptive: bool = True) -> Strategy:
    """Read a saved strategy, or a matrix from a `.npy`, `.npz` (one array) or `.csv` file."""
    path = _path(path)
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise StrategyError(f"cannot read {path.name!r}: expected a .npy, .npz or .csv file.")
    try:
        if path.stat().st_size > MAX_DENSE_BYTES:
            raise _too_large(path.name)
        with path.open("rb") as file:
            found = reader(file, path.name)
    except MmccError:
        raise
    except OSError as problem:
        raise StrategyError(f"cannot read {str(path)!r}: {problem.strerror or problem}.") from None
    except MALFORMED:
        kind = "a table" if reader is _read_csv else f"a valid {path.suffix.lower()} file"
        raise StrategyError(f"{path.name!r} is not {kind} of numbers.") from None
    if not isinstance(found, Strategy):
        return dense(found, adaptive)
    if adaptive or not found.adaptive:
        return found
    if type(found) is Dense:
        return Dense(found.matrix, False, provenance=found.provenance)
    raise StrategyError(
        f"adaptive=False applies to a matrix, not to {found!r}, whose rows are in a causal order."
    )


# What numpy's readers raise for files that are damaged or not what their name says.
MALFORMED = (
    AttributeError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    UnicodeError,
    ValueError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def _path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise StrategyError(f"a path must be a string or a Path, got {path!r}.")
    return Path(path)


def _too_large(name: str) -> StrategyError:
    return StrategyError(
        f"{name!r} is larger than {MAX_DENSE_BYTES / 2**30:.0f} GiB; "
        "describe the matrix by its structure instead."
    )


# ------------------------------------------------------------------------ strategies and records


def _described(strategy: Strategy) -> tuple[str, Facts, Arrays]:
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
    "tree": (lambda made, steps, height: tree_restart(steps, height), ("steps", "height"), ()),
    "identity": (lambda made, steps: identity(steps), ("steps",), ()),
    "continual_counting": (lambda made, steps: continual_counting(steps), ("steps",), ()),
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
        lambda made, adaptive, matrix: Dense(matrix, bool(adaptive), provenance=made),
        ("adaptive",),
        ("matrix",),
    ),
}
"""How a kind is built again: a function of the provenance, the facts and the arrays named."""


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


def _digest(record: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> str:
    """SHA-256 of the record without its digest and of all numbers."""
    plain = {name: value for name, value in record.items() if name != "digest"}
    state = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], dtype="<f8")
        state.update(f"{name}{array.shape}".encode())
        state.update(array.tobytes())
    return state.hexdigest()


def _rebuilt(text: str, arrays: Arrays, name: str) -> Strategy:
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
        raise refuse(f"format {record['format']!r}, kind {record['kind']!r} is not known")
    if record["digest"] != _digest(record, arrays):
        raise refuse("it was changed after it was saved (its digest does not match)")
    build, names, members = BUILDERS[record["kind"]]
    facts = record["facts"]
    if not isinstance(facts, dict) or set(facts) != set(names) or set(arrays) != set(members):
        raise refuse(f"a {record['kind']} is described by {', '.join((*names, *members))}")
    try:
        made = _provenance(record["provenance"])
        return build(made, **facts, **arrays)
    except MmccError as problem:
        raise refuse(str(problem).rstrip(".")) from None
    except (TypeError, ValueError, IndexError, KeyError):
        raise refuse("its entries do not have the types they need") from None


def _provenance(found: Mapping[str, Any]) -> Provenance | None:
    """What made the strategy; None for one that was given, not made."""
    made = Provenance(
        found["constructor"],
        tuple((key, value) for key, value in found["arguments"]),
        found["objective"],
        found["reached"],
        found["version"],
    )
    return None if found["given"] else made


# -------------------------------------------------------------------------------------- readers


def _read_npy(file: BinaryIO, name: str) -> FloatArray:
    return _numbers(np.lib.format.read_array(file, allow_pickle=False), name)


def _read_npz(file: BinaryIO, name: str) -> FloatArray | Strategy:
    with np.load(file, allow_pickle=False) as archive:
        if sum(member.file_size for member in archive.zip.infolist()) > MAX_DENSE_BYTES:
            raise _too_large(name)
        if RECORD in archive.files:
            record = archive[RECORD]
            if record.dtype.kind != "U" or record.shape != ():
                raise StrategyError(f"{name!r} has an entry {RECORD!r} that is not a record.")
            others = {key: _numbers(archive[key], name) for key in archive.files if key != RECORD}
            return _rebuilt(str(record), others, name)
        if len(archive.files) != 1:
            raise StrategyError(
                f"{name!r} holds {len(archive.files)} arrays; expected exactly one."
            )
        return _numbers(archive[archive.files[0]], name)


def _read_csv(file: BinaryIO, name: str) -> FloatArray:
    lines = [line.strip() for line in file.read().decode("utf-8-sig").splitlines()]
    rows = []
    for line in filter(None, lines):
        if ";" in line and "," in line:
            raise StrategyError(
                f"{name!r} mixes commas and semicolons; write decimal points, and commas between "
                "columns."
            )
        rows.append([float(cell) for cell in line.replace(";", ",").split(",")])
    if len({len(row) for row in rows}) > 1:
        raise StrategyError(
            f"{name!r} is not a table of numbers with the same number of columns in each row."
        )
    return np.array(rows, dtype=np.float64)


def _numbers(array: NDArray[Any], name: str) -> FloatArray:
    if array.dtype.kind not in "fiu":
        raise StrategyError(f"{name!r} holds {array.dtype} values, not real numbers.")
    return read_only(array.astype(np.float64))
