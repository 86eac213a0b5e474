"""Files in the user's cache: what took long to find, read again by those who ask the same.

In: facts that describe a question.  Out: what was written for these very facts, as JSON.
A file is a place to start from, never a proof: whoever reads one certifies what it says.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PLACE, OFF = "MMCC_CACHE", "off"
"""The environment variable that names the folder of files, and its value for none."""
LARGEST_FILE = 2**16


def cache_folder() -> Path | None:
    """Where files are kept, by the XDG convention; None where that is switched off."""
    named = os.environ.get(PLACE, "")
    if named == OFF:
        return None
    if named:
        return Path(named)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the convention: others are ignored
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # nobody's home
            return None
    return base / "mmcc"


def file_of(folder: Path, kind: str, facts: Mapping[str, Any]) -> Path:
    """The file of a question."""
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return folder / f"{kind}-{name[:32]}.json"


def content_of(file: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says; nothing if there is none, or it answers something else."""
    try:
        with file.open("rb") as opened:
            content = json.loads(opened.read(LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and content.get("of") == facts else {}


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all; a place that cannot be written to is no reason to fail."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as opened:
                json.dump(content, opened, indent=1)
            os.replace(temporary, file)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
