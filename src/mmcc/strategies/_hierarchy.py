"""Bins whose overlaps form a tree: two bins share exactly the nodes above both.

Then the likelihood ratio of balls-in-bins is a cascade: the ratio of a node is its own lognormal
factor times the mean over the leaves below it, independent from child to child.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A node: what it adds to |m_r|^2 of every bin r below it (in units of 1), and its children."""

    variance: float
    children: tuple[tuple[int, Node], ...] = ()
    """Children as (how many, of which kind); empty for a leaf, which is a bin."""

    @property
    def flat(self) -> bool:
        """Whether the bins share nothing."""
        return not self.variance and not any(child.children for _, child in self.children)

    @property
    def leaves(self) -> int:
        """The number of bins below this node."""
        return sum(count * child.leaves for count, child in self.children) or 1

    @property
    def height(self) -> float:
        """The largest |m_r|^2 of a bin below this node."""
        return self.variance + max((child.height for _, child in self.children), default=0.0)


Epochs = tuple[tuple[int, Node], ...]
"""Epochs that share no row, as (how many, the tree of their steps)."""


def apart(lengths: Iterable[tuple[float, int]]) -> Node:
    """A tree of bins that share nothing, given as (|m_r|^2, number of such bins)."""
    return Node(0.0, tuple((many, Node(length)) for length, many in lengths))


def binary(levels: int, variance: float, root: float) -> Node:
    """A complete binary tree of `levels` levels, all nodes but the root with the same variance."""
    node = Node(variance if levels > 1 else root)
    for level in range(1, levels):
        node = Node(root if level == levels - 1 else variance, ((2, node),))
    return node
