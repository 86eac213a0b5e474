"""The mechanism that an execution plan of jax_privacy runs: strategy, scheme and noise.

In: a `BandMFExecutionPlanConfig`.  Out: what its plan samples and adds, in our units.
Rounding: sigma goes down, columns go up.  Numbers are those of the plan, in its own precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import mmcc
from mmcc._arrays import FloatArray
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._questions import epsilon_on_grid
from mmcc.bridge.jax_privacy._library import load, their
from mmcc.bridge.jax_privacy._samplers import scheme_from
from mmcc.bridge.jax_privacy._strategies import column_normalised
from mmcc.errors import MethodError, ParameterError, PrecisionError, shown
from mmcc.sampling import Scheme
from mmcc.strategies import Strategy, toeplitz

TYPES = {np.dtype(kind): kind for kind in (np.float32, np.float64)}
DOWN = 1 - 2.0**-50
"""Covers two roundings."""
SPACING = 7e-5
"""Finer than the grid of dp_accounting's accountants, 1e-4; the errors of both are of second order,
so that ours is half as far from the truth."""


@dataclass(frozen=True, slots=True)
class PlannedMechanism:
    """What a plan does, in the terms of `mmcc.epsilon`."""

    strategy: Strategy
    sampling: Scheme
    sigma: float
    """The noise in units of an example's largest contribution."""

    def epsilon(self, delta: float) -> Guarantee:
        """The certified epsilon: the smaller of `mmcc.epsilon` and losses on a finer grid."""
        found = mmcc.epsilon(self.strategy, self.sampling, sigma=self.sigma, delta=delta)
        try:
            finer = epsilon_on_grid(
                self.strategy, self.sampling, sigma=self.sigma, delta=delta, spacing=SPACING
            )
        except (MethodError, PrecisionError):  # nothing to compose, or losses too large for it
            return found
        return min(found, finer, key=lambda one: one.epsilon)


def mechanism_from(config: Any) -> PlannedMechanism:
    """What the plan of a `BandMFExecutionPlanConfig` samples, encodes and adds.

    The noise is taken from the plan itself, so a plan that was calibrated by jax_privacy's own
    accountant is certified as it is.  Its adjacency matches ours if its accountant's is zero-out
    (`REPLACE_SPECIAL`), or adding and removing with independent groups.
    """
    plans = their("experimental.execution_plan")
    if type(config) is not plans.BandMFExecutionPlanConfig:
        raise ParameterError(f"need a BandMFExecutionPlanConfig, got {shown(config)}.")
    relation = config.accountant.neighboring_relation
    if relation not in (
        plans.NeighboringRelation.REPLACE_SPECIAL,
        plans.NeighboringRelation.ADD_OR_REMOVE_ONE,
    ):
        raise MethodError(
            f"the plan is for {relation.name}, but certificates here are for examples whose "
            "contribution becomes zero. Use an accountant for REPLACE_SPECIAL."
        )
    scheme = scheme_from(config.plan.batch_selection_strategy, config.num_examples)
    contribution = config.plan.clipped_grad(lambda: None).sensitivity(relation)
    norm = np.linalg.norm(np.asarray(config.strategy))
    added = float(_noise_multiplier(config.plan.dp_event) * contribution * norm)
    sigma = _in_noise_type(config, added) / contribution * DOWN
    return PlannedMechanism(_strategy(config), scheme, sigma)


def _strategy(config: Any) -> Strategy:
    """The strategy from the coefficients in jax, with columns divided by the plan's norms."""
    jnp, steps = load("jax.numpy"), config.iterations
    held = jnp.array(config.strategy)[:steps]
    coefficients: FloatArray = np.asarray(held, dtype=np.float64)
    if not config.column_normalize:
        return toeplitz(coefficients, steps)
    padded = jnp.pad(held, (0, steps - held.shape[0]))
    norms = jnp.sqrt(jnp.cumsum(padded**2))[::-1]
    return column_normalised(coefficients, np.asarray(norms, dtype=np.float64))


def _in_noise_type(config: Any, size: float) -> float:
    """A standard deviation rounded to the type of the noise."""
    kind = TYPES.get(np.dtype(config.dtype)) if config.dtype is not None else None
    if kind is None:
        raise ParameterError(
            f"the plan makes noise in dtype={shown(config.dtype)}, too coarse to be taken for "
            "Gaussian. Use float32 or float64."
        )
    return min(size, float(kind(size)))


def _noise_multiplier(event: Any) -> float:
    """The noise multiplier of the Gaussian inside a composed, possibly sampled, event."""
    while not hasattr(event, "noise_multiplier"):
        if not hasattr(event, "event"):
            raise MethodError(
                f"no Gaussian noise was found in the plan's event {shown(event)}. Use a plan of "
                "jax_privacy 2.0."
            )
        event = event.event
    return float(event.noise_multiplier)
