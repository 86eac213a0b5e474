"""Files in the user's cache: results that took long to find, for when the same is asked again.

In: facts that describe a question.  Out: what was written for exactly these facts, as JSON.
A file is a starting point, never a proof: whatever is read from it is certified again.
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
"""The environment variable that names the cache folder, and its value for no cache."""
LARGEST_FILE = 2**16


def cache_folder() -> Path | None:
    """The folder of the cache, by the XDG convention; None if caching is switched off."""
    named = os.environ.get(PLACE, "")
    if named == OFF:
        return None
    if named:
        return Path(named)
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the convention ignores relative paths
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # there is no home folder
            return None
    return base / "mmcc"


def file_of(folder: Path, kind: str, facts: Mapping[str, Any]) -> Path:
    """The file for a question."""
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return folder / f"{kind}-{name[:32]}.json"


def content_of(file: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a file; empty if there is none, or if it answers another question."""
    try:
        with file.open("rb") as opened:
            content = json.loads(opened.read(LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and content.get("of") == facts else {}


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Write a file completely or not at all; if it cannot be written, nothing happens."""
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
