"""Strategies: what is released.  Each is an encoder C >= 0 that knows its own structure."""

from mmcc.strategies.banded import Banded, banded
from mmcc.strategies.banded_inverse import BandedInverse, banded_inverse
from mmcc.strategies.banded_toeplitz import banded_toeplitz
from mmcc.strategies.base import Strategy
from mmcc.strategies.blt import Blt, BufferedToeplitz, blt
from mmcc.strategies.files import load, save
from mmcc.strategies.matrix import Dense, dense
from mmcc.strategies.optimal import optimal
from mmcc.strategies.optimise import Optimised, optimise
from mmcc.strategies.provenance import Provenance
from mmcc.strategies.toeplitz import Toeplitz, continual_counting, identity, toeplitz
from mmcc.strategies.tree import Tree, binary_tree, tree_restart

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
