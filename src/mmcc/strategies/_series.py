"""Power series division: the coefficients of A C^-1 for Toeplitz matrices.

In: coefficients of two series, and how many of the quotient are wanted.  Out: that many.
Rounding: plain floating point.  Short divisions are recurrences.  Long ones use Fourier transforms
and check themselves: where the residual does not show ten good digits, they are not used.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import PrecisionError

DIRECT_WORK = 2**26
"""Multiplications up to which a recurrence takes less than a tenth of a second."""
PATIENT_WORK = 2**34
"""The most that a recurrence is asked to do where transforms are not accurate enough."""
DIRECT_PRODUCT = 2**20
START = 2**10
"""Coefficients of the inverse with which Newton's method starts."""
DIGITS = 1e-10


def quotient(dividend: FloatArray, divisor: FloatArray, length: int) -> FloatArray:
    """The first `length` coefficients of dividend / divisor; divisor[0] is not zero."""
    from mmcc.strategies._recurrences import divide  # compiles

    top, below = _first(dividend, length), np.ascontiguousarray(divisor[:length])
    work = length * below.size
    if work > DIRECT_WORK:
        found = _transformed(top, below)
        if found is not None:
            return found
        if work > PATIENT_WORK:
            raise PrecisionError(
                f"the inverse of C grows so fast that {length} of its coefficients cannot be had "
                "to ten digits. Use fewer steps or fewer bands, or coefficients that fall."
            )
    return np.asarray(divide(top, below))


def product(one: FloatArray, other: FloatArray, length: int) -> FloatArray:
    """The first `length` coefficients of one * other; error about 2^-50 |one| |other|."""
    one, other = one[:length], other[:length]
    if one.size * other.size <= DIRECT_PRODUCT:
        return _first(np.convolve(one, other), length)
    size = 1 << (one.size + other.size - 2).bit_length()
    spectrum = np.fft.rfft(one, size) * np.fft.rfft(other, size)
    return _first(np.fft.irfft(spectrum, size), length)


def _first(series: FloatArray, length: int) -> FloatArray:
    """A copy of exactly `length` coefficients."""
    result = np.zeros(length)
    result[: series.size] = series[:length]
    return result


def _transformed(dividend: FloatArray, divisor: FloatArray) -> FloatArray | None:
    """Division by Newton's method, one refinement; None where it is not shown to be accurate.

    With e = divisor * inverse - 1 and |e|_1 <= 1/2, the true inverse has |.|_1 <= 2 |inverse|_1, so
    the quotient's error is at most 2 |inverse|_1 |residual|_2 in norm.
    """
    length = dividend.size
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = _inverse(divisor, length)
        defect = product(divisor, inverse, length)
        defect[0] -= 1
        found = product(dividend, inverse, length)
        found += product(inverse, dividend - product(divisor, found, length), length)
        residual = dividend - product(divisor, found, length)
        size = float(np.linalg.norm(found))
        noise = 2.0**-50 * float(np.linalg.norm(divisor)) * size
        error = 2 * float(np.abs(inverse).sum()) * (float(np.linalg.norm(residual)) + noise)
        accurate = float(np.abs(defect).sum()) <= 0.5 and error <= DIGITS * size
    return found if accurate else None


def _inverse(divisor: FloatArray, length: int) -> FloatArray:
    """1 / divisor: twice as many coefficients with each step g <- g - g (divisor g - 1)."""
    from mmcc.strategies._recurrences import divide

    known = min(START, length)
    inverse = np.asarray(divide(_first(np.ones(1), known), divisor[:known]))
    while known < length:
        known = min(2 * known, length)
        defect = product(divisor, inverse, known)
        defect[0] -= 1
        longer = _first(inverse, known)
        longer -= product(inverse, defect, known)
        inverse = longer
    return inverse
