"""The sharded part of a checkpoint: tensors of which every process writes and reads its own part.

In: the entries of a checkpoint, among them DTensors.  Out: the same entries with names in their
places, and a folder that `torch.distributed.checkpoint` writes; the entries again, with tensors as
the processes of now have them, however many they are.
The folder stands beside the file, which is written last and has its name and digest: whoever is
killed leaves the old file with the old folder, or the new ones.  Of the index of the folder, which
is a pickle, only names, sizes and places are read; no code from it is run.
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

from mmcc.training._checkpoint_file import MOST_SAID, CheckpointError
from mmcc.training._sharding import is_spread

NAME = "sharded tensor"
"""In the place of a tensor there is a mapping with its name by this one."""
INFIX = ".shards-"
"""Between the names of file and folder and what tells folders apart."""
PIECE = 2**20
"""Bytes that are read at once."""
INDEX = ".metadata"
"""Where the package keeps what is in a folder."""
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
"""What the index of a folder may be made of, beside types of numbers and paths."""
FOREIGN = (ValueError, TypeError, KeyError, AttributeError, EOFError, pickle.UnpicklingError)


def taken_apart(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The content with names in the place of DTensors, and the DTensors by their names."""
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
    """The content with tensors from a folder, spread over as many processes as `like` is."""
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
    """A tensor to load into, which cannot be larger than the files."""
    from torch.distributed.tensor import Replicate, Shard, zeros

    kind = getattr(torch, str(described.get("type")), None)
    shape, dimension = described.get("shape"), described.get("dimension")
    sizes = shape if isinstance(shape, list) else [-1]
    counts = all(type(size) is int and size >= 0 for size in sizes)
    if not isinstance(kind, torch.dtype) or kind.is_complex or not counts:
        raise CheckpointError("a sharded tensor of the checkpoint is no array of real numbers.")
    if math.prod(sizes) * kind.itemsize > room:
        raise CheckpointError("a sharded tensor of the checkpoint is larger than what was saved.")
    if not is_spread(like):
        return torch.zeros(sizes, dtype=kind, device=like.device)
    if dimension is not None and dimension not in range(len(sizes)):
        raise CheckpointError("a sharded tensor of the checkpoint is cut where it has no extent.")
    placement = Replicate() if dimension is None else Shard(dimension)
    mesh = like.device_mesh
    found: Tensor = zeros(sizes, dtype=kind, device_mesh=mesh, placements=[placement])
    return found


def folder_of(path: Path, name: object) -> Path:
    """The folder that a file names, which is beside it."""
    beside = isinstance(name, str) and name.startswith(path.name + INFIX)
    if not isinstance(name, str) or not beside or Path(name).name != name:
        raise CheckpointError(f"{path.name!r} does not name the folder of its sharded tensors.")
    folder = path.with_name(name)
    if not folder.is_dir():
        raise CheckpointError(
            f"the sharded tensors of {path.name!r} are in the folder {name!r}, which is not beside "
            "it: copy both, and let all processes see them."
        )
    return folder


def new_name(path: Path) -> str:
    """For a folder that is not there yet."""
    return path.name + INFIX + secrets.token_hex(8)


def make(folder: Path) -> None:
    """An empty folder that nobody else reads."""
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
        raise CheckpointError(f"cannot write the folder {folder.name!r}: {_said(problem)}.") from (
            problem
        )


def _load(tensors: dict[str, Tensor], folder: Path) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is one process, which is as it should be
            read(tensors, storage_reader=_Reader(folder))
    except (CheckpointException, RuntimeError, OSError, *FOREIGN) as problem:
        raise CheckpointError(
            f"the folder {folder.name!r} cannot be taken up: {_said(problem)}."
        ) from problem


def digest(folder: Path) -> str:
    """Of everything in a folder."""
    total = hashlib.sha256()
    for file in _files(folder):
        part = hashlib.sha256()
        with file.open("rb") as opened:
            while piece := opened.read(PIECE):
                part.update(piece)
        total.update(f"{file.name} {part.hexdigest()}\n".encode())
    return total.hexdigest()


def remove_others(path: Path, kept: str) -> None:
    """Folders of a file that it does not name: older ones, and those of somebody who was killed."""
    for found in path.parent.iterdir():
        if found.name.startswith(path.name + INFIX) and found.name != kept:
            shutil.rmtree(found, ignore_errors=True)


def _files(folder: Path) -> Iterable[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file())


def _said(problem: BaseException) -> str:
    """What somebody else's error says, in short; of one of several processes that of the first."""
    failures = getattr(problem, "failures", None)
    first = next(iter(failures.values()), problem) if failures else problem
    told = first[0] if isinstance(first, tuple) else first
    return " ".join(str(told).split())[:MOST_SAID].rstrip(".") or type(told).__name__


class _Reader(FileSystemReader):
    """A reader that runs no code from an index."""

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> index.Metadata:
        with (Path(self.path) / INDEX).open("rb") as file:
            found = _Index(file).load()
        if not isinstance(found, index.Metadata):
            raise pickle.UnpicklingError("its index is something else")
        found.storage_meta = index.StorageMeta(load_id=self.load_id)
        return found


class _Index(pickle.Unpickler):
    """Names, sizes and places."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in KNOWN:
            return KNOWN[module, name]
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if module.partition(".")[0] == "pathlib" and name in ("PosixPath", "WindowsPath"):
            return Path  # of where the folder was, which is not used
        raise pickle.UnpicklingError(f"its index has a {module}.{name}, which is no description")
