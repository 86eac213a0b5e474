"""The file of a checkpoint, read without the packages that train: torch alone.

In: a path.  Out: its entries and its digest.  No code from the file is run: its digest is checked,
then `torch.load` reads tensors, numbers and text and refuses all else.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from mmcc.errors import MmccError

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


class CheckpointError(MmccError):
    """A checkpoint cannot be written, cannot be read, or belongs to another run."""


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
        raise CheckpointError(f"{path.name!r} is not a checkpoint of mmcc.")
    if hashlib.sha256(payload).digest() != stored[len(MAGIC) : start]:
        raise CheckpointError(
            f"{path.name!r} is damaged or cut off (its digest does not match): use an older one."
        )
    try:
        content = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception:  # whatever the reader trips over, nothing of it was run
        content = None
    if (
        not isinstance(content, dict)
        or content.get("format") != FORMAT
        or set(content) != ENTRIES
        or not all(isinstance(content[name], dict) for name in ENTRIES - {"format", "extra"})
    ):
        raise CheckpointError(
            f"{path.name!r} does not have the entries of a checkpoint of format {FORMAT}: it was "
            "written by another version, or by something else."
        )
    return content, stored[len(MAGIC) : start].hex()
