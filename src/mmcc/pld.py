"""Privacy loss distributions for mechanisms other than matrix mechanisms.

>>> d = mixture_of_gaussians([0, 1], [0.99, 0.01], sigma=1.0).self_compose(1000)
>>> d.epsilon(1e-6) < 3.0
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from mmcc._arrays import FloatArray, real_array
from mmcc.accounting._losses.distribution import PrivacyLossDistribution, compose_all
from mmcc.accounting._losses.laws import MixtureLaw
from mmcc.errors import ParameterError, StrategyError, real

__all__ = ("PrivacyLossDistribution", "conditional_composition", "mixture_of_gaussians")

MAX_RATIO = 1e5


def mixture_of_gaussians(
    sensitivities: ArrayLike,
    probabilities: ArrayLike,
    sigma: float,
    *,
    spacing: float | None = None,
) -> PrivacyLossDistribution:
    """A Gaussian mechanism whose sensitivity is random: N(s, sigma^2) against N(0, sigma^2).

    `sensitivities[k] >= 0` has probability `probabilities[k]`.  The grid is chosen for each
    question unless `spacing` fixes it.
    """
    sigma = real("sigma", sigma, 0, 1e12)
    values = _numbers("sensitivities", sensitivities)
    probs = _numbers("probabilities", probabilities)
    if values.shape != probs.shape or values.size == 0:
        raise ParameterError(
            f"need as many probabilities as sensitivities, and at least one; "
            f"got {probs.size} and {values.size}."
        )
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ParameterError("sensitivities must be finite and not negative.")
    total = math.fsum(probs)
    if not ((probs >= 0) & (probs <= 1)).all() or not abs(total - 1) <= 1e-9:
        raise ParameterError(
            f"probabilities must lie in [0, 1] and add up to 1, got a sum of {total:.12g}."
        )
    if not float(values.max()) / sigma <= MAX_RATIO:
        raise ParameterError(
            f"a sensitivity of {values.max():g} with sigma {sigma:g} is not private at any useful "
            f"epsilon (the ratio may be at most {MAX_RATIO:g})."
        )
    if spacing is not None:
        spacing = real("spacing", spacing, 0, 1.0, closed="h")
    # Rounded up: any probability missing from the sum goes to the largest sensitivity.
    probs = probs / max(total, 1.0)
    probs[np.argmax(values)] += max(1.0 - math.fsum(probs), 0.0)
    law = MixtureLaw(values / sigma * (1 + 2.0**-51), probs)
    return PrivacyLossDistribution(((law, 1),), ((law, 1),), spacing=spacing)


def conditional_composition(
    distributions: Iterable[PrivacyLossDistribution], bad_event_probability: float
) -> PrivacyLossDistribution:
    """Compose mechanisms that are dominated by `distributions` outside bad events (Theorem 3.1).

    If, for every output prefix outside the bad events, the next mechanism is dominated by the
    corresponding distribution, and the bad events have at most this probability under the first
    argument of the divergence (for both adjacencies), the composition satisfies delta(epsilon)
    of the composed distributions plus `bad_event_probability`.  Nothing is rescaled.
    """
    probability = real("bad_event_probability", bad_event_probability, 0, 1, closed="l")
    listed = list(distributions) if isinstance(distributions, Iterable) else []
    if not listed or not all(isinstance(d, PrivacyLossDistribution) for d in listed):
        raise ParameterError(
            "need at least one distribution, each made by mmcc.pld.mixture_of_gaussians."
        )
    return compose_all(listed, probability)


def _numbers(name: str, values: ArrayLike) -> FloatArray:
    try:
        array = real_array(name, values)
    except StrategyError as problem:
        raise ParameterError(str(problem)) from None
    if array.ndim != 1:
        raise ParameterError(f"{name} must be a flat list of numbers, got shape {array.shape}.")
    return array
