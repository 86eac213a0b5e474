r"""What guesses about canaries prove: the probability of so many right ones, whatever was run.

In: how many of how many guesses were right, points of a privacy curve.  Out: upper bounds on the
probability of at least that many, and the largest epsilon that they refute.
Rounding: probabilities upwards, by more than the errors of special functions; epsilon downwards.

Of m canaries each is in the data by a fair coin of its own.  From everything released, r guesses
are made, r fixed: N of them are right.  If the mechanism is (epsilon, delta)-private, zero-out,
then for all c_1, ..., c_r in [0, 1]

    sum_k c_k (k P[N = k] - e^epsilon (r - k + 1) P[N = k - 1])  <=  stakes delta,

stakes being m, or m / 2 if all guesses are of one kind (docs/audit.md has the proofs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import betainc, gammaln

from mmcc._arrays import FloatArray
from mmcc.accounting._curve_points import FARTHEST, Point

MARGIN = 1 + 1e-7
"""More than the relative error of a binomial tail and of a logarithm of factorials up to 10^6."""
UNIT = 2.0**-53
FAINT = 1e-200
"""Probabilities below this may have underflowed."""
ACCURACY = 1e-4
"""The relative precision of the refuted epsilon."""
DEVIATIONS = 6
"""Numbers of correct guesses this far below the observed one get no weight."""
LARGEST_PROGRAM = 10**6
"""The most entries of a linear program; beyond it, points are used one at a time."""


def stakes(canaries: int, kinds: int) -> float:
    """The factor of delta: for guesses of one kind, only one adjacency counts."""
    return canaries * kinds / 2


def chance_of_correct(correct: int, guesses: int, staked: float, point: Point) -> float:
    r"""At most this chance of so many correct guesses under (epsilon, delta)-privacy.

    P[N >= v] <= b + stakes delta b (1 - b) / (v P[W = v]),   b = P[W >= v],
    W ~ Bin(r, e^epsilon / (1 + e^epsilon)).  With delta = 0 randomised response attains it.
    """
    if correct <= 0 or point.epsilon > FARTHEST:
        return 1.0
    share = 1 / (1 + math.exp(-point.epsilon))
    bound = float(betainc(correct, guesses - correct + 1, share))
    if point.delta > 0 and bound < 1:
        bound += staked * point.delta * _over_hazard(correct, guesses, point.epsilon) * (1 - bound)
    return min(bound * MARGIN, 1.0)


def lower_epsilon(correct: int, guesses: int, staked: float, delta: float, error: float) -> float:
    """With probability at least 1 - error, epsilon at delta is at least this; 0 says nothing.

    If the mechanism is (e, delta)-private, it is so for every epsilon >= e as well.  So with v the
    least number whose bound at any such epsilon is at most `error`, the probability of v or more is
    too: every epsilon that a search finds refuted is a valid answer.
    """

    def refuted(epsilon: float) -> bool:
        return chance_of_correct(correct, guesses, staked, Point(epsilon, delta)) <= error

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > ACCURACY * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def chance_under_curve(correct: int, guesses: int, staked: float, points: Sequence[Point]) -> float:
    r"""At most this chance of so many correct guesses if all points hold at once.

    Every choice of weights c_jk >= 0 for point j and k = 1, ..., r gives a bound,

        P[N >= v]  <=  max_k (1[k >= v] - k sum_j c_jk + (r - k) sum_j e^epsilon_j c_j,k+1)
                       + stakes sum_j delta_j max_k c_jk,

    k = 0, ..., r in the first maximum.  The least is a linear program.  Its solver only chooses the
    weights; the bound is computed from them, and that of a single point is used if it is smaller.
    """
    usable = [point for point in points if point.epsilon <= FARTHEST]
    if correct <= 0 or not usable:
        return 1.0
    single = min(chance_of_correct(correct, guesses, staked, point) for point in usable)
    spread = math.sqrt(correct * (guesses - correct) / guesses) + 1
    first = max(1, correct - math.ceil(DEVIATIONS * spread))
    levels = np.arange(first, guesses + 1.0)
    if len(usable) == 1 or levels.size * len(usable) > LARGEST_PROGRAM:
        return single
    factors = np.exp([point.epsilon for point in usable])
    prices = staked * np.array([point.delta for point in usable])
    weights = _weights(levels, correct, guesses, factors, prices)
    if weights is None:
        return single
    return min(single, _of_weights(weights, levels, correct, guesses, factors, prices), 1.0)


def _of_weights(
    weights: FloatArray,
    levels: FloatArray,
    correct: int,
    guesses: int,
    factors: FloatArray,
    prices: FloatArray,
) -> float:
    """The bound of given weights, with the possible rounding error of each sum."""
    for_right = np.append(0.0, levels * weights.sum(axis=0))
    for_wrong = np.append((guesses - levels + 1) * (factors @ weights), 0.0)
    reached = np.append(levels[0] - 1, levels) >= correct
    error = 4 * (len(factors) + 2) * UNIT * (for_right + for_wrong + 1)
    left = float(np.max(reached - for_right + for_wrong + error))
    return (max(left, 0.0) + float(prices @ weights.max(axis=1))) * MARGIN


def _weights(
    levels: FloatArray, correct: int, guesses: int, factors: FloatArray, prices: FloatArray
) -> FloatArray | None:
    """Non-negative weights with a small bound; None if the solver gives up.

    Unknowns are c_jk, level by level for each point, then the maxima M_j, then the left maximum b:

        k = first - 1, ..., r:   1[k >= v] - k sum_j c_jk + (r - k) sum_j e^eps_j c_j,k+1 <= b,
        c_jk <= M_j,             the least b + sum_j price_j M_j.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, eye_array, hstack, kron, vstack

    points, count = len(factors), levels.size
    rows = np.arange(count)
    right = coo_array((-levels, (rows + 1, rows)), shape=(count + 1, count))
    wrong = coo_array((guesses - levels + 1, (rows, rows)), shape=(count + 1, count))
    balance = hstack(
        [right + factor * wrong for factor in factors]
        + [coo_array((count + 1, points)), -np.ones((count + 1, 1))]
    )
    most = hstack(
        [
            eye_array(points * count),
            -kron(eye_array(points), np.ones((count, 1))),
            coo_array((points * count, 1)),
        ]
    )
    reached = np.append(levels[0] - 1, levels) >= correct
    found = linprog(
        np.concatenate([np.zeros(points * count), prices, [1.0]]),
        A_ub=vstack([balance, most]).tocsr(),
        b_ub=np.concatenate([-reached.astype(float), np.zeros(points * count)]),
        method="highs",
    )
    if found.x is None or not np.isfinite(found.x).all():
        return None
    return np.maximum(found.x[: points * count], 0.0).reshape(points, count)


def _over_hazard(correct: int, guesses: int, log_odds: float) -> float:
    """P[W >= v] / (v P[W = v]) for W binomial with these odds; infinite where it is too large.

    Far in the tail both underflow: ratios of neighbouring probabilities fall, so a geometric series
    is an upper bound.
    """
    v, r = correct, guesses
    small = math.log1p(math.exp(-log_odds))
    tail = float(betainc(v, r - v + 1, math.exp(-small)))
    ways = float(gammaln(r + 1) - gammaln(v + 1) - gammaln(r - v + 1))
    log_mass = ways - v * small - (r - v) * (log_odds + small)
    if min(tail, math.exp(min(log_mass, 0.0))) > FAINT:
        return tail / (v * math.exp(log_mass)) * MARGIN
    ratio = (r - v) / (v + 1) * math.exp(log_odds)
    return MARGIN / (v * (1 - ratio)) if ratio < 0.99 else math.inf
