"""Claim: the Mellin inversion gives an upper bound, whatever the line and however it rounds."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from oracles import truth

from mmcc.accounting._bounds.reveal.inversion import Inversion, Line, Moments, line_for


@pytest.mark.parametrize("variance", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("period", [3.0, 6.0, 12.0])
def test_inversion_of_a_lognormal_is_the_gaussian_mechanism_from_above(variance, epsilon, period):
    """X = e^{sqrt(g) y - g/2} has M(z) = e^{g z(z-1)/2}: any line gives an upper bound."""
    order = 1.5 + epsilon / variance
    line = line_for(order, period * math.sqrt(variance) + 9 / (order - 1), 1e-3 * variance, 9.0)
    z = line.nodes()
    inside = variance * (z * (z - 1)) / 2
    log_scale = float(inside[0].real)
    found = Inversion(line, Moments(np.exp(inside - log_scale), log_scale, 1e-14))
    exact = float(truth.gaussian_delta(math.sqrt(variance), 1.0, epsilon))
    assert exact <= found.excess(epsilon) <= exact * 1.02 + 1e-15


def test_a_poor_line_is_loose_but_never_low():
    for step, count in itertools.product([0.3, 3.0, 30.0], [2, 5, 50]):
        line = Line(order=4.0, step=step, count=count, smoothing=1e-3)
        z = line.nodes()
        values = np.exp(0.5 * (z * (z - 1) - 12))
        found = Inversion(line, Moments(values, 6.0, 1e-14))
        for epsilon in (0.0, 1.0, 3.0):
            assert found.excess(epsilon) >= float(truth.gaussian_delta(1.0, 1.0, epsilon))


@pytest.mark.parametrize(
    ("order", "step", "count", "epsilon"),
    [(1.5, 500.0, 6, 30.0), (4.0, 500.0, 6, 150.0), (1.5, 0.1, 800, 30.0)],
)
def test_phases_of_many_turns_are_paid_for(order, step, count, epsilon):
    """X = 1: the bound is at least the sum over all nodes, of which it has the first."""
    line = Line(order, step, count, smoothing=80 / ((count - 1) * step) ** 2)
    found = Inversion(line, Moments(np.ones(count, complex), 0.0, 0.0)).excess(epsilon)
    with mpmath.workdps(30):
        total = mpmath.mpf(0)
        for k in range(count + count // 4 + 4):
            z = mpmath.mpc(order, k * mpmath.mpf(step))
            damped = mpmath.exp(mpmath.mpf(line.smoothing) / 2 * (z * z - z)) / (z * (z - 1))
            total += (2 if k else 1) * (damped * mpmath.expj(-z.imag * epsilon)).real
        exact = step / (2 * mpmath.pi) * mpmath.exp((1 - order) * epsilon) * total
        assert found >= exact > 0


@pytest.mark.parametrize("order", [1.2, 3.0, 40.0])
@pytest.mark.parametrize("period", [0.7, 5.0, 31.0])
@pytest.mark.parametrize("blur", [1e-4, 1e-2])
def test_lines_end_at_the_first_node_where_smoothing_has_fallen_enough(order, period, blur):
    """The size of e^(tau^2 z^2 / 2), which is more than one on the real axis, is below e^-9."""
    line = line_for(order, period, blur, 9.0)
    logs = 0.5 * line.smoothing * (order**2 - line.nodes().imag ** 2)
    assert logs[-1] <= -9.0 * (1 - 1e-12)
    assert logs[-2] > -9.0


@pytest.mark.parametrize("count", [3, 5, 8, 12])
@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_what_lies_beyond_the_last_node_is_paid_for(order, count):
    """X = 1 has moments that never fall: smoothed, it is the Gaussian mechanism of ratio tau."""
    line = Line(order, 0.4, count, smoothing=0.5)
    found = Inversion(line, Moments(np.ones(count, complex), 0.0, 1e-14))
    for epsilon in np.linspace(0, 5, 51).tolist():
        assert found.excess(epsilon) >= truth.gaussian_delta(math.sqrt(0.5), 1.0, epsilon)
