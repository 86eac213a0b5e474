r"""Showing that a mean is small by betting against its being large.

In: X_1, X_2, ... in [0, largest], independent with one mean; a number `mean`, a level.
Out: whether E[X] >= mean is rejected.
Rounding: log wealth downwards, the level's logarithm upwards: no verdict is due to rounding.

A bettor starts with a wealth of 1 and puts lam on "X is small" each time:

    W_n = prod_{i <= n} (1 + lam (mean - X_i)),    0 <= lam < 1 / (largest - mean).

No factor is negative, and if E[X] >= mean their means are at most 1: W is a non-negative
supermartingale, and by Ville's inequality P(W_n >= 1/level for some n) <= level.  So is a mixture
W = sum_k w_k W^(k) of several bets with sum w_k <= 1, which loses at most log 1/w_k of the best
one's logarithm: bets a factor apart around what a pilot found best.  Bets are fixed before the
first X; when to stop may depend on everything seen.  docs/theory-verify.md has the proof, and the
measurements against Bernstein's and Bentkus's inequalities.

A logarithm log(1 + y), y = lam (mean - x): three operations give y up to a relative 2^-51, factors
stay above `LEAST`, so y / ((1 + y) log(1 + y)) <= 1 / `LEAST` and the logarithm has a relative
error below 2^-51 / LEAST + 2^-50 (log1p within four units in the last place) < `LOST`.  Sums are
`math.fsum`'s, rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mmcc._arrays import FloatArray

LEAST = 0.125
"""No bet lets a factor fall below this."""
LOST = 2.0**-46
"""Error of a sum of logarithms, relative to the sum of their absolute values."""
STEPS = (0.35, 0.6, 1.0, 1.7)
WEIGHTS = (0.125, 0.25, 0.5, 0.125)
"""Bets besides the one that a pilot found best, and the shares of wealth that they get."""
MISSED = 1e-9
"""How far the log wealth of a block of a record may exceed what its X can earn, relatively."""
SLACK = 1e-12
"""Relative error of the few operations on logarithms at the end."""


@dataclass(frozen=True, slots=True)
class Bets:
    """Bets against E[X] >= mean, fixed before the first X."""

    mean: float
    """The mean to be rejected, rounded down."""
    largest: float
    sizes: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        most = largest_bet(self.mean, self.largest)
        if not (
            0 < self.mean < self.largest < math.inf
            and len(self.sizes) == len(self.weights) > 0
            and all(0 <= size <= most for size in self.sizes)
            and all(weight > 0 for weight in self.weights)
            and math.fsum(self.weights) <= 1
        ):
            raise ValueError(f"these are no bets: {self}")

    def log_wealth(self, values: FloatArray, zeros: int = 0) -> list[float]:
        """For each bet the logarithm of its factors' product, rounded down; zeros are counted."""
        if not ((values >= 0) & (values <= self.largest)).all():
            raise ArithmeticError("a simulated value is outside its bounds: a bug, please report.")
        some = values[values > 0]  # most are 0 where delta is small
        zeros += values.size - some.size
        found = []
        for size in self.sizes:
            logs = np.log1p(size * (self.mean - some))
            none = zeros * math.log1p(size * self.mean)
            total = math.fsum((*logs.tolist(), none))
            sizes = math.fsum((*np.abs(logs).tolist(), none))
            found.append(math.nextafter(total - LOST * sizes, -math.inf))
        return found

    def can_earn(self, logs: Sequence[float], count: int, mass: float) -> bool:
        """Whether `count` X with the sum `mass` can have these log wealths: log is concave."""
        gap = self.mean - mass / count
        most = [count * math.log1p(size * gap) for size in self.sizes]
        some = len(logs) == len(most) and mass >= 0
        return some and all(
            log <= bound + MISSED * (1 + count * size * self.mean)
            for log, bound, size in zip(logs, most, self.sizes, strict=True)
        )

    def together(self, totals: Sequence[float]) -> float:
        """Log wealth of the mixture if that of each bet is at least this, rounded down."""
        peak = max(totals)
        mixed = math.fsum(
            weight * math.exp(total - peak)
            for weight, total in zip(self.weights, totals, strict=True)
        )
        found = peak + math.log(mixed)
        return found - SLACK * (1 + abs(peak) + abs(found))


def of_one_size(bets: Bets) -> bool:
    """Whether they are those of `bets_around` for some size, with nothing else chosen."""
    last = len(bets.sizes) - 1
    if last >= len(STEPS) or bets.weights != (*WEIGHTS[:last], sum(WEIGHTS[last:])):
        return False
    unit = bets.sizes[0] / STEPS[0]
    most = largest_bet(bets.mean, bets.largest)
    pairs = list(zip(bets.sizes, STEPS, strict=False))
    return all(
        math.isclose(size, step * unit, rel_tol=1e-9) or (place == last and size == most)
        for place, (size, step) in enumerate(pairs)
    )


def added(totals: Sequence[float], more: Sequence[float]) -> list[float]:
    """The sums, each rounded down."""
    return [math.nextafter(a + b, -math.inf) for a, b in zip(totals, more, strict=True)]


def needed(level: float) -> float:
    """The log wealth that rejects at a level, rounded up."""
    return -math.log(level) * (1 + SLACK)


def largest_bet(mean: float, largest: float) -> float:
    """The largest bet whose factors stay above `LEAST`, rounded down."""
    return (1 - LEAST) / (largest - mean) * (1 - 2.0**-50)


def best_bet(values: FloatArray, zeros: int, mean: float, largest: float) -> float:
    """The bet whose log wealth would have grown most on values and zeros; 0 if none would."""
    most = largest_bet(mean, largest)

    def growth(size: float) -> float:
        return float(np.log1p(size * (mean - values)).sum()) + zeros * math.log1p(size * mean)

    if values.sum() >= mean * (values.size + zeros):
        return 0.0
    found = optimize.minimize_scalar(
        lambda size: -growth(size),
        bounds=(0.0, most),
        method="bounded",
        options={"xatol": 1e-4 * most},
    )
    return float(min(max(found.x, 0.0), most))


def bets_around(size: float, mean: float, largest: float) -> Bets:
    """A few bets around one: the best in a pilot is not exactly the best."""
    most = largest_bet(mean, largest)
    shares: dict[float, float] = {}
    for step, weight in zip(STEPS, WEIGHTS, strict=True):
        bet = min(step * size, most)
        shares[bet] = shares.get(bet, 0.0) + weight
    return Bets(mean, largest, tuple(shares), tuple(shares.values()))
