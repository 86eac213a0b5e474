"""The sharded part of a checkpoint: tensors of which every process writes and reads its own part.

In: the entries of a checkpoint, some of them DTensors.  Out: the same entries with names in place
of the DTensors, and a folder written by `torch.distributed.checkpoint`; on loading, the entries
with tensors sharded over the present processes, however many there are.
The folder is beside the file.  The file is written last and has the folder's name and digest: a
process that is killed leaves either the old file with the old folder, or the new ones.  The
folder's index is a pickle, of which only names, sizes and offsets are read; no code from it is run.
"""

from __future__ import annotations

import hashlib
import math
import pickle
import secrets
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import metadata as index
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.state_dict_loader import load as read
from torch.distributed.checkpoint.state_dict_saver import save as write

from mmcc.training._checkpoint_file import MAX_QUOTED, CheckpointError
from mmcc.training._sharding import is_spread

NAME = "sharded tensor"
"""The key of the mapping that stands in place of a tensor and holds its name."""
INFIX = ".shards-"
"""Separates the name of the file from the unique part of its folder's name."""
PIECE = 2**20
"""Bytes that are read at once."""
INDEX = ".metadata"
"""The module of torch that defines what an index contains."""
KNOWN: dict[tuple[str, str], Any] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        index.Metadata,
        index.TensorStorageMetadata,
        index.TensorProperties,
        index.ChunkStorageMetadata,
        index.MetadataIndex,
        index.StorageMeta,
        index._MEM_FORMAT_ENCODING,
        _StorageInfo,
        torch.serialization._get_layout,
    )
} | {("torch", "Size"): torch.Size}
"""The classes that an index may contain, besides data types and paths."""
FOREIGN = (ValueError, TypeError, KeyError, AttributeError, EOFError, pickle.UnpicklingError)


