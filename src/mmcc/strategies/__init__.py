"""Strategies: what is released.  Each is an encoder C >= 0 that knows its own structure."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmcc.strategies._banded import Banded, banded
from mmcc.strategies._banded_inverse import BandedInverse, banded_inverse
from mmcc.strategies._banded_toeplitz import banded_toeplitz
from mmcc.strategies._base import Strategy
from mmcc.strategies._blt import Blt, BufferedToeplitz, blt
from mmcc.strategies._dense import Dense, dense
from mmcc.strategies._files import load, save
from mmcc.strategies._optimal import optimal
from mmcc.strategies._provenance import Provenance
from mmcc.strategies._toeplitz import Toeplitz, continual_counting, identity, toeplitz
from mmcc.strategies._tree import Tree, binary_tree, tree_restart

if TYPE_CHECKING:
    from mmcc.design._optimise import Optimised, optimise

__all__ = (
    "Banded",
    "BandedInverse",
    "Blt",
    "BufferedToeplitz",
    "Dense",
    "Optimised",
    "Provenance",
    "Strategy",
    "Toeplitz",
    "Tree",
    "banded",
    "banded_inverse",
    "banded_toeplitz",
    "binary_tree",
    "blt",
    "continual_counting",
    "dense",
    "identity",
    "load",
    "optimal",
    "optimise",
    "save",
    "toeplitz",
    "tree_restart",
)

_DESIGNED = ("Optimised", "optimise")
"""Searched for under a guarantee: built upon the accounting, which is built upon strategies."""


def __getattr__(name: str) -> Any:
    if name not in _DESIGNED:
        raise AttributeError(f"module 'mmcc.strategies' has no attribute {name!r}")
    return getattr(import_module("mmcc.design"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
