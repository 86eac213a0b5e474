"""Imports of jax_privacy: when it is used, and only in the version that was reviewed.

What its samplers draw and how its noise is made was verified in the source of 2.0.0.  Its main
branch differs, and so may later releases.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mmcc.errors import MethodError

RELEASE = "2.0"
NEEDED = "the bridge needs jax_privacy 2.0 and Python 3.11. Use pip install 'mmcc[jax]'."


def their(module: str) -> Any:
    """A module of jax_privacy, named without the package."""
    found = _version()
    if found.split(".")[:2] != RELEASE.split("."):
        raise MethodError(
            f"jax_privacy {found} is installed, but the samplers and the noise of jax_privacy "
            f"were verified for {RELEASE} only. Use pip install 'jax_privacy>=2.0,<2.1'."
        )
    return load(f"jax_privacy.{module}")


def load(module: str) -> Any:
    """Import jax, or a module of it or of jax_privacy."""
    try:
        return import_module(module)
    except ImportError as problem:
        raise MethodError(f"{module} cannot be imported ({problem}): {NEEDED}") from None


def real_type() -> Any:
    """The widest real type of this process: float64 if jax_enable_x64 is set, else float32."""
    return load("jax").dtypes.canonicalize_dtype("float64")


def _version() -> str:
    try:
        return version("jax_privacy")
    except PackageNotFoundError:
        raise MethodError(f"jax_privacy is not installed: {NEEDED}") from None