def take_apart(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The content with names in place of its DTensors, and the DTensors by name."""
    tensors: dict[str, Tensor] = {}

    def apart(value: Any, name: str) -> Any:
        if is_spread(value):
            tensors[name] = value.detach()
            return _described(value, name)
        if isinstance(value, Mapping):
            return {key: apart(part, f"{name}.{key}") for key, part in value.items()}
        if type(value) in (list, tuple):
            return type(value)(apart(part, f"{name}.{i}") for i, part in enumerate(value))
        return value

    return {key: apart(part, key) for key, part in content.items()}, tensors


def _described(tensor: Any, name: str) -> dict[str, Any]:
    (placement,) = tensor.placements
    return {
        NAME: name,
        "shape": list(tensor.shape),
        "type": str(tensor.dtype).removeprefix("torch."),
        "dimension": placement.dim if placement.is_shard() else None,
    }


def put_together(content: Mapping[str, Any], folder: Path, like: Tensor) -> dict[str, Any]:
    """The content with tensors loaded from a folder, sharded over the processes like `like`."""
    tensors: dict[str, Tensor] = {}
    room = sum(file.stat().st_size for file in _files(folder))

    def together(value: Any) -> Any:
        if isinstance(value, Mapping) and isinstance(value.get(NAME), str):
            return tensors.setdefault(value[NAME], _empty(value, like, room))
        if isinstance(value, Mapping):
            return {key: together(part) for key, part in value.items()}
        if type(value) in (list, tuple):
            return type(value)(map(together, value))
        return value

    found = {key: together(part) for key, part in content.items()}
    _load(tensors, folder)
    return found


def _empty(described: Mapping[str, Any], like: Any, room: int) -> Tensor:
    """An empty tensor to load into, at most as large as the files."""
    from torch.distributed.tensor import Replicate, Shard, zeros

    kind = getattr(torch, str(described.get("type")), None)
    shape, dimension = described.get("shape"), described.get("dimension")
    sizes = shape if isinstance(shape, list) else [-1]
    counts = all(type(size) is int and size >= 0 for size in sizes)
    if not isinstance(kind, torch.dtype) or kind.is_complex or not counts:
        raise CheckpointError("a sharded tensor of the checkpoint is not an array of real numbers.")
    if math.prod(sizes) * kind.itemsize > room:
        raise CheckpointError("a sharded tensor of the checkpoint is larger than what was saved.")
    if not is_spread(like):
        return torch.zeros(sizes, dtype=kind, device=like.device)
    if dimension is not None and dimension not in range(len(sizes)):
        raise CheckpointError("a sharded tensor of the checkpoint is cut along a wrong dimension.")
    placement = Replicate() if dimension is None else Shard(dimension)
    mesh = like.device_mesh
    found: Tensor = zeros(sizes, dtype=kind, device_mesh=mesh, placements=[placement])
    return found


def folder_of(path: Path, name: object) -> Path:
    """The folder that a file names, which must be beside it."""
    beside = isinstance(name, str) and name.startswith(path.name + INFIX)
    if not isinstance(name, str) or not beside or Path(name).name != name:
        raise CheckpointError(f"{path.name!r} does not name the folder of its sharded tensors.")
    folder = path.with_name(name)
    if not folder.is_dir():
        raise CheckpointError(
            f"the sharded tensors of {path.name!r} are in the folder {name!r}, which is not beside "
            "it: copy both, and make both visible to all processes."
        )
    return folder


def new_name(path: Path) -> str:
    """A name for a folder that does not exist yet."""
    return path.name + INFIX + secrets.token_hex(8)


def make(folder: Path) -> None:
    """Create an empty folder that only its owner can read."""
    try:
        folder.mkdir(mode=0o700)
    except OSError as problem:
        raise CheckpointError(
            f"cannot make the folder {str(folder)!r}: {problem.strerror or problem}."
        ) from None


def save(tensors: dict[str, Tensor], folder: Path) -> None:
    """Write a folder; all processes call it."""
    try:
        write(tensors, checkpoint_id=folder)
    except (CheckpointException, RuntimeError, OSError) as problem:
        raise CheckpointError(
            f"cannot write the folder {folder.name!r}: {_reason(problem)}."
        ) from (problem)


def _load(tensors: dict[str, Tensor], folder: Path) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a single process, which is fine here
            read(tensors, storage_reader=_Reader(folder))
    except (CheckpointException, RuntimeError, OSError, *FOREIGN) as problem:
        raise CheckpointError(
            f"the folder {folder.name!r} cannot be loaded: {_reason(problem)}."
        ) from problem


def digest(folder: Path) -> str:
    """The digest of all files in a folder."""
    total = hashlib.sha256()
    for file in _files(folder):
        part = hashlib.sha256()
        with file.open("rb") as opened:
            while piece := opened.read(PIECE):
                part.update(piece)
        total.update(f"{file.name} {part.hexdigest()}\n".encode())
    return total.hexdigest()


def remove_others(path: Path, kept: str) -> None:
    """Remove a file's folders that it does not name: older ones, and those of killed processes."""
    for found in path.parent.iterdir():
        if found.name.startswith(path.name + INFIX) and found.name != kept:
            shutil.rmtree(found, ignore_errors=True)


def _files(folder: Path) -> Iterable[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file())


def _reason(problem: BaseException) -> str:
    """Another package's error message, shortened; of several processes, that of the first."""
    failures = getattr(problem, "failures", None)
    first = next(iter(failures.values()), problem) if failures else problem
    told = first[0] if isinstance(first, tuple) else first
    return " ".join(str(told).split())[:MAX_QUOTED].rstrip(".") or type(told).__name__


class _Reader(FileSystemReader):
    """A reader that runs no code from an index."""

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> index.Metadata:
        with (Path(self.path) / INDEX).open("rb") as file:
            found = _Index(file).load()
        if not isinstance(found, index.Metadata):
            raise pickle.UnpicklingError("its index has the wrong type")
        found.storage_meta = index.StorageMeta(load_id=self.load_id)
        return found


class _Index(pickle.Unpickler):
    """An unpickler that accepts names, sizes and offsets only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in KNOWN:
            return KNOWN[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module.partition(".")[0] == "pathlib" and name in ("PosixPath", "WindowsPath"):
            return Path  # where the folder was when it was written, which is not used
        raise pickle.UnpicklingError(f"its index contains {module}.{name}, which is not allowed")
