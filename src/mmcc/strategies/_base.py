"""What every strategy offers, computed from its matrix unless a subclass has a better way.

In: a subclass with `steps`, `rows`, `prefix` and the matrix.  Out: its geometry for the accounting,
its errors, its noise memory.  Structure is an optimisation: a subclass overrides what it can
compute in closed form or with less memory.
Rounding: sensitivities are rounded up; inner products come with a bound on their error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import mmcc
from mmcc._arrays import FloatArray, read_only
from mmcc.errors import StrategyError
from mmcc.sampling import Participations
from mmcc.strategies._array_inverses import inverse, lower_bands
from mmcc.strategies._checks import check_matrix, release_steps
from mmcc.strategies._descriptions import Call, Record
from mmcc.strategies._geometry import EXACT_COLUMNS, Geometry, Piece, geometry_of, tally
from mmcc.strategies._gram import MAX_COLUMNS, DenseGram, Gram, check_columns
from mmcc.strategies._hierarchy import Epochs, Node, apart
from mmcc.strategies._provenance import Provenance
from mmcc.strategies._registry import CONSTRUCTORS, NUMBER, WHOLE
from mmcc.strategies._registry import ORDERS as ORDERS
from mmcc.strategies._registry import Order as Order
from mmcc.strategies._worst_sets import largest_apart, largest_shuffled

if TYPE_CHECKING:
    from mmcc.strategies._iterates import OutputWorkload
    from mmcc.strategies._toeplitz import Toeplitz
    from mmcc.strategies._tree import Tree
    from mmcc.strategies._workloads import ScheduleWorkload, ToeplitzWorkload, Workload

MAX_DENSE_BYTES = 4 * 2**30
CHUNK = 2**22
"""Most numbers held in memory at once when many vectors are encoded."""
MAX_LENGTHS = 16
"""Most different lengths of bins that share nothing and still count as a tree."""
NUMBERS = (WHOLE, NUMBER)
"""The kinds of arguments that a printed call can show in full."""
EXACT, ONLINE, HONAKER, FULL = "exact", "online", "honaker", "honaker-full"
"""The names of the decoders; see `_decoders`."""


class Strategy(ABC):
    """An encoder C >= 0: row i of C x + z is released; column j is training step j.

    A strategy holds public facts only.  It is used as given, never rescaled.
    A subclass needs `steps`, `rows`, `prefix` and `_dense`; the rest follows from the matrix.
    """

    decoders: ClassVar[tuple[str, ...]] = (EXACT,)
    """The decoders that apply to this strategy, the default first."""
    is_array: ClassVar[bool] = False
    """Whether the matrix is stored as an array anyway."""
    provenance: Provenance | None = None
    """How the strategy was made, if known."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Columns of C: training steps."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows of C: released vectors."""

    @abstractmethod
    def prefix(self, steps: int) -> Strategy:
        """The mechanism cut off after `steps` steps: its columns, and the rows released by then."""

    @abstractmethod
    def _dense(self) -> FloatArray:
        """C as an array, size already checked."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rows} x {self.steps})"

    @property
    def adaptive(self) -> bool:
        """True if inputs may depend on what was released before them."""
        return True

    @property
    def correlated(self) -> bool:
        """True if the noise of different steps is correlated: C is more than a diagonal."""
        rows, columns = self._matrix.nonzero()
        return bool((rows != columns).any())

    @property
    def quicker(self) -> str:
        """The typed name of a strategy with nearly the same error and faster, tighter accounting.

        Empty if none is known or needed.
        """
        return ""

    @property
    def toeplitz(self) -> Toeplitz | None:
        """The same encoder as a `Toeplitz` object; None if it is not Toeplitz."""
        return None

    @property
    def tree(self) -> Tree | None:
        """The same encoder as a `Tree` object; None if it is not a tree."""
        return None

    def to_dense(self) -> FloatArray:
        """C as an array; an error if it would not fit in memory."""
        self._check_size()
        return self._dense()

    @property
    def _dense_bytes(self) -> int:
        return 8 * self.rows * self.steps

    def _check_size(self) -> None:
        if self._dense_bytes > MAX_DENSE_BYTES:
            size = self._dense_bytes / 2**30
            raise StrategyError(
                f"{self!r} as a dense array would take {size:.3g} GiB, more than the "
                f"{MAX_DENSE_BYTES / 2**30:.0f} GiB allowed. Use its structure, or fewer steps."
            )

    @property
    def _matrix(self) -> FloatArray:
        """C as an array, checked to be a valid encoder; the default methods below use it."""
        return self._checked_matrix

    @cached_property
    def _checked_matrix(self) -> FloatArray:
        matrix = read_only(np.array(self.to_dense(), dtype=np.float64))
        check_matrix(matrix, self.adaptive)
        if matrix.shape != (self.rows, self.steps):
            raise StrategyError(
                f"{self!r} has {self.rows} rows and {self.steps} steps, but its matrix has the "
                f"shape {matrix.shape}."
            )
        return matrix

    # What the accounting needs.

    def groups(self, separation: int) -> Sequence[int]:
        """The groups of columns g, g + separation, ... that can be the worst case for an example.

        By default all of them; if each group is a single column, only the longest column.
        """
        if separation < self.steps:
            return range(separation)
        return (int(np.argmax(np.linalg.norm(self._matrix, axis=0))),)

    def sensitivity(self, separation: int) -> float:
        """Upper bound on |C 1_group| for the worst group, with participation in all its steps."""
        norms = (
            float(np.linalg.norm(self._matrix[:, group::separation].sum(axis=1)))
            for group in self.groups(separation)
        )
        return rounded_up(max(norms), self.rows + self.steps)

    def sensitivity_apart(self, separation: int, at_most: int | None = None) -> float:
        """Upper bound on |C 1_S| over all S of steps at least `separation` apart.

        With `at_most`, only sets of at most that many steps count.
        """
        total, _ = largest_apart(self._inner_products(), separation, at_most)
        return rounded_up(float(np.sqrt(total)), self.rows + 2 * self.steps)

    def reached_apart(self, separation: int, at_most: int | None = None) -> float:
        """Lower bound on that maximum: |C 1_S| of one long set S, rounded down."""
        gram = self._inner_products()
        _, chosen = largest_apart(gram, separation, at_most)
        total = gram[np.ix_(chosen, chosen)].sum(axis=1).sum()
        return rounded_down(float(np.sqrt(total)), self.rows + 2 * self.steps)

    def sensitivity_shuffled(self, epoch_steps: int, times: int = 1) -> float:
        """Upper bound on |C 1_S| over all S with `times` steps in each epoch."""
        total = largest_shuffled(self._inner_products(), epoch_steps, times)
        return rounded_up(float(np.sqrt(total)), self.rows + 2 * self.steps)

    def _inner_products(self) -> FloatArray:
        """C^T C, for subclasses without a closed form."""
        gram = self.gram(1, 0, 1.0)
        assert isinstance(gram, DenseGram)
        return gram.matrix

    def geometry(self, order: Order, separation: int, group: int) -> Geometry:
        """The rows, restricted to one group of columns, in the order in which they are analysed.

        With separation 1 each row is a block; otherwise a block is all the rows released in
        `separation` consecutive steps from the group's first column on.
        """
        matrix = self._matrix[:, group::separation]
        if separation == 1:
            edges = np.arange(self.rows + 1)
        else:
            block = (release_steps(self._matrix, self.adaptive) - group) // separation
            edges = np.flatnonzero(np.diff(block, prepend=block[0] - 1, append=block[-1] + 1))
        places = np.arange(edges.size - 1)
        if order == "reversed":
            places = places[::-1]
        elif order == "heavy":
            weights = np.add.reduceat(matrix.sum(axis=1), edges[:-1])
            places = np.lexsort((-places, -weights))
        blocks = [slice(edges[place], edges[place + 1]) for place in places]

        def pieces() -> Iterator[Piece]:
            return _pieces(matrix, blocks)

        return geometry_of(pieces, matrix.shape[1], self.rows + 2 * self.steps, tally(pieces()))

    def same_order(self, order: Order, separation: int) -> Order:
        """The canonical name of an order, for when two names lead to the same analysis."""
        return order

    def gram(self, separation: int, group: int, sigma: float) -> Gram:
        """Inner products of the columns of one group of C / sigma."""
        columns = self._matrix[:, group::separation]
        check_columns(columns.shape[1], self)
        return DenseGram(columns.T @ columns, sigma**-2.0, self.rows)

    def bins_gram(self, bins: int, sigma: float) -> DenseGram:
        """Inner products of m_r = sum_e (column r + e bins of C / sigma), r = 0 .. bins - 1."""
        check_columns(bins, self)
        return DenseGram(self._bins_products(bins), sigma**-2.0, self.rows + self.steps // bins)

    def hierarchy(self, bins: int) -> Node | None:
        """The tree of nodes that the m_r share, for sigma = 1; None if they do not form a tree.

        Bins that share nothing are children of one root, if they have few different lengths.
        """
        if bins > MAX_COLUMNS or self._dense_bytes > MAX_DENSE_BYTES:
            return None
        products = self._bins_products(bins)
        own = np.diagonal(products)
        lengths, counts = np.unique(own, return_counts=True)
        if np.count_nonzero(products) > bins or len(lengths) > MAX_LENGTHS:
            return None
        return apart(zip(lengths.tolist(), counts.tolist(), strict=True))

    def separate_epochs(self, epoch_steps: int) -> Epochs | None:
        """Epochs that share no row, each as a tree of its steps, for sigma = 1; None otherwise.

        The default covers independent noise: every row has one column, so no two steps share a row.
        """
        if self._dense_bytes > MAX_DENSE_BYTES:
            return None
        if np.count_nonzero(self._matrix, axis=1).max() > 1:
            return None
        squares = np.sum(self._matrix**2, axis=0).reshape(-1, epoch_steps)
        kinds = Counter(tuple(sorted(Counter(row).items())) for row in squares.tolist())
        if len(kinds) > MAX_LENGTHS or any(len(kind) > MAX_LENGTHS for kind in kinds):
            return None
        return tuple((many, apart(kind)) for kind, many in kinds.items())

    def _bins_products(self, bins: int) -> FloatArray:
        sums = self._matrix.reshape(self.rows, -1, bins).sum(axis=1)
        return np.asarray(sums.T @ sums)

    # What simulations need.

    def encode(self, vectors: FloatArray) -> FloatArray:
        """C x for each row x of `vectors` (steps long); plain floating point."""
        return np.asarray(vectors @ self._matrix.T)

    def adjoint(self, outputs: FloatArray) -> FloatArray:
        """C^T y for each row y of `outputs` (one number for each row of C)."""
        return np.asarray(outputs @ self._matrix)

    def squared_norms(self, sets: Participations) -> FloatArray:
        """|C 1_S|^2 for each participation set S."""
        squares = np.empty(len(sets))
        size = max(CHUNK // (self.rows + self.steps), 1)
        for start in range(0, len(sets), size):
            edges = sets.edges[start : start + size + 1]
            marks = np.zeros((len(edges) - 1, self.steps))
            owners = np.repeat(np.arange(len(marks)), np.diff(edges))
            marks[owners, sets.steps[edges[0] : edges[-1]]] = 1.0
            squares[start : start + size] = np.square(self.encode(marks)).sum(axis=1)
        return squares

    # What utility and training need: how releases are decoded.

    def decoder_matrix(self, decoder: str) -> FloatArray:
        """The matrix B with B C = I that the named decoder applies."""
        return inverse(self.to_dense(), np.eye(self.steps), self.adaptive)

    def noise_memory(self) -> int:
        """Noise vectors held at once, including the new one: the bands of C, or all its rows."""
        matrix = self.to_dense()
        return self.rows if np.triu(matrix, 1).any() else lower_bands(matrix)

    def variances(self, workload: Workload, decoder: str) -> FloatArray:
        """Squared norms of the rows of A B: the variance of every step at sigma = 1."""
        found = inverse(self.to_dense(), workload.to_dense(), self.adaptive)
        return np.asarray(np.square(found).sum(axis=1))

    def toeplitz_variances(self, workload: ToeplitzWorkload, decoder: str) -> FloatArray:
        """`variances` for a Toeplitz workload."""
        return self.variances(workload, decoder)

    def output_variance(self, workload: OutputWorkload, decoder: str) -> FloatArray:
        """`variances` for a workload of one vector: a single number."""
        return self.variances(workload, decoder)

    def schedule_variances(self, workload: ScheduleWorkload, decoder: str) -> FloatArray:
        """`variances` for SGD with learning rates, momentum and weight decay."""
        return self.variances(workload, decoder)

    # What files, reports and checkpoints need.

    def defining(self) -> tuple[Any, ...]:
        """The numbers and arrays that define C, from which its digest is computed."""
        return ("matrix", self.adaptive, self.to_dense())

    def record(self) -> Record | None:
        """What a file stores; None if the strategy cannot be saved."""
        return None

    def call(self) -> Call | None:
        """The call that makes the same strategy again; None if only a file can hold it."""
        made = self.provenance
        if made is None or made.version != mmcc.__version__ or not self.adaptive:
            return None
        entry = CONSTRUCTORS[made.constructor]
        known = {argument.name: argument.kind for argument in entry.arguments}
        numbers: dict[str, int | float | list[float]] = {}
        for name, value in made.arguments:
            if not entry.typed or known.get(name) not in NUMBERS or isinstance(value, str):
                return None
            numbers[name] = value
        return Call(entry, numbers)


def _pieces(matrix: FloatArray, blocks: Sequence[slice]) -> Iterator[Piece]:
    """What each block of rows adds, skipping blocks of zeros."""
    used = matrix > 0
    first = np.argmax(used, axis=1)
    end = matrix.shape[1] - np.argmax(used[:, ::-1], axis=1)
    full = np.asarray(used.any(axis=1))
    exact = matrix.shape[1] <= EXACT_COLUMNS
    for rows in blocks:
        if not full[rows].any():
            continue
        start = int(first[rows][full[rows]].min())
        stop = int(end[rows][full[rows]].max())
        block = matrix[rows, start:stop]
        yield Piece(
            span=slice(start, stop),
            squares=np.einsum("rj,rj->j", block, block),
            sums=block.sum(axis=1) @ block,
            factor=block if exact else None,
        )


def checked_strategy(strategy: object) -> Strategy:
    """The strategy, checked to be one."""
    if not isinstance(strategy, Strategy):
        raise StrategyError(
            f"strategy must come from mmcc.strategies, got {type(strategy).__name__}; "
            "wrap an array with mmcc.strategies.dense."
        )
    return strategy


def rounded_up(value: float, operations: int) -> float:
    """An upper bound on a sum of `operations` non-negative terms computed as `value`."""
    return value * (1.0 + (operations + 16) * 2.0**-52)


def rounded_down(value: float, operations: int) -> float:
    """A lower bound on a sum of `operations` non-negative terms computed as `value`."""
    return value * max(1.0 - (operations + 16) * 2.0**-52, 0.0)
