"""A tree strategy as one example sees it: complete trees, and the size of every Haar coefficient.

In: a tree, independent rounds, sigma.  Out: a `Forest`, or the reason why there is none.
Rounding: amplitudes are rounded up, to few binary digits; the Gram matrix grows in Loewner order.

Noise is scaled to one.  Under cyclic Poisson with separation 2^g a complete tree with 2^T >= 2^g
leaves has 2^H columns of a group, H = T - g, one below each node of height g.  The g + 1 nodes of
heights 0 .. g above such a column hold no other one: the group's Gram matrix is that of a tree with
2^H leaves and g times the identity, over sigma^2.  Its eigenvectors are the Haar functions,

    all ones: 2^(H+1) - 1 + g,      node of height h: 2^h - 1 + g,

so a node with k participations, j of them on the left, shows (2j - k) a_h with
a_h^2 = (1 + (g-1) 2^-h) / sigma^2, and the tree k a_0 with a_0^2 = (2 + (g-1) 2^-H) / sigma^2.  A
column alone in a tree of height T shows a_0^2 = (T+1) / sigma^2.

Trees come in decreasing size, so column i of a group is in no larger tree than column i of the
first group, which therefore releases at least as much and bounds them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmcc.sampling import Rounds
from mmcc.strategies._tree import Tree, complete_trees

HUGE = 1e150
DIGITS = 24
"""Binary digits of an amplitude, so that products with counts and lattice points are exact."""


@dataclass(frozen=True, slots=True)
class Grove:
    """Some complete trees of the same height: 2^height columns each."""

    height: int
    count: int
    amplitude: float
    """a_0: what one participation adds to the tree's sum, in standard deviations of its noise."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Independent complete trees, with the same participation probability for each column."""

    groves: tuple[Grove, ...]
    probability: float
    sigma: float
    doublings: int
    """g: the separation is 2^g if a tree has several columns."""

    @property
    def height(self) -> int:
        """The height of the highest tree."""
        return max(grove.height for grove in self.groves)

    @property
    def idle(self) -> float:
        """Upper bound on -log P(no participation): dP/dQ is at least e^-idle everywhere."""
        return self._idle(sum(grove.count << grove.height for grove in self.groves))

    @property
    def idle_tree(self) -> float:
        """`idle` for participations in the highest tree only."""
        return self._idle(1 << self.height)

    def _idle(self, columns: int) -> float:
        return -columns * math.log1p(-self.probability) * (1 + 2.0**-40)

    def amplitude(self, height: int) -> float:
        """a_h: half of what moving one participation from right to left adds to a node."""
        share = math.ldexp(float(self.doublings - 1), -height)
        return short(math.sqrt(1 + share) / self.sigma)


def refusal(tree: Tree, rounds: Rounds) -> str | None:
    """Why nothing is proven, in a sentence; None if the bound applies."""
    separation = rounds.separation
    if separation & (separation - 1) == 0 or separation >= 1 << (tree.levels - 1):
        return None
    return (
        f"the reveal bound for trees needs a separation that is a power of two or at least as long "
        f"as a tree, not {separation} with trees of {1 << (tree.levels - 1)} steps."
    )


def forest_of(tree: Tree, rounds: Rounds, sigma: float) -> Forest:
    """The trees of the first group."""
    top, separation = tree.levels - 1, rounds.separation
    doublings = min(separation.bit_length() - 1, top)
    groves: list[Grove] = []
    if separation <= 1 << top:
        step = 0
        for height, count in complete_trees(tree):
            if height < doublings:
                break  # fewer steps are left than the separation: at most one column
            own = height - doublings
            share = math.ldexp(float(doublings - 1), -own)
            groves.append(Grove(own, count, short(math.sqrt(2 + share) / sigma)))
            step += count << height
        if step < tree.leaves:
            groves.append(_alone(tree, step, 1, sigma))
    else:
        whole = tree.leaves >> top << top
        full = -(-whole // separation)
        groves.append(Grove(0, full, short(math.sqrt(top + 1) / sigma)))
        if full * separation < tree.leaves:
            groves.append(_alone(tree, full * separation, 1, sigma))
    return Forest(tuple(groves), rounds.probability, sigma, doublings)


def _alone(tree: Tree, step: int, count: int, sigma: float) -> Grove:
    """The grove of a column alone in its tree, from the complete nodes above it."""
    nodes = sum((step >> level) + 1 <= tree.leaves >> level for level in range(tree.levels))
    return Grove(0, count, short(math.sqrt(nodes) / sigma))


def short(value: float) -> float:
    """A number with few binary digits, at least the value even after its rounding."""
    if not value < HUGE:
        return math.inf
    mantissa, exponent = math.frexp(value * (1 + 2.0**-40))
    return math.ldexp(math.ceil(math.ldexp(mantissa, DIGITS)), exponent - DIGITS)
