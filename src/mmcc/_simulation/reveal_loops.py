r"""Compiled: participations are revealed one after the other, and what the loss gains by each.

In: noise g ~ N(0, G) of the columns, one sample a row; the law of participation; how a column that
takes part moves the others.  Out: log Lhat (see `pairs`); the noise is overwritten.
Rounding: plain floating point, for which `pairs` accounts.

`kicks[starts[l] + d]` is G_(l, l+d).
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.accounting._losses.row_loops import compiled

STEEP = 300.0
"""Above this exponents are not taken: e^x would leave the range of numbers."""
CALM = 36.0
"""Where the look-ahead cuts exponents off: products of MOST_AHEAD factors stay in the range."""
MOST_AHEAD = 16
MOST_TILT = 1e100
LARGE = 1e150
"""Products of factors become logarithms before they leave the range of numbers."""


@compiled
def kick(x: FloatArray, sign: float, kicks: FloatArray, shift: int, left: int, right: int) -> None:
    """x_j += sign * kicks[shift + j] for the columns j from `left` to `right - 1`."""
    for j in range(left, right):
        x[j] += sign * kicks[shift + j]


@compiled
def log_sum(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    top = max(a, b)
    return top + math.log1p(math.exp(min(a, b) - top))


@compiled
def draw_taken(
    rng: np.random.Generator, probability: FloatArray, after: IntArray, taken: IntArray
) -> None:
    """Who takes part, by the scheme."""
    state, last = 0, probability.shape[0] - 1
    for column in range(taken.size):
        chance = probability[min(column, last), state]
        taken[column] = 1 if chance > 0.0 and rng.random() < chance else 0
        state = after[state, taken[column]]


@compiled
def reveal_one(
    x: float,
    grown: float,
    chance: float,
    ratio: float,
    truth: int,
    coin: float,
    loss: float,
    product: float,
) -> tuple[int, float, float]:
    """Whether a column takes part, and the loss, which is `loss` + log `product`, after it.

    D = 1 - p + p e^x R; a fake takes part with chance p e^x R / D.  The loss gains log D, and
    loses log R if the column takes part.  `truth` is -1 for a fake; `grown` is e^x, if not STEEP.
    """
    if x > STEEP:
        log_weight = x + math.log(chance) + math.log(ratio)
        log_factor = log_sum(log_weight, math.log1p(-chance))
        taking = truth if truth >= 0 else int(coin < math.exp(log_weight - log_factor))
        return taking, loss + log_factor - taking * math.log(ratio), product
    weight = chance * grown * ratio
    factor = 1.0 - chance + weight
    taking = truth if truth >= 0 else int(coin * factor < weight)
    product *= factor / ratio if taking == 1 else factor
    if product > LARGE or product < 1.0 / LARGE:
        return taking, loss + math.log(product), 1.0
    return taking, loss, product


@compiled
def look_ahead(
    grown: FloatArray,
    slot: int,
    many: int,
    damping: FloatArray,
    taking: FloatArray,
    idle: FloatArray,
) -> float:
    """prod_k [1 - r_k + r_k e^(x_(l+k) - G_(l, l+k))] / [1 - r'_k + r'_k e^(x_(l+k))].

    With chances r_k of one who takes part in l and r'_k of one who does not.
    """
    above, below = 1.0, 1.0
    step = 1 if taking.size > 1 else 0
    place = slot
    for k in range(many):
        place = place + 1 if place + 1 < grown.size else 0
        near, far = taking[k * step], idle[k * step]
        above *= 1.0 - near + near * grown[place] * damping[k]
        below *= 1.0 - far + far * grown[place]
    return above / below


@compiled
def reveal_columns(
    noise: FloatArray,
    rng: np.random.Generator,
    remove: bool,
    probability: FloatArray,
    after: IntArray,
    kicks: FloatArray,
    starts: IntArray,
    reach: int,
    centres: FloatArray,
    kinds: IntArray,
    damping: FloatArray,
    forecast: FloatArray,
) -> FloatArray:
    """log Lhat, sample by sample: s ~ pi (remove), or drawn from the kernel (add).

    `centres[l]` is e^(-m_l).  `damping[kinds[l], k]` is e^(-G_(l, l+k+1)) for the next columns that
    are looked at; `forecast[state, k]` has their chances, or is empty: then that of the next column
    stands for all.

    Of a participation in column i the columns before i keep the kick for good, since i is revealed
    after them; those after i lose it when i is revealed, and only what is looked at before needs it
    at all.
    """
    samples, columns = noise.shape
    ahead = damping.shape[1]
    near = min(reach, ahead)
    losses = np.zeros(samples)
    taken = np.zeros(columns, np.int64)
    grown, cut = np.zeros(ahead + 1), np.zeros(ahead + 1, np.bool_)  # e^x from l to l + ahead
    last = probability.shape[0] - 1
    for i in range(samples):
        x = noise[i]
        if remove:
            draw_taken(rng, probability, after, taken)
        for l in range(columns):
            if remove and taken[l] == 1:
                left, right = max(l - reach, 0), min(l + near + 1, columns)
                kick(x, 1.0, kicks, starts[l] - l, left, right)
            x[l] -= 0.5 * kicks[starts[l]]
        for k in range(min(ahead + 1, columns)):
            grown[k], cut[k] = math.exp(min(x[k], CALM)), x[k] > CALM
        state, loss, product, slot = 0, 0.0, 1.0, 0
        for l in range(columns):
            chance = probability[min(l, last), state]
            here, own, taking = x[l], grown[slot], 0
            if chance >= 1.0:
                taking = 1
                loss += here
            elif chance > 0.0:
                ratio = centres[l]
                many = min(ahead, columns - 1 - l)
                if many > 0:
                    table, now, then = forecast, after[state, 1], after[state, 0]
                    if forecast.shape[0] == 0:
                        row = min(l + 1, last)
                        ratio *= look_ahead(
                            grown,
                            slot,
                            many,
                            damping[kinds[l]],
                            probability[row, now : now + 1],
                            probability[row, then : then + 1],
                        )
                    else:
                        ratio *= look_ahead(
                            grown, slot, many, damping[kinds[l]], table[now], table[then]
                        )
                    ratio = min(max(ratio, 1.0 / MOST_TILT), MOST_TILT)
                if here <= STEEP and (ahead == 0 or cut[slot]):
                    own = math.exp(here)
                coin = 0.0 if remove else rng.random()
                taking, loss, product = reveal_one(
                    here, own, chance, ratio, taken[l] if remove else -1, coin, loss, product
                )
            if taking == 1:
                right = min(l + (near if remove else reach) + 1, columns)
                kick(x, -1.0, kicks, starts[l] - l, l + 1, right)
                place = slot
                for k in range(min(ahead, columns - 1 - l)):
                    place = place + 1 if place < ahead else 0
                    grown[place] *= damping[kinds[l], k]
            entering = l + ahead + 1  # takes the place of this column
            if ahead > 0 and entering < columns:
                grown[slot] = math.exp(min(x[entering], CALM))
                cut[slot] = x[entering] > CALM
            slot = slot + 1 if slot < ahead else 0
            state = after[state, taking]
        losses[i] = loss + math.log(product)
    return losses


@compiled
def enter(nodes: IntArray, counts: IntArray, step: int) -> int:
    """Move to a step: nodes that are left forget their counts; what they held is returned."""
    gone = 0
    for level in range(nodes.size):
        if nodes[level] == step >> level:
            break
        nodes[level] = step >> level
        gone += counts[level]
        counts[level] = 0
    return gone


@compiled
def reveal_leaves(
    noise: FloatArray,
    rng: np.random.Generator,
    remove: bool,
    probability: FloatArray,
    after: IntArray,
    steps: IntArray,
    depths: IntArray,
    levels: int,
    scale: float,
    centres: FloatArray,
) -> FloatArray:
    """The same for trees, in a time that does not depend on how far columns reach.

    G_jl is `scale` times the number of nodes above both steps; `depths[l]` nodes are above column
    l.  Each node on the way up from the present column counts the participations under it.
    """
    samples, columns = noise.shape
    losses = np.zeros(samples)
    taken = np.zeros(columns, np.int64)
    nodes, counts = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    last = probability.shape[0] - 1
    for i in range(samples):
        x = noise[i]
        if remove:
            draw_taken(rng, probability, after, taken)
            nodes[:], counts[:], total = -1, 0, 0
            for l in range(columns - 1, -1, -1):
                total -= enter(nodes, counts, steps[l])
                if taken[l] == 1:
                    counts[: depths[l]] += 1
                    total += depths[l]
                x[l] += scale * total
        nodes[:], counts[:], total = -1, 0, 0
        state, loss, product = 0, 0.0, 1.0
        for l in range(columns):
            total -= enter(nodes, counts, steps[l])
            chance = probability[min(l, last), state]
            here, taking = x[l] - scale * 0.5 * depths[l], 0
            if not remove:
                here -= scale * total
            if chance >= 1.0:
                taking = 1
                loss += here
            elif chance > 0.0:
                ratio = centres[l]
                own = math.exp(min(here, STEEP))
                coin = 0.0 if remove else rng.random()
                taking, loss, product = reveal_one(
                    here, own, chance, ratio, taken[l] if remove else -1, coin, loss, product
                )
            if taking == 1 and not remove:
                counts[: depths[l]] += 1
                total += depths[l]
            state = after[state, taking]
        losses[i] = loss + math.log(product)
    return losses


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
    """log Lhat where every epoch has `times` random columns, revealed in random order.

    The r-th of an epoch comes from the columns left, with weights e^(x_j - m_j) and
    m_j = later_j + (times - r) within_j.
    """
    samples, columns = noise.shape
    losses = np.zeros(samples)
    epochs = columns // length
    order, truth = np.arange(length), np.zeros((epochs, times), np.int64)
    sums, open_ = np.zeros(length), np.zeros(length, np.bool_)
    for i in range(samples):
        x = noise[i]
        for l in range(columns):
            x[l] -= 0.5 * kicks[starts[l]]
        if remove:
            for e in range(epochs):
                for r in range(times):
                    other = r + int(rng.random() * (length - r))
                    order[r], order[other] = order[other], order[r]
                    l = e * length + order[r]
                    truth[e, r] = l
                    left, right = max(l - reach, 0), min(l + reach + 1, columns)
                    kick(x, 1.0, kicks, starts[l] - l, left, right)
        loss = 0.0
        for e in range(epochs):
            first = e * length
            open_[:] = True
            for r in range(times):
                rest = times - 1.0 - r
                top = -math.inf
                for j in range(length):
                    if open_[j]:
                        l = first + j
                        top = max(top, x[l] - later[l] - rest * within[l])
                total = 0.0
                for j in range(length):
                    if open_[j]:
                        l = first + j
                        total += math.exp(x[l] - later[l] - rest * within[l] - top)
                    sums[j] = total
                l = truth[e, r]
                if not remove:
                    place = int(np.searchsorted(sums, rng.random() * total, side="right"))
                    l = first + min(place, length - 1)
                    while not open_[l - first]:
                        l -= 1
                loss += top + math.log(total / (length - r)) + later[l] + rest * within[l]
                open_[l - first] = False
                left, right = max(l - reach, first), min(l + reach + 1, columns)
                kick(x, -1.0, kicks, starts[l] - l, left, right)
        losses[i] = loss
    return losses
