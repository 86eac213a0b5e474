"""Binary trees: each complete node of the tree releases the sum of its leaves.

A tree strategy is given by its number of leaves and of levels; node k of level l covers the steps
k 2^l .. (k+1) 2^l - 1 and exists if it is complete.  All nodes of a level have the same law (up to
how many ancestors are complete), so the accounting needs O(log^2 n) rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.errors import StrategyError, whole
from mmcc.sampling import Participations
from mmcc.strategies._base import FULL, HONAKER, ONLINE, Order, Strategy, rounded_down, rounded_up
from mmcc.strategies._descriptions import Call, Record
from mmcc.strategies._geometry import EXACT_COLUMNS, Block, Geometry, Piece, geometry_of, tally
from mmcc.strategies._gram import DenseGram, ForestGram, Gram, check_columns
from mmcc.strategies._hierarchy import Epochs, Node, binary
from mmcc.strategies._provenance import Provenance
from mmcc.strategies._registry import BINARY_TREE, TREE_RESTART
from mmcc.strategies._tree_errors import (
    MAX_LEVELS,
    prefix_weights,
    row_variances,
    schedule_variances,
    toeplitz_variances,
)
from mmcc.strategies._worst_sets import most_in_two

if TYPE_CHECKING:
    from mmcc.strategies._workloads import ScheduleWorkload, ToeplitzWorkload, Workload

MAX_LEAVES = 2**40
MAX_GROUPS = 10**6
MAX_CELLS = 10**8
"""Most (node, group) pairs of a level whose counts are exact; above, they are bounded."""
MAX_COUNTED = 2**13
"""Most participations whose counts are tracked from level to level."""


@dataclass(frozen=True, repr=False)
class Tree(Strategy):
    """Levels 0 .. levels-1 of the complete binary tree over `leaves` steps, cut off at the end."""

    decoders = (HONAKER, ONLINE, FULL)

    leaves: int
    levels: int

    @property
    def steps(self) -> int:
        return self.leaves

    @property
    def rows(self) -> int:
        return sum(self.leaves >> level for level in range(self.levels))

    def __repr__(self) -> str:
        if self.levels == self.leaves.bit_length():
            return f"binary_tree({self.leaves})"
        return f"tree_restart({self.leaves}, {self.levels})"

    def prefix(self, steps: int) -> Tree:
        """The tree over fewer leaves, since a node is released when it is complete."""
        steps = whole("steps", steps, 1, self.leaves)
        return Tree(steps, min(self.levels, steps.bit_length()))

    @property
    def correlated(self) -> bool:
        return self.rows > self.leaves

    @property
    def tree(self) -> Tree:
        return self

    def _nodes(self) -> Iterator[tuple[int, int]]:
        """(level, index) of every node in the order of release, a child before its parent."""
        for step in range(1, self.leaves + 1):
            level = 0
            while level < self.levels and step % (1 << level) == 0:
                yield level, (step >> level) - 1
                level += 1

    def _dense(self) -> FloatArray:
        dense = np.zeros((self.rows, self.leaves))
        for row, (level, index) in enumerate(self._nodes()):
            dense[row, index << level : (index + 1) << level] = 1.0
        return dense

    def node_rows(self, level: int) -> IntArray:
        """The rows of the nodes of a level: the number of nodes released before each."""
        ends = ((np.arange(self.leaves >> level) + 1) << level) - 1
        return sum((ends >> below for below in range(self.levels)), np.full(ends.size, level))

    def encode(self, vectors: FloatArray) -> FloatArray:
        """C x as sums over the nodes, each level computed from the one below."""
        released = np.empty((*vectors.shape[:-1], self.rows))
        sums = vectors
        for level in range(self.levels):
            if level:
                complete = self.leaves >> level
                sums = sums[..., : 2 * complete : 2] + sums[..., 1 : 2 * complete : 2]
            released[..., self.node_rows(level)] = sums
        return released

    def adjoint(self, outputs: FloatArray) -> FloatArray:
        """C^T y as sums along the path from the root of each tree to each leaf."""
        sums = outputs[..., self.node_rows(self.levels - 1)]
        for level in range(self.levels - 2, -1, -1):
            below = outputs[..., self.node_rows(level)]
            below[..., 0 : 2 * sums.shape[-1] : 2] += sums
            below[..., 1 : 2 * sums.shape[-1] : 2] += sums
            sums = below
        return np.asarray(sums)

    def squared_norms(self, sets: Participations) -> FloatArray:
        """The sum over nodes of the squared number of participations below each."""
        owners = np.repeat(np.arange(len(sets)), sets.sizes())
        squares = np.zeros(len(sets))
        for level in range(self.levels):
            nodes = sets.steps >> level
            complete = nodes < self.leaves >> level
            keys = owners[complete] * (self.leaves + 1) + nodes[complete]
            found, counts = np.unique(keys, return_counts=True)
            squares += np.bincount(
                found // (self.leaves + 1), np.square(counts, dtype=float), len(sets)
            )
        return squares

    def groups(self, separation: int) -> Sequence[int]:
        """All groups; if they are single columns, only the first, which is in the largest tree."""
        return range(separation) if separation < self.leaves else (0,)

    def same_order(self, order: Order, separation: int) -> Order:
        """With single nodes, heavy and reversed show the same: a node's ancestors before it."""
        return "reversed" if order == "heavy" and separation == 1 else order

    def sensitivity(self, separation: int) -> float:
        """Each node counts as many participations as it has columns of the group."""
        separation = min(separation, self.leaves)
        # With very many groups, the first one, which has the most columns, bounds all others.
        many = separation > MAX_GROUPS
        groups = np.zeros(1) if many else np.array(self.groups(separation), np.float64)
        total = np.zeros(groups.size)
        for level in range(self.levels):
            size, nodes = 1 << level, self.leaves >> level
            if size <= separation:  # at most one column of the group in each node
                total += np.ceil((nodes * size - groups) / separation)
            elif size % separation == 0 or many or nodes * groups.size > MAX_CELLS:
                total += nodes * np.ceil(size / separation) ** 2
            else:
                edges = np.ceil((np.arange(nodes + 1)[:, None] * size - groups) / separation)
                total += np.sum(np.diff(edges, axis=0) ** 2, axis=0)
        return rounded_up(float(np.sqrt(total.max())), 64)

    def sensitivity_apart(self, separation: int, at_most: int | None = None) -> float:
        """The root of a sum over nodes of squared counts, each as large as the node can hold."""
        most = self._most(separation, at_most)
        total = 0
        for level in range(self.levels):
            inside = min(-(-((self.leaves >> level) << level) // separation), most)
            held = min(-(-(1 << level) // separation), most)
            full, rest = divmod(inside, held)
            total += full * held**2 + rest**2
        if most <= MAX_COUNTED:
            total = min(total, self._heaviest(separation, most))
        return rounded_up(math.sqrt(total), 64)

    def reached_apart(self, separation: int, at_most: int | None = None) -> float:
        """|C 1_S| of the first steps, as close as allowed: exact but for the square root."""
        most = min(self._most(separation, at_most), MAX_GROUPS)
        steps = Participations.from_rows(separation * np.arange(most)[None, :])
        return rounded_down(math.sqrt(float(self.squared_norms(steps)[0])), 64)

    def _most(self, separation: int, at_most: int | None) -> int:
        most = -(-self.leaves // separation)
        return most if at_most is None else min(at_most, most)

    def _heaviest(self, separation: int, most: int) -> int:
        """The largest sum of squared counts with at most ceil(2^l / separation) below a node.

        `below[m]` is that sum for m participations in one subtree.  Nodes that do not exist count
        nothing; the steps split into complete subtrees, one for each binary digit 1 of their
        number.
        """
        below, total = np.array([0, 0]), np.zeros(1, np.int64)
        for level in range(self.leaves.bit_length()):
            held = min(-(-(1 << level) // separation), most)
            if level:
                below = most_in_two(below, below, held)
            if level < self.levels:
                below = below + np.arange(held + 1) ** 2
            if self.leaves >> level & 1:
                total = most_in_two(total, below, most)
        return int(total.max())

    def sensitivity_shuffled(self, epoch_steps: int, times: int = 1) -> float:
        """As above: a node holds at most `times` participations for each epoch that it overlaps."""
        epochs = self.leaves // epoch_steps
        total = 0
        for level in range(self.levels):
            size = 1 << level
            if size % epoch_steps == 0 or epoch_steps % size == 0:
                met = max(size // epoch_steps, 1)
            else:
                met = (size - 2) // epoch_steps + 2
            inside = (self.leaves >> level) << level
            largest = min(times * min(met, epochs), size)
            total += largest * min(times * -(-inside // epoch_steps), inside)
        return rounded_up(math.sqrt(total), 64)

    def geometry(self, order: Order, separation: int, group: int) -> Geometry:
        if separation == 1:
            return self._levels(order)
        return self._blocks(order, separation, group)

    def _levels(self, order: Order) -> Geometry:
        """Poisson sampling: one block per level and number of complete ancestors."""
        top = self.levels - 1
        nonzero = sum((self.leaves >> level) << level for level in range(self.levels))

        def blocks() -> Iterator[Block]:
            if order == "release":
                for level in range(self.levels):
                    # Earlier rows: all descendants.  A leaf whose lowest common ancestor with j
                    # has level a shares the nodes of levels a .. level-1.
                    shared = level - np.arange(level + 1)
                    counts = np.array([1, *(1 << a for a in range(level))])
                    yield _node_block(self.leaves >> level, level, level, shared, counts)
                return
            for root in range(self.levels):
                trees = self.leaves >> root if root == top else (self.leaves >> root) & 1
                for level in range(root, -1, -1):
                    # Earlier rows: the ancestors, levels level+1 .. root.
                    shared = root - np.arange(level, root)
                    counts = np.array([2 << a for a in range(level, root)])
                    counts[1:] //= 2
                    if trees:
                        count = trees << (root - level)
                        yield _node_block(count, level, root - level, shared, counts)

        listed = list(blocks())
        return Geometry(
            columns=self.leaves,
            events=nonzero - self.leaves,
            rows=self.rows,
            work=len(listed),
            distinct=len(listed),
            error=2.0**-48,
            blocks=lambda: iter(listed),
        )

    def _blocks(self, order: Order, separation: int, group: int) -> Geometry:
        """Cyclic Poisson: the nodes released in `separation` consecutive steps form a block."""
        size = (self.leaves - group) // separation * self.levels
        if size > MAX_CELLS // 10:
            raise StrategyError(
                f"{self!r} has about {size:.2g} nodes to analyse one by one if only every "
                f"{separation}th step counts. Use a larger separation, or Poisson sampling."
            )
        columns = np.arange(group, self.leaves, separation)
        spans: list[tuple[int, int, int]] = []  # block, first column and end column of each node
        for level in range(self.levels):
            nodes = np.unique(columns >> level)
            nodes = nodes[nodes < self.leaves >> level]
            ends = (nodes + 1) << level
            first = np.searchsorted(columns, nodes << level)
            end = np.searchsorted(columns, ends)
            spans += zip((ends - 1 - group) // separation, first, end, strict=True)
        spans.sort()
        blocks = _grouped(spans)
        if order == "heavy":
            blocks.sort(key=lambda block: (-sum(e - f for f, e in block[1]), -block[0]))
        elif order == "reversed":
            blocks.reverse()
        exact = columns.size <= EXACT_COLUMNS

        def pieces() -> Iterator[Piece]:
            for _, nodes in blocks:
                start = min(first for first, _ in nodes)
                stop = max(end for _, end in nodes)
                squares, sums = np.zeros(stop - start), np.zeros(stop - start)
                factor = np.zeros((len(nodes), stop - start)) if exact else None
                for row, (first, end) in enumerate(nodes):
                    squares[first - start : end - start] += 1.0
                    sums[first - start : end - start] += end - first
                    if factor is not None:
                        factor[row, first - start : end - start] = 1.0
                yield Piece(slice(start, stop), squares, sums, factor)

        return geometry_of(pieces, columns.size, 64 * self.levels, tally(pieces()))

    def gram(self, separation: int, group: int, sigma: float) -> Gram:
        if separation == 1:
            return ForestGram(complete_trees(self), sigma**-2.0)
        columns = np.arange(group, self.leaves, separation)
        check_columns(columns.size, self)
        matrix = np.zeros((columns.size, columns.size))
        for level in range(self.levels):
            nodes = columns >> level
            complete = nodes < self.leaves >> level
            matrix += np.equal.outer(nodes, nodes) & complete
        return DenseGram(matrix, sigma**-2.0, 0)

    def bins_gram(self, bins: int, sigma: float) -> DenseGram:
        """From the number of times that each bin falls into each node."""
        from scipy import sparse  # takes half a second to import

        check_columns(bins, self)
        matrix = np.zeros((bins, bins))
        steps = np.arange(self.leaves)
        for level in range(self.levels):
            nodes = self.leaves >> level
            inside = steps[: nodes << level]
            places = (inside >> level, inside % bins)
            counts = sparse.csr_array((np.ones(inside.size), places), shape=(nodes, bins))
            matrix += (counts.T @ counts).toarray()
        return DenseGram(matrix, sigma**-2.0, 0)

    def hierarchy(self, bins: int) -> Node | None:
        """Defined for one pass, and for epochs that are complete subtrees.

        In E epochs of 2^k steps each node of level l <= k exists E times, once per epoch, and all
        its copies are shared by the same bins: together they add E to |m_r|^2.  A node above level
        k holds 2^(l-k) steps of every bin.
        """
        if bins == self.leaves:
            trees = [(many, binary(top + 1, 1.0, 1.0)) for top, many in complete_trees(self)]
            return trees[0][1] if trees[0][0] == len(trees) == 1 else Node(0.0, tuple(trees))
        height = bins.bit_length() - 1
        if bins != 1 << height:
            return None
        epochs = float(self.leaves // bins)
        below = min(height, self.levels - 1)
        shared = sum((self.leaves >> a) * 4.0 ** (a - height) for a in range(height, self.levels))
        if below < height:
            return Node(0.0, ((1 << (height - below), binary(below + 1, epochs, epochs)),))
        return binary(below + 1, epochs, shared)

    def separate_epochs(self, epoch_steps: int) -> Epochs | None:
        """Defined for one pass, and for epochs made of whole restarted trees."""
        if epoch_steps < self.leaves and epoch_steps % (1 << (self.levels - 1)):
            return None
        epoch = Tree(epoch_steps, self.levels).hierarchy(epoch_steps)
        return None if epoch is None else ((self.leaves // epoch_steps, epoch),)

    def decoder_matrix(self, decoder: str) -> FloatArray:
        """Differences of the prefix sums that the decoder estimates."""
        if decoder == FULL:
            return np.asarray(np.linalg.pinv(self.to_dense()))
        self._check_size()
        return np.diff(prefix_weights(self, decoder), axis=0, prepend=0)

    def noise_memory(self) -> int:
        """One estimate for each level."""
        return self.levels

    def variances(self, workload: Workload, decoder: str) -> FloatArray:
        return row_variances(self, decoder, workload.to_dense())

    def toeplitz_variances(self, workload: ToeplitzWorkload, decoder: str) -> FloatArray:
        return toeplitz_variances(self, decoder, workload.coefficients)

    def schedule_variances(self, workload: ScheduleWorkload, decoder: str) -> FloatArray:
        if decoder != FULL and not workload.weight_decay:
            return schedule_variances(self, decoder, workload.learning_rates, workload.momentum)
        return np.concatenate([row_variances(self, decoder, rows) for rows in workload.rows()])

    def defining(self) -> tuple[Any, ...]:
        return ("tree", self.leaves, self.levels)

    def record(self) -> Record:
        return Record("tree", {"steps": self.leaves, "height": self.levels}, {})

    def call(self) -> Call:
        if self.levels == self.leaves.bit_length():
            return Call(BINARY_TREE, {"steps": self.leaves})
        return Call(TREE_RESTART, {"steps": self.leaves, "height": self.levels})


def complete_trees(tree: Tree) -> list[tuple[int, int]]:
    """The largest complete trees as (top level, how many), in the order of their steps."""
    top = tree.levels - 1
    cut = [(root, 1) for root in range(top - 1, -1, -1) if tree.leaves >> root & 1]
    return [(top, tree.leaves >> top), *cut]


def _grouped(spans: list[tuple[int, int, int]]) -> list[tuple[int, list[tuple[int, int]]]]:
    """The nodes of each block, with blocks in the order of release."""
    blocks: list[tuple[int, list[tuple[int, int]]]] = []
    for block, first, end in spans:
        if not blocks or blocks[-1][0] != block:
            blocks.append((int(block), []))
        blocks[-1][1].append((int(first), int(end)))
    return blocks


def _node_block(
    count: int, level: int, shown: int, shared: np.ndarray, counts: np.ndarray
) -> Block:
    """A node with 2^level equal entries; earlier rows showed `shown` nodes of each column."""
    return Block(
        count=count,
        values=np.ones(1),
        squares=np.array([float(shown)]),
        sums=np.array([float(np.dot(shared, counts))]) if shown else np.zeros(1),
        peaks=np.array([float(shown)]),
        repeats=1 << level,
        overlaps=shared[None, :].astype(np.float64) if shown else None,
        overlap_counts=counts if shown else None,
    )


def binary_tree(steps: int) -> Tree:
    """The binary tree over `steps` leaves, without nodes that are not complete by the end."""
    steps = whole("steps", steps, 1, MAX_LEAVES)
    return Tree(steps, steps.bit_length())


def tree_restart(steps: int, height: int) -> Tree:
    """DP-FTRL-TreeRestart: trees of `height` levels, 2^(height-1) leaves each, one after another.

    The last tree is cut off where the steps end.
    """
    steps = whole("steps", steps, 1, MAX_LEAVES)
    height = whole("height", height, 1, MAX_LEVELS)
    return Tree(steps, min(height, steps.bit_length()))


def rebuild(_: Provenance | None, steps: int, height: int) -> Tree:
    """The tree that a saved file describes."""
    return tree_restart(steps, height)
