"""How much one participation shifts the exponents of other columns: inner products of columns.

In: a `Mechanism`, A = C / sigma.  Out: G = A^T A, as far as it is not zero.
Rounding: plain floating point, which `dominating` accounts for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._simulation.one_example import Mechanism
from mmcc.errors import StrategyError
from mmcc.strategies._toeplitz import Toeplitz

MOST_KICKS = 2**24
"""Most inner products that are kept, 128 megabytes."""
MOST_COLUMNS = 4096


@dataclass(frozen=True, eq=False)
class Kicks:
    """Shifts that a participation in column l causes: `flat[starts[l] + d]` = G_(l, l+d).

    Columns with equal rows share them.
    """

    flat: FloatArray
    starts: IntArray
    reach: int
    """G_(l, l+d) is 0 for larger distances d."""

    def __post_init__(self) -> None:
        if not self.flat.flags.writeable:
            object.__setattr__(self, "flat", self.flat.copy())

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.starts)

    def ahead(self, distance: int) -> FloatArray:
        """G_(l, l+d) for each column, 0 past the end."""
        found = np.zeros(self.columns)
        found[: self.columns - distance] = self.flat[
            self.starts[: self.columns - distance] + distance
        ]
        return found

    @cached_property
    def kinds(self) -> IntArray:
        """Columns with the same row have the same number."""
        return np.unique(self.starts, return_inverse=True)[1]

    def strengths(self, ahead: int) -> FloatArray:
        """1 - e^(-G_(l, l+k)), k = 1 .. ahead, for one column of each kind."""
        _, first = np.unique(self.starts, return_index=True)
        places = self.starts[first][:, None] + np.arange(1, ahead + 1)
        return np.asarray(-np.expm1(-self.flat[np.minimum(places, self.flat.size - 1)]))


def kicks_of(mechanism: Mechanism) -> Kicks:
    """From the coefficients, if the matrix is Toeplitz with few of them; else from the matrix."""
    toeplitz = mechanism.strategy.toeplitz
    if toeplitz is not None:
        reach = min((toeplitz.bands - 1) // mechanism.separation, mechanism.columns - 1)
        different = 2 * reach + 3
        if different < mechanism.columns and different * (2 * reach + 1) <= MOST_KICKS:
            return _toeplitz_kicks(mechanism, toeplitz, reach)
    columns, matrix = mechanism.columns, inner_products(mechanism)
    reach = max(d for d in range(columns) if np.diagonal(matrix, d).any())
    return Kicks(matrix.reshape(-1), np.arange(columns) * (columns + 1), reach)


def _toeplitz_kicks(mechanism: Mechanism, toeplitz: Toeplitz, reach: int) -> Kicks:
    """G_(j, j+d) = sum of c_i c_(i + |d| b) over the rows that the later column has left.

    With b the separation, reach = (bands - 1) div b: all but the last 2 reach + 2 columns, and
    their neighbours, have all their rows.
    """
    c, b, columns = toeplitz.coefficients, mechanism.separation, mechanism.columns
    own = 2 * reach + 2
    places = np.concatenate([[0], np.arange(columns - own, columns)])
    distances = np.arange(-reach, reach + 1)
    others = places[:, None] + distances
    later = np.maximum(places[:, None], others) * b + mechanism.group
    left = toeplitz.steps - 1 - later
    left[0] = toeplitz.bands  # the row that all others share is that of a column in the middle
    table = np.zeros((own + 1, 2 * reach + 1))
    for d in distances:
        sums = np.cumsum(c[: c.size - abs(d) * b] * c[abs(d) * b :]) / mechanism.sigma**2
        there = (others[:, d + reach] < columns) & (left[:, d + reach] >= 0)
        table[there, d + reach] = sums[np.minimum(left[there, d + reach], sums.size - 1)]
    kinds = np.maximum(np.arange(columns) - (columns - own) + 1, 0)
    return Kicks(table.reshape(-1), kinds * (2 * reach + 1) + reach, reach)


def inner_products(mechanism: Mechanism) -> FloatArray:
    """G as an array."""
    if mechanism.columns > MOST_COLUMNS:
        raise StrategyError(
            f"{mechanism.strategy!r} has {mechanism.columns} columns without a structure that "
            f"simulations can use; inner products are kept for at most {MOST_COLUMNS}. Use fewer "
            "steps or bands, or mmcc.epsilon."
        )
    if mechanism.gram is not None:
        return mechanism.gram
    return mechanism.adjoint(mechanism.encode(np.eye(mechanism.columns)))
