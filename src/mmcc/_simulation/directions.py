r"""A direction in which rare losses are made frequent, and a certified bound on the remainder.

In: a mechanism, its law of participation.  Out: a `Direction`; a bound on delta, weighted by an
exponential of the output's position.
Rounding: bounds upwards; the direction itself may be any, as long as it is known exactly.

With A = C / sigma, P = sum_s pi(s) N(A s, I), Q = N(0, I) let d be a vector with <d, A_l> = a for
all columns l, and v = <d, y> (`remove`) or -<d, y> (`add`).  A product with e^{-th v} shifts y and
weights participations, pi''(s) = pi(s) e^{-+ th a |s|} / Z, Z the mean of that weight:

    e^{-th v} P = Z e^{th^2 |d|^2/2} P'',    e^{-th v} Q = e^{th^2 |d|^2/2} Q'',

P'' and Q'' the mechanism under pi'', shifted alike.  So the weighted delta is itself a delta
of the same mechanism under another law of participation, at another epsilon:

    int (dP - e^eps dQ)_+ e^{-th v} = e^{th^2 |d|^2/2} Z delta''_remove(eps - log Z),
    int (dQ - e^eps dP)_+ e^{-th v} = e^{th^2 |d|^2/2}   delta''_add(eps + log Z).

Rounds stay rounds with another probability, and so do participations a gap apart, up to their ends;
where all take part equally often pi'' is pi.  If e^low pi'' <= pi e^{sum tau_l s_l} <= e^high pi''
holds with any pi'', `high` stands for log Z in the first line and `low` in the second: the two
integrals grow with P and fall with it.  docs/theory-verify-tilts.md has the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mmcc._arrays import FloatArray, own_arrays
from mmcc._simulation.one_example import Mechanism
from mmcc.accounting._best_bound import Budget, ask_delta_of, bounds_for
from mmcc.accounting._bounds.base import Problem
from mmcc.accounting._parallel import one_thread
from mmcc.errors import MmccError
from mmcc.sampling import CyclicPoisson, MinSeparation, Poisson, Renewal, Rounds, Scheme
from mmcc.sampling._participations import LEAST

UNIT = 2.0**-53
TURNS = 300
"""Most conjugate gradient steps: more, for nearly dependent columns, would be of little use."""
ENOUGH = 1e-12
"""Relative residual at which they stop."""
ALIKE = 1e-6
"""A direction whose products with columns vary more than this, relatively, costs too much."""
MOST_WEIGHT = 500.0
"""The largest logarithm of a participation's weight: its exponential is finite."""
SLACK = 2.0**-40
"""Relative: more than the rounding errors of a few hundred operations."""


@dataclass(frozen=True, eq=False)
class Direction:
    """d = A `weights`: about unit length, about the same inner product with all columns."""

    weights: FloatArray
    pulls: FloatArray
    """<d, A_l>, up to rounding."""
    pull: float
    """Approximately all of them: a."""
    spread: float
    """No <d, A_l> differs from `pull` by more."""
    square: float
    """|d|^2, up to `SLACK` of itself."""

    def __post_init__(self) -> None:
        own_arrays(self, "weights", "pulls")


def direction_of(mechanism: Mechanism) -> Direction | None:
    """By conjugate gradients for A^T A w = 1; None if there is no such direction."""
    ones = np.ones(mechanism.columns)
    with one_thread():
        weights = _solved(mechanism, ones)
        outputs = mechanism.encode(weights[None])
        size = float(np.linalg.norm(outputs))
        if not 0 < size < math.inf:
            return None
        weights, outputs = weights / size, outputs / size
        pulls = mechanism.adjoint(outputs)[0]
        pull = float(np.median(pulls))
        if not pull > 0:
            return None
        # Sums of products, or three Fourier transforms: of so many terms, of at most this size.
        rows = mechanism.strategy.rows
        terms = 2 * (rows + mechanism.columns) + 128 * math.log2(4 * rows + 4)
        reach = float(np.linalg.norm(mechanism.encode(np.abs(weights)[None])))
        norm = float(np.linalg.norm(mechanism.adjoint(np.ones((1, rows)))))  # |A_l| <= |A_l|_1
    error = 2 * UNIT * terms * (1 + reach) * norm
    spread = float(np.abs(pulls - pull).max()) + error
    if not spread <= ALIKE * pull:
        return None
    return Direction(weights, pulls, pull, spread, float(outputs[0] @ outputs[0]))


def _solved(mechanism: Mechanism, right: FloatArray) -> FloatArray:
    """Approximately the smallest w with A^T A w = right."""

    def times(weights: FloatArray) -> FloatArray:
        return np.asarray(mechanism.adjoint(mechanism.encode(weights[None]))[0])

    found, rest = np.zeros_like(right), right.copy()
    step, size = rest.copy(), float(right @ right)
    for _ in range(TURNS):
        if size <= ENOUGH**2 * right.size:
            break
        turned = times(step)
        curvature = float(step @ turned)
        if not curvature > 0:
            break
        length = size / curvature
        found, rest = found + length * step, rest - length * turned
        last, size = size, float(rest @ rest)
        step = rest + (size / last) * step
    return np.asarray(found)


@dataclass(frozen=True, slots=True)
class Weighed:
    """e^low pi''(s) <= pi(s) e^{sum_l tau_l s_l} <= e^high pi''(s) for all s, pi'' of `scheme`."""

    scheme: Scheme
    low: float
    high: float


