"""Matrix files: `.npy`, `.npz` and `.csv`, plain and saved with what made them.

An input is one line, `npy`, `npz` or `csv` (with `!` behind it for adaptive=False), and the file.
What is accepted is read a second time, by numpy or the csv module, and must be the same matrix; its
sensitivity must not be below that of the dense matrix.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import random
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.canary import PICKLES
from fuzz.drive import Format
from fuzz.mutate import mutated_bytes, mutated_tree
from mmcc import strategies
from mmcc.errors import MmccError
from mmcc.strategies import Strategy

DTYPES = (
    *("<f8", ">f8", "<f4", "<f2", "<f16", "|i1", "<i8", ">u4", "|u1", "|b1", "<c16", "|O", "|S3"),
    *("<U3", "|V8", "|V0", "<U0", "<M8[D]", "<m8[s]", "", "f", "d", "<f3", "x", "|O8", ">U2", "a5"),
    *(
        "<U1000000000",
        [("a", "<f8")],
        [("a", "<f8", (2, 2))],
        ("<f8", (2,)),
        None,
        5,
        ["<f8"],
        "\\d",
    ),
)
SHAPES = (
    *((2, 2), (3, 3), (1, 1), (4,), (), (2, 2, 2), (0, 3), (3, 0), (10**6, 10**6), (10**12,)),
    *((2**62, 2**62), (2**63,), (-1, 2), (-2, -2), (2.0, 2), ("2", 2), [2, 2], None, (True, 2)),
    *((10**30, 1), (1, 10**9), (2**32, 2**32), (10**18, 0), (1,) * 40, (1,) * 100, 4, (20000, 1)),
)
CELLS = (
    *("1", "0", "0.5", "1e-3", "-0", "-1", "nan", "inf", "1e400", "1e-400", "1e101", "1e-101", ""),
    *(" ", "1 ", '"1"', "1/2", "0x1p3", "0x10", "1_0", "\u0661", "1,5", "a", "\0", "1\x0b", "+1"),
    *("=1+1", "1" * 400, "1" + "0" * 5000, "\ufeff1", "1\u2028", "\uff11", "1e", "--1", "infinity"),
)
NAMES = (
    *("arr_0.npy", "mmcc.npy", "matrix.npy", "mmcc", "../../x.npy", "/etc/passwd", "a\\b.npy", ""),
    *("x" * 300, "dir/", "\u00e9.npy", "decay.npy", "scale.npy", "file", "a\nb.npy", "arr_0"),
)

_folder: Path = Path()


@cache
def seeds() -> tuple[tuple[str, dict[str, np.ndarray[Any, Any]]], ...]:
    """Saved strategies of every kind: the text of the record, and the arrays."""
    made: list[Strategy] = [
        strategies.binary_tree(8),
        strategies.identity(8),
        strategies.continual_counting(8),
        strategies.toeplitz([1.0, 0.5, 0.25], 8),
        strategies.blt(8, decay=[0.9], scale=[0.4]),
        strategies.blt(8, decay=[0.9, 0.5], scale=[0.2, 0.1]),
        strategies.banded_inverse(8, 3),
        strategies.banded(6, 2),
        strategies.optimal(4),
        strategies.dense(np.tri(3)),
        strategies.dense(np.tri(3)[::-1], adaptive=False),
    ]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for strategy in made:
            strategies.save(strategy, Path(folder) / "s.npz")
            with np.load(Path(folder) / "s.npz") as archive:
                arrays = {name: archive[name] for name in archive.files}
            found.append((str(arrays.pop("mmcc")), arrays))
    return tuple(found)


def make(rng: random.Random) -> bytes:
    """A file, and what its name ends in."""
    kind, content = rng.choice((_npy, _npy, _npz, _saved, _saved, _csv, _csv))(rng)
    if rng.random() < 0.25:
        content = mutated_bytes(rng, content)
    if rng.random() < 0.03:
        kind = rng.choice(("npy", "npz", "csv"))
    return f"{kind}{'!' * (rng.random() < 0.2)}\n".encode() + content


def _npy(rng: random.Random) -> tuple[str, bytes]:
    return "npy", _array(rng)


def _array(rng: random.Random) -> bytes:
    """An array in numpy's format, its header and its data apart."""
    values = _values(rng)
    descr, shape = values.dtype.str, values.shape
    if rng.random() < 0.4:
        descr = rng.choice(DTYPES)
    if rng.random() < 0.4:
        shape = rng.choice(SHAPES)
    data = values.tobytes()
    if descr in ("|O", "|O8"):
        data = rng.choice(PICKLES)
    order = rng.choice((False, False, True, 1, None))
    header = f"{{'descr': {descr!r}, 'fortran_order': {order!r}, 'shape': {shape!r}, }}"
    if rng.random() < 0.1:
        header = rng.choice(
            (
                header.replace(")", "L)"),
                header * 2,
                "{" * 200,
                "[" * 5000,
                header[:-1],
                "__import__('fuzz.canary').canary.sing()",
                header + " " * 11_000,
                header.replace("'descr'", "'extra': 1, 'descr'"),
                header.replace("2", "10**100"),
                "{'descr': '\\d', 'fortran_order': False, 'shape': (2, 2)}",
            )
        )
    text = (header + "\n").encode("utf-8", "surrogatepass")
    version = rng.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\0\0", b"\xff\xff"))
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(text) & 0xFFFF)
    return b"\x93NUMPY" + version + size + text + data


