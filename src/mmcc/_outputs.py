"""Files that are to be written: what cannot be is refused before the long work starts."""

from __future__ import annotations

from pathlib import Path

from mmcc.errors import ParameterError


def check_place(file: str | Path, what: str) -> None:
    """Refuse a file that cannot be written; one that is there stays as it is."""
    path = Path(file)
    try:
        if not path.absolute().parent.is_dir():
            raise ParameterError(f"there is no folder {str(path.parent)!r} for the {what}.")
        if path.is_dir():
            raise ParameterError(f"{str(path)!r} is a folder; name a file for the {what}.")
        target = path.resolve()  # a link may name a file that is not there yet
        before = target.exists()
        if target.is_file() or not before:  # to open anything else might wait or have effects
            target.open("ab").close()
        if not before:
            target.unlink()
    except (OSError, RuntimeError, ValueError) as problem:  # such as a name that no file has
        if isinstance(problem, ParameterError):
            raise
        why = getattr(problem, "strerror", None) or problem
        raise ParameterError(f"the {what} cannot be written to {str(path)!r}: {why}.") from None
