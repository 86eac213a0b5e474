"""Buffered linear Toeplitz encoders (BLTs): C[i, j] = c[i - j], c = 1, w, w rho, w rho^2, ...

With generating functions, c(x) = (1 - lam x) / (1 - rho x), lam = rho - w, so the noise C^-1 z
needs one buffer: whatever the number of steps, memory is one vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mmcc.arrays import FloatArray, own_arrays, real_array
from mmcc.errors import StrategyError, whole
from mmcc.sampling import MAX_STEPS
from mmcc.strategies.toeplitz import MAX_COEFFICIENTS, SMALLEST, Toeplitz


@dataclass(frozen=True, eq=False, repr=False)
class Blt(Toeplitz):
    """The encoder with coefficients 1, then sum_i scale_i decay_i^(k-1).

    `coefficients` are rounded up: by rounding, and to 1e-100 where they would be smaller.  A larger
    C, entry by entry, has a larger Gram matrix and a larger epsilon, so what is proven for them
    holds for the encoder that `decay` and `scale` define.
    """

    decay: FloatArray = field(default_factory=lambda: np.zeros(0))
    scale: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        own_arrays(self, "decay", "scale")
        super().__post_init__()

    def __repr__(self) -> str:
        decay, scale = (
            ", ".join(f"{value:g}" for value in values) for values in (self.decay, self.scale)
        )
        return f"blt({self.length}, decay=[{decay}], scale=[{scale}])"


def blt(
    steps: int,
    buffers: int | None = None,
    *,
    decay: Sequence[float] | FloatArray | None = None,
    scale: Sequence[float] | FloatArray | None = None,
) -> Blt:
    """A BLT: optimised for prefix sums, or given by its decay and scale.

    Optimised: the smallest root mean squared error of prefix sums at one participation, largest
    column norm * |A C^-1|_F / sqrt(n), over one buffer; decay and scale have six digits.
    """
    steps = whole("steps", steps, 1, MAX_STEPS)
    if steps > MAX_COEFFICIENTS:
        raise StrategyError(
            f"blt({steps}) keeps a coefficient for each step; at most {MAX_COEFFICIENTS} steps."
        )
    if (decay is None) != (scale is None):
        raise StrategyError("a BLT is given by decay and scale together, one number a buffer.")
    if decay is None or scale is None:
        count = 1 if buffers is None else whole("buffers", buffers, 1, 10**6)
        if count != 1:
            raise StrategyError(
                f"blt with {count} buffers is not yet there: only buffers=1 can be optimised."
            )
        return _build(steps, *best_buffer(steps))
    decays, scales = real_array("decay", decay), real_array("scale", scale)
    if decays.ndim != 1 or decays.shape != scales.shape or decays.size == 0:
        raise StrategyError(
            f"decay and scale must be lists of the same length, one number a buffer; got "
            f"shapes {decays.shape} and {scales.shape}."
        )
    if buffers is not None and whole("buffers", buffers, 1, 10**6) != decays.size:
        raise StrategyError(
            f"buffers={buffers} but decay has {decays.size} numbers: leave one out."
        )
    if decays.size != 1:
        raise StrategyError(
            f"blt with {decays.size} buffers is not yet there: give one decay and one scale."
        )
    return _build(steps, float(decays[0]), float(scales[0]))


def _build(steps: int, decay: float, scale: float) -> Blt:
    if not 0 < decay < 1:
        raise StrategyError(f"decay must lie in (0, 1), got {decay!r}: older noise must fade.")
    if not 0 < scale <= decay:
        raise StrategyError(
            f"scale must lie in (0, decay], got {scale!r} with decay {decay!r}: a larger scale "
            "makes the noise of later steps grow."
        )
    powers = decay ** np.arange(steps - 1.0)
    later = np.maximum(scale * powers * (1 + 2.0**-50), SMALLEST)
    return Blt(
        np.concatenate([[1.0], later]), steps, decay=np.array([decay]), scale=np.array([scale])
    )


def prefix_error(steps: int, decay: float, scale: float) -> float:
    """Largest column norm * |A C^-1|_F / sqrt(n) of one buffer, in closed form.

    A C^-1 is Toeplitz with entries b_k = (1 - beta) + beta lam^k, lam = decay - scale,
    beta = scale / (1 - lam), and sum_{k<n} (n-k) t^k = n/(1-t) - t (1-t^n)/(1-t)^2.
    """

    def falling(t: float) -> float:
        return (steps - t * -math.expm1(steps * math.log(t)) / (1 - t)) / (1 - t) if t else steps

    lam = decay - scale
    beta = scale / (1 - lam)
    rest = 1 - beta
    square = 0.5 * rest * rest * steps * (steps + 1)
    square += 2 * rest * beta * falling(lam) + beta * beta * falling(lam * lam)
    column = 1 + scale**2 * -math.expm1(2 * (steps - 1) * math.log(decay)) / (1 - decay**2)
    return math.sqrt(column * square / steps)


def best_buffer(steps: int) -> tuple[float, float]:
    """Decay and scale with the smallest prefix error: a scan, then a simplex, both deterministic.

    In logarithms: 1 - decay = e^-x, scale = decay / (1 + e^-y).
    """
    from scipy import optimize  # takes a while to import, and few need it

    def pair(x: float, y: float) -> tuple[float, float]:
        decay = -math.expm1(-x)
        return decay, decay / (1 + math.exp(-y))

    def error(point: FloatArray) -> float:
        x, y = (float(coordinate) for coordinate in point)
        if not (1e-3 <= x <= 34 and -34 <= y <= 34):
            return math.inf
        return math.log(prefix_error(steps, *pair(x, y)))

    xs = np.linspace(0.05, math.log(steps) + 1, 40)
    start = min((error(np.array([x, y])), x, y) for x in xs for y in np.linspace(-8, 4, 40))
    found = optimize.minimize(
        error, start[1:], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14}
    )
    decay, scale = pair(*found.x)
    decay = float(f"{decay:.6g}") if float(f"{decay:.6g}") < 1 else decay
    return decay, min(float(f"{scale:.6g}"), decay)
