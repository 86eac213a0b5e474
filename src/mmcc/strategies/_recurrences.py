"""Compiled recurrences: power series division, and the variance of trees step by step.

In: plain arrays, already validated.  Out: plain arrays.
Rounding: plain floating point.  A division solves a triangular system, so its result is exact for
coefficients that differ by a few units in the last place.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled

FADED = 1e-290
"""Smaller covariances are set to zero, because denormal numbers are slow."""


@compiled
def divide(dividend: FloatArray, divisor: FloatArray) -> FloatArray:
    """The series b with divisor * b = dividend, to the dividend's length: O(n bands)."""
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
    """Divide by the series 1, then sum_i scale_i decay_i^(k-1): O(n buffers)."""
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


@compiled
def square_root(series: FloatArray) -> FloatArray:
    """The series r with r * r = series and r_0 > 0, to the same length: O(n^2)."""
    root = np.zeros(series.size)
    root[0] = np.sqrt(series[0])
    for k in range(1, series.size):
        rest = series[k]
        for i in range(1, k):
            rest -= root[i] * root[k - i]
        root[k] = rest / (2 * root[0])
    return root


@compiled
def scheduled_tree(
    rates: FloatArray, momentum: float, weights: FloatArray, variances: FloatArray
) -> FloatArray:
    """Variance of the model after each step of SGD with momentum and tree noise: O(n levels).

    Step t completes a node of level j and its right descendants; their left siblings, one on each
    level below j, leave the prefix estimate.  The estimates in use have no step in common, so they
    are independent, and it is enough to track their covariance with velocity v and model e.
    """
    top = weights.size - 1
    with_v, with_e = np.zeros(weights.size), np.zeros(weights.size)
    vv = ve = ee = 0.0
    found = np.empty(rates.size)
    for t in range(rates.size):
        level = 0
        while level < top and (t >> level) & 1:
            level += 1
        # The new estimate is sum share_h (old estimates) + new noise; the change is it - sum old.
        share, v_node, e_node, v_change, e_change = 1.0, 0.0, 0.0, 0.0, 0.0
        node_change = change = variances[level]
        for h in range(level - 1, -1, -1):
            share *= 1 - weights[h + 1]
            v_node += share * with_v[h]
            e_node += share * with_e[h]
            v_change += (share - 1) * with_v[h]
            e_change += (share - 1) * with_e[h]
            node_change -= share * variances[h]
            change += (1 - 2 * share) * variances[h]
            with_v[h] = with_e[h] = 0.0
        rate = rates[t]
        vv = momentum * (momentum * vv + 2 * v_change) + change
        ve = momentum * ve + e_change
        ee += rate * (2 * ve + rate * vv)
        ve += rate * vv
        for h in range(level + 1, top):
            with_v[h] *= momentum
            if abs(with_v[h]) < FADED:
                with_v[h] = 0.0
            with_e[h] += rate * with_v[h]
        if level < top:
            with_v[level] = momentum * v_node + node_change
            with_e[level] = e_node + rate * with_v[level]
        found[t] = ee
    return found


@compiled
def scheduled_row(
    rates: FloatArray, momentum: float, decay: float, weights: FloatArray
) -> FloatArray:
    """The weight of each input in the weighted sum of SGD's models: a backward recursion, O(n)."""
    row = np.empty(rates.size)
    of_model = of_velocity = 0.0
    for t in range(rates.size - 1, -1, -1):
        of_model += weights[t] - decay * of_velocity
        of_velocity = rates[t] * of_model + momentum * of_velocity
        row[t] = of_velocity
    return row
