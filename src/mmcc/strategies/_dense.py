"""Encoders given as an array."""

from __future__ import annotations

from dataclasses import dataclass, field

from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, own_arrays, real_array
from mmcc.errors import StrategyError, whole
from mmcc.strategies._base import Strategy
from mmcc.strategies._checks import check_matrix, release_steps
from mmcc.strategies._descriptions import Record
from mmcc.strategies._provenance import Provenance


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Strategy):
    """An m x n encoder, with rows in causal order unless `causal` is False."""

    is_array = True

    matrix: FloatArray
    causal: bool = True
    provenance: Provenance | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        own_arrays(self, "matrix")
        check_matrix(self.matrix, self.causal)

    @property
    def steps(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def adaptive(self) -> bool:
        return self.causal

    def prefix(self, steps: int) -> Dense:
        """The leading columns, and the rows that need no later column."""
        return Dense(self._leading(steps))

    def _leading(self, steps: int) -> FloatArray:
        steps = whole("steps", steps, 1, self.steps)
        if not self.causal:
            raise StrategyError(
                f"{self!r} has no order of release, so nothing is known about its first "
                f"{steps} steps alone. Sort the rows by their last non-zero column."
            )
        return self.matrix[release_steps(self.matrix, self.causal) < steps, :steps]

    def __repr__(self) -> str:
        if self.provenance is not None and self.causal:
            return str(self.provenance)
        suffix = "" if self.causal else ", adaptive=False"
        return f"dense({self.rows} x {self.steps}{suffix})"

    def _dense(self) -> FloatArray:
        return self.matrix

    @property
    def _matrix(self) -> FloatArray:
        return self.matrix

    def record(self) -> Record:
        return Record("dense", {"adaptive": int(self.causal)}, {"matrix": self.matrix})


def dense(array: ArrayLike, adaptive: bool = True) -> Dense:
    """The encoder given by an m x n array, m rows released over n steps."""
    return Dense(real_array("a strategy", array), bool(adaptive))


def rebuild(made: Provenance | None, adaptive: int, matrix: FloatArray) -> Dense:
    """The encoder that a saved file describes."""
    return Dense(matrix, bool(whole("adaptive", adaptive, 0, 1)), provenance=made)
