"""The Gaussian mechanism in closed form, rounded up; functions named `lower_*` round down.

With s = sigma / sensitivity, x = eps s - 1/(2s), y = eps s + 1/(2s):
delta = Phi(-x) - e^eps Phi(-y), and e^eps phi(y) = phi(x), so delta = phi(x) (R(x) - R(y)) with
Mills' ratio R, which neither overflows nor loses small deltas.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

EPS = 2.0**-53
SMALLEST = 1e-300
"""The smallest positive delta that is reported: a smaller one may have underflowed."""


def mills(x: float) -> float:
    """Mills' ratio Phi(-x) / phi(x)."""
    return math.sqrt(math.pi / 2) * float(special.erfcx(x / math.sqrt(2)))


def bound_gaussian_delta(ratio: float, epsilon: float) -> float:
    """Upper bound on delta(epsilon) for sensitivity / sigma = ratio."""
    if ratio == 0.0:
        return 0.0
    value, error = _delta(ratio, epsilon)
    return min(max(value + error, SMALLEST), 1.0)


def lower_gaussian_delta(ratio: float, epsilon: float) -> float:
    """Lower bound on delta(epsilon) for sensitivity / sigma = ratio."""
    value, error = _delta(ratio, epsilon) if ratio > 0.0 else (0.0, 0.0)
    return value - error if value - error > SMALLEST else 0.0


def bound_gaussian_epsilon(ratio: float, delta: float) -> float:
    """Upper bound on epsilon(delta) for sensitivity / sigma = ratio."""
    return _crossing(bound_gaussian_delta, ratio, delta)[1]


def lower_gaussian_epsilon(ratio: float, delta: float) -> float:
    """Lower bound on epsilon(delta) for sensitivity / sigma = ratio."""
    return _crossing(lower_gaussian_delta, ratio, delta)[0]


def _delta(ratio: float, epsilon: float) -> tuple[float, float]:
    """Delta in floating point, and a bound on its error."""
    x = epsilon / ratio - ratio / 2
    y = epsilon / ratio + ratio / 2
    density = math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    if x < -5.0:  # Phi(-x) is near one: erfcx would overflow
        first, second = float(special.ndtr(-x)), density * mills(y)
    else:
        first, second = density * mills(x), density * mills(y)
    # Rounding of x and y moves phi by x^2, and Mills' ratios are good to a few units.
    size = epsilon / ratio + ratio
    return first - second, 16 * EPS * (1 + size * size) * first


def _crossing(
    delta_at: Callable[[float, float], float], ratio: float, delta: float
) -> tuple[float, float]:
    """Two adjacent epsilons: delta_at exceeds delta at the first but not at the second."""
    if delta_at(ratio, 0.0) <= delta:
        return 0.0, 0.0
    low, high = 0.0, 1.0
    while delta_at(ratio, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if delta_at(ratio, middle) <= delta else (middle, high)
        if middle in (low, high) and high - low <= 4 * EPS * high:
            break
    return low, high
