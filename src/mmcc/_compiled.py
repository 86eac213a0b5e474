"""How inner loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile without the interpreter lock, and cache the machine code between runs."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
