"""Guesses about coins under the worst mechanism there is: all of them at once, as a linear program.

A mechanism takes m coins and answers with a guess, +1 or -1, about some of them and 0 about the
rest.  Its chances are the unknowns; for every two inputs that differ in one coin they satisfy
sum_t (M(t|s) - e^epsilon M(t|s'))_+ <= delta, for every point of a curve.  Whatever else is
released and however guesses are made of it comes down to this.  Imports nothing from mmcc.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
from scipy.optimize import linprog
from scipy.sparse import lil_array


def answers(coins, guesses, kinds=None):
    """All answers with so many guesses, or with so many of each kind (included, left out)."""
    every = itertools.product((-1, 0, 1), repeat=coins)
    if kinds is None:
        return [one for one in every if sum(map(abs, one)) == guesses]
    return [one for one in every if (one.count(1), one.count(-1)) == kinds]


def most_likely(coins, possible, correct, points):
    """The largest chance of so many right guesses, over all mechanisms with a privacy curve."""
    inputs = list(itertools.product((-1, 1), repeat=coins))
    pairs = [
        (a, b)
        for a, one in enumerate(inputs)
        for b, other in enumerate(inputs)
        if sum(x != y for x, y in zip(one, other, strict=True)) == 1
    ]
    chances, answered = len(inputs) * len(possible), len(possible)
    gain = np.zeros(chances + len(pairs) * len(points) * answered)
    for a, one in enumerate(inputs):
        for j, answer in enumerate(possible):
            right = sum(x == y for x, y in zip(one, answer, strict=True))
            gain[a * answered + j] = (right >= correct) / len(inputs)
    blocks = len(pairs) * len(points)
    above = lil_array((blocks * (answered + 1), gain.size))
    limits = np.zeros(blocks * (answered + 1))
    for block, ((a, b), (epsilon, delta)) in enumerate(itertools.product(pairs, points)):
        row, excess = block * (answered + 1), chances + block * answered
        for j in range(answered):
            above[row + j, a * answered + j] = 1
            above[row + j, b * answered + j] = -math.exp(epsilon)
            above[row + j, excess + j] = -1
            above[row + answered, excess + j] = 1
        limits[row + answered] = delta
    sums = lil_array((len(inputs), gain.size))
    for a in range(len(inputs)):
        sums[a, a * answered : (a + 1) * answered] = 1
    found = linprog(
        -gain,
        A_ub=above.tocsr(),
        b_ub=limits,
        A_eq=sums.tocsr(),
        b_eq=np.ones(len(inputs)),
        bounds=(0, 1),
        method="highs",
    )
    assert found.status == 0, found.message
    return -found.fun


def privacy_of(law, epsilon):
    """Delta at epsilon of guessing all coins so that N are right, a random N of them: exactly.

    `law` is that of N = 0, ..., m.  An answer with N right ones has the chance law[N] / C(m, N).
    """
    coins = len(law) - 1
    each = [law[k] / math.comb(coins, k) for k in range(coins + 1)]
    ways = [math.comb(coins - 1, k) for k in range(coins)]
    factor = math.exp(epsilon)
    up = sum(w * max(each[k + 1] - factor * each[k], 0.0) for k, w in enumerate(ways))
    down = sum(w * max(each[k] - factor * each[k + 1], 0.0) for k, w in enumerate(ways))
    return up + down


def most_by_law(guesses, staked, correct, points):
    """The largest chance of so many right guesses over all laws of their number that are allowed.

    Sum_k (k P[N = k] - e^epsilon (r - k + 1) P[N = k - 1])_+ <= stakes delta, for every point: what
    privacy says of one coin after another, added up.  More guesses than all mechanisms allow for.
    """
    numbers, levels = guesses + 1, range(1, guesses + 1)
    size = numbers + len(points) * guesses
    rows, limits = [], []
    for place, (epsilon, delta) in enumerate(points):
        excess = numbers + place * guesses
        for k in levels:
            row = np.zeros(size)
            row[k], row[k - 1] = k, -math.exp(epsilon) * (guesses - k + 1)
            row[excess + k - 1] = -1
            rows.append(row)
            limits.append(0.0)
        total = np.zeros(size)
        total[excess : excess + guesses] = 1
        rows.append(total)
        limits.append(staked * delta)
    whole = np.zeros(size)
    whole[:numbers] = 1
    gain = np.zeros(size)
    gain[correct:numbers] = 1
    found = linprog(
        -gain, A_ub=np.array(rows), b_ub=limits, A_eq=[whole], b_eq=[1.0], method="highs"
    )
    assert found.status == 0, found.message
    return -found.fun


def chance_with_all_digits(correct, guesses, staked, epsilon, delta):
    """P[W >= v] + stakes delta P[W >= v] P[W < v] / (v P[W = v]), in 60 digits."""
    with mpmath.workdps(60):
        share = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        masses = [
            mpmath.binomial(guesses, k) * share**k * (1 - share) ** (guesses - k)
            for k in range(guesses + 1)
        ]
        tail = mpmath.fsum(masses[correct:])
        paid = mpmath.mpf(staked) * mpmath.mpf(delta) * tail * (1 - tail)
        return float(min(tail + paid / (correct * masses[correct]), mpmath.mpf(1)))
