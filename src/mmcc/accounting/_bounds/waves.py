"""Waves e^{i om x} at many x and many frequencies, by adding angles.

In: x, frequencies om >= 0.  Out: the waves, [x, frequency], and powers and sums made of them.
Rounding: each wave is within WAVE_ERROR (1 + om |x|) of the exact one, om the largest frequency.

The frequencies of an inversion are equally spaced up to rounding.  Then om = om_a + om_b, with
every STRIDE-th frequency for om_a and the first STRIDE differences for om_b, and one product of
complex numbers replaces a sine and a cosine.

*Error.*  om_a + om_b is within SPACING om of the frequency, or angles are not added: a wave moves
by at most that times |x|.  The two angles are rounded once each, by parts in 2^-53 of at most om
|x|.  Sines and cosines err by a few units in the last place, their product by a few more: 2^-48 is
ample.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray

ROUND = 2.0**-52
SPACING = 4 * ROUND
"""Error allowed in an added frequency, relative to the largest frequency."""
WAVE_ERROR = 16 * ROUND
STRIDE = 16


def waves(x: FloatArray, frequencies: FloatArray) -> ComplexArray:
    """e^{i om x} for each x and each frequency om."""
    if frequencies.size <= STRIDE:
        return _rotations(np.multiply.outer(x, frequencies))
    starts, differences = frequencies[::STRIDE], frequencies[:STRIDE] - frequencies[0]
    added = np.add.outer(starts, differences).ravel()[: frequencies.size]
    if not np.abs(added - frequencies).max() <= SPACING * frequencies.max():
        if frequencies[0] != 0:
            return _rotations(np.multiply.outer(x, frequencies))
        # The real power, which goes first in every batch.
        return np.concatenate([np.ones((x.size, 1)), waves(x, frequencies[1:])], axis=1)
    coarse = _rotations(np.multiply.outer(x, starts))
    fine = _rotations(np.multiply.outer(x, differences))
    every = coarse[:, :, None] * fine[:, None, :]
    return every.reshape(x.size, -1)[:, : frequencies.size]


def powers(logs: FloatArray, real: float, frequencies: FloatArray, shift: float) -> ComplexArray:
    """e^{(real + i om) log - shift} for each logarithm and each frequency."""
    return np.asarray(np.exp(real * logs - shift)[:, None] * waves(logs, frequencies))


def product(weights: FloatArray, values: ComplexArray) -> ComplexArray:
    """Real weights times complex values, as real matrices with twice as many columns."""
    flat = np.ascontiguousarray(values).reshape(values.shape[0], -1).view(np.float64)
    return np.asarray((weights @ flat).view(np.complex128).reshape(-1, *values.shape[1:]))


def _rotations(angles: FloatArray) -> ComplexArray:
    """e^{i angle}: faster than the exponential of complex numbers."""
    found = np.empty(angles.shape, dtype=np.complex128)
    np.cos(angles, out=found.real)
    np.sin(angles, out=found.imag)
    return found
