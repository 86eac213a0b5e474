"""Compiled: participations are revealed epoch by epoch, each from the columns that are left.

In: noise g ~ N(0, G) of the columns, one sample a row; how a column that takes part shifts the
others, as in `reveal_loops`.  Out: log Lhat (see `dominating`); the noise is overwritten.
Rounding: plain floating point, which `dominating` accounts for.
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._compiled import compiled
from mmcc._simulation.reveal_loops import kick


@compiled
def reveal_epochs(
    noise: FloatArray,
    rng: np.random.Generator,
    remove: bool,
    length: int,
    times: int,
    kicks: FloatArray,
    starts: IntArray,
    reach: int,
    later: FloatArray,
    within: FloatArray,
) -> FloatArray:
    """Logarithms of Lhat where every epoch has `times` random columns, revealed in random order.

    The r-th of an epoch comes from the columns left, with weights e^(x_j - m_j) and
    m_j = later_j + (times - r) within_j.
    """
    samples, columns = noise.shape
    losses = np.zeros(samples)
    epochs = columns // length
    order, truth = np.arange(length), np.zeros((epochs, times), np.int64)
    sums, open_ = np.zeros(length), np.zeros(length, np.bool_)
    for sample in range(samples):
        x = noise[sample]
        for i in range(columns):
            x[i] -= 0.5 * kicks[starts[i]]
        if remove:
            for e in range(epochs):
                for r in range(times):
                    other = r + int(rng.random() * (length - r))
                    order[r], order[other] = order[other], order[r]
                    i = e * length + order[r]
                    truth[e, r] = i
                    left, right = max(i - reach, 0), min(i + reach + 1, columns)
                    kick(x, 1.0, kicks, starts[i] - i, left, right)
        loss = 0.0
        for e in range(epochs):
            first = e * length
            open_[:] = True
            for r in range(times):
                rest = times - 1.0 - r
                top = -math.inf
                for j in range(length):
                    if open_[j]:
                        i = first + j
                        top = max(top, x[i] - later[i] - rest * within[i])
                total = 0.0
                for j in range(length):
                    if open_[j]:
                        i = first + j
                        total += math.exp(x[i] - later[i] - rest * within[i] - top)
                    sums[j] = total
                i = truth[e, r]
                if not remove:
                    place = int(np.searchsorted(sums, rng.random() * total, side="right"))
                    i = first + min(place, length - 1)
                    while not open_[i - first]:
                        i -= 1
                loss += top + math.log(total / (length - r)) + later[i] + rest * within[i]
                open_[i - first] = False
                left, right = max(i - reach, first), min(i + reach + 1, columns)
                kick(x, -1.0, kicks, starts[i] - i, left, right)
        losses[sample] = loss
    return losses
