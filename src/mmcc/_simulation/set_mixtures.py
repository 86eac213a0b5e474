r"""Compiled loops: the likelihood of one output under a list of sets, and the integral over t.

In: plain arrays, already validated.  Out: plain arrays.  Rounding: none; errors are about 1e-7.

Given z, the sets S of a list form a scalar mixture with weights c_S(z) and centres a_S.  Sets with
nearly equal a_S share a class, with the moments of the differences: an *expansion* as in
`mmcc.accounting._losses.row_loops`, whose ratio and tails are used here.
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._compiled import compiled
from mmcc.accounting._losses.row_loops import INV_SQRT_2PI, SQRT_HALF, log_ratio, wave

ORDERS = 6
HALF_CLASS = 0.02
"""Half the width of a class: the error is (HALF_CLASS |t - a|)^ORDERS / ORDERS!."""
FORGET = 60.0
CLOSE = 1e-8
"""Accuracy of roots in log X; the integral is stationary there."""


@compiled
def pair_sums(gram: FloatArray, columns: IntArray, edges: IntArray) -> FloatArray:
    """The sum of gram[j, l] over all pairs of members of each set."""
    sums = np.zeros(edges.size - 1)
    for i in range(sums.size):
        for x in range(edges[i], edges[i + 1]):
            row = gram[columns[x]]
            for y in range(edges[i], x):
                sums[i] += 2.0 * row[columns[y]]
            sums[i] += row[columns[x]]
    return sums


@compiled
def member_sums(values: FloatArray, columns: IntArray, edges: IntArray) -> FloatArray:
    """The sum of values over the members of each set."""
    sums = np.zeros(edges.size - 1)
    for i in range(sums.size):
        for x in range(edges[i], edges[i + 1]):
            sums[i] += values[columns[x]]
    return sums


@compiled
def log_sum(values: FloatArray) -> float:
    """Logarithm of sum_i e^{values_i}."""
    largest = -math.inf
    for value in values:
        largest = value if value > largest else largest
    if largest == -math.inf:
        return largest
    total = 0.0
    for value in values:
        if value > largest - FORGET:
            total += math.exp(value - largest)
    return largest + math.log(total)


@compiled
def log_normal(x: float) -> float:
    """Logarithm of Phi(x)."""
    if x > -20.0:
        return math.log(0.5 * math.erfc(-x * SQRT_HALF))
    y = 1.0 / (x * x)
    series = 1.0 - y * (1.0 - y * (3.0 - y * (15.0 - 105.0 * y)))
    return -0.5 * x * x + math.log(-series / x * INV_SQRT_2PI)


@compiled
def expand(
    exponents: FloatArray,
    classes: IntArray,
    residuals: FloatArray,
    start: int,
    stop: int,
    coefficients: FloatArray,
) -> float:
    """Moments of each class of the sets start .. stop, over their total; returns its logarithm."""
    largest = -math.inf
    for i in range(start, stop):
        largest = exponents[i] if exponents[i] > largest else largest
    coefficients[:] = 0.0
    total = 0.0
    for i in range(start, stop):
        if exponents[i] < largest - FORGET:
            continue
        term = math.exp(exponents[i] - largest)
        total += term
        row = coefficients[classes[i]]
        row[0] += term
        if residuals[i] != 0.0:
            for m in range(1, row.size):
                term *= residuals[i] / m
                row[m] += term
    coefficients /= total
    return largest + math.log(total)


@compiled
def threshold(
    level: float,
    left: float,
    right: float,
    guess: float,
    centres: FloatArray,
    coefficients: FloatArray,
) -> float:
    """The t in [left, right] with log X_t = level, or one of the ends if there is none."""
    t = min(max(guess, left), right)
    low, high = left, right
    for turn in range(100):
        value, slope = log_ratio(t, centres, coefficients)
        gap = value - level
        if abs(gap) <= CLOSE:
            return t
        if gap > 0.0:
            high = t
        else:
            low = t
        if high == left or low == right or high - low < 1e-12 * (1.0 + abs(t)):
            return t
        step = t - gap / slope if slope > 0.0 else math.inf
        if step <= low:
            step = left if low == left else 0.5 * (low + high)
        elif step >= high:
            step = right if high == right else 0.5 * (low + high)
        elif turn > 40:
            step = 0.5 * (low + high)
        t = step
    return t


@compiled
def tail(t: float, beyond: bool, centres: FloatArray, coefficients: FloatArray) -> float:
    """Mass of the mixture beyond t, or before it."""
    sign = 1.0 if beyond else -1.0
    mass = 0.0
    for k in range(centres.size):
        if coefficients[k, 0] > 0.0:
            x = t - centres[k]
            mass += coefficients[k, 0] * 0.5 * math.erfc(sign * x * SQRT_HALF)
            mass += sign * wave(x, coefficients[k])
    return mass


@compiled
def excess(
    t: float,
    epsilon: float,
    remove: bool,
    scale: float,
    log_weight: float,
    centres: FloatArray,
    coefficients: FloatArray,
) -> float:
    """Remove: P(beyond t) - E Q(beyond t).  Add: Q(before t) - E P(before t).  Times the weight.

    P's density of z over Q's is e^scale times the expansion.
    """
    mixed = tail(t, remove, centres, coefficients)
    if remove:
        alone = math.exp(log_weight + epsilon + log_normal(-t))
        return math.exp(log_weight + scale) * mixed - alone
    alone = math.exp(log_weight + log_normal(t))
    return alone - math.exp(log_weight + scale + epsilon) * mixed


@compiled
def proposal_densities(
    sums: FloatArray, rests: FloatArray, drawn: FloatArray, kappas: FloatArray, out: FloatArray
) -> None:
    """Logs of sum_S drawn_S exp(kappa <z, A'_S> - kappa^2 |A'_S|^2 / 2) for each kappa."""
    terms = np.empty(sums.size)
    for k in range(kappas.size):
        if kappas[k] == 0.0:
            out[k] = 0.0
            continue
        half = 0.5 * kappas[k] * kappas[k]
        for i in range(sums.size):
            terms[i] = drawn[i] + kappas[k] * sums[i] - half * rests[i]
        out[k] = log_sum(terms)


@compiled
def slices(
    shadows: FloatArray,
    columns: IntArray,
    edges: IntArray,
    logs: FloatArray,
    rests: FloatArray,
    classes: IntArray,
    residuals: FloatArray,
    centres: FloatArray,
    split: int,
    drawn: FloatArray,
    kappas: FloatArray,
    shares: FloatArray,
    epsilons: FloatArray,
    remove: bool,
    left: float,
    right: float,
    guess: float,
) -> tuple[FloatArray, FloatArray]:
    """For each z the integral over t, weighted by Q's density over the proposal's.

    It goes row by row through `shadows` (<z, A_j> for each column j).  The first `split` sets are
    one list, the others a second one (none: the first is everything).  Returns the values for each
    epsilon of both lists as mechanisms, then of each list's test on the other, and the log
    densities.
    """
    count = shadows.shape[0]
    values = np.zeros((count, epsilons.size, 4))
    densities = np.empty((count, kappas.size))
    first = np.empty((centres.size, ORDERS))
    second = np.empty((centres.size, ORDERS))
    exponents = np.empty(edges.size - 1)
    log_shares = np.log(shares)
    two = split < exponents.size
    for i in range(count):
        sums = member_sums(shadows[i], columns, edges)
        proposal_densities(sums, rests, drawn, kappas, densities[i])
        weight = -log_sum(densities[i] + log_shares)
        for s in range(exponents.size):
            exponents[s] = logs[s] + sums[s] - 0.5 * rests[s]
        scale1 = expand(exponents, classes, residuals, 0, split, first)
        scale2 = scale1
        if two:
            scale2 = expand(exponents, classes, residuals, split, exponents.size, second)
        t1 = t2 = guess
        for e in range(epsilons.size):
            epsilon = epsilons[e]
            level = epsilon if remove else -epsilon
            t1 = threshold(level - scale1, left, right, t1, centres, first)
            values[i, e, 0] = excess(t1, epsilon, remove, scale1, weight, centres, first)
            if two:
                t2 = threshold(level - scale2, left, right, t2, centres, second)
                values[i, e, 1] = excess(t2, epsilon, remove, scale2, weight, centres, second)
                values[i, e, 2] = excess(t1, epsilon, remove, scale2, weight, centres, second)
                values[i, e, 3] = excess(t2, epsilon, remove, scale1, weight, centres, first)
            else:
                values[i, e, 1:] = values[i, e, 0]
    return values, densities
