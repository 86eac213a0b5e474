"""Strategies in files: plain matrices, and strategies saved with their provenance.

In: `.npy`, `.npz` and `.csv` files.  Out: strategies; and `.npz` files, without pickled objects.
"""

from __future__ import annotations

import io
import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mmcc._arrays import FloatArray, read_only
from mmcc.errors import MmccError, StrategyError
from mmcc.strategies._base import MAX_DENSE_BYTES, Strategy
from mmcc.strategies._dense import Dense, dense
from mmcc.strategies._records import describe, rebuild_strategy

RECORD = "mmcc"
"""The member of an archive that makes it a saved strategy."""


def save(strategy: Strategy, path: str | Path) -> None:
    """Write a strategy, with its structure and provenance, to a `.npz` file."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(f"only a strategy can be saved, got {strategy!r}.")
    path = _path(path)
    if path.suffix.lower() != ".npz":
        raise StrategyError(f"a strategy is saved to a .npz file, not to {path.name!r}.")
    record, arrays = describe(strategy)
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
        raise StrategyError(f"cannot read {str(path)!r}: expected a .npy, .npz or .csv file.")
    try:
        if path.stat().st_size > MAX_DENSE_BYTES:
            raise _too_large(path.name)
        with path.open("rb") as file:
            found = reader(file, path.name)
    except MmccError:
        raise
    except OSError as problem:
        raise StrategyError(f"cannot read {str(path)!r}: {problem.strerror or problem}.") from None
    except MemoryError:
        raise StrategyError(f"{path.name!r} does not fit in the available memory.") from None
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


# What numpy's readers raise for damaged files and for files of another kind.
MALFORMED = (
    AttributeError,
    EOFError,
    KeyError,
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
    return _numbers(_read_array(file, _left(file), name), name)


def _read_npz(file: BinaryIO, name: str) -> FloatArray | Strategy:
    with zipfile.ZipFile(file) as archive:
        members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        if sum(entry.file_size for entry in archive.infolist()) > MAX_DENSE_BYTES:
            raise _too_large(name)

        def array(key: str) -> NDArray[Any]:
            with archive.open(members[key]) as member:
                return _read_array(member, members[key].file_size, name)

        if RECORD in members:
            record = array(RECORD)
            if record.dtype.kind != "U" or record.shape != ():
                raise StrategyError(f"{name!r} has an entry {RECORD!r} that is not a record.")
            others = {key: _numbers(array(key), name) for key in members if key != RECORD}
            return rebuild_strategy(str(record), others, name)
        if len(archive.infolist()) != 1:
            raise StrategyError(
                f"{name!r} holds {len(archive.infolist())} arrays; expected exactly one."
            )
        return _numbers(array(*members), name)


def _read_array(file: IO[bytes], size: int, name: str) -> NDArray[Any]:
    """An array in numpy's format, from a file of `size` bytes.

    Never allocates more than the file holds, and never loads a pickled object.
    """
    with _quiet():
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise ValueError(f"version {version}")
        length, read_header = HEADERS[version]
        start = file.tell()
        if int.from_bytes(file.read(length), "little") > size:
            raise ValueError("the header is longer than the file")
        file.seek(start)
        shape, fortran, kind = read_header(file)
    if kind.hasobject:
        raise StrategyError(f"{name!r} holds pickled objects, not real numbers.")
    held = size - file.tell()
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * kind.itemsize > held:
        raise StrategyError(
            f"{name!r} declares an array of shape {shape} but holds only {held} bytes: it is "
            "cut off or damaged."
        )
    if count * np.dtype(np.float64).itemsize > MAX_DENSE_BYTES:
        raise _too_large(name)
    found = np.frombuffer(file.read(count * kind.itemsize), kind, count)
    return found.reshape(shape, order="F" if fortran else "C")


HEADERS = {
    (1, 0): (2, np.lib.format.read_array_header_1_0),
    (2, 0): (4, np.lib.format.read_array_header_2_0),
}
"""By version: bytes of the header's length, and its reader.  3.0 only adds field names."""


def _left(file: BinaryIO) -> int:
    """The number of bytes left in a file."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings meant for the author of a file rather than its reader."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _read_csv(file: BinaryIO, name: str) -> FloatArray:
    rows: list[FloatArray] = []
    with io.TextIOWrapper(file, "utf-8-sig") as text:
        for line in filter(None, map(str.strip, text)):
            if ";" in line and "," in line:
                raise StrategyError(
                    f"{name!r} mixes commas and semicolons; write decimal points, and commas "
                    "between columns."
                )
            cells = line.replace(";", ",").split(",")
            rows.append(np.array([float(cell) for cell in cells]))
            if rows[-1].size != rows[0].size:
                raise StrategyError(
                    f"{name!r} is not a table of numbers with the same number of columns in each "
                    "row."
                )
            if len(rows) * rows[0].nbytes > MAX_DENSE_BYTES:
                raise _too_large(name)
    return np.array(rows, dtype=np.float64)


def _numbers(array: NDArray[Any], name: str) -> FloatArray:
    if array.dtype.kind not in "fiu":
        raise StrategyError(f"{name!r} holds {array.dtype} values, not real numbers.")
    # Infinities and invalid values of wider types are refused later, as what they are.
    with np.errstate(over="ignore", invalid="ignore"):
        return read_only(array.astype(np.float64))