def weighed(problem: Problem, columns: int, weight: float, spread: float) -> Weighed | None:
    """For tau_l within `spread` of `weight` and a group with so many columns; None if unknown."""
    allocation = problem.allocation
    if problem.positions is not None:
        return _as_often(problem.scheme, columns // problem.positions, weight, spread)
    if allocation is not None:
        number = columns // allocation.epoch_steps * allocation.participations
        return _as_often(problem.scheme, number, weight, spread)
    if problem.rounds is not None:
        return _weighed_rounds(problem.rounds, columns, weight, spread)
    if problem.renewal is not None:
        return _weighed_renewal(problem.renewal, columns, weight, spread)
    return None


def _as_often(scheme: Scheme, number: int, weight: float, spread: float) -> Weighed:
    """For a law under which all sets have `number` columns."""
    middle, slack = number * weight, number * (spread + 4 * UNIT * abs(weight))
    return Weighed(scheme, middle - slack, middle + slack)


def _weighed_rounds(rounds: Rounds, columns: int, weight: float, spread: float) -> Weighed | None:
    """Column by column: (1 - p)/(1 - p'') without participation, p e^tau/p'' with it."""
    chance = rounds.probability
    other = _other_chance(chance, 1, weight)
    if other is None:
        return None
    idle, taking, slack = _ratios(chance, other, weight)
    slack += spread
    scheme = Poisson(other) if rounds.separation == 1 else CyclicPoisson(other, rounds.separation)
    low, high = min(idle, taking) - slack, max(idle, taking) + slack
    return Weighed(scheme, columns * low, columns * high)


def _weighed_renewal(
    renewal: Renewal, columns: int, weight: float, spread: float
) -> Weighed | None:
    r"""With a gap b, from an open start: p^|s| (1 - p)^{n - sum_{j in s} min(b, n - j)}.

    So the quotient is e^{n idle} times e^{tau + log(p/p'') - b idle} for each participation, but
    for one in the last b - 1 steps, which blocks fewer; idle = log (1 - p)/(1 - p'').  A start with
    r steps blocked, r = 1, ..., b - 1, has n - r steps, and the chance p / (1 + (b - 1) p); an open
    one has 1 / (1 + (b - 1) p).
    """
    chance, gap = renewal.probability, renewal.gap
    other = _other_chance(chance, gap, weight)
    if other is None:
        return None
    idle, taking, slack = _ratios(chance, other, weight)
    most = -(-columns // gap)
    each, last = taking - gap * idle, (gap - 1) * idle
    low, high = (columns * idle + most * best(each, 0.0) + best(last, 0.0) for best in (min, max))
    if renewal.stationary:
        open_ = math.log1p((gap - 1) * other) - math.log1p((gap - 1) * chance)
        blocked = open_ + math.log(chance) - math.log(other)
        low += min(open_, blocked + min(-last, 0.0))
        high += max(open_, blocked + max(-last, 0.0))
    slack = (columns + 2 * gap * most + 4 * gap) * slack + most * spread
    return Weighed(MinSeparation(other, gap, renewal.stationary), low - slack, high + slack)


def _ratios(chance: float, other: float, weight: float) -> tuple[float, float, float]:
    """Logarithms of (1 - p)/(1 - p'') and p e^tau/p'', and a bound on their error."""
    idle = math.log1p(-chance) - math.log1p(-other)
    taking = math.log(chance) - math.log(other) + weight
    sizes = (math.log1p(-chance), math.log1p(-other), math.log(chance), math.log(other), weight)
    return idle, taking, 8 * UNIT * (1 + sum(map(abs, sizes)))


def _other_chance(chance: float, gap: int, weight: float) -> float | None:
    """Approximately the p'' for which a participation counts as much as the steps that it takes."""

    def excess(log_odds: float) -> float:
        odds = math.exp(log_odds)
        idle = math.log1p(-chance) + math.log1p(odds)
        return math.log(chance) - (log_odds - math.log1p(odds)) + weight - gap * idle

    if not 0 < chance < 1 or abs(weight) > MOST_WEIGHT:
        return None
    start = math.log(chance) - math.log1p(-chance)
    ends = sorted((start, start + weight))  # the root for a gap of 1; a longer one changes less
    low, high = ends[0] - 1e-3, ends[1] + 1e-3
    if not excess(low) > 0 > excess(high):
        return None
    found = math.exp(optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-14))
    other = found / (1 + found)
    return other if LEAST <= other < 1 else None


def bound_weighed_delta(
    problem: Problem, direction: Direction, columns: int, remove: bool, epsilon: float, slope: float
) -> float:
    """Certified log of int (dP - e^eps dQ)_+ e^{-slope v}, or of Q and P; infinite if unknown."""
    weight = -slope * direction.pull if remove else slope * direction.pull
    spread = slope * (direction.spread + 4 * UNIT * direction.pull)
    found = weighed(problem, columns, weight, spread)
    if found is None:
        return math.inf
    mass = found.high if remove else -found.low
    other = math.nextafter(epsilon - mass, -math.inf)
    if not 0 <= other < math.inf:
        return math.inf
    delta = _bound_delta(problem.under(found.scheme), other, remove)
    if not delta < 1:
        return math.inf
    shift = 0.5 * slope * slope * direction.square * (1 + 2 * SLACK)
    parts = (math.log(max(delta, 5e-324)), shift, found.high if remove else 0.0)
    return math.fsum(parts) + SLACK * (1 + math.fsum(map(abs, parts)))


def _bound_delta(problem: Problem, epsilon: float, remove: bool) -> float:
    """The smallest certified delta of one adjacency that takes only seconds.

    If a nearly tight bound has an answer, others are not asked.
    """
    found, adjacency = 1.0, "remove" if remove else "add"
    try:
        bounds = bounds_for(problem, Budget.SECONDS)
    except MmccError:
        return found
    for bound in sorted(bounds, key=lambda bound: not bound.close(problem)):
        try:
            found = min(found, ask_delta_of(bound, problem, epsilon, adjacency))
        except MmccError:
            continue
        if found < 1 and bound.close(problem):
            break
    return found
