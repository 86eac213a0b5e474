"""The dense encoder with the least root mean squared error of a workload A.

In: steps and A.  Out: C >= 0, lower triangular, columns of norm 1, whose |A C^-1|_F is the smallest
of all encoders with columns of norm at most 1 (one participation), to a relative 5e-9.

With X = C^T C and S = A^T A the problem is min tr(S X^-1) over X with unit diagonal.  For positive
multipliers v, V = diag(v), the Lagrangian is least at X = V^-1/2 R V^-1/2, R = (V^1/2 S V^1/2)^1/2,
and the best scaling of v gives the lower bound (tr R)^2 / sum v.  Optimal multipliers satisfy
v = diag(R).  The relative gap between X scaled to unit diagonal and the bound ends the iteration.

Where A^T A is singular to rounding, as with a learning rate that falls to almost nothing, a
multiple of the identity is added (RIDGE), and the error is optimal up to that addition.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray
from mmcc.errors import PrecisionError, StrategyError, whole
from mmcc.sampling._unsampled import Limits
from mmcc.strategies._dense import Dense
from mmcc.strategies._descent import Progress, check_progress
from mmcc.strategies._iterates import OutputWorkload
from mmcc.strategies._provenance import made_by
from mmcc.strategies._toeplitz_objective import objective_of
from mmcc.strategies._workloads import Workload

MAX_STEPS = 4096
GAP = 1e-8
RELAXATION = 1.8
"""v is multiplied by (diag(R)/v)^RELAXATION; values above 1 halve the number of iterations."""
MOST_TURNS = 400
ROUNDING = 1e-12
"""Entries of C no more negative than this are rounding errors of the Cholesky factor."""


RIDGE = 1e-11
"""Added to A^T A, relative to its mean diagonal, if its eigenvalues are smaller than this."""


def optimal(
    steps: int,
    *,
    workload: ArrayLike | Workload | None = None,
    participations: Limits | None = None,
    progress: Progress | None = None,
) -> Dense:
    """The encoder with the least mean squared error at one participation.

    It is optimised for prefix sums unless a workload is given.
    """
    steps = whole("steps", steps, 1, 10**12)
    check_progress(progress)
    if steps > MAX_STEPS:
        raise StrategyError(
            f"optimal({steps}) solves dozens of eigenvalue problems of that size, for at most "
            f"{MAX_STEPS} steps. Use banded, banded_toeplitz or blt, which come close."
        )
    objective = objective_of(steps, workload, participations)
    if objective.times > 1:
        raise StrategyError(
            "optimal covers one participation only: for several, the best matrix has negative "
            "entries, and the amplification proof needs C >= 0. Use banded with fewer bands than "
            "steps between participations, banded_toeplitz or blt."
        )
    if isinstance(objective.workload, OutputWorkload):
        raise StrategyError(
            f"{objective.workload} is a single vector, whose error has no minimum over all "
            "matrices (noise would be added to that vector alone). Use utility.final_mix, or a "
            "Toeplitz optimiser."
        )
    gram, square = best_gram(objective.workload, progress)
    matrix = lower_factor(gram)
    error = math.sqrt(square / steps)
    arguments = {"steps": steps, **objective.extra}
    return Dense(matrix, provenance=made_by("optimal", arguments, "mean", error))


def best_gram(workload: Workload, progress: Progress | None) -> tuple[FloatArray, float]:
    """X = C^T C with unit diagonal, and |A C^-1|_F^2."""
    from scipy import linalg  # takes a while to import, and few need it

    steps = workload.steps
    products = workload.products()
    least = 0.25  # of prefix sums
    if not workload.is_prefix_sums:
        ridge = RIDGE * float(np.diagonal(products).mean())
        least = float(linalg.eigvalsh(products, subset_by_index=(0, 0))[0])
        if least < ridge:
            products = products + (ridge - min(least, 0.0)) * np.eye(steps)
            least = ridge
    multipliers = np.ones(steps)
    for turn in range(MOST_TURNS):
        root = np.sqrt(multipliers)
        squares, vectors = linalg.eigh(root[:, None] * products * root)
        values = np.sqrt(np.maximum(squares, least * multipliers.min()))
        diagonal = np.einsum("ij,j,ij->i", vectors, values, vectors)
        # X^-1 = Y^T Y once X is scaled to unit diagonal: A X^-1 A^T has the trace |Y A^T|^2.
        inverse = (vectors / np.sqrt(values)).T * np.sqrt(diagonal)
        if workload.is_prefix_sums:
            square = float(np.sum(np.cumsum(inverse, axis=1) ** 2))
        else:
            square = float(np.sum((inverse @ products) * inverse))
        bound = float(values.sum()) ** 2 / float(multipliers.sum())
        if progress is not None:
            progress("optimal: turns", turn + 1)
        if square - bound <= GAP * bound:
            scaled = vectors / np.sqrt(diagonal)[:, None]
            return np.asarray((scaled * values) @ scaled.T), square
        multipliers = multipliers * (diagonal / multipliers) ** RELAXATION
    raise PrecisionError(
        f"optimal({steps}): after {MOST_TURNS} iterations the error may still fall by a relative "
        f"{0.5 * (square / bound - 1):.1g}. Use banded or blt."
    )


def lower_factor(gram: FloatArray) -> FloatArray:
    """The lower triangular C >= 0 with C^T C = gram: Cholesky with rows and columns reversed."""
    factor = np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]
    least = float(factor.min())
    if not least >= -ROUNDING:
        raise StrategyError(
            f"the optimal encoder has a negative entry ({least:g}), and the amplification proof "
            "needs C >= 0. Use banded or blt."
        )
    return np.asarray(np.maximum(factor, 0.0))
