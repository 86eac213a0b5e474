"""Strategies: what is released.  Each is an encoder C >= 0 that knows its own structure."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmcc.strategies._registry import CONSTRUCTORS, import_function

if TYPE_CHECKING:
    from mmcc.design import Optimised, optimise
    from mmcc.strategies._banded import Banded, banded
    from mmcc.strategies._banded_inverse import BandedInverse, banded_inverse, lambda_cgd
    from mmcc.strategies._banded_toeplitz import banded_toeplitz
    from mmcc.strategies._base import Strategy
    from mmcc.strategies._blt import Blt, BufferedToeplitz, blt
    from mmcc.strategies._dense import Dense, dense
    from mmcc.strategies._files import load, save
    from mmcc.strategies._optimal import optimal
    from mmcc.strategies._provenance import Provenance
    from mmcc.strategies._square_root import square_root
    from mmcc.strategies._toeplitz import Toeplitz, continual_counting, identity, toeplitz
    from mmcc.strategies._tree import Tree, binary_tree, tree_restart

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
    "lambda_cgd",
    "load",
    "optimal",
    "optimise",
    "save",
    "square_root",
    "toeplitz",
    "tree_restart",
)

# Imported when first used: the command line reads the registry without waiting for numpy.
_LATER = {
    "Banded": "mmcc.strategies._banded",
    "BandedInverse": "mmcc.strategies._banded_inverse",
    "Blt": "mmcc.strategies._blt",
    "BufferedToeplitz": "mmcc.strategies._blt",
    "Dense": "mmcc.strategies._dense",
    "Optimised": "mmcc.design",
    "Provenance": "mmcc.strategies._provenance",
    "Strategy": "mmcc.strategies._base",
    "Toeplitz": "mmcc.strategies._toeplitz",
    "Tree": "mmcc.strategies._tree",
    "load": "mmcc.strategies._files",
    "optimise": "mmcc.design",
    "save": "mmcc.strategies._files",
}


def __getattr__(name: str) -> Any:
    if name in CONSTRUCTORS:
        value = import_function(CONSTRUCTORS[name].constructor)
    elif name in _LATER:
        value = getattr(import_module(_LATER[name]), name)
    else:
        raise AttributeError(f"module 'mmcc.strategies' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
