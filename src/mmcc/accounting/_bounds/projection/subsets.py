"""Subsets of a given size, with chances proportional to products of weights: compiled loops.

Members of an epoch are drawn independently with chances q_j, given that there are k of them: any
common factor of the odds o_j = q_j / (1 - q_j) cancels, and is chosen so that about k are expected
and nothing under- or overflows.  P_i is the coefficient of z^i of prod_j (1 - q_j + q_j w_j z),
with phases w_j = e^(i gamma a_j).  No rounding direction of its own.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc._compiled import compiled

NEAR = 0.05
"""How near to k the expected number of members must be; any value is valid."""


@compiled
def shift(x: FloatArray, times: int) -> float:
    """An s with sum_j 1 / (1 + e^(-x_j - s)) near `times`, which is less than the number of x."""
    count = x.size
    low = np.log(times / count) - x.max()
    high = np.log(times / (count - times)) - x.min()
    s = 0.5 * (low + high)
    for _ in range(100):
        total, slope = 0.0, 0.0
        for j in range(count):
            q = 1 / (1 + np.exp(-x[j] - s))
            total += q
            slope += q * (1 - q)
        if abs(total - times) < NEAR:
            break
        if total < times:
            low = s
        else:
            high = s
        s += (times - total) / max(slope, 1e-300)
        if not low < s < high:
            s = 0.5 * (low + high)
    return float(s)


@compiled
def tilt(x: FloatArray, times: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For weights e^x, one law per row: shift s, log of the sum over all subsets, chances u_j.

    Only sums and products of non-negative numbers: a relative error of a few roundings per member.
    """
    rows, count = x.shape
    shifts, logs, chances = np.empty(rows), np.empty(rows), np.empty((rows, count))
    before = np.zeros((count + 1, times + 1))
    after = np.empty(times + 1)
    q, rest = np.empty(count), np.empty(count)
    for row in range(rows):
        s = shift(x[row], times)
        idle = 0.0
        before[0, 0] = 1.0
        for j in range(count):
            y = x[row, j] + s
            size = np.exp(-abs(y))
            q[j] = (1.0 if y > 0 else size) / (1 + size)
            rest[j] = (size if y > 0 else 1.0) / (1 + size)
            idle -= max(y, 0.0) + np.log1p(size)
            before[j + 1, 0] = rest[j] * before[j, 0]
            for i in range(1, times + 1):
                before[j + 1, i] = rest[j] * before[j, i] + q[j] * before[j, i - 1]
        whole = before[count, times]
        after[:] = 0.0
        after[0] = 1.0
        for j in range(count - 1, -1, -1):
            others = 0.0
            for i in range(times):
                others += before[j, i] * after[times - 1 - i]
            chances[row, j] = q[j] * others / whole
            for i in range(times, 0, -1):
                after[i] = rest[j] * after[i] + q[j] * after[i - 1]
            after[0] *= rest[j]
        shifts[row] = s
        logs[row] = np.log(whole) - idle - times * s
    return shifts, logs, chances


@compiled
def coefficients(q: FloatArray, phases: ComplexArray, epochs: int, times: int) -> ComplexArray:
    """P_0, ..., P_k of every epoch, with axes gamma, epoch, i; `phases` is e^(i gamma a_j) - 1."""
    length = q.size // epochs
    table = np.zeros((phases.shape[0], epochs, times + 1), np.complex128)
    for g in range(phases.shape[0]):
        for e in range(epochs):
            now = table[g, e]
            now[0] = 1.0
            for j in range(e * length, (e + 1) * length):
                moved = q[j] * (1.0 + phases[g, j])
                for i in range(times, 0, -1):
                    now[i] = (1.0 - q[j]) * now[i] + moved * now[i - 1]
                now[0] *= 1.0 - q[j]
    return table


@compiled
def participation(
    odds: FloatArray, phases: ComplexArray, table: ComplexArray, nodes: ComplexArray
) -> tuple[FloatArray, FloatArray]:
    """Real parts of sum_gamma nodes r_j, and of the pairs' formula with j as both members.

    r_j = x R_(k-1) / P_k with x = o_j w_j and R_i = P_i - x R_(i-1), the coefficients without j.
    Pairs have x y T_(k-2) / P_k with T_i = R_i - y T_(i-1), the coefficients without both.
    """
    gammas, epochs, orders = table.shape
    times, length = orders - 1, odds.size // epochs
    single, twice = np.zeros(odds.size), np.zeros(odds.size)
    for g in range(gammas):
        for e in range(epochs):
            now = table[g, e]
            share = nodes[g] / now[times]
            for j in range(e * length, (e + 1) * length):
                x = odds[j] * (1.0 + phases[g, j])
                without, both = 0.0j, 0.0j
                for i in range(times):
                    both = without - x * both  # T_(i-1); nothing for i = 0
                    without = now[i] - x * without
                single[j] += (share * x * without).real
                twice[j] += (share * x * x * both).real
    return single, twice
