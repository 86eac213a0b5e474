"""Compiled loops: the law of a row's sensitivity, and its privacy loss cut at grid points.

In: plain arrays, already validated.  Out: plain arrays.
Rounding: none here.  Every function states its error; `rows` turns errors into an upward push.

An *expansion* is a law of X split into classes k around centres x_k: `coefficients[k, m]` is
E[(X - x_k)^m ; class k] / m!.  With probabilists' Hermite polynomials He_m,

    dP/dQ(y)  = sum_k exp(x_k y - x_k^2/2) sum_m c_km He_m(y - x_k)
    P(Y > t)  = sum_k [ c_k0 Phi(x_k - t) + phi(t - x_k) sum_{m>=1} c_km He_{m-1}(t - x_k) ].
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._compiled import compiled

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
SMALLEST = 1e-290
"""Smaller masses count as zero if that is the safe side."""
NARROW = 0.03
"""Cells this narrow (see `cell_mass`) are integrated without cancellation."""
FORGET = 42.0
CLOSE = 5e-14
"""The residual at which Newton's method stops; eight times it is paid for in epsilon."""


@compiled
def series_product(values: FloatArray, probs: FloatArray, orders: int) -> FloatArray:
    """Coefficients E[X^m]/m!, m < orders, of X = sum_j values_j Bern(probs_j).

    The product of 1 + q_j (e^{a_j u} - 1): only sums and products of non-negative numbers, so
    each coefficient has a relative error of at most (n + 8 orders) 2^-53.
    """
    now = np.zeros(orders)
    now[0] = 1.0
    gain = np.empty(orders)
    for j in range(values.size):
        term = probs[j]
        gain[:] = 0.0
        for s in range(1, orders):
            term *= values[j] / s
            for m in range(s, orders):
                gain[m] += term * now[m - s]
        for m in range(1, orders):
            now[m] += gain[m]
    return now


@compiled
def lattice_product(
    values: FloatArray,
    probs: FloatArray,
    spacing: float,
    orders: int,
    rate: float,
    negligible: float,
) -> tuple[int, FloatArray, FloatArray, float]:
    """Classes of X = sum_j values_j Bern(probs_j) on the lattice k * spacing, exact residuals.

    Each value is split into its nearest lattice point and a residual r_j; class k holds the
    participation sets whose lattice parts add up to k, and the moments of their residual sum.
    Classes at either end with less mass than `negligible` are cut off as they arise.
    Returns the first k, the coefficients, E[exp(rate sum_j |r_j| x_j); class] (for the error
    bound: the residuals have signs) and the total mass that was cut off.
    """
    steps = np.empty(values.size, np.int64)
    total = 0
    for j in range(values.size):
        steps[j] = int(np.rint(values[j] / spacing))
        total += steps[j]
    table = np.zeros((total + 1, orders))
    absolute = np.zeros(total + 1)
    table[0, 0] = 1.0
    absolute[0] = 1.0
    low, high = 0, 0
    dropped = 0.0
    term = np.empty(orders)
    for j in range(values.size):
        q = probs[j]
        residual = values[j] - steps[j] * spacing
        term[0] = q
        for s in range(1, orders):
            term[s] = term[s - 1] * residual / s
        jump = steps[j]
        growth = q * math.exp(rate * abs(residual))
        if jump == 0:
            for k in range(low, high + 1):
                absolute[k] *= 1.0 - q + growth
                for m in range(orders - 1, 0, -1):
                    gain = 0.0
                    for s in range(1, m + 1):
                        gain += term[s] * table[k, m - s]
                    table[k, m] += gain
        else:
            for k in range(high + jump, low - 1, -1):
                absolute[k] *= 1.0 - q
                if k - jump >= low:
                    absolute[k] += growth * absolute[k - jump]
                for m in range(orders - 1, -1, -1):
                    gain = 0.0
                    if k - jump >= low:
                        for s in range(m + 1):
                            gain += term[s] * table[k - jump, m - s]
                    table[k, m] = (1.0 - q) * table[k, m] + gain
            high += jump
        while high > low and table[high, 0] < negligible:
            dropped += table[high, 0]
            table[high, :] = 0.0
            absolute[high] = 0.0
            high -= 1
        while high > low and table[low, 0] < negligible:
            dropped += table[low, 0]
            table[low, :] = 0.0
            absolute[low] = 0.0
            low += 1
    return low, table[low : high + 1].copy(), absolute[low : high + 1].copy(), dropped


