"""Learning-rate schedules, one rate per step, for `schedule`.

In: steps, and the shape of a schedule.  Out: an array; rates are relative to the largest, 1.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import real, whole
from mmcc.strategies._workloads import MAX_LENGTH


def constant_rates(steps: int, warmup: int = 0) -> FloatArray:
    """Rate 1 in every step, after a linear warm-up over the first `warmup` steps."""
    steps, warmup = _checked(steps, warmup)
    return _warmed(np.ones(steps - warmup), warmup)


def linear_rates(steps: int, warmup: int = 0, final: float = 0.0) -> FloatArray:
    """Linear decay from 1 towards `final`, which would be reached one step after the last."""
    steps, warmup = _checked(steps, warmup)
    final = real("final", final, 0, 1, closed="lh")
    return _warmed(1 - (1 - final) * _part_done(steps - warmup), warmup)


def cosine_rates(steps: int, warmup: int = 0, final: float = 0.0) -> FloatArray:
    """Half a cosine from 1 towards `final`, which would be reached one step after the last.

    This is the schedule of Loshchilov and Hutter without restarts.
    """
    steps, warmup = _checked(steps, warmup)
    final = real("final", final, 0, 1, closed="lh")
    falling = 0.5 * (1 + np.cos(np.pi * _part_done(steps - warmup)))
    return _warmed(final + (1 - final) * falling, warmup)


def cooldown(steps: int, fraction: float = 0.25, final: float = 0.05) -> FloatArray:
    """Rate 1, then linear decay to `final` over the last `fraction` of the steps."""
    steps = whole("steps", steps, 1, MAX_LENGTH)
    fraction = real("fraction", fraction, 0, 1, closed="lh")
    final = real("final", final, 0, 1, closed="lh")
    falling = round(fraction * steps)
    return np.concatenate(
        [np.ones(steps - falling), np.linspace(1.0, final, falling + 1)[1:]],
    )


def _checked(steps: int, warmup: int) -> tuple[int, int]:
    steps = whole("steps", steps, 1, MAX_LENGTH)
    return steps, whole("warmup", warmup, 0, steps - 1)


def _part_done(steps: int) -> FloatArray:
    """The fraction of the run completed before each step: 0, 1/n, ..., (n - 1)/n."""
    return np.arange(steps, dtype=np.float64) / steps


def _warmed(rates: FloatArray, warmup: int) -> FloatArray:
    """The rates after a warm-up of 1/(w + 1), 2/(w + 1), ..., w/(w + 1) times the first."""
    return np.concatenate([rates[0] * np.arange(1.0, warmup + 1) / (warmup + 1), rates])
