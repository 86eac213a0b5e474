"""Compiled: the exact likelihood ratio of an output, where columns affect few others.

In: noise g ~ N(0, G) of the columns, one sample a row; the law of participation; how a column that
takes part shifts the others, as in `reveal_loops`.  Out: log dP/dQ; the noise is overwritten.
Rounding: plain floating point, which `dominating` accounts for; the proofs are in `exact_pairs`.

Going through the columns, a state records which of the last few took part, and the state of the law
of participation.  `factors[kinds[l], state]` is e^(-sum of G_jl over those that did).
"""

from __future__ import annotations

import math

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._compiled import compiled
from mmcc._simulation.reveal_loops import draw_taken, kick

FARTHEST = 40.0
"""The largest exponent x_l; a sample with a larger one counts as if its loss were infinite."""
TURN = 4
"""Columns after which masses are divided by their sum."""
FLOOR = 1e-200
"""Smaller masses are replaced by this (remove) or by 0 (add)."""


@compiled
def exponents(
    x: FloatArray,
    rng: np.random.Generator,
    remove: bool,
    drawing: FloatArray,
    after: IntArray,
    kicks: FloatArray,
    starts: IntArray,
    reach: int,
    taken: IntArray,
) -> tuple[int, float]:
    """From the noise u_l - G_ll/2: how often a drawn example takes part, and the largest |x_l|."""
    number, columns = 0, x.size
    if remove:
        number = draw_taken(rng, drawing, after, taken)
    largest = 0.0
    for i in range(columns):
        if remove and taken[i] == 1:
            left, right = max(i - reach, 0), min(i + reach + 1, columns)
            kick(x, 1.0, kicks, starts[i] - i, left, right)
    for i in range(columns):
        x[i] -= 0.5 * kicks[starts[i]]
        largest = max(largest, abs(x[i]))
    return number, largest


@compiled
def bracketed(
    x: FloatArray,
    probability: FloatArray,
    kicks: FloatArray,
    starts: IntArray,
    reach: int,
    seen: FloatArray,
) -> tuple[float, float]:
    """Ends of log dP/dQ for independent columns, from each column by itself."""
    last = probability.shape[0] - 1
    high, product = 0.0, 1.0
    for i in range(x.size):
        chance = probability[min(i, last), 0]
        weight = chance * math.exp(x[i])
        factor = 1.0 - chance + weight
        seen[i] = weight / factor
        product *= factor
        if i % TURN == TURN - 1:
            high += math.log(product)
            product = 1.0
    high += math.log(product)
    lost = 0.0
    for i in range(x.size):
        together = 0.0
        for j in range(i + 1, min(i + reach + 1, x.size)):
            together += seen[j] * kicks[starts[i] - i + j]
        lost += seen[i] * together
    return high - lost, high


@compiled
def log_ratios(
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
    kinds: IntArray,
    factors: FloatArray,
    above: float,
) -> FloatArray:
    """For independent columns: the state is who took part in the last `reach`, the last one first.

    Where the loss, log dP/dQ (remove) or minus that (add), is below `above` for certain, a number
    between the two is returned.
    """
    samples, columns = noise.shape
    worst = math.inf if remove else -math.inf
    found = np.zeros(samples)
    taken = np.zeros(columns, np.int64)
    half = factors.shape[1] // 2
    now, new, seen = np.zeros(2 * half), np.zeros(2 * half), np.zeros(columns)
    last = probability.shape[0] - 1
    for sample in range(samples):
        x = noise[sample]
        numbers[sample], largest = exponents(
            x, rng, remove, drawing, after, kicks, starts, reach, taken
        )
        if largest > FARTHEST:
            found[sample] = worst
            continue
        if above > -math.inf:
            low, high = bracketed(x, probability, kicks, starts, reach, seen)
            if (high if remove else -low) < above:
                found[sample] = high if remove else low
                continue
        now[:] = 0.0
        now[0], loss = 1.0, 0.0
        for i in range(columns):
            chance, costs = probability[min(i, last), 0], factors[kinds[i]]
            stay, gain = 1.0 - chance, chance * math.exp(x[i])
            for r in range(half):
                new[2 * r] = stay * (now[r] + now[r + half])
                new[2 * r + 1] = gain * (costs[r] * now[r] + costs[r + half] * now[r + half])
            now, new = new, now
            if i % TURN == TURN - 1:
                total = now.sum()
                loss += math.log(total)
                now *= 1.0 / total
        found[sample] = loss + math.log(now.sum())
    return found


@compiled
def log_ratios_of_states(
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
    kinds: IntArray,
    factors: FloatArray,
    places: IntArray,
    follow: IntArray,
) -> FloatArray:
    """The same for any automaton: state k is `places[k]` of the law, `follow[k]` its successors.

    Masses below `FLOOR` are raised for remove and dropped for add: this lowers no loss.
    """
    samples, columns = noise.shape
    worst = math.inf if remove else -math.inf
    least = FLOOR if remove else 0.0
    found = np.zeros(samples)
    taken = np.zeros(columns, np.int64)
    states = places.size
    now, new = np.zeros(states), np.zeros(states)
    last = probability.shape[0] - 1
    for sample in range(samples):
        x = noise[sample]
        numbers[sample], largest = exponents(
            x, rng, remove, drawing, after, kicks, starts, reach, taken
        )
        if largest > FARTHEST:
            found[sample] = worst
            continue
        now[:] = 0.0
        now[0], loss = 1.0, 0.0
        for i in range(columns):
            row, grown, costs = min(i, last), math.exp(x[i]), factors[kinds[i]]
            new[:] = 0.0
            for k in range(states):
                chance = probability[row, places[k]]
                new[follow[k, 0]] += (1.0 - chance) * now[k]
                new[follow[k, 1]] += chance * grown * costs[k] * now[k]
            for k in range(states):
                now[k] = new[k] if new[k] >= FLOOR else least
            if i % TURN == TURN - 1:
                total = now.sum()
                loss += math.log(total)
                now *= 1.0 / total
        found[sample] = loss + math.log(now.sum())
    return found