@compiled
def log_ratio(y: float, centres: FloatArray, coefficients: FloatArray) -> tuple[float, float]:
    """Log dP/dQ at y and its derivative.

    Classes that weigh less than e^-FORGET times the heaviest are left out, which makes a relative
    error of at most e^-FORGET times the number of classes.
    """
    classes, orders = coefficients.shape
    largest = -math.inf
    for k in range(classes):
        exponent = centres[k] * (y - 0.5 * centres[k])
        if exponent > largest - FORGET:
            exponent += math.log(coefficients[k, 0])
            largest = exponent if exponent > largest else largest
    value = 0.0
    slope = 0.0
    for k in range(classes):
        x = centres[k]
        exponent = x * (y - 0.5 * x) - largest
        if exponent < -FORGET:
            continue
        weight = math.exp(exponent)
        t = y - x
        before, now = 0.0, 1.0
        series = coefficients[k, 0]
        derivative = 0.0
        for m in range(1, orders):
            derivative += m * coefficients[k, m] * now
            before, now = now, t * now - (m - 1) * before
            series += coefficients[k, m] * now
        value += weight * series
        slope += weight * (x * series + derivative)
    if not value > 0.0:
        return math.nan, math.nan
    return largest + math.log(value), slope / value


@compiled
def log_ratios(points: FloatArray, centres: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Log dP/dQ at every point."""
    out = np.empty(points.size)
    for i in range(points.size):
        out[i] = log_ratio(points[i], centres, coefficients)[0]
    return out


@compiled
def solve_log_ratio(
    target: float,
    left: float,
    right: float,
    guess: float,
    centres: FloatArray,
    coefficients: FloatArray,
) -> tuple[float, float, float]:
    """Find the y in [left, right] with log dP/dQ(y) = target; also its slope and the residual.

    The log ratio is convex and increasing, so Newton's step from the right never overshoots;
    bisection guards the rest.  The residual is measured, not assumed.
    """
    y = left if guess < left else right if guess > right else guess
    best = math.inf
    best_y, best_slope = y, 0.0
    for _ in range(200):
        value, slope = log_ratio(y, centres, coefficients)
        gap = value - target
        if not math.isfinite(gap):
            return y, slope, math.inf
        if abs(gap) < best:
            best, best_y, best_slope = abs(gap), y, slope
        if gap > 0.0:
            right = y if y < right else right
        else:
            left = y if y > left else left
        if abs(gap) <= CLOSE + 4e-16 * abs(target):
            break
        step = y - gap / slope if slope > 0.0 else math.inf
        if not left < step < right:
            step = 0.5 * (left + right)
        if step == y or not left < step < right:
            break
        y = step
    return best_y, best_slope, best


@compiled
def normal_between(t1: float, t2: float) -> float:
    """Normal mass between t1 <= t2, from the tails on the side where they are small."""
    if t1 >= 0.0:
        return 0.5 * (math.erfc(t1 * SQRT_HALF) - math.erfc(t2 * SQRT_HALF))
    if t2 <= 0.0:
        return 0.5 * (math.erfc(-t2 * SQRT_HALF) - math.erfc(-t1 * SQRT_HALF))
    return 1.0 - 0.5 * (math.erfc(t2 * SQRT_HALF) + math.erfc(-t1 * SQRT_HALF))


@compiled
def wave(t: float, series: FloatArray) -> float:
    """What the orders above 0 add to the tail beyond t: phi(t) sum_{m>=1} c_m He_{m-1}(t)."""
    before, now, total = 0.0, 1.0, 0.0
    for m in range(1, series.size):
        total += series[m] * now
        before, now = now, t * now - (m - 1) * before
    return total * INV_SQRT_2PI * math.exp(-0.5 * t * t)


@compiled
def narrow_mass(t: float, width: float, series: FloatArray) -> float:
    """Integral of phi(t) sum_m c_m He_m(t) over a narrow cell around t, without cancellation.

    Midpoint rule with two corrections, (phi He_m)'' = phi He_{m+2}; the next term is
    width^6 / 322560 of order He_{m+6}.
    """
    u = width * width / 24.0
    v = width * width * width * width / 1920.0
    h0, h1, h2, h3 = 1.0, t, t * t - 1.0, t * (t * t - 3.0)
    h4 = t * h3 - 3.0 * h2
    total = 0.0
    for m in range(series.size):
        total += series[m] * (h0 + u * h2 + v * h4)
        h0, h1, h2, h3, h4 = h1, h2, h3, h4, t * h4 - (m + 4.0) * h3
    return total * width * INV_SQRT_2PI * math.exp(-0.5 * t * t)


@compiled
def cell_mass(
    left: float, right: float, centres: FloatArray, coefficients: FloatArray
) -> tuple[float, float, bool]:
    """Mass of P and of Q between two points, and whether it is a difference of tails.

    A cell is narrow if width (|t| + sqrt(orders) + 3) <= NARROW, where t is its middle relative to
    the class's centre.  Classes that weigh less than e^-FORGET times the heaviest are left out.
    """
    classes, orders = coefficients.shape
    width = right - left
    middle = left + 0.5 * width
    wide = False
    if width * (abs(middle) + 4.0) <= NARROW:
        t2 = middle * middle
        w2 = width * width
        q = 1.0 + w2 / 24.0 * (t2 - 1.0) + w2 * w2 / 1920.0 * (t2 * (t2 - 6.0) + 3.0)
        q *= width * INV_SQRT_2PI * math.exp(-0.5 * t2)
    else:
        q = normal_between(left, right)
        wide = True
    heaviest = -math.inf
    if classes > 1:
        for k in range(classes):
            near = abs(middle - centres[k]) - 0.5 * width
            near = near if near > 0.0 else 0.0
            if -0.5 * near * near > heaviest:
                weight = math.log(coefficients[k, 0]) - 0.5 * near * near
                heaviest = weight if weight > heaviest else heaviest
    p = 0.0
    for k in range(classes):
        t = middle - centres[k]
        near = abs(t) - 0.5 * width
        near = near if near > 0.0 else 0.0
        if -0.5 * near * near < heaviest - FORGET:
            continue
        if width * (abs(t) + math.sqrt(orders) + 3.0) <= NARROW:
            p += narrow_mass(t, width, coefficients[k])
        else:
            near_end, far_end = left - centres[k], right - centres[k]
            p += coefficients[k, 0] * normal_between(near_end, far_end)
            if orders > 1:
                p += wave(near_end, coefficients[k]) - wave(far_end, coefficients[k])
            wide = True
    return p if p > 0.0 else 0.0, q if q > 0.0 else 0.0, wide


@compiled
def connect_dots(
    cuts: FloatArray,
    first: int,
    spacing: float,
    remove: bool,
    centres: FloatArray,
    coefficients: FloatArray,
) -> tuple[FloatArray, float]:
    """Masses at the grid points first - 1, first, ... and the width of the narrowest wide cell.

    Cell i, between cuts i and i + 1, has its losses between grid points first - 1 + i and the
    next one (for add: between their negatives, with the masses in that order).  Its P-mass is
    split between the two so that its Q-mass is kept as well.
    """
    cells = cuts.size - 1
    masses = np.zeros(cells + 1)
    shrink = -math.expm1(-spacing)
    narrowest = math.inf
    for i in range(cells):
        mixture, normal, wide = cell_mass(cuts[i], cuts[i + 1], centres, coefficients)
        if wide:
            width = cuts[i + 1] - cuts[i]
            narrowest = width if width < narrowest else narrowest
        if remove:
            mine, other, lower = mixture, normal, (first - 1 + i) * spacing
        else:
            mine, other, lower = normal, mixture, -(first + i) * spacing
        held = 0.0
        if other > SMALLEST:
            near = abs(lower) < 600.0
            held = math.exp(lower) * other if near else math.exp(lower + math.log(other))
        upper = (mine - held) / shrink
        upper = 0.0 if upper < 0.0 else mine if upper > mine else upper
        if remove:
            masses[i + 1] += upper
            masses[i] += mine - upper
        else:
            masses[cells - i] += upper
            masses[cells - i - 1] += mine - upper
    return masses, narrowest


@compiled
def node_cuts(
    spacing: float,
    first: int,
    last: int,
    left: float,
    right: float,
    centres: FloatArray,
    coefficients: FloatArray,
) -> tuple[FloatArray, float]:
    """The points y in [left, right] with log dP/dQ(y) = k * spacing, for k = first..last.

    Returns them between `left` and `right` (so last - first + 3 cuts) and the largest residual.
    """
    cuts = np.empty(last - first + 3)
    cuts[0] = left
    cuts[-1] = right
    worst = 0.0
    slope = log_ratio(left, centres, coefficients)[1]
    y = left
    for k in range(first, last + 1):
        i = k - first + 1
        if i >= 5:  # extrapolate through the last four points
            guess = 4.0 * (y + cuts[i - 3]) - 6.0 * cuts[i - 2] - cuts[i - 4]
        else:
            guess = y + spacing / slope if slope > 0.0 else 0.5 * (y + right)
        y, slope, residual = solve_log_ratio(k * spacing, y, right, guess, centres, coefficients)
        worst = residual if residual > worst else worst
        cuts[i] = y
    return cuts, worst
