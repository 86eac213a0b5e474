r"""Conversion to and from dp_accounting's `PrivacyLossDistribution`, so that both compose.

In: a distribution of one library.  Out: one of the other.
Rounding: upwards; dp_accounting's distributions are made and accepted as pessimistic estimates
only.

A single mechanism is converted to its losses on their grid, a composition to dots of its delta
curve: certified deltas at up to `DOTS` epsilons, convex in e^epsilon between them.  What
dp_accounting does afterwards (FFT without an error bound, truncation of 1e-15) is its own
responsibility.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._adjacency import Adjacency
from mmcc.accounting._losses.distribution import PrivacyLossDistribution
from mmcc.accounting._losses.dots import SMALLEST_MASS, connect
from mmcc.accounting._losses.grid import GridLoss
from mmcc.accounting._losses.gridded import GridDistribution, put_on_grid
from mmcc.errors import MethodError, ParameterError, PrecisionError, real

SPACING = 1e-4
"""dp_accounting's default for `value_discretization_interval`."""
DOTS = 512
FARTHEST_DELTAS = (1e-15, 1e-12, 1e-9, 1e-6, 1e-3)


def to_dp_accounting(
    distribution: PrivacyLossDistribution | GridDistribution, *, spacing: float = SPACING
) -> Any:
    """Convert one of our distributions to a pessimistic one of dp_accounting, for both adjacencies.

    `spacing` is their `value_discretization_interval`; two distributions compose only if it is the
    same.  A `GridDistribution` keeps its own spacing.
    """
    pmf = _their("pld_pmf")
    if isinstance(distribution, PrivacyLossDistribution):
        distribution = put_on_grid(distribution, real("spacing", spacing, 0, 1.0, closed="h"))
    if not isinstance(distribution, GridDistribution):
        raise ParameterError(
            f"need a distribution made by mmcc.pld or mmcc.bridge, got {distribution!r}."
        )
    losses = [_losses_to_send(distribution, "remove"), _losses_to_send(distribution, "add")]
    made = [
        pmf.DensePLDPmf(loss.spacing, loss.first, loss.masses.copy(), loss.infinite, True)
        for loss in losses
    ]
    return _their("privacy_loss_distribution").PrivacyLossDistribution(*made)


def from_dp_accounting(distribution: Any) -> GridDistribution:
    """Convert their distribution to one of ours on their grid; it composes with `mmcc.pld`'s.

    It is not verified: the answer is only as sound as the masses in it.  Negative masses, which
    their FFT leaves behind, become zero; mass missing from the sum gets infinite loss.
    """
    theirs = _their("privacy_loss_distribution").PrivacyLossDistribution
    if not isinstance(distribution, theirs):
        raise ParameterError(
            f"need a dp_accounting PrivacyLossDistribution, got {type(distribution).__name__}."
        )
    try:
        sides = [_to_losses(side) for side in (distribution._pmf_remove, distribution._pmf_add)]
    except AttributeError as problem:
        raise MethodError(
            f"this version of dp_accounting stores its masses elsewhere ({problem}). "
            "Use dp-accounting 0.4.4 to 0.6."
        ) from None
    return GridDistribution(((sides[0], 1),), ((sides[1], 1),))


def _their(module: str) -> Any:
    try:
        return import_module(f"dp_accounting.pld.{module}")
    except ImportError:
        raise MethodError(
            "the bridge needs the package dp-accounting, which is not installed. "
            "Use pip install 'mmcc[bridge]'."
        ) from None


def _to_losses(pmf: Any) -> GridLoss:
    if not pmf._pessimistic_estimate:
        raise MethodError(
            "this dp_accounting distribution is an optimistic estimate, which is not an upper "
            "bound. Make it with pessimistic_estimate=True."
        )
    dense = pmf.to_dense_pmf()
    masses = np.array(dense._probs, dtype=np.float64)
    infinite = float(dense._infinity_mass)
    spacing = real(
        "value_discretization_interval", float(dense._discretization), 0, 1.0, closed="h"
    )
    if masses.ndim != 1 or not np.isfinite(masses).all() or not 0 <= infinite <= 1 + 1e-9:
        raise ParameterError("this dp_accounting distribution has masses that are not numbers.")
    if not float(masses.min(initial=0.0)) >= -1e-9 or not math.fsum(masses) <= 1 + 1e-6:
        raise ParameterError("this dp_accounting distribution has masses outside [0, 1].")
    return _without_specks(spacing, int(dense._lower_loss), np.maximum(masses, 0.0), infinite)


def _without_specks(spacing: float, first: int, masses: FloatArray, infinite: float) -> GridLoss:
    """Move masses too small for floating point, and mass missing from the sum, to infinity."""
    specks = (masses > 0) & (masses < SMALLEST_MASS)
    infinite += int(specks.sum()) * SMALLEST_MASS
    masses = np.where(specks, 0.0, masses)
    missing = 1.0 - (math.fsum(masses) + infinite)
    if missing > 0:
        infinite += missing * (1 + 1e-9)
    kept = np.flatnonzero(masses)
    if kept.size == 0:
        raise PrecisionError("all of the privacy loss is infinite: no epsilon can be certified.")
    masses = masses[kept[0] : kept[-1] + 1]
    if masses.size == 1:  # windows need two grid points
        masses = np.concatenate([masses, [0.0]])
    return GridLoss(spacing, first + int(kept[0]), masses, infinite)


def _losses_to_send(distribution: GridDistribution, side: Adjacency) -> GridLoss:
    parts = distribution.remove if side == "remove" else distribution.add
    if len(parts) == 1 and parts[0][1] == 1:
        loss = parts[0][0]
        infinite = min(loss.infinite + distribution.slack * (1 + 1e-12), 1.0)
        return _without_specks(loss.spacing, loss.first, loss.masses, infinite)
    return _dots(distribution, side)


def _dots(distribution: GridDistribution, side: Adjacency) -> GridLoss:
    """The losses that connect certified deltas at up to about `DOTS` epsilons."""
    spacing = distribution.spacing
    finite = replace(distribution, slack=0.0)  # bad events get infinite loss as a whole
    top = _farthest(finite, side)
    bottom = -_farthest(finite, "add" if side == "remove" else "remove")
    step = max(1, math.ceil((top - bottom) / spacing / DOTS))
    ends = math.floor(bottom / spacing / step) - 1, math.ceil(top / spacing / step) + 2
    places = np.arange(*ends) * step
    heights = distribution.curve(np.asarray(places * spacing, np.float64), side)
    loss = connect(places, heights, spacing)
    return _without_specks(spacing, loss.first, loss.masses, loss.infinite)


def _farthest(distribution: GridDistribution, side: Adjacency) -> float:
    """Roughly where delta is negligible, or the smallest that can be certified."""
    for delta in FARTHEST_DELTAS:
        with suppress(PrecisionError):
            return distribution.epsilon(delta, side)
    raise PrecisionError(
        "too much of the privacy loss is infinite for a curve of its deltas. Use a larger sigma."
    )
