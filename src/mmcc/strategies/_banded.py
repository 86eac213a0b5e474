"""Banded encoders, optimised: C[i, j] = 0 unless 0 <= i - j < bands, columns of norm 1.

In: steps, bands and a workload A.  Out: C >= 0 with the least root mean squared error at one
participation, |A C^-1|_F / sqrt(n), found by descent from the best banded Toeplitz encoder.  A^-1
must have few bands, as for SGD with any learning rates.  Participations that are at least `bands`
steps apart touch different rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import BoolArray, FloatArray
from mmcc.errors import StrategyError, whole
from mmcc.sampling._unsampled import Limits
from mmcc.strategies._banded_toeplitz import best_coefficients
from mmcc.strategies._dense import Dense
from mmcc.strategies._descent import Progress, check_progress, minimise
from mmcc.strategies._descriptions import Record
from mmcc.strategies._provenance import Provenance, made_by
from mmcc.strategies._toeplitz_objective import Objective, objective_of
from mmcc.strategies._workloads import Workload

MAX_STEPS = 10_000
TOLERANCE = 1e-6
"""On the gradient of the log error: 1e-7 would change the error only in its ninth digit."""
SMALLEST_DIAGONAL = 1e-4
SHORT = 600
"""Up to this many steps a matrix without structure is accounted for within seconds."""


@dataclass(frozen=True, eq=False, repr=False)
class Banded(Dense):
    """A lower triangular encoder with the given number of diagonals."""

    bands: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("bands", self.bands, 1, self.steps)
        if self.rows != self.steps:
            raise StrategyError(f"a banded strategy is square, got {self.rows} x {self.steps}.")
        if np.count_nonzero(self.matrix) != np.count_nonzero(self.diagonals):
            raise StrategyError(
                f"the matrix has entries outside its {self.bands} bands below the diagonal; "
                "use dense, which needs no bands."
            )

    def __repr__(self) -> str:
        return str(self.provenance or f"banded({self.steps}, {self.bands}), given")

    @property
    def quicker(self) -> str:
        """The Toeplitz version: bounds use its structure, and its error is only slightly larger."""
        return f"banded-toeplitz --bands {self.bands}" if self.steps > SHORT else ""

    def prefix(self, steps: int) -> Banded:
        """The leading square, with as many bands as fit."""
        return Banded(self._leading(steps), bands=min(self.bands, steps))

    def record(self) -> Record:
        return Record("banded", {}, {"diagonals": self.diagonals})

    @property
    def diagonals(self) -> FloatArray:
        """Entry [j, k] is C[j + k, j], and 0 below the matrix: all of C in n * bands numbers."""
        inside = inside_matrix(self.steps, self.bands)
        columns, places = np.nonzero(inside)
        found = np.zeros(inside.shape)
        found[inside] = self.matrix[columns + places, columns]
        return found


def from_diagonals(diagonals: FloatArray, provenance: Provenance | None) -> Banded:
    """The encoder with C[j + k, j] = diagonals[j, k]."""
    steps, bands = diagonals.shape
    whole("steps", steps, 1, MAX_STEPS)
    inside = inside_matrix(steps, bands)
    columns, places = np.nonzero(inside)
    matrix = np.zeros((steps, steps))
    matrix[columns + places, columns] = diagonals[inside]
    return Banded(matrix, provenance=provenance, bands=bands)


def rebuild(made: Provenance | None, diagonals: FloatArray) -> Banded:
    """The encoder that a saved file describes."""
    return from_diagonals(diagonals, made)


def inside_matrix(steps: int, bands: int) -> BoolArray:
    """Entry [j, k]: whether the matrix has a row j + k."""
    return np.asarray(np.arange(steps)[:, None] + np.arange(bands) < steps)


def banded(
    steps: int,
    bands: int,
    *,
    workload: ArrayLike | Workload | None = None,
    participations: Limits | None = None,
    progress: Progress | None = None,
) -> Banded:
    """The best encoder found with the given number of bands and columns of norm 1.

    It is optimised for prefix sums unless a workload is given.  Participations at least `bands`
    steps apart touch different rows, so the best encoder for one participation is also the best for
    several.
    """
    steps = whole("steps", steps, 1, 10**12)
    bands = whole("bands", bands, 1, steps)
    check_progress(progress)
    if steps > MAX_STEPS:
        raise StrategyError(
            f"banded({steps}, {bands}) is stored as a full matrix, for at most {MAX_STEPS} steps. "
            "Use banded_toeplitz, whose error is within a few per cent."
        )
    objective = objective_of(steps, workload, participations)
    if objective.times > 1 and objective.separation < bands:
        raise StrategyError(
            f"banded is not optimised for participations {objective.separation} steps apart, fewer "
            f"than its {bands} bands. Use fewer bands, or banded_toeplitz or blt, which are."
        )
    diagonals, error = best_diagonals(objective, bands, progress)
    arguments = {"steps": steps, "bands": bands, **objective.extra}
    reached = math.sqrt(objective.times) * error
    return from_diagonals(diagonals, made_by("banded", arguments, "mean", reached))


def best_diagonals(
    objective: Objective, bands: int, progress: Progress | None
) -> tuple[FloatArray, float]:
    """Columns of norm 1, [j, k] = C[j + k, j] >= 0, and the error at one participation."""
    steps, workload = objective.steps, objective.workload
    differences = workload.differences()
    if differences is None:
        raise StrategyError(
            f"banded needs a workload whose inverse has few bands, such as SGD with momentum, "
            f"positive learning rates and all models counted, and {workload} is not one. Use "
            "banded_toeplitz, or optimal."
        )
    from mmcc.strategies._banded_error import square_and_gradient  # numba takes a second

    inside = inside_matrix(steps, bands)

    def normalised(entries: FloatArray) -> tuple[FloatArray, FloatArray]:
        columns = np.zeros(inside.shape)
        columns[inside] = entries
        norms = np.linalg.norm(columns, axis=1, keepdims=True)
        return columns / norms, norms

    def log_error(entries: FloatArray) -> tuple[float, FloatArray]:
        columns, norms = normalised(entries)
        square, slope = square_and_gradient(columns, differences)
        slope -= columns * np.sum(slope * columns, axis=1, keepdims=True)
        return 0.5 * math.log(square / steps), (0.5 / square) * (slope / norms)[inside]

    coefficients, _ = best_coefficients(replace(objective, participations=None), bands, None)
    start = np.broadcast_to(coefficients, inside.shape)[inside]
    lowest = np.broadcast_to(SMALLEST_DIAGONAL * (np.arange(bands) == 0), inside.shape)[inside]
    entries, value = minimise(
        log_error, start, (lowest, np.inf), tolerance=TOLERANCE, what="banded", progress=progress
    )
    return normalised(entries)[0], math.exp(value)
