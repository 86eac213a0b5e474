"""Strategies: what is released.  Each is an encoder C >= 0 that knows its own structure."""

from mmcc.strategies.base import Strategy
from mmcc.strategies.blt import Blt, blt
from mmcc.strategies.matrix import Dense, dense, load
from mmcc.strategies.toeplitz import Toeplitz, continual_counting, identity, toeplitz
from mmcc.strategies.tree import Tree, binary_tree, tree_restart

__all__ = (
    "Blt",
    "Dense",
    "Strategy",
    "Toeplitz",
    "Tree",
    "binary_tree",
    "blt",
    "continual_counting",
    "dense",
    "identity",
    "load",
    "toeplitz",
    "tree_restart",
)
