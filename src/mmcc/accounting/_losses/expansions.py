r"""Expansions of the laws of a row's sensitivity X: dP/dQ with a proven error.

In: the law of X in units of sigma.  Out: an `Expansion`, from which `rows` makes a loss.
Rounding: none; the error of dP/dQ is bounded, and mass that is left out is reported.

P is the mixture N(X, 1), Q is N(0, 1).  A law becomes an `Expansion` by one of two routes.  *Moment
series*: one class, all moments of X up to an order.  *Direct summation*: one class for each value
of X, or one for each cell of a lattice, with the moments of the residual R inside the cell.  Both
use the same formula (`row_loops`), and one criterion decides between them: the proven bound on the
relative error of dP/dQ for all relevant y.  With |t| <= T, t = y - centre, and M + 1 orders from 0
to M,

    beyond M:   exp(r T + r^2/2) E|R|^(M+1) / r^(M+1)  for any r > 0,
    round-off:  2^-53 (number of operations) E exp(|R| T + R^2/2),

both relative to a lower bound of dP/dQ.  The first: |He_m(t)| <= He~_m(T), where
sum_m He~_m(T) r^m/m! = exp(rT + r^2/2), and |R|^m <= (|R|/r)^(M+1) r^m for |R| <= r and m > M; the
sets with |R| > r get infinite loss, and their share of the orders up to M is under the same bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc._arrays import BoolArray, FloatArray, IntArray
from mmcc.accounting._losses import row_loops
from mmcc.accounting._losses.laws import Law, MixtureLaw, binomial_quantile

EPS = 2.0**-53
SERIES_ORDERS = (8, 11, 14, 17, 20, 24, 28, 32, 37, 42, 48, 56, 64, 80)
LATTICE_ORDERS = 20
MAX_LATTICE_WORK = 3e8
COARSE_CLASSES = 2048
TRIALS = np.geomspace(0.5, 2e3, 60)
LOG_TRIALS = np.log(TRIALS)
THETAS = np.geomspace(0.1, 60.0, 60)


@dataclass(frozen=True, eq=False, slots=True)
class Expansion:
    """A law ready for evaluation at y in [-reach, top] (see `row_loops` for the formula)."""

    centres: FloatArray
    coefficients: FloatArray
    reach: float
    top: float
    tail: float
    """Bound on Phi(-reach) and on P(Y > top)."""
    dropped: float = 0.0
    """P-mass that is not represented; it counts as infinite loss."""
    error: float = 0.0
    """Bound on the relative error of dP/dQ on [-reach, top], except the rounding of its log."""
    condition: float = 1.0
    """Sum of the absolute values of all terms over a lower bound of dP/dQ."""
    ripple: float = 0.0
    """`condition` without the terms of order zero."""

    @property
    def span(self) -> float:
        """The largest |y - centre| at which it is evaluated."""
        return max(self.top - float(self.centres.min()), self.reach + float(self.centres.max()))


def expand(law: Law, tail: float, precision: float = 1e-11) -> Expansion:
    """Choose the cheapest expansion whose proven error is small enough.

    `tail` is the mass of P (and of Q) that may be given infinite loss; `precision` is the relative
    error of dP/dQ allowed.
    """
    if isinstance(law, MixtureLaw):
        return expand_values(law.values, law.probs, tail)
    keep = (law.probs > 0) & (law.values > 0)
    values, probs = law.values[keep], law.probs[keep]
    sure = probs >= 1.0
    shift = float(values[sure].sum()) * law.repeats * (1 + 2 * values.size * EPS)
    values, probs = values[~sure], probs[~sure]
    if values.size == 0:
        return expand_values(np.array([shift]), np.ones(1), tail)
    if values.size == 1:
        series = None
        if law.repeats > max(SERIES_ORDERS):
            series = expand_series(values, probs, shift, tail, precision, law.repeats)
        return series or expand_binomial(
            float(values[0]), float(probs[0]), law.repeats, shift, tail
        )
    if law.repeats > 1:
        values, probs = np.repeat(values, law.repeats), np.repeat(probs, law.repeats)
    return (
        expand_series(values, probs, shift, tail, precision)
        or expand_lattice(values, probs, shift, tail, precision)
        or expand_coarsely(values, probs, shift, tail)
    )


def normal_reach(tail: float) -> float:
    """A T with Phi(-T) <= tail."""
    return float(-special.ndtri(tail)) * (1 + 1e-12) + 1e-12


def expand_values(
    values: FloatArray, probs: FloatArray, tail: float, *, dropped: float = 0.0, error: float = 0.0
) -> Expansion:
    """Direct summation over explicit values: exact up to round-off."""
    present = probs > 0
    values, probs = values[present], probs[present]
    largest = float(values.max())
    reach = normal_reach(tail)
    low, high = 0.0, largest + reach
    while high - low > 1e-3 * (1 + high):
        middle = 0.5 * (low + high)
        above = float(np.dot(probs, special.ndtr(values - middle))) * (1 + 1e-9)
        low, high = (low, middle) if above <= tail else (middle, high)
    # Rounding of exp(x (y - x/2)): first the exponent, then each addition.
    exponent = largest * (reach + high + largest)
    error += (8 * exponent + 2 * values.size + 32) * EPS
    return Expansion(values, probs[:, None], reach, high, tail, dropped=dropped, error=error)


def expand_binomial(
    value: float, prob: float, repeats: int, shift: float, tail: float
) -> Expansion:
    """X = shift + value * Binomial(repeats, prob); improbable counts get infinite loss."""
    if repeats == 1:
        return expand_values(np.array([shift, shift + value]), np.array([1 - prob, prob]), tail)
    rare = min(tail, 1e-18)
    last = binomial_quantile(repeats, prob, rare)
    first = max(repeats - 1 - binomial_quantile(repeats, 1 - prob, rare), 0)
    counts = np.arange(first, last + 1, dtype=np.float64)
    # Ratios of neighbours from the mode outwards, then scaled to a sum of one: if anything too
    # large, by the two tails cut off.
    mode = min(max(int((repeats + 1) * prob), first), last) - first
    ratios = (repeats - counts[:-1]) / (counts[:-1] + 1) * (prob / (1 - prob))
    above = np.cumprod(ratios[mode:])
    below = np.cumprod(1 / ratios[:mode][::-1])[::-1]
    weights = np.concatenate([below, [1.0], above])
    probs = weights / weights.sum()
    error = 2 * rare + 8 * counts.size * EPS
    values = shift + value * counts
    return expand_values(values, probs, tail, dropped=2 * rare, error=error)


def expand_series(
    values: FloatArray,
    probs: FloatArray,
    shift: float,
    tail: float,
    precision: float,
    repeats: int = 1,
) -> Expansion | None:
    """One class around the certain part of X; None if the proven error is too large."""
    reach = normal_reach(tail)
    mean, largest = repeats * float(np.dot(values, probs)), float(values.max())
    above = chernoff_top(mean, largest, tail)
    if not above < math.inf:
        return None
    span = max(above, reach + shift)
    # dP/dQ over exp(shift t) is at least P(X = 0), and by Jensen at least exp(E[X] t - E[X^2]/2).
    second = mean**2 + repeats * float(np.dot(values**2, probs))
    absent = repeats * float(np.sum(np.log1p(-probs)))
    floor = math.exp(max(absent, -mean * span - 0.5 * second))
    if not precision * floor > 1e-290:
        return None
    orders = series_orders(mean, largest, span, precision * floor, tail)
    if orders is None:
        return None
    operations = values.size + 20 * orders
    if repeats > 1:  # one kind of column: 1 + q (e^(a u) - 1), to the power of their number
        steps = np.concatenate([probs, values / np.arange(1, orders + 1)])
        series = np.cumprod(steps)
        series[0] = 1.0
        coefficients = series_power(series, repeats)
        operations += orders**2
    else:
        coefficients = row_loops.series_product(values, probs, orders + 1)
    beyond, outside = remainder(coefficients[orders], orders, span)
    terms = absolute_series(coefficients[:orders], span)
    error = (beyond + EPS * operations * terms) / floor
    if not (error <= precision and outside <= tail):
        return None
    return Expansion(
        np.array([shift]),
        coefficients[None, :orders].copy(),
        reach,
        shift + above,
        tail,
        dropped=float(outside),
        error=float(error) + (8 * shift * (span + shift) + 32) * EPS,
        condition=terms / floor,
        ripple=(terms - 1.0) / floor,
    )


def series_power(series: FloatArray, exponent: int) -> FloatArray:
    """The power of a series with constant term 1, by Miller's recurrence.

    For exponents of at least the number of orders all terms are non-negative.
    """
    power = np.zeros(series.size)
    power[0] = 1.0
    for m in range(1, series.size):
        k = np.arange(1, m + 1)
        power[m] = np.dot((k * (exponent + 1.0) - m) * series[1 : m + 1], power[m - k]) / m
    return power


def series_orders(
    mean: float, largest: float, span: float, error: float, tail: float
) -> int | None:
    """The number of orders needed, from E[X] and the largest value: a guess that is checked later.

    E[X^M]/M! <= min_u exp((E[X]/a)(e^(a u) - 1)) / u^M, a the largest value.
    """
    au = np.minimum(TRIALS * largest, 100.0)
    moments = mean / largest * np.expm1(au) - np.outer(SERIES_ORDERS, LOG_TRIALS)
    for orders, moment in zip(SERIES_ORDERS, moments.min(axis=1), strict=True):
        r = 2 * orders / (math.sqrt(span**2 + 4 * orders) + span)
        outside = float(moment) + math.lgamma(orders + 1) - orders * math.log(r)
        if outside + r * span + 0.5 * r * r <= math.log(error) and outside <= math.log(tail):
            return orders
    return None


def expand_lattice(
    values: FloatArray, probs: FloatArray, shift: float, tail: float, precision: float
) -> Expansion | None:
    """A class for each lattice cell; None if that would be too much work."""
    reach = normal_reach(tail)
    above = exact_chernoff_top(values, probs, tail)
    span = above + reach + shift
    mean = float(probs.sum())
    several = mean + 5 * math.sqrt(mean) + 6
    spacing = 1.5 / (span * math.sqrt(several))
    variance = float(np.dot(values**2, probs * (1 - probs)))
    orders = LATTICE_ORDERS
    for _ in range(3):
        classes = min(12 * math.sqrt(variance) + 4 * float(values.max()), values.sum()) / spacing
        if values.size * classes * orders**2 / 2 > MAX_LATTICE_WORK or not spacing > 1e-6:
            return None
        rate = span + 0.25 * spacing * values.size  # |R| <= spacing/2 times all columns
        first, table, absolute, dropped = row_loops.lattice_product(
            values, probs, spacing, orders + 1, rate, 1e-3 * tail / values.size
        )
        occupied = table[:, 0] > 0
        table, absolute = table[occupied], absolute[occupied]
        shifted = np.asarray(shift + spacing * (first + np.flatnonzero(occupied)), np.float64)
        span = max(span, reach + float(shifted[-1]))
        if rate < span + 0.25 * spacing * values.size:
            continue
        mass = table[:, 0]
        operations = EPS * (values.size * (orders + 4) + 20 * orders)
        top = table[:, orders] + operations * absolute / rate**orders
        beyond, outside = remainder(top, orders, span)
        # Jensen: E[exp(R t - R^2/2)] >= exp(t E[R] - E[R^2]/2).
        floor = np.log(mass) - np.abs(table[:, 1] / mass) * span - table[:, 2] / mass
        numerator = beyond + operations * absolute
        good = supported(numerator, floor, shifted, span, precision)
        lost = float(mass[~good].sum() + outside[good].sum())
        if good.any() and lost <= tail:
            kept, largest = shifted[good], float(shifted.max())
            error = supported_ratio(numerator[good], floor[good], kept, span)
            return Expansion(
                kept,
                table[good, :orders],
                reach,
                shift + above,
                tail,
                dropped=dropped + lost,
                error=error + (8 * largest * (span + largest) + 2 * len(table) + 32) * EPS,
                condition=(condition := supported_ratio(absolute[good], floor[good], kept, span)),
                ripple=condition,
            )
        spacing /= 2
    return None


def supporters(
    log_floor: FloatArray, centres: FloatArray, span: float
) -> tuple[IntArray, FloatArray]:
    """For each class k the class j whose lower bound is the best on k's scale, and that bound.

    exp(x_j y - x_j^2/2) >= exp(x_k y - x_k^2/2 - |x_j - x_k| T) while |y - x| <= T for both.
    """
    fall = span * centres
    places = np.arange(centres.size)
    left = np.maximum.accumulate(log_floor + fall)
    from_left = np.maximum.accumulate(np.where(left == log_floor + fall, places, 0))
    right = np.maximum.accumulate((log_floor - fall)[::-1])[::-1]
    here = np.where(right == log_floor - fall, places, centres.size - 1)
    from_right = np.minimum.accumulate(here[::-1])[::-1]
    best = np.where(left - fall >= right + fall, from_left, from_right)
    return best, log_floor[best] - span * np.abs(centres - centres[best])


def supported(
    numerator: FloatArray, log_floor: FloatArray, centres: FloatArray, span: float, limit: float
) -> BoolArray:
    """The classes whose error is below `limit` times a bound given by classes that also qualify."""
    good = np.ones(centres.size, dtype=np.bool_)
    while good.any():
        _, floor = supporters(log_floor[good], centres[good], span)
        with np.errstate(over="ignore"):
            fine = numerator[good] * np.exp(-floor) <= limit
        if fine.all():
            break
        good[np.flatnonzero(good)[~fine]] = False
    return good


def supported_ratio(
    numerator: FloatArray, log_floor: FloatArray, centres: FloatArray, span: float
) -> float:
    """Bound on sum_k w_k numerator_k over sum_j w_j floor_j, w_k = exp(x_k y - x_k^2/2).

    Each class's numerator is charged to the class that supports it, on that class's scale.
    """
    best, floor = supporters(log_floor, centres, span)
    charged = np.zeros(centres.size)
    np.add.at(charged, best, numerator * np.exp(-floor))
    return float(charged.max()) * (1 + 1e-9)


def expand_coarsely(values: FloatArray, probs: FloatArray, shift: float, tail: float) -> Expansion:
    """Round every value up to a lattice of a few thousand points: valid for any law, less tight.

    A stochastically larger sensitivity has a dominating loss.
    """
    spacing = float(values.sum()) / COARSE_CLASSES
    rounded = np.ceil(values / spacing * (1 - 1e-12)) * spacing * (1 + 1e-11)
    first, table, _, dropped = row_loops.lattice_product(
        rounded, probs, spacing * (1 + 1e-11), 1, 0.0, 1e-3 * tail / values.size
    )
    places = np.arange(first, first + len(table), dtype=np.float64)
    centres = shift + spacing * (1 + 1e-11) * places
    error = 8 * values.size * EPS
    return expand_values(centres, table[:, 0].copy(), tail, dropped=dropped, error=error)


def remainder(coefficient: FloatArray, orders: int, span: float) -> tuple[FloatArray, FloatArray]:
    """Bounds on all orders from `orders` on, and on the mass of the sets given infinite loss.

    `coefficient` is E|R|^orders / orders!; r is chosen to make the bound small.
    """
    r = 2 * orders / (math.sqrt(span**2 + 4 * orders) + span)
    with np.errstate(divide="ignore"):
        outside = np.log(coefficient) + math.lgamma(orders + 1) - orders * math.log(r)
    return np.exp(np.minimum(outside + r * span + 0.5 * r * r, 700.0)), np.exp(outside)


def absolute_series(coefficients: FloatArray, span: float) -> float:
    """The Hermite series with all signs positive: sum_m c_m He~_m(T)."""
    before, now = 0.0, 1.0
    total = float(coefficients[0])
    for m in range(1, coefficients.size):
        before, now = now, span * now + (m - 1) * before
        total += float(coefficients[m]) * now
    return total


def chernoff_top(mean: float, largest: float, tail: float) -> float:
    """A t with P(X + N(0,1) > t) <= tail, from E[X] and the largest value only."""
    theta = THETAS[THETAS * largest <= 600.0]
    cumulant = mean / largest * np.expm1(theta * largest)
    bounds = (0.5 * theta**2 + cumulant - math.log(tail)) / theta
    return float(bounds.min(initial=math.inf)) * (1 + 1e-9)


def exact_chernoff_top(values: FloatArray, probs: FloatArray, tail: float) -> float:
    """A t with P(X + N(0,1) > t) <= tail, from the whole law."""
    best = math.inf
    for theta in THETAS:
        exponents = theta * values
        big = exponents > 500.0
        logs = np.where(
            big,
            exponents,  # log(1 - q + q e^a) <= a
            np.log1p(probs * np.expm1(np.minimum(exponents, 500.0))),
        )
        best = min(best, (0.5 * theta**2 + float(logs.sum()) - math.log(tail)) / theta)
    return best * (1 + 1e-9)
