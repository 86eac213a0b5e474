"""Checks of output files, so that an error comes before long work instead of after it."""

from __future__ import annotations

from pathlib import Path

from mmcc.errors import ParameterError


def check_place(file: str | Path, what: str) -> None:
    """Raise an error if a file cannot be written; an existing file is left unchanged."""
    path = Path(file)
    try:
        if not path.absolute().parent.is_dir():
            raise ParameterError(f"there is no folder {str(path.parent)!r} for the {what}.")
        if path.is_dir():
            raise ParameterError(f"{str(path)!r} is a folder; name a file for the {what}.")
        target = path.resolve()  # a link may name a file that does not exist yet
        before = target.exists()
        if target.is_file() or not before:  # opening anything else might block or have effects
            target.open("ab").close()
        if not before:
            target.unlink()
    except (OSError, RuntimeError, ValueError) as problem:  # such as an invalid name
        if isinstance(problem, ParameterError):
            raise
        why = getattr(problem, "strerror", None) or problem
        raise ParameterError(f"the {what} cannot be written to {str(path)!r}: {why}.") from None
