r"""Compiled: participations are revealed one after the other, and what each adds to the loss.

In: noise g ~ N(0, G) of the columns, one sample a row; the law of participation; how a column that
takes part shifts the others.  Out: log Lhat (see `dominating`); the noise is overwritten.
Rounding: plain floating point, which `dominating` accounts for.

`kicks[starts[i] + d]` is G_(i, i+d).
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._compiled import compiled

STEEP = 300.0
"""Exponents are capped at this: e^x would leave the range of numbers."""
MOST_TILT = 1e100
"""The floor of a look-ahead factor: any positive number will do."""
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
) -> int:
    """Draw who takes part, with these probabilities, and how often."""
    state, last, number = 0, probability.shape[0] - 1, 0
    for column in range(taken.size):
        chance = probability[min(column, last), state]
        taken[column] = 1 if chance > 0.0 and rng.random() < chance else 0
        state = after[state, taken[column]]
        number += taken[column]
    return number


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
    """Whether a column takes part, and the loss, `loss` + log `product`, after it.

    D = 1 - p + p e^x R; a fake takes part with probability p e^x R / D.  The loss gains log D, and
    loses log R if the column takes part.  `truth` is -1 for a fake; `grown` is e^min(x, STEEP).
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
def look_ahead(seen: FloatArray, first: int, end: int, strengths: FloatArray, kind: int) -> float:
    """prod_j [1 - p + p e^(x_j - G_j)] / [1 - p + p e^(x_j)] = prod_j (1 - w_j (1 - e^(-G_j))).

    For columns j from `first` to `end` - 1, which by themselves look like participations with the
    probabilities w_j = p e^(x_j) / (1 - p + p e^(x_j)).
    """
    product = 1.0
    for j in range(first, end):
        product *= 1.0 - seen[j] * strengths[kind, j - first]
    return product


@compiled
def reveal_columns(
    noise: FloatArray,
    rng: np.random.Generator,
    remove: bool,
    drawing: FloatArray,
    numbers: IntArray,
    probability: FloatArray,
    after: IntArray,
    kicks: FloatArray,
    starts: IntArray,
    reach: int,
    centres: FloatArray,
    kinds: IntArray,
    strengths: FloatArray,
    truth: IntArray,
) -> FloatArray:
    """Logarithms of Lhat for independent columns: s ~ pi (remove), or from the kernel (add).

    For `remove`, s is drawn with the probabilities `drawing`, those of pi or others, and `numbers`
    holds how often it takes part.
    If `truth` is not empty it holds the participations, and their kicks are in the noise already.

    `centres[i]` is e^(-m_i).  `strengths[kinds[i], k]` is 1 - e^(-G_(i, i+k+1)) for the next
    columns that are looked at.

    The columns before a participation keep its kick for good, since it is revealed after them;
    those after it lose the kick when it is revealed, and before that only the columns looked at
    need it.
    """
    samples, columns = noise.shape
    ahead, p = strengths.shape[1], probability[0, 0]
    given = truth.shape[0] > 0
    near = min(reach, ahead) if remove and not given else reach
    losses = np.zeros(samples)
    taken = np.zeros(columns, np.int64)
    grown, seen = np.zeros(columns), np.zeros(columns)  # e^x, and the chance by itself
    for sample in range(samples):
        x = noise[sample]
        if given:
            taken = truth[sample]
        elif remove:
            numbers[sample] = draw_taken(rng, drawing, after, taken)
        for i in range(columns):
            if remove and not given and taken[i] == 1:
                left, right = max(i - reach, 0), min(i + near + 1, columns)
                kick(x, 1.0, kicks, starts[i] - i, left, right)
            x[i] -= 0.5 * kicks[starts[i]]
        for j in range(min(ahead, columns)):
            grown[j] = math.exp(min(x[j], STEEP))
            seen[j] = p * grown[j] / (1.0 - p + p * grown[j])
        loss, product = 0.0, 1.0
        for i in range(columns):
            end = min(i + ahead + 1, columns)
            if i + ahead < columns:  # comes into view
                grown[i + ahead] = math.exp(min(x[i + ahead], STEEP))
                seen[i + ahead] = p * grown[i + ahead] / (1.0 - p + p * grown[i + ahead])
            taking = 1
            if p >= 1.0:
                loss += x[i]
            else:
                ratio = centres[i] * look_ahead(seen, i + 1, end, strengths, kinds[i])
                ratio = max(ratio, 1.0 / MOST_TILT)
                coin = 0.0 if remove else rng.random()
                taking, loss, product = reveal_one(
                    x[i], grown[i], p, ratio, taken[i] if remove else -1, coin, loss, product
                )
            if taking == 1:
                kick(x, -1.0, kicks, starts[i] - i, i + 1, min(i + near + 1, columns))
                for j in range(i + 1, end):
                    grown[j] = math.exp(min(x[j], STEEP))
                    seen[j] = p * grown[j] / (1.0 - p + p * grown[j])
        losses[sample] = loss + math.log(product)
    return losses


@compiled
def send_back(
    x: FloatArray,
    first: int,
    end: int,
    probability: FloatArray,
    after: IntArray,
    messages: FloatArray,
    scales: FloatArray,
) -> None:
    """Messages of the columns from `end` - 1 down to `first`, starting with that of column `end`.

    messages[j, k]: how well the columns from j on are explained from state k, if their
    participations did not affect each other; column j is divided by scales[j].
    """
    last = probability.shape[0] - 1
    for j in range(end - 1, first - 1, -1):
        grown = math.exp(min(max(x[j], -STEEP), STEEP))
        row, top = min(j, last), 0.0
        for k in range(after.shape[0]):
            chance = probability[row, k]
            value = (1.0 - chance) * messages[j + 1, after[k, 0]]
            value += chance * grown * messages[j + 1, after[k, 1]]
            messages[j, k] = value
            top = max(top, value)
        top = top if top > 0.0 else 1.0
        scales[j] = top
        for k in range(after.shape[0]):
            messages[j, k] /= top