def _values(rng: random.Random) -> np.ndarray[Any, Any]:
    size = rng.choice((1, 2, 3, 4))
    values = np.tri(size, rng.choice((size, size, 2))) * rng.choice((1.0, 0.5, 1e-90, 1e90, 3.0))
    if rng.random() < 0.3:
        place = tuple(rng.randrange(n) for n in values.shape)
        values[place] = rng.choice((0.0, -1.0, math.nan, math.inf, 1e-320, 1e300, -0.0, 1e-101))
    with np.errstate(all="ignore"):
        return values.astype(rng.choice(("<f8", "<f8", ">f8", "<f4", "<f2", "<f16", "<i8", "|u1")))


def _npz(rng: random.Random) -> tuple[str, bytes]:
    members = [(rng.choice(NAMES), _array(rng)) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
    if rng.random() < 0.002:
        zeros = io.BytesIO()
        np.save(zeros, np.zeros((2000, 2000)))
        members.append(("arr_0.npy", zeros.getvalue()))
    if rng.random() < 0.1:
        members.append((rng.choice(("mmcc.npy", "mmcc", "x.pkl")), rng.choice(PICKLES)))
    return "npz", _archive(rng, members)


def _archive(rng: random.Random, members: list[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            entry = zipfile.ZipInfo(name or "x")
            entry.filename = name
            entry.compress_type = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            archive.filelist.clear() if rng.random() < 0.02 else None
            archive.NameToInfo.pop(name, None)  # a name twice is no warning here
            archive.writestr(entry, content)
    found = buffer.getvalue()
    if rng.random() < 0.1:  # sizes in the directory that are not true
        place = found.rfind(b"PK\x01\x02")
        if place >= 0:
            at = place + rng.choice((10, 20, 24, 42))
            lie = rng.choice((0, 1, 2**20, 2**31, 2**32 - 1))
            found = found[:at] + struct.pack("<I", lie) + found[at + 4 :]
    return found


def _saved(rng: random.Random) -> tuple[str, bytes]:
    """A saved strategy; three times in four its digest is right, whatever it says."""
    text, arrays = rng.choice(seeds())
    record, arrays = json.loads(text), dict(arrays)
    kind = rng.randrange(4)
    if kind <= 1:
        record = mutated_tree(rng, record)
    elif kind == 2 and arrays:
        name = rng.choice(sorted(arrays))
        arrays[rng.choice((name, name, name, "other"))] = _changed(rng, arrays[name])
    if rng.random() < 0.75 and isinstance(record, dict):
        record["digest"] = digest(record, arrays)
    try:
        text = json.dumps(record, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        text = "{}"
    if rng.random() < 0.05:
        text = rng.choice(("[" * 10**4, text.replace(": 8", ": 1e400"), text * 2, "NaN", ""))
    members = {"mmcc": np.array(text), **arrays}
    listed = []
    for name, array in members.items():
        content = io.BytesIO()
        np.save(content, array)
        listed.append((f"{name}.npy", content.getvalue()))
    return "npz", _archive(rng, listed)


def _changed(rng: random.Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = np.array(array, dtype=np.float64)
    kind = rng.randrange(4)
    if kind == 0 and array.size:
        place = rng.randrange(array.size)
        array.flat[place] = rng.choice((0.0, -1.0, 0.999999, 1.0, 2.0, math.nan, math.inf, 1e-320))
        return array
    if kind == 1:
        return array[..., :-1]
    if kind == 2:
        return array.reshape(rng.choice(((-1,), (1, -1), (-1, 1))))
    return array.astype(rng.choice(("<f4", "<i8", ">f8", "<c16", "|b1")))


def digest(record: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    """As saved strategies have it."""
    plain = {name: value for name, value in record.items() if name != "digest"}
    try:
        state = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
        for name in sorted(arrays):
            array = np.ascontiguousarray(arrays[name].real, dtype="<f8")
            state.update(f"{name}{array.shape}".encode() + array.tobytes())
    except (TypeError, ValueError, RecursionError):
        return ""
    return state.hexdigest()


def _csv(rng: random.Random) -> tuple[str, bytes]:
    size = rng.choice((1, 2, 3))
    rows = [["1" if j <= i else "0" for j in range(size)] for i in range(size)]
    for _ in range(rng.choice((0, 1, 1, 2))):
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = rng.choice(CELLS)
        if rng.random() < 0.1:
            row.append(rng.choice(CELLS))
    comma, end = (
        rng.choice((",", ",", ";", "\t", ", ", "|")),
        rng.choice(("\n", "\r\n", "\r", "\n\n")),
    )
    text = end.join(comma.join(row) for row in rows) + rng.choice(("", end))
    if rng.random() < 0.05:
        text = rng.choice(
            ("# comment" + end + text, text + "\x1a", "," * 10**5, text.replace("1", ""))
        )
    coded = text.encode(rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1")), "replace")
    return "csv", coded


def feed(content: bytes) -> bool:
    """Load the file; hold what was loaded to a second reading."""
    first, _, rest = content.partition(b"\n")
    kind = first.rstrip(b"!").decode("ascii", "replace")
    path = _folder / f"m.{kind if kind in ('npy', 'npz', 'csv') else 'txt'}"
    path.write_bytes(rest)
    adaptive = not first.endswith(b"!")
    try:
        found = strategies.load(path, adaptive=adaptive)
    except MmccError as problem:
        said = str(problem)
        assert said
        assert len(said.splitlines()) == 1, said
        assert len(said) < 10_000, f"an error of {len(said)} characters"
        assert "memory" not in said, said
        return False
    assert adaptive or not found.adaptive
    assert len(repr(found).splitlines()) == 1
    if found.rows * found.steps <= 10**4:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the second reading
            _check_matrix(found, _second_reading(path))
    return True


def _check_matrix(found: Strategy, again: np.ndarray[Any, Any] | None) -> None:
    matrix = found.to_dense()
    assert matrix.shape == (found.rows, found.steps)
    assert np.isfinite(matrix).all()
    assert (matrix >= 0).all()
    assert matrix.any(axis=0).all()
    if again is not None:
        assert np.array_equal(matrix, again), "another matrix than the file has"
    least = float(np.linalg.norm(matrix.sum(axis=1)))
    assert found.sensitivity(1) >= least * (1 - 1e-12), "a sensitivity that is too small"


def _second_reading(path: Path) -> np.ndarray[Any, Any] | None:
    """The matrix of a plain file as others read it; None for saved strategies."""
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False).astype(np.float64)
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:  # numpy wants it to begin with the first byte
            names = archive.namelist()
            if {"mmcc", "mmcc.npy"} & {*names}:
                return None
            member = io.BytesIO(archive.read(names[0]))
            return np.load(member, allow_pickle=False).astype(np.float64)
    text = path.read_bytes().decode("utf-8-sig").replace(";", ",").replace("\r", "\n")
    lines = [line for line in text.split("\n") if line.strip()]
    rows = csv.reader(lines, quoting=csv.QUOTE_NONE)
    return np.array([[float(cell.strip()) for cell in row] for row in rows])


@contextmanager
def around() -> Iterator[None]:
    """A folder for the file."""
    global _folder
    with tempfile.TemporaryDirectory() as folder:
        _folder = Path(folder)
        yield


FORMAT = Format("matrices", make, feed, around)
