"""The file of a checkpoint, written and read with torch alone, without the training packages.

In: a path, and entries to write.  Out: the entries that were read, and their digest.
A file is written beside its final place, synced, and renamed: a process that is killed leaves
either the old file or the new one.  No code from a file is run: its digest is checked, then
`torch.load` reads tensors, numbers and text and refuses everything else.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from mmcc.errors import MmccError, ParameterError

FORMAT = 1
MAGIC = b"mmcc checkpoint\n"
DIGEST = hashlib.sha256().digest_size
ENTRIES = {
    "format",
    "fingerprint",
    "module",
    "optimizer",
    "noise",
    "participants",
    "layout",
    "ledger",
    "random",
    "extra",
}
MASTERS = "masters"
"""The entry with master copies, present where parameters have 16 bits."""
SHARDS = "shards"
"""The entry with the folder of the tensors, present where parameters are sharded."""
TEXTS = ("fingerprint", "layout", "ledger")
"""Entries that map names to text and hold nothing else."""
PLAIN = (int, float, bool, str, type(None))
MAX_QUOTED = 400
"""Characters quoted from another package's error about a file."""


class CheckpointError(MmccError):
    """A checkpoint cannot be written, cannot be read, or belongs to another run."""


def write(path: Path, content: dict[str, Any]) -> None:
    """Replace the file by this content, whole or not at all."""
    parts = _packed(content)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # left by a run that was killed, or by somebody else
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for part in parts:
                left = memoryview(part)
                while left:
                    left = left[os.write(file, left) :]
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as problem:
        reason = problem.strerror or problem
        raise CheckpointError(f"cannot write {str(path)!r}: {reason}.") from None


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; systems that cannot open folders do not need it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _packed(content: dict[str, Any]) -> list[bytes | memoryview]:
    """The parts of the file, in order."""
    check_plain(content, "the checkpoint")
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getbuffer()
    return [MAGIC, hashlib.sha256(payload).digest(), payload]


def read(path: Path) -> tuple[dict[str, Any], str]:
    """The content of a file, and its digest."""
    try:
        stored = path.read_bytes()
    except OSError as problem:
        reason = problem.strerror or problem
        raise CheckpointError(f"cannot read {str(path)!r}: {reason}.") from None
    start = len(MAGIC) + DIGEST
    payload = memoryview(stored)[start:]
    if not stored.startswith(MAGIC):
        raise CheckpointError(f"{path.name!r} is not an mmcc checkpoint.")
    if hashlib.sha256(payload).digest() != stored[len(MAGIC) : start]:
        raise CheckpointError(
            f"{path.name!r} is damaged or truncated (its digest does not match): use an older one."
        )
    content = _unpacked(payload)
    if (
        not isinstance(content, dict)
        or set(content) - {MASTERS, SHARDS} != ENTRIES
        or type(content["format"]) is not int
        or content["format"] != FORMAT
        or not all(isinstance(content[name], dict) for name in set(content) - {"format", "extra"})
        or not all(_is_text(content[name]) for name in TEXTS)
    ):
        raise CheckpointError(
            f"{path.name!r} does not have the entries of a checkpoint of format {FORMAT}: it was "
            "written by another version, or by something else."
        )
    try:
        check_plain(content, "its content")
        _check_nesting(content)
        _check_tensors(content)
    except (MmccError, RecursionError) as problem:
        said = str(problem)[:MAX_QUOTED].rstrip(".")
        raise CheckpointError(f"{path.name!r} cannot be loaded: {said}.") from None
    return content, stored[len(MAGIC) : start].hex()


def _unpacked(payload: memoryview) -> Any:
    """What `torch.save` wrote; None for anything else.  No code from the payload is run.

    `torch.save` writes an archive whose members are not compressed.  Compressed members, which
    could expand to a thousand times the size of the file, and torch's older formats are refused.
    """
    file = io.BytesIO(payload)
    try:
        with zipfile.ZipFile(file) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                return None
        file.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that are refused below
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # whatever the reader raises
        return None


def _is_text(entry: Mapping[Any, Any]) -> bool:
    return all(isinstance(part, str) for pair in entry.items() for part in pair)


def check_plain(value: Any, where: str) -> None:
    """Refuse values that could be written but not read back without running code from the file."""
    if isinstance(value, Mapping) and type(value).__module__ in ("builtins", "collections"):
        for name, entry in value.items():
            check_plain(entry, f"{where}[{name!r}]")
    elif type(value) in (list, tuple):
        for place, entry in enumerate(value):
            check_plain(entry, f"{where}[{place}]")
    elif type(value) not in PLAIN and not isinstance(value, torch.Tensor):
        raise CheckpointError(
            f"{where} is a {type(value).__name__}, which a file without code cannot hold. Use "
            "numbers, text, tensors, and lists, tuples and dicts of them."
        )


def _check_nesting(content: Mapping[str, Any]) -> None:
    """Refuse a tensor where names are looked up: torch would iterate over a name's characters."""
    state, groups = (content["optimizer"].get(name) for name in ("state", "param_groups"))
    if not (isinstance(state, dict) and isinstance(groups, list)):
        raise ParameterError("its optimizer entry has no state and groups.")
    for part in (*state.values(), *groups, *content["random"].values()):
        if not isinstance(part, dict):
            raise ParameterError("part of its optimizer or generator state has no names.")


def _check_tensors(content: Mapping[str, Any]) -> None:
    """Refuse tensors other than plain real numbers, or larger than their storage in the file."""
    for name in ("module", "optimizer", MASTERS):
        for tensor in _tensors(content.get(name, {})):
            plain = tensor.layout == torch.strided and not tensor.is_quantized
            if not plain or tensor.is_complex() or tensor.device.type != "cpu":
                raise ParameterError(f"a tensor of its {name} is not an array of real numbers.")
            if tensor._backward_hooks != {}:  # a file may contain anything
                raise ParameterError(f"a tensor of its {name} has hooks besides its numbers.")
            if name == "optimizer" and tensor.nbytes > tensor.untyped_storage().nbytes():
                raise ParameterError(f"a tensor of its {name} is larger than what was saved.")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)
