"""Claim: waves made by angles added are as exact as they say, whatever the frequencies."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from mmcc.accounting._bounds.reveal.inversion import Line
from mmcc.accounting._bounds.waves import STRIDE, WAVE_ERROR, powers, waves

DIGITS = 40
SPACED = Line(2.0, 0.137, 3 * STRIDE + 5, 1e-3).nodes().imag
FREQUENCIES = {
    "one": np.zeros(1),
    "few": SPACED[:STRIDE],
    "one more": SPACED[: STRIDE + 1],
    "spaced": SPACED,
    "from the middle": SPACED[7:],
    "with a gap": np.delete(SPACED, [20, 21, 22]),
    "the first again": np.concatenate([SPACED[:1], SPACED[9:]]),
    "nearly spaced": SPACED + np.where(np.arange(SPACED.size) == 40, 1e-12, 0.0),
    "high": 1e7 + SPACED,
}


@pytest.mark.parametrize("frequencies", FREQUENCIES.values(), ids=FREQUENCIES)
def test_waves_and_powers_against_many_digits(frequencies):
    x, real, shift = np.array([0.0, 1e-9, -0.3, 2.7182818, -37.5, 411.0]), -1.5, 2.0
    turned, grown = waves(x, frequencies), powers(x, real, frequencies, shift)
    for i, place in enumerate(x):
        room = WAVE_ERROR * (1 + float(frequencies.max()) * abs(place))
        more = room + 2.0**-52 * (4 + abs(real * place))
        for k, om in enumerate(frequencies):
            with mpmath.workdps(DIGITS):
                angle = mpmath.mpf(float(om)) * mpmath.mpf(float(place))
                wave, size = mpmath.expj(angle), mpmath.exp(mpmath.mpf(real) * float(place) - shift)
                assert abs(mpmath.mpc(complex(turned[i, k])) - wave) <= room
                assert abs(mpmath.mpc(complex(grown[i, k])) / (size * wave) - 1) <= more
