"""Power series division: the coefficients of A C^-1 for Toeplitz matrices.

In: coefficients of two series, and how many of the quotient are wanted.  Out: that many.
Rounding: plain floating point.  Short divisions are recurrences.  Long ones use Fourier transforms
and check themselves: the result is discarded unless the residual proves ten good digits.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import PrecisionError

DIRECT_WORK = 2**26
"""Most multiplications of a recurrence that takes less than a tenth of a second."""
PATIENT_WORK = 2**34
"""Most multiplications of a recurrence when transforms are not accurate enough."""
DIRECT_PRODUCT = 2**20
START = 2**10
"""The number of coefficients of the inverse that Newton's method starts from."""
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
                f"the inverse of C grows so fast that {length} of its coefficients cannot be "
                "computed to ten digits. Use fewer steps or bands, or decreasing coefficients."
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
    """Division by Newton's method and one refinement; None unless shown to be accurate.

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
    """The series 1 / divisor: each step g <- g - g (divisor g - 1) doubles the coefficients."""
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
