"""The square root of a workload: C C = A, so that A C^-1 = C.

In: a workload.  Out: C >= 0; an error if the root has negative entries.
Rounding: plain floating point; the accounting is for the matrix that is returned.

The root with a positive diagonal is unique: it is the root of a power series if A is Toeplitz, and
of a triangular matrix otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray
from mmcc.errors import StrategyError
from mmcc.strategies._base import Strategy
from mmcc.strategies._checks import SMALLEST
from mmcc.strategies._dense import Dense
from mmcc.strategies._iterates import OutputWorkload
from mmcc.strategies._provenance import Argument, made_by
from mmcc.strategies._toeplitz import Toeplitz
from mmcc.strategies._workloads import ToeplitzWorkload, Workload, given_workload

MAX_STEPS = 10**5
"""Most steps of the recurrence for a series, which then takes some seconds."""
MAX_DENSE = 4096
ROUNDING = 1e-12
"""Entries no more negative than this, relative to the diagonal, are rounding errors."""


def square_root(workload: ArrayLike | Workload) -> Strategy:
    """The square root of a workload; `continual_counting` is the root of prefix sums.

    The result is Toeplitz for a Toeplitz workload, otherwise an array.
    """
    asked = given_workload(workload)
    most = MAX_STEPS if isinstance(asked, ToeplitzWorkload) else MAX_DENSE
    if not 0 < asked.steps <= most:
        raise StrategyError(f"the square root of {asked} is computed for 1 to {most} steps only.")
    if isinstance(asked, ToeplitzWorkload):
        arguments: dict[str, Argument] = {"workload": str(asked), "steps": asked.steps}
        made = made_by("square_root", arguments, "", None)
        return Toeplitz(_of_series(asked), asked.steps, provenance=made)
    if isinstance(asked, OutputWorkload):
        raise StrategyError(f"{asked} is a single vector, which has no square root.")
    return Dense(_of_array(asked))


def _of_series(workload: ToeplitzWorkload) -> FloatArray:
    from mmcc.strategies._recurrences import square_root as root  # compiles

    if not workload.coefficients[0] > 0:
        raise _no_root(workload)
    return _not_negative(np.asarray(root(np.array(workload.coefficients))), workload)


def _of_array(workload: Workload) -> FloatArray:
    from scipy.linalg import sqrtm  # takes a while to import, and few need it

    matrix = workload.to_dense()
    if not (np.diagonal(matrix) > 0).all():
        raise _no_root(workload)
    return _not_negative(np.asarray(sqrtm(matrix.T)).T, workload)


def _no_root(workload: Workload) -> StrategyError:
    return StrategyError(
        f"{workload} has no square root: its diagonal, the learning rates, must be positive."
    )


def _not_negative(root: FloatArray, workload: Workload) -> FloatArray:
    """The root with rounding errors set to zero; an error if it has negative entries."""
    least, scale = float(root.min()), float(root.flat[0])
    if not least >= -ROUNDING * scale:
        raise StrategyError(
            f"the square root of {workload} has negative entries (smallest {least:g}), and the "
            "amplification proof needs C >= 0. Use an optimiser, such as banded_toeplitz or blt."
        )
    return np.where(root < SMALLEST, 0.0, root)