@compiled
def explained(
    x: FloatArray,
    state: int,
    first: int,
    end: int,
    probability: FloatArray,
    after: IntArray,
    messages: FloatArray,
    scales: FloatArray,
    strengths: FloatArray,
    kind: int,
    masses: FloatArray,
) -> float:
    """The message of `state` at column `first` after one more kick is subtracted from the columns.

    It is on the scale of messages[first].  `masses` has two rows of zeros, and has them again
    afterwards.
    """
    last, now = probability.shape[0] - 1, 0
    low, high = state, state + 1  # states that have any mass
    masses[0, state] = 1.0
    for j in range(first, end):
        row = min(j, last)
        grown = math.exp(min(max(x[j], -STEEP), STEEP)) * (1.0 - strengths[kind, j - first])
        new_low, new_high = after.shape[0], 0
        for k in range(low, high):
            mass = masses[now, k] / scales[j]
            masses[now, k] = 0.0
            if mass > 0.0:
                chance = probability[row, k]
                for taking in range(2):
                    share = chance * grown if taking == 1 else 1.0 - chance
                    if share > 0.0:
                        then = after[k, taking]
                        masses[1 - now, then] += mass * share
                        new_low, new_high = min(new_low, then), max(new_high, then + 1)
        now, low, high = 1 - now, new_low, new_high
    total = 0.0
    for k in range(low, high):
        total += masses[now, k] * messages[end, k]
        masses[now, k] = 0.0
    return total


@compiled
def reveal_states(
    noise: FloatArray,
    rng: np.random.Generator,
    remove: bool,
    drawing: FloatArray,
    numbers: IntArray,
    probability: FloatArray,
    after: IntArray,
    kicks: FloatArray,
    starts: IntArray,
    reach: int,
    centres: FloatArray,
    kinds: IntArray,
    strengths: FloatArray,
    renewed: int,
    truth: IntArray,
) -> FloatArray:
    """The same where a participation changes the probabilities of later ones.

    The look-ahead follows the states: how well the later columns are explained after a
    participation, with its kicks subtracted from those looked at, compared with no participation.
    `renewed` columns have their messages recomputed when a participation is revealed.
    """
    samples, columns = noise.shape
    ahead, states = strengths.shape[1], after.shape[0]
    given = truth.shape[0] > 0
    last = probability.shape[0] - 1
    losses = np.zeros(samples)
    taken = np.zeros(columns, np.int64)
    messages, scales = np.ones((columns + 1, states)), np.ones(columns + 1)
    masses = np.zeros((2, states))
    for sample in range(samples):
        x = noise[sample]
        if given:
            taken = truth[sample]
        elif remove:
            numbers[sample] = draw_taken(rng, drawing, after, taken)
        for i in range(columns):
            if remove and not given and taken[i] == 1:
                left, right = max(i - reach, 0), min(i + reach + 1, columns)
                kick(x, 1.0, kicks, starts[i] - i, left, right)
            x[i] -= 0.5 * kicks[starts[i]]
        send_back(x, 0, columns, probability, after, messages, scales)
        state, loss, product = 0, 0.0, 1.0
        for i in range(columns):
            chance = probability[min(i, last), state]
            end = min(i + ahead + 1, columns)
            taking = 0
            if chance >= 1.0:
                taking = 1
                loss += x[i]
            elif chance > 0.0:
                above = explained(
                    x,
                    after[state, 1],
                    i + 1,
                    end,
                    probability,
                    after,
                    messages,
                    scales,
                    strengths,
                    kinds[i],
                    masses,
                )
                below = messages[i + 1, after[state, 0]]
                ratio = centres[i] * max(above, 1.0 / MOST_TILT) / max(below, 1.0 / MOST_TILT)
                ratio = min(max(ratio, 1.0 / MOST_TILT), MOST_TILT)
                own, coin = math.exp(min(x[i], STEEP)), 0.0 if remove else rng.random()
                taking, loss, product = reveal_one(
                    x[i], own, chance, ratio, taken[i] if remove else -1, coin, loss, product
                )
            if taking == 1 and reach > 0:
                kick(x, -1.0, kicks, starts[i] - i, i + 1, min(i + reach + 1, columns))
                again = min(i + renewed + 1, columns)
                send_back(x, i + 1, again, probability, after, messages, scales)
            state = after[state, taking]
        losses[sample] = loss + math.log(product)
    return losses


@compiled
def draw_outputs(
    noise: FloatArray,
    rng: np.random.Generator,
    probability: FloatArray,
    after: IntArray,
    kicks: FloatArray,
    starts: IntArray,
    reach: int,
    size: float,
    taken: IntArray,
) -> None:
    """Who takes part, and its effect: `noise` A^T z becomes A^T y, y = size A s + z."""
    samples, columns = noise.shape
    for sample in range(samples):
        draw_taken(rng, probability, after, taken[sample])
        for i in range(columns):
            if taken[sample, i] == 1:
                left, right = max(i - reach, 0), min(i + reach + 1, columns)
                kick(noise[sample], size, kicks, starts[i] - i, left, right)
