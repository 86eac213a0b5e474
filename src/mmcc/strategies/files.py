"""Strategies in files: plain matrices, and strategies saved with what made them.

In: `.npy`, `.npz` and `.csv` files.  Out: strategies; and `.npz` files, without pickled objects.
"""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mmcc.arrays import FloatArray, read_only
from mmcc.errors import MmccError, StrategyError
from mmcc.strategies.base import MAX_DENSE_BYTES, Strategy
from mmcc.strategies.matrix import Dense, dense
from mmcc.strategies.records import described, rebuilt

RECORD = "mmcc"
"""The member of an archive that makes it a saved strategy."""


def save(strategy: Strategy, path: str | Path) -> None:
    """Write a strategy with its structure and what made it to a `.npz` file."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(f"only a strategy can be saved, got {strategy!r}.")
    path = _path(path)
    if path.suffix.lower() != ".npz":
        raise StrategyError(f"a strategy is saved to a .npz file, not to {path.name!r}.")
    record, arrays = described(strategy)
    members: dict[str, Any] = {RECORD: np.array(record), **arrays}
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, **members)
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
            return rebuilt(str(record), others, name)
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
