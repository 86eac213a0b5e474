"""Compiled recurrences: a power series divided by another.

In: plain arrays, already validated.  Out: plain arrays.
Rounding: plain floating point; each recurrence solves a triangular system, so what it returns is
exact for coefficients changed by a few units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

from mmcc.arrays import FloatArray

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile, and remember the machine code between runs."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


@compiled
def divide(dividend: FloatArray, divisor: FloatArray) -> FloatArray:
    """The b with divisor * b = dividend, as long as the dividend: O(n bands)."""
    rest = dividend.copy()
    length, bands = rest.size, divisor.size
    for k in range(length):
        value = rest[k] / divisor[0]
        rest[k] = value
        for i in range(1, min(bands, length - k)):
            rest[k + i] -= value * divisor[i]
    return rest


@compiled
def divide_buffers(dividend: FloatArray, decay: FloatArray, scale: FloatArray) -> FloatArray:
    """The same for the divisor 1, then sum_i scale_i decay_i^(k-1): O(n buffers)."""
    quotient = np.empty(dividend.size)
    buffers = np.zeros(decay.size)
    for k in range(dividend.size):
        value = dividend[k]
        for i in range(decay.size):
            value -= scale[i] * buffers[i]
        quotient[k] = value
        for i in range(decay.size):
            buffers[i] = decay[i] * buffers[i] + value
    return quotient
